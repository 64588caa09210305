"""The data sets that can be downloaded, as assets/datasets.toml has them, and how the files of each are laid out.

Each `_read_…` function takes the files of one data set and returns the training images, the test images and the class
names. It raises ValueError, with the name of the file, for files that are missing, damaged or laid out otherwise.
"""

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from vitbook._common.files import ASSETS, read_table
from vitbook._common.images import decode_image, to_tensor
from vitbook._downloads.archives import Files, open_files

Labeled = tuple[UInt8[Tensor, "N C H W"], Int64[Tensor, " N"]]  # images, 0 to 255, and indices into the class names
Parts = tuple[Labeled, Labeled, tuple[str, ...]]


@dataclass(frozen=True)
class Source:
    """A data set that can be downloaded."""

    name: str
    about: str
    files: dict[str, str]  # as published: name → SHA-256
    folder: str  # where people have them unpacked
    unpacked: int  # bytes that no archive of it exceeds once unpacked
    mirrors: Sequence[str]  # addresses of folders with these files, the first to be tried first
    read: Callable[[Files], Parts]

    def load(self, data_dir: str | Path | None = None, mirrors: Sequence[str] = (), progress: bool = True) -> Parts:
        """Training images, test images, class names: from the files in data_dir, or downloaded and verified.

        mirrors: addresses of folders to be tried before the known ones; progress: whether to show a bar. Of files in
        data_dir the layout is checked, the SHA-256 is not.

        Raises FileNotFoundError where data_dir lacks them, ConnectionError where no mirror has them whole, and
        ValueError where they are damaged or not laid out as they should be, with the name of the file.
        """
        if data_dir is None:
            from vitbook._downloads.fetching import fetch  # here: requests takes long to import, and few need it

            mirrors = (*mirrors, *self.mirrors)
            places = [fetch(name, sha256, mirrors, progress=progress) for name, sha256 in self.files.items()]
        else:
            places = self._places(Path(data_dir).expanduser())
        with open_files(places, self.unpacked) as files:
            return self.read(files)

    def _places(self, data_dir: Path) -> list[Path]:
        """The published files, or the folder they were unpacked to: in data_dir, or there in a folder of our name."""
        if data_dir.is_dir() and data_dir.absolute().as_posix().endswith(f"/{self.folder}"):
            return [data_dir]
        for place in (data_dir, data_dir / self.name):
            if (place / self.folder).is_dir():
                return [place / self.folder]
            for unpacked in ("", ".gz"):  # some browsers unpack a .gz unasked
                paths = [place / name.removesuffix(unpacked) for name in self.files]
                if all(path.is_file() for path in paths):
                    return paths
        wanted = " and ".join(self.files)
        raise FileNotFoundError(f"{self.name}: expected {wanted}, or the folder {self.folder}, in {data_dir}")


def _labeled(images: np.ndarray, labels: np.ndarray, class_names: Sequence[str], name: str) -> Labeled:
    """Images and their labels as tensors. Raises ValueError for a label too many, too few, or of no class."""
    if len(images) != len(labels) or not len(labels):
        raise ValueError(f"{name}: every image must have a label, got {len(images):,} and {len(labels):,} of them")
    if labels.max() >= len(class_names):
        raise ValueError(f"{name}: labels must lie in 0 … {len(class_names) - 1}, got {labels.max()}")
    return torch.from_numpy(images), torch.from_numpy(labels.astype(np.int64))


# CIFAR-10 and CIFAR-100, "binary version": https://www.cs.toronto.edu/~kriz/cifar.html

CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def _read_cifar10(files: Files) -> Parts:
    """Records of a label and the pixels; five files for training, one for testing, 10,000 records each."""
    class_names = tuple(files.text("batches.meta.txt").split())
    train = _read_records(files, [f"data_batch_{i}.bin" for i in range(1, 6)], 1, class_names)
    return train, _read_records(files, ["test_batch.bin"], 1, class_names), class_names


def _read_cifar100(files: Files) -> Parts:
    """Records of a coarse label, a fine label and the pixels; the fine labels are the classes."""
    class_names = tuple(files.text("fine_label_names.txt").split())
    train, test = (_read_records(files, [f"{part}.bin"], 2, class_names) for part in ("train", "test"))
    return train, test, class_names


def _read_records(files: Files, names: Sequence[str], num_labels: int, class_names: Sequence[str]) -> Labeled:
    """Files of records: labels, of which the last counts, and 3,072 bytes, a red, a green and a blue plane."""
    width, records = num_labels + 3 * 32 * 32, []
    for name in names:
        content = files.read(name)
        if not content or len(content) % width:
            raise ValueError(f"{files.place}: {name} must be records of {width:,} bytes, has {len(content):,} bytes")
        records.append(np.frombuffer(content, np.uint8).reshape(-1, width))
    labels = np.concatenate([record[:, num_labels - 1] for record in records])
    images = np.concatenate([record[:, num_labels:] for record in records]).reshape(-1, 3, 32, 32)
    return _labeled(images, labels, class_names, f"{files.place}: {' '.join(names)}")


# Fashion-MNIST, in the format of MNIST: https://github.com/zalandoresearch/fashion-mnist

FASHION_CLASSES = (
    "T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot",
)  # fmt: skip


def _read_fashion_mnist(files: Files) -> Parts:
    """Gray images of 28×28 pixels in one file, their labels in another."""
    parts = []
    for part in ("train", "t10k"):
        images = _read_idx(files, f"{part}-images-idx3-ubyte", (28, 28))
        labels = _read_idx(files, f"{part}-labels-idx1-ubyte", ())
        parts.append(_labeled(images[:, None], labels, FASHION_CLASSES, f"{files.place}: {part}-labels-idx1-ubyte"))
    return *parts, FASHION_CLASSES


def _read_idx(files: Files, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """An IDX file of N things of this shape, in unsigned bytes. uint8 (N, *shape).

    It begins with big-endian 32-bit numbers: 0x800 and the number of axes, then the length of each axis, N first.
    """
    content = files.read(name)
    header = struct.Struct(f">{len(shape) + 2}I")
    begin = content[: header.size]
    magic, count, *lengths = header.unpack(begin.ljust(header.size, b"\0"))
    if (magic, *lengths) != (0x801 + len(shape), *shape):
        wanted = "×".join(["N", *map(str, shape)])
        raise ValueError(f"{files.place}: {name} must be an IDX file of {wanted} bytes, begins with {begin.hex(' ')}")
    size = header.size + count * math.prod(shape)
    if len(content) != size:
        raise ValueError(f"{files.place}: {name} must have {size:,} bytes by its header, has {len(content):,}")
    return np.frombuffer(content, np.uint8, offset=header.size).reshape(count, *shape).copy()


# Tiny-ImageNet: http://cs231n.stanford.edu/2017/project.html


def _read_tiny_imagenet(files: Files) -> Parts:
    """JPEGs of 64×64 pixels, some of them gray; its validation images serve as test images.

    Differs: the set's own test images are left out, since their labels are not public.
    """
    ids = files.text("wnids.txt").split()  # the classes by their numbers in WordNet
    words = dict(line.split("\t", 1) for line in files.text("words.txt").splitlines() if "\t" in line)
    train = [(name, name.split("/")[1]) for name in files.names("train/", ".JPEG")]
    rows = (f"{line}\t".split("\t") for line in files.text("val/val_annotations.txt").splitlines())
    test = [(f"val/images/{row[0]}", row[1]) for row in rows]
    class_names = tuple(words.get(wnid, wnid).split(",")[0] for wnid in ids)
    return _read_jpegs(files, train, ids), _read_jpegs(files, test, ids), class_names


def _read_jpegs(files: Files, listed: list[tuple[str, str]], ids: list[str]) -> Labeled:
    """The images of these names, each with the number of its class."""
    label_of = {wnid: label for label, wnid in enumerate(ids)}
    images = np.empty((len(listed), 3, 64, 64), np.uint8)
    labels = np.empty(len(listed), np.int64)
    for i, (name, wnid) in enumerate(listed):
        if wnid not in label_of:
            raise ValueError(f"{files.place}: {name} must show one of the classes in wnids.txt, shows {wnid!r}")
        image = decode_image(files.read(name), f"{files.place}: {name}")
        if image.size != (64, 64):
            raise ValueError(f"{files.place}: {name} must be 64×64, is {image.height}×{image.width}")
        images[i], labels[i] = to_tensor(image), label_of[wnid]
    return _labeled(images, labels, ids, files.place)


_READERS = {
    "fashion_mnist": _read_fashion_mnist,
    "cifar10": _read_cifar10,
    "cifar100": _read_cifar100,
    "tiny_imagenet": _read_tiny_imagenet,
}
SOURCES = {
    name: Source(name, read=_READERS[name], **facts) for name, facts in read_table(ASSETS / "datasets.toml").items()
}

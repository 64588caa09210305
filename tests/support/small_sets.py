"""The downloadable data sets in their true formats, with few images: the files as published, and what is in them."""

import gzip
import hashlib
import io
import tarfile
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image

from vitbook._downloads.datasets import SOURCES

CIFAR10_CLASSES = "airplane automobile bird cat deer dog frog horse ship truck".split()
CIFAR100_CLASSES = [f"kind_{i}" for i in range(100)]
FASHION_CLASSES = "T-shirt/top trouser pullover dress coat sandal shirt sneaker bag".split() + ["ankle boot"]


@dataclass
class SmallSet:
    """A data set's published files, its files by their names once unpacked, and the images and names in it."""

    published: dict[str, bytes]
    unpacked: dict[str, bytes]
    train: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]
    class_names: tuple[str, ...]


def random_images(num_classes: int, each: int, *shape: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """`each` images of random bytes for every class, in a random order. uint8 (num_classes·each, *shape), int64."""
    random = np.random.RandomState(seed)
    labels = random.permutation(np.repeat(np.arange(num_classes), each))
    return random.randint(0, 256, (len(labels), *shape)).astype(np.uint8), labels


def tar_gz(folder: str, files: dict[str, bytes]) -> bytes:
    """The files in a folder, packed as `tar czf` does it."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as archive:
        top = tarfile.TarInfo(folder)
        top.type = tarfile.DIRTYPE
        archive.addfile(top)
        for name, content in files.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def zipped(folder: str, files: dict[str, bytes]) -> bytes:
    """The files in a folder, packed as `zip -r` does it."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.mkdir(folder)
        for name, content in files.items():
            archive.writestr(f"{folder}/{name}", content)
    return buffer.getvalue()


def cifar10() -> SmallSet:
    train, test = random_images(10, 4, 3, 32, 32, seed=1), random_images(10, 2, 3, 32, 32, seed=2)
    records = [bytes([label]) + image.tobytes() for image, label in zip(*train, strict=True)]
    files = {f"data_batch_{i + 1}.bin": b"".join(records[8 * i : 8 * i + 8]) for i in range(5)}
    files["test_batch.bin"] = b"".join(bytes([label]) + image.tobytes() for image, label in zip(*test, strict=True))
    files["batches.meta.txt"] = ("\n".join(CIFAR10_CLASSES) + "\n\n").encode()
    files["readme.html"] = b'<meta HTTP-EQUIV="REFRESH" content="0; url=http://www.cs.toronto.edu/~kriz/cifar.html">'
    archive = tar_gz("cifar-10-batches-bin", files)
    return SmallSet({"cifar-10-binary.tar.gz": archive}, files, train, test, tuple(CIFAR10_CLASSES))


def cifar100() -> SmallSet:
    train, test = random_images(100, 3, 3, 32, 32, seed=3), random_images(100, 1, 3, 32, 32, seed=4)
    files = {
        f"{name}.bin": b"".join(
            bytes([label // 5, label]) + image.tobytes() for image, label in zip(*part, strict=True)
        )
        for name, part in (("train", train), ("test", test))
    }
    files["coarse_label_names.txt"] = "".join(f"group_{i}\n" for i in range(20)).encode()
    files["fine_label_names.txt"] = "".join(f"{name}\n" for name in CIFAR100_CLASSES).encode()
    archive = tar_gz("cifar-100-binary", files)
    return SmallSet({"cifar-100-binary.tar.gz": archive}, files, train, test, tuple(CIFAR100_CLASSES))


def idx(array: np.ndarray) -> bytes:
    """An IDX file of unsigned bytes."""
    lengths = b"".join(length.to_bytes(4, "big") for length in array.shape)
    return bytes([0, 0, 8, array.ndim]) + lengths + array.astype(np.uint8).tobytes()


def fashion_mnist() -> SmallSet:
    train, test = random_images(10, 4, 1, 28, 28, seed=5), random_images(10, 2, 1, 28, 28, seed=6)
    files = {
        "train-images-idx3-ubyte": idx(train[0][:, 0]),
        "train-labels-idx1-ubyte": idx(train[1]),
        "t10k-images-idx3-ubyte": idx(test[0][:, 0]),
        "t10k-labels-idx1-ubyte": idx(test[1]),
    }
    published = {f"{name}.gz": gzip.compress(content, 1) for name, content in files.items()}
    return SmallSet(published, files, train, test, tuple(FASHION_CLASSES))


def jpeg(image: np.ndarray) -> bytes:
    """An image, uint8 (H, W, 3) or gray (H, W), as a JPEG."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "JPEG", quality=95)
    return buffer.getvalue()


def shown(content: bytes) -> np.ndarray:
    """What a JPEG shows. uint8 (3, H, W)."""
    return np.asarray(Image.open(io.BytesIO(content)).convert("RGB")).transpose(2, 0, 1)


def tiny_imagenet() -> SmallSet:
    """Three classes, listed in another order than their numbers sort; every third image is gray."""
    ids, class_names = ["n03", "n01", "n02"], ("lion", "fox", "bullfrog")
    words = 'n01\tfox\nn02\tbullfrog, Rana catesbeiana\nn03\tlion, king of beasts\nn99\ta "word" of no class\n'
    random = np.random.RandomState(7)
    shades = [random.randint(0, 256, (8, 8) if i % 3 == 0 else (8, 8, 3)).astype(np.uint8) for i in range(19)]
    jpegs = [jpeg(shade.repeat(8, axis=0).repeat(8, axis=1)) for shade in shades]
    train = [(f"train/{wnid}/images/{wnid}_{i}.JPEG", wnid) for wnid in sorted(ids) for i in range(4)]
    test = [(f"val_{i}.JPEG", ids[i % 3]) for i in (4, 0, 5, 3, 1, 2)]
    files = {"wnids.txt": "\n".join(ids).encode(), "words.txt": words.encode()}
    files |= {f"train/{wnid}/{wnid}_boxes.txt": b"" for wnid in ids}
    files |= {name: content for (name, _), content in zip(train, jpegs[:12], strict=True)}
    files |= {f"val/images/{name}": content for (name, _), content in zip(test, jpegs[12:18], strict=True)}
    files["val/val_annotations.txt"] = "".join(f"{name}\t{wnid}\t0\t0\t63\t63\n" for name, wnid in test).encode()
    files["test/images/test_0.JPEG"] = jpegs[18]
    return SmallSet(
        {"tiny-imagenet-200.zip": zipped("tiny-imagenet-200", files)},
        files,
        (np.stack([shown(content) for content in jpegs[:12]]), np.array([ids.index(wnid) for _, wnid in train])),
        (np.stack([shown(content) for content in jpegs[12:18]]), np.array([ids.index(wnid) for _, wnid in test])),
        class_names,
    )


SMALL_SETS = {make.__name__: make() for make in (fashion_mnist, cifar10, cifar100, tiny_imagenet)}


def put_in_place(monkeypatch, *mirrors: str) -> None:
    """Let every source publish its small set, at these mirrors alone."""
    for name, small in SMALL_SETS.items():
        files = {file: hashlib.sha256(content).hexdigest() for file, content in small.published.items()}
        monkeypatch.setitem(SOURCES, name, replace(SOURCES[name], files=files, mirrors=mirrors))


def unpack(small: SmallSet, folder: Path) -> Path:
    """Write a set's unpacked files to a folder."""
    for name, content in small.unpacked.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder

"""Pictures to learn from and to look at: every data set in one form, from one function."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import resources
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_digits, load_sample_image
from sklearn.model_selection import train_test_split
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset, default_collate

from vitbook._support.images import crop_and_scale, read_picture, to_tensor
from vitbook._support.names import unknown
from vitbook._support.validation import check_floats, check_kind, check_numbers, check_shape, check_sizes, check_tensors
from vitbook.downloads.datasets import CIFAR10_CLASSES, SOURCES

PHOTOGRAPHS = ("china", "flower", "portrait")
LITTER = ("Thumbs.db", "desktop.ini")  # Windows leaves these in folders; what other systems leave begins with a dot
PARTS = {"train", "val", "valid", "validation", "test"}  # some data sets keep the folders of the classes in these


@dataclass(frozen=True)
class Split:
    """Some of a data set's pictures, and what they show."""

    images: Tensor  # uint8 (N, C, H, W), 0 to 255
    labels: Tensor  # int64 (N,), indices into class_names

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, chosen: np.ndarray) -> "Split":
        """The pictures for which `chosen`, bool (N,), is True. Raises ValueError for anything else."""
        chosen = np.asarray(chosen)
        if chosen.dtype != bool or chosen.shape != (len(self),):
            raise ValueError(f"chosen must be bool of shape (N,) = ({len(self)},), got {chosen.dtype} {chosen.shape}")
        index = torch.from_numpy(np.flatnonzero(chosen))
        return Split(self.images[index], self.labels[index])


@dataclass(frozen=True)
class Dataset:
    """Pictures to train on, pictures to test on, and the names of their classes."""

    name: str
    train: Split
    test: Split  # to be used once, at the end
    class_names: tuple[str, ...]
    validation: Split | None = None  # taken out of the training pictures, to choose by
    given_moments: tuple[Tensor, Tensor] | None = None  # mean and std to normalise by, where not the pictures' own

    @property
    def mean(self) -> Tensor:
        """Mean of each channel over the training pictures, or the one given, in units of white = 1. (C,)"""
        return self.moments[0]

    @property
    def std(self) -> Tensor:
        """Standard deviation of each channel, likewise; 1 where a channel has one level alone. (C,)"""
        return self.moments[1]

    @cached_property
    def moments(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation, counted once. (C,), (C,)"""
        if self.given_moments:
            return self.given_moments
        mean, std = mean_and_std(self.train.images)
        return mean, torch.where(std > 0, std, 1.0)  # of one level alone there is nothing to scale

    def with_validation(self, fraction: float, seed: int = 0) -> "Dataset":
        """The same data set with a share of every class of its training pictures set apart; `seed` says which.

        Raises ValueError unless 0 < fraction < 1 and every class has two training pictures at least.
        """
        train, validation = split_at_random(self.train, fraction, seed, self.class_names)
        return replace(self, train=train, validation=validation)

    def with_share(self, share: float, seed: int = 0, length: int | None = None) -> "Dataset":
        """The same data set with a share of every class of its training pictures, repeated in turn.

        length: how many training pictures there are then; as many as before, if not given, so that an epoch stays as
        long. `seed` says which are taken. Raises ValueError unless 0 < share ≤ 1 and length is 1 or more, and as
        `with_validation` does.
        """
        few = self.train if share == 1 else split_at_random(self.train, share, seed, self.class_names)[1]
        length = len(self.train) if length is None else length
        check_sizes(length=length)
        index = torch.arange(length) % len(few)
        return replace(self, train=Split(few.images[index], few.labels[index]))

    def normalise(self, images: Tensor) -> Tensor:
        """Pictures as a model wants them: each channel with the training set's mean at 0 and its deviation at 1.

        uint8 (B, C, H, W) → float32 (B, C, H, W).
        """
        return normalise(images, self.mean, self.std)

    def loader(self, split: Split, batch_size: int, shuffle: bool = False, seed: int = 0) -> DataLoader:
        """Batches of normalised pictures and labels from a split: float32 (B, C, H, W) and int64 (B,).

        shuffle: a new order in each epoch, from `seed`, so that every run sees the same orders. The last batch is as
        large as what is left.
        """

        def batch(pairs: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
            images, labels = default_collate(pairs)
            return self.normalise(images), labels

        generator = torch.Generator().manual_seed(seed)
        pairs = TensorDataset(split.images, split.labels)
        return DataLoader(pairs, batch_size, shuffle=shuffle, generator=generator, collate_fn=batch)


def mean_and_std(images: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each channel, in units of white = 1. uint8 (N, C, H, W) → (C,), (C,), on the CPU.

    How often each of the 256 levels occurs says it all: an exact count, and no picture is turned into floating point.
    """
    check_shape("images", images, "N", "C", "H", "W")
    if images.dtype != torch.uint8 or not images.numel():
        got = f"{images.dtype} of shape {tuple(images.shape)}"
        raise ValueError(f"images must be uint8, 0 to 255, and at least one pixel, got {got}")
    level = torch.arange(256, dtype=torch.float64) / 255
    counts = torch.stack([torch.bincount(channel.flatten(), minlength=256) for channel in images.unbind(dim=1)])
    counts = counts.cpu()
    share = counts.double() / counts.sum(dim=1, keepdim=True)  # (C, 256)
    mean = share @ level
    variance = (share * (level - mean[:, None]) ** 2).sum(dim=1)
    return mean.float(), variance.sqrt().float()


def normalise(images: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """(x/255 − mean) / std for each channel. uint8 (B, C, H, W), (C,), (C,) → float32 (B, C, H, W).

    std has to lie above 0, which is not checked. Raises ValueError for pictures that are not uint8 or have another
    number of channels.
    """
    check_tensors(images=images)
    check_floats(mean=mean, std=std)
    check_shape("mean", mean, "C")
    check_shape("std", std, *mean.shape)
    if images.dtype != torch.uint8:
        raise ValueError(f"images must be uint8, 0 to 255, got {images.dtype}")
    if images.ndim != 4 or images.shape[1] != len(mean):
        raise ValueError(f"images must have shape (B, C, H, W) with C = {len(mean)}, got {tuple(images.shape)}")
    mean, std = (channel.to(images.device)[:, None, None] for channel in (mean, std))
    return (images.float() / 255 - mean) / std


def split_at_random(split: Split, fraction: float, seed: int, class_names: Sequence[str]) -> tuple[Split, Split]:
    """The pictures in two parts, the second with that share of every class, and one picture of it at least.

    Which ones depends on `seed` alone; both parts keep the order. Raises ValueError unless 0 < fraction < 1 and every
    class has two pictures at least.
    """
    check_numbers(fraction=fraction)
    check_sizes(0, seed=seed)
    if not 0 < fraction < 1:
        raise ValueError(f"the share to set apart must lie between 0 and 1, got {fraction}")
    random = np.random.RandomState(seed)  # numpy promises that its numbers never change
    labels = split.labels.cpu().numpy()
    apart = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        members = random.permutation(np.flatnonzero(labels == label))
        if len(members) < 2:
            raise ValueError(f"class {class_names[label]!r} has one picture left, which cannot be in two parts")
        apart[members[: min(max(1, round(fraction * len(members))), len(members) - 1)]] = True
    return split.select(~apart), split.select(apart)


def load_dataset(
    name: str | Path,
    data_dir: str | Path | None = None,
    *,
    validation: float = 0.1,
    seed: int = 0,
    image_size: int | None = None,
    mirrors: Sequence[str] = (),
    progress: bool = True,
) -> Dataset:
    """A data set by name, with pictures to train on, to choose by and to test on.

    name: "digits", "fashion_mnist", "cifar10", "cifar100", "tiny_imagenet", or a folder of your own pictures with a
        sub-folder for each class.
    data_dir: where the data set's files lie already, packed or unpacked. Without it, those that do not come with the
        package are downloaded once, verified, and kept in `vitbook.downloads.fetching.cache_dir()`.
    validation: the share of the training pictures that is set apart, 0 for none; `seed` says which. The test pictures
        are always the same.
    image_size: for a folder of your own, the side in pixels to which each picture is cropped and scaled; 64 if not
        given.
    mirrors: addresses of folders to download from, tried before those that are known; progress: whether to show a bar.

    Raises ValueError for an unknown name (with the nearest) and for files that are not what they should be (with the
    file, what was expected and what was found); FileNotFoundError where data_dir has them not; ConnectionError where no
    mirror has them (with what to put where).
    """
    name = str(name)
    folder = Path(data_dir or "", name).expanduser()
    if image_size is not None and name in ("digits", *SOURCES):
        raise ValueError(f"image_size is for folders of your own pictures; those of {name} have the size they have")
    if name == "digits":
        dataset = digits()
    elif name in SOURCES:
        train, test, class_names = SOURCES[name].load(data_dir, mirrors, progress)
        dataset = Dataset(name, Split(*train), Split(*test), class_names)
    elif folder.is_dir():
        dataset = load_folder(folder, 64 if image_size is None else image_size)
    else:
        raise ValueError(unknown("data set", name, ("digits", *SOURCES)) + " Or name a folder of pictures.")
    return dataset.with_validation(validation, seed) if validation else dataset


def digits(test_fraction: float = 0.2, seed: int = 0) -> Dataset:
    """1,797 handwritten digits of 8×8 grey pixels, in ten classes, split at random with every class in proportion.

    The test part of the UCI "Optical Recognition of Handwritten Digits" set (Alpaydin and Kaynak 1998), as it comes
    with scikit-learn. Grey levels 0 to 16 are stretched to 0 to 255.
    """
    raw = load_digits()
    images = torch.from_numpy(np.round(raw.images * (255 / 16)).astype(np.uint8)).unsqueeze(1)
    labels = torch.from_numpy(raw.target.astype(np.int64))
    train, test = train_test_split(
        np.arange(len(labels)), test_size=test_fraction, stratify=raw.target, random_state=seed
    )
    names = tuple(str(name) for name in raw.target_names)
    return Dataset("digits", Split(images[train], labels[train]), Split(images[test], labels[test]), names)


def load_folder(folder: Path, image_size: int = 64, test_fraction: float = 0.2, seed: int = 0) -> Dataset:
    """Your own pictures, of any size and kind: a sub-folder for each class, named like it, with its pictures in it.

    Of each picture the middle square is taken and scaled to image_size pixels. A share of every class, chosen by
    `seed`, is for testing. Files and folders whose names begin with a dot are passed over.

    Raises ValueError for fewer than two classes, for sub-folders such as train and test, for a class of fewer than two
    pictures, and for a file that is no picture; FileNotFoundError for a link that leads nowhere.
    """
    check_sizes(image_size=image_size)
    classes = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if len(classes) < 2:
        raise ValueError(f"{folder} should have a sub-folder for each of two or more classes, has {len(classes)}")
    if PARTS.issuperset(classes):
        raise ValueError(
            f"{folder} should have a sub-folder for each class, has one for each part, {classes}: name one"
        )
    images, labels = [], []
    for label, name in enumerate(classes):
        files = picture_files(folder / name)
        if len(files) < 2:
            raise ValueError(f"{folder / name} should have two pictures at least, has {len(files)}")
        pictures = (read_picture(file.read_bytes(), str(file)) for file in files)
        images += [to_tensor(crop_and_scale(picture, image_size, image_size)) for picture in pictures]
        labels += [label] * len(files)
    everything = Split(torch.stack(images), torch.tensor(labels))
    train, test = split_at_random(everything, test_fraction, seed, classes)
    return Dataset(folder.resolve().name, train, test, tuple(classes))


def picture_files(folder: Path) -> list[Path]:
    """The files in a folder and those below it, sorted, without what systems leave there unasked."""
    files = (file for file in folder.rglob("*") if not file.is_dir())  # a link that leads nowhere is for an error
    shown = (file for file in files if not any(part.startswith(".") for part in file.relative_to(folder).parts))
    ours = (file for file in shown if file.name not in LITTER)
    return sorted(ours, key=Path.as_posix)  # the same order on every system


def photograph(name: str) -> Tensor:
    """One of three photographs, by name. uint8 (3, H, W).

    "china", 427×640: the Summer Palace in Beijing, © Rob Hulatt, CC BY 2.0; "flower", 427×640: a dahlia, © dany13,
    CC BY 2.0; both come with scikit-learn. "portrait", 224×224: the astronaut Eileen Collins, NASA, public domain.
    Raises ValueError for another name.
    """
    check_kind(str, name=name)
    if name not in PHOTOGRAPHS:
        raise ValueError(f"photograph must be one of {', '.join(PHOTOGRAPHS)}, got {name!r}")
    if name == "portrait":
        return to_tensor(read_picture(asset("portrait.jpg"), "portrait.jpg"))
    return to_tensor(load_sample_image(f"{name}.jpg"))


def album(size: int = 32) -> Split:
    """22 photographs of what CIFAR-10's classes name, not taken from CIFAR-10: some to try a trained model on.

    images: uint8 (22, 3, size, size), each a square about its subject, scaled down from 128×128 pixels by the mean of
    the area that a new pixel covers; labels: indices into `vitbook.downloads.datasets.CIFAR10_CLASSES`, ascending, each
    class at least once. `album_credits` says, in the same order, who took them and under which licence.

    Raises ValueError unless 1 ≤ size ≤ 128.
    """
    check_sizes(None, size=size)
    if not 1 <= size <= 128:
        raise ValueError(f"size must lie in 1 … 128, got {size}")
    images, labels = [], []
    for entry in album_credits():
        picture = read_picture(asset(f"album/{entry['file']}"), entry["file"])
        images.append(to_tensor(picture.resize((size, size), Image.Resampling.BOX)))
        labels.append(CIFAR10_CLASSES.index(entry["label"]))
    return Split(torch.stack(images), torch.tensor(labels))


def album_credits() -> list[dict]:
    """Where each picture of the album is from, and under which licence, in the album's order.

    Keys: file; label, a class of CIFAR-10; title; author; licence, SPDX's short name or "public domain"; source, the
    package it was taken from; original, an address or None; crop, (left, top, right, bottom) in pixels of the source,
    white beyond its edges; changes.
    """
    return json.loads(asset("album/credits.json"))


def asset(name: str) -> bytes:
    """A file that comes with the package."""
    return resources.files("vitbook").joinpath(f"assets/{name}").read_bytes()

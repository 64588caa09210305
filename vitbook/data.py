"""Pictures to learn from and to look at, all of them at hand without a network."""

from dataclasses import dataclass
from functools import cached_property
from importlib import resources

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_digits, load_sample_image
from sklearn.model_selection import train_test_split
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

PHOTOGRAPHS = ("china", "flower", "portrait")


@dataclass(frozen=True)
class Split:
    """Some of a data set's pictures, and what they show."""

    images: Tensor  # uint8 (N, C, H, W), 0 to 255
    labels: Tensor  # int64 (N,), indices into class_names

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Dataset:
    """Pictures to train on, pictures to test on, and the names of their classes."""

    name: str
    train: Split
    test: Split
    class_names: tuple[str, ...]

    @cached_property
    def mean(self) -> Tensor:
        """Mean of each channel over the training pictures, in units of white = 1. (C,)"""
        return (self.train.images.double() / 255).mean(dim=(0, 2, 3)).float()

    @cached_property
    def std(self) -> Tensor:
        """Standard deviation of each channel over the training pictures, in units of white = 1. (C,)"""
        return (self.train.images.double() / 255).std(dim=(0, 2, 3), correction=0).float()

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
        pairs = TensorDataset(self.normalise(split.images), split.labels)
        return DataLoader(pairs, batch_size, shuffle=shuffle, generator=torch.Generator().manual_seed(seed))


def normalise(images: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """(x/255 − mean) / std for each channel. uint8 (B, C, H, W), (C,), (C,) → float32 (B, C, H, W).

    Raises ValueError for pictures that are not uint8 or have another number of channels.
    """
    if images.dtype != torch.uint8:
        raise ValueError(f"images must be uint8, 0 to 255, got {images.dtype}")
    if images.ndim != 4 or images.shape[1] != len(mean):
        raise ValueError(f"images must have shape (B, C, H, W) with C = {len(mean)}, got {tuple(images.shape)}")
    mean, std = (channel.to(images.device)[:, None, None] for channel in (mean, std))
    return (images.float() / 255 - mean) / std


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


def photograph(name: str) -> Tensor:
    """One of three photographs, by name. uint8 (3, H, W).

    "china", 427×640: the Summer Palace in Beijing, © Rob Hulatt, CC BY 2.0; "flower", 427×640: a dahlia, © dany13,
    CC BY 2.0; both come with scikit-learn. "portrait", 224×224: the astronaut Eileen Collins, NASA, public domain.
    Raises ValueError for another name.
    """
    if name not in PHOTOGRAPHS:
        raise ValueError(f"photograph must be one of {', '.join(PHOTOGRAPHS)}, got {name!r}")
    if name == "portrait":
        with resources.files("vitbook").joinpath("assets/portrait.jpg").open("rb") as file:
            pixels = np.asarray(Image.open(file).convert("RGB"))
    else:
        pixels = load_sample_image(f"{name}.jpg")
    return torch.from_numpy(pixels.copy()).permute(2, 0, 1).contiguous()

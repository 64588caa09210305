"""Photographs that stay in their files: an index of them, and crops that are decoded as they are needed.

Which crop of an image is drawn depends on the seed, the epoch and the image alone, so that it does not matter which
process draws it, how many there are, or where a training run was interrupted.
"""

import hashlib
import math
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader

from vitbook._common.images import Box, image_facts, read_crop, read_levels

SCALE, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)  # timm's and torchvision's: share of the area, width over height
_TRIES = 10  # as there

Key = tuple[int, tuple[int, ...] | None]  # an image's place, and the numbers from which its crop is drawn; None: middle


def random_resized_crop(height: int, width: int, random: np.random.RandomState) -> Box:
    """A rectangle of an image, to be scaled to the model's size: left, top, right and bottom in pixels.

    A share of the area, drawn uniformly from `SCALE`, in proportions whose logarithm is drawn uniformly from `RATIO`;
    where ten of these do not fit, the largest middle whose proportions do. Szegedy et al. 2015; as in torchvision.
    """
    for _ in range(_TRIES):
        area = height * width * random.uniform(SCALE[0], SCALE[1])
        ratio = math.exp(random.uniform(math.log(RATIO[0]), math.log(RATIO[1])))
        across, down = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < across <= width and 0 < down <= height:
            top, left = random.randint(height - down + 1), random.randint(width - across + 1)
            return left, top, left + across, top + down
    return _middle(height, width, *RATIO)


def _middle(height: int, width: int, lowest: float = 1.0, highest: float = 1.0) -> Box:
    """The largest middle of an image whose width over height lies in these bounds."""
    ratio = min(max(width / height, lowest), highest)
    across, down = min(width, height * ratio), min(height, width / ratio)
    left, top = (width - across) / 2, (height - down) / 2
    return left, top, left + across, top + down


@dataclass(frozen=True)
class ImageFiles:
    """Photographs in files, each seen as a square of `side` pixels, uint8 (C, side, side).

    `images[3]` decodes the middle of one. `images[index]`, with a slice or a tensor of numbers, is an `ImageFiles` of
    those, and decodes nothing. Reading raises ValueError for a file that has changed since it was listed.
    """

    paths: np.ndarray  # (N,) of str
    bytes: np.ndarray  # (N,), the sizes of the files
    channels: int
    side: int
    folder: Path  # what the fingerprint calls them below
    workers: int = 0  # processes that decode; 0 for the one that asks

    @classmethod
    def listed(cls, files: Sequence[Path], side: int, folder: Path, workers: int | None = None) -> "ImageFiles":
        """These files, whose headers alone are read.

        Raises ValueError for one that is no image, and for one of other channels than the first.
        """
        facts = [image_facts(file) for file in files]
        for file, (_, _, channels) in zip(files, facts, strict=True):
            if channels != facts[0][2]:
                first = f"{files[0]} has {facts[0][2]}: all must have as many"
                raise ValueError(f"{file} has {channels} channels, {first}")
        sizes = np.array([file.stat().st_size for file in files])
        workers = min(os.cpu_count() or 1, 8) if workers is None else workers
        return cls(np.array([str(file) for file in files], object), sizes, facts[0][2], side, folder, workers)

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def shape(self) -> torch.Size:
        """As of the tensor of them all."""
        return torch.Size((len(self), self.channels, self.side, self.side))

    def __getitem__(self, chosen: int | slice | Tensor) -> "Tensor | ImageFiles":
        if isinstance(chosen, int):
            return torch.from_numpy(self.read((chosen, None)))
        index = chosen if isinstance(chosen, slice) else chosen.cpu().numpy()
        return replace(self, paths=self.paths[index], bytes=self.bytes[index])

    def read(self, key: Key) -> UInt8[np.ndarray, "C side side"]:
        """One image: the middle, scaled as `center_crop` does it, or a random resized crop, with bilinear weights."""
        place, drawn = key
        kernel = "BICUBIC" if drawn is None else "BILINEAR"
        return read_crop(Path(self.paths[place]), partial(_box, drawn), self.side, kernel, int(self.bytes[place]))

    def load(self) -> UInt8[Tensor, "N C side side"]:
        """The middle of each, in memory."""
        return torch.cat(list(self.split(256)))

    def split(self, size: int) -> Iterator[UInt8[Tensor, "batch C side side"]]:
        """The middle of each, this many at a time."""
        yield from (images for (images,) in middles(size, self))

    def fingerprint(self) -> str:
        """The SHA-256 of their names below the folder, and of the sizes of the files."""
        names = [os.path.relpath(path, self.folder).replace(os.sep, "/") for path in self.paths]
        lines = "".join(f"{name}\0{size}\n" for name, size in zip(names, self.bytes, strict=True))
        return hashlib.sha256(lines.encode("utf-8", "surrogateescape")).hexdigest()


def _box(drawn: tuple[int, ...] | None, height: int, width: int) -> Box:
    """What is seen of an image of this size."""
    return _middle(height, width) if drawn is None else random_resized_crop(height, width, random_from(*drawn))


class MaskFiles(ImageFiles):
    """Masks in files, each of which is (side, side): a number a pixel, that of the nearest pixel in the file."""

    @property
    def shape(self) -> torch.Size:
        return torch.Size((len(self), self.side, self.side))

    def read(self, key: Key) -> UInt8[np.ndarray, "side side"]:
        """One mask: what a photograph of the same size shows by the same key."""
        place, drawn = key
        levels = read_levels(Path(self.paths[place]), int(self.bytes[place]))
        sides, box = (self.side, self.side), _box(drawn, *levels.shape)
        return np.array(Image.fromarray(levels).resize(sides, Image.Resampling.NEAREST, box))


def count_levels(images: ImageFiles, masks: ImageFiles) -> Int64[np.ndarray, "N 256"]:
    """How many pixels of each mask have each level. Every mask is read for that, by as many processes as masks are.

    Raises ValueError for a mask of another size than its photograph, and as `read_levels`.
    """
    pairs = list(zip(images.paths, masks.paths, strict=True))
    counts = np.empty((0, 256), np.int64)
    for found in in_processes(_count, pairs, masks.workers):
        if isinstance(found, Exception):
            raise found
        counts = np.concatenate([counts, found])
    return counts


def _count(pairs: list[tuple[str, str]]) -> np.ndarray | Exception:
    """What a process of `count_levels` finds in some masks."""
    counts = np.empty((len(pairs), 256), np.int64)
    try:
        for row, (image, mask) in zip(counts, pairs, strict=True):
            (height, width, _), levels = image_facts(Path(image)), read_levels(Path(mask))
            if levels.shape != (height, width):
                size = "{}×{}".format(*levels.shape)
                raise ValueError(f"{mask} is {size} pixels (height×width), {image} is {height}×{width}")
            row[:] = Image.fromarray(levels).histogram()
    except (ValueError, OSError) as error:
        return error
    return counts


def in_processes(work: Callable[[list], Any], items: Sequence, workers: int, at_once: int = 32) -> Iterator[Any]:
    """What `work` gives for the items, this many at a time, in their order, by so many processes; by this one for 0."""
    yield from DataLoader(cast(Any, items), at_once, num_workers=workers, collate_fn=work, **_QUIETLY)


def random_from(*numbers: int) -> np.random.RandomState:
    """Random numbers that depend on these alone; numpy promises that they never change."""
    return np.random.RandomState(np.random.SeedSequence(numbers).generate_state(8))


class Reader:
    """Batches of images, and of their masks, decoded ahead by processes of its own, which stay until it is closed."""

    def __init__(self, *files: ImageFiles):
        self.batches: list[list[Key]] = []
        workers = files[0].workers
        some: dict[str, Any] = dict(num_workers=workers, persistent_workers=workers > 0, collate_fn=list)
        self.loader = DataLoader(_Files(files), batch_sampler=self.batches, **some, **_QUIETLY)

    def close(self) -> None:
        """End the processes. The garbage collector would do it, too, but wait five seconds for each (torch 2.13)."""
        del self.loader

    def read(self, batches: Sequence[list[Key]]) -> Iterator[tuple[UInt8[Tensor, "batch ..."], ...]]:
        """These batches of each kind, in this order. Raises what reading a file raises."""
        self.batches[:] = batches
        for batch in self.loader:
            for read in batch:
                if isinstance(read, Exception):  # the loader would put its own traceback in front of it
                    raise read
            yield tuple(torch.from_numpy(np.stack(kind)) for kind in zip(*batch, strict=True))


def middles(size: int, *files: ImageFiles) -> Iterator[tuple[UInt8[Tensor, "batch ..."], ...]]:
    """The middle of each image, and of its mask, this many at a time."""
    every: list[Key] = [(place, None) for place in range(len(files[0]))]
    with closing(Reader(*files)) as reader:
        yield from reader.read([every[start : start + size] for start in range(0, len(every), size)])


class _Files(torch.utils.data.Dataset):
    """What a process reads. Arrays, which go through a pipe: shared memory is small in many containers."""

    def __init__(self, files: Sequence[ImageFiles]):
        self.files = files

    def __getitem__(self, key: Key) -> tuple[np.ndarray, ...] | Exception:
        try:
            return tuple(some.read(key) for some in self.files)
        except (ValueError, OSError) as error:
            return error


def _be_quiet(_: int) -> None:
    """Ctrl-C is for the process that asks, which ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


# without a generator, a loader would draw from the caller's random numbers
_QUIETLY: dict[str, Any] = dict(worker_init_fn=_be_quiet, generator=torch.Generator())

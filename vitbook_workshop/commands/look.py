"""A look at a folder of photographs before training: counts, sizes, broken files, copies, and copies that leak.

A leak is a photograph in the training images whose copy is among those to test on: the test then asks for what was
learned by heart.
"""

import hashlib
import os
import statistics
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float
from PIL import Image
from torch import Tensor

from vitbook._common.files import read_whole
from vitbook._common.images import Pixels, decode_reduced, looks_like_image
from vitbook.data import TEST_SHARE, classes_in, drawn_apart, groups_of, masks_in, parts_in
from vitbook.image_files import in_processes
from vitbook.targets import IGNORED

BITS = 8  # of 64, by which the hashes of near copies differ at most; two photographs differ by 32 on average
LEVELS = 6  # of 255, by which their grays differ at most on average: plain backgrounds have much the same hash
DARK = 64  # of 255: a photograph without a brighter pixel is shown
FEW = 500  # files that are not worth processes of their own
SMALLEST = 128  # pixels of a JPEG's shorter side that are decoded at least: more than all that is compared
SHOWN = 5  # files or pairs of each kind that a report names


def difference_hash(image: Image.Image) -> Bool[Tensor, " 64"]:
    """Where an image gets darker from left to right, at 8×8 places: much the same for a smaller or recompressed copy.

    It is scaled to 8 rows of 9 gray pixels, and each is compared with the next in its row (Krawetz 2013, "dHash"). A
    mirrored, turned or cropped copy has another hash.
    """
    gray = _gray(image, 9).unflatten(0, (8, 9))
    return (gray[:, 1:] < gray[:, :-1]).flatten()


def _gray(image: Image.Image, columns: int) -> Float[Tensor, " places"]:
    """The mean level of each place, 0 to 255, in 8 rows."""
    small = image.convert("L").resize((columns, 8), Image.Resampling.BOX)
    return torch.from_numpy(np.asarray(small, dtype=np.float32)).flatten()


def _flat(pixels: Pixels) -> Image.Image:
    """Pixels of any number of channels as an image; of more than three, their mean."""
    if isinstance(pixels, Image.Image):
        return pixels
    return Image.fromarray(pixels.mean(axis=2).astype(np.uint8))


@dataclass(frozen=True)
class Photograph:
    """One file that could be read."""

    path: Path  # below the folder
    class_name: str
    part: str  # "train" or "test", as `vitbook train` draws them, or the sub-folder's own name
    size: tuple[int, int]  # height and width in pixels
    digest: str  # SHA-256 of the file
    hash: Bool[Tensor, " 64"]  # see `difference_hash`
    gray: Float[Tensor, " 64"]  # the mean level of 8×8 places
    channels: int = 3
    brightest: int = 255  # the highest level, 0 to 255
    group: str = ""  # what must not be in two parts, if a pattern says so
    said: str = ""  # of levels that were taken for others than 16-bit ones


@dataclass(frozen=True)
class Look:
    """What there is in a folder of photographs."""

    photographs: tuple[Photograph, ...]
    broken: tuple[str, ...]  # files that cannot be read, and why; classes without two that can
    pairs: tuple[tuple[Photograph, Photograph], ...]  # each copy, exact or near, and the first that it is a copy of
    loose: tuple[str, ...] = ()  # image files beside the folders of the classes

    @property
    def leaks(self) -> list[tuple[Photograph, Photograph]]:
        """The copies in other parts than their originals."""
        return [pair for pair in self.pairs if pair[0].part != pair[1].part]

    def lines(self) -> Iterator[str]:
        """A report."""
        counts = Counter(photo.class_name for photo in self.photographs)
        parts = list(dict.fromkeys(photo.part for photo in self.photographs))
        sizes = sorted((photo.size for photo in self.photographs), key=lambda size: size[0] * size[1])
        yield f"{len(counts)} classes, {len(self.photographs)} photographs"
        for name, count in counts.most_common():
            each = Counter(photo.part for photo in self.photographs if photo.class_name == name)
            yield f"  {name:<20} {count:>6}   " + ", ".join(f"{part} {each[part]}" for part in parts)
        most, largest = counts.most_common(1)[0]
        yield f"always answering {most} would be right for {largest / len(self.photographs):.0%}"
        shorter = statistics.median_low(min(size) for size in sizes)
        smallest, biggest = (f"{height}×{width}" for height, width in (sizes[0], sizes[-1]))
        yield f"sizes: {smallest} to {biggest} pixels (height×width), the median of the shorter side is {shorter}"
        dark = [f"{photo.path} up to {photo.brightest}" for photo in self.photographs if photo.brightest < DARK]
        usual = statistics.median_low(photo.brightest for photo in self.photographs)
        yield f"levels: 0 to 255, of which the median photograph uses up to {usual}"
        scaled = [f"{photo.path}: {photo.said}" for photo in self.photographs if photo.said]
        many = Counter(photo.channels for photo in self.photographs)
        torn_channels = [f"{photo.path} has {photo.channels} channels" for photo in self.photographs]
        torn_channels = torn_channels if len(many) > 1 else []
        if max(many) > 3 and len(many) == 1:
            yield f"channels: {max(many)}"
        copies = [f"{copy.path} = {first.path}" for copy, first in self.pairs if copy.digest == first.digest]
        near = [f"{copy.path} ~ {first.path}" for copy, first in self.pairs if copy.digest != first.digest]
        torn = [
            f"{copy.path} is {copy.class_name}, {first.path} is {first.class_name}"
            for copy, first in self.pairs
            if copy.class_name != first.class_name
        ]
        parts_of: dict[str, set[str]] = {}
        for photo in self.photographs:
            parts_of.setdefault(photo.group, set()).add(photo.part)
        leaking = [f"{group} in {' and '.join(sorted(some))}" for group, some in parts_of.items() if len(some) > 1]
        if grouped := any(parts_of):
            largest = Counter(photo.group for photo in self.photographs).most_common(1)[0]
            yield "groups: {}, the largest is {} with {} photographs".format(len(parts_of), *largest)
        leaks = [f"{copy.path} in {copy.part}, {first.path} in {first.part}" for copy, first in self.leaks]
        for what, found, hint in (
            ("broken files", self.broken, "training refuses them"),
            *([("images in no class", self.loose, "training leaves them out")] if self.loose else []),
            *([("other channels", torn_channels, "all must have as many")] if torn_channels else []),
            *([("scaled levels", scaled, "is that so?")] if scaled else []),
            *([(f"darker than {DARK}", dark, "are their levels of more bits?")] if dark else []),
            ("copies, byte for byte", copies, "one of each is enough"),
            ("near copies", near, "look at them"),
            ("copies in two classes", torn, "one label is wrong"),
            *([("groups in several parts", leaking, "the test knows them")] if grouped else []),
            (f"leaks between {' and '.join(parts)}", leaks, "delete one of each pair"),
        ):
            yield f"{what}: {len(found)} ({hint})" if found else f"{what}: none"
            yield from (f"  {row}" for row in found[:SHOWN])
            if len(found) > SHOWN:
                yield f"  and {len(found) - SHOWN} more"


def look(folder: Path, group: str | None = None) -> Look:
    """Read every photograph in a folder with a sub-folder for each class, or for each part and in it for each class.

    Where there are no parts, they are those that `load_folder` draws. group: as there. Nothing is written. Raises
    ValueError where fewer than two classes have two photographs that can be read; FileNotFoundError.
    """
    files = {part: classes_in(folder / part, at_least=0) for part in parts_in(folder) or [""]}
    every = [(path, folder) for classes in files.values() for paths in classes.values() for path in paths]
    workers = 0 if len(every) < FEW else min(os.cpu_count() or 1, 8)
    found = (one for some in in_processes(_examine, every, workers) for one in some)
    photographs: list[Photograph] = []
    broken: list[str] = []
    for part, classes in files.items():
        for name, paths in classes.items():
            some = len(photographs)
            for path, seen in zip(paths, found, strict=False):
                if isinstance(seen, str):
                    broken.append(seen)
                    continue
                size, digest, signs, gray, *more = seen
                below, arrays = path.relative_to(folder), (torch.from_numpy(signs), torch.from_numpy(gray))
                photographs.append(Photograph(below, name, part, size, digest, *arrays, *more))
            if (left := len(photographs) - some) < 2:
                del photographs[some:]
                broken.append(f"{Path(part, name)} must have at least two images that can be read, has {left}")
    if len({photo.class_name for photo in photographs}) < 2:
        raise ValueError(f"{folder} must have two or more classes of photographs; {'; '.join(broken[:SHOWN])}")
    groups = None
    if group is not None:
        groups = groups_of([folder / photo.path for photo in photographs], folder, group)
        photographs = [replace(photo, group=str(name)) for photo, name in zip(photographs, groups, strict=True)]
    if "" in files:
        names = tuple(dict.fromkeys(photo.class_name for photo in photographs))
        labels = torch.tensor([names.index(photo.class_name) for photo in photographs])
        apart = drawn_apart(labels, TEST_SHARE, 0, names, groups)
        photographs = [
            replace(photo, part="test" if tested else "train") for photo, tested in zip(photographs, apart, strict=True)
        ]
    beside = sorted(path for place in {folder, *(folder / part for part in files)} for path in place.iterdir())
    loose = [str(path.relative_to(folder)) for path in beside if path.is_file() and looks_like_image(path)]
    return Look(tuple(photographs), tuple(broken), tuple(_pairs(photographs)), tuple(loose))


def masks_lines(folder: Path) -> Iterator[str]:
    """What there is in a folder of images and masks, which `load_masks` would take; errors are its own."""
    images, _, names, counts = masks_in(folder, 1)
    asked = counts[:, :IGNORED].sum()
    yield f"{len(images)} images with masks of {len(names)} classes"
    yield f"  {'class':<20} of all pixels   in images"
    for k, name in enumerate(names):
        yield f"  {name:<20} {counts[:, k].sum() / max(asked, 1):>13.1%}   {(counts[:, k] > 0).sum():>9}"
    yield f"ignored, level {IGNORED}: {counts[:, IGNORED].sum() / counts.sum():.1%} of all pixels"
    yield from (f"no mask has class {name}" for k, name in enumerate(names) if not counts[:, k].any())


def _examine(pairs: list[tuple[Path, Path]]) -> list[tuple | str]:
    """Of each file, and the folder that it lies in, what a `Photograph` holds from its size on; or why not.

    Arrays for tensors: from process to process, each tensor would take an open file.
    """
    found: list[tuple | str] = []
    for path, folder in pairs:
        try:
            content = read_whole(path)
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                pixels, size = decode_reduced(content, str(path.relative_to(folder)), SMALLEST)
        except (ValueError, OSError) as error:
            found.append(str(error))
            continue
        levels, image = np.asarray(pixels), _flat(pixels)
        seen = difference_hash(image).numpy(), _gray(image, 8).numpy(), levels.shape[2], int(levels.max())
        white = next((str(warning.message) for warning in said if "levels" in str(warning.message)), "")
        found.append((size, hashlib.sha256(content).hexdigest(), *seen, "", white))
    return found


def _pairs(photographs: Sequence[Photograph], at_once: int = 1024) -> Iterator[tuple[Photograph, Photograph]]:
    """Each photograph that is near an earlier one, and the first such."""
    signs = torch.stack([photo.hash for photo in photographs]).float() * 2 - 1
    gray = torch.stack([photo.gray for photo in photographs])
    for start in range(0, len(signs), at_once):
        differ = (64 - signs[start : start + at_once] @ signs.T) / 2  # (some, all), in bits
        rows, firsts = (differ <= BITS).tril(start - 1).nonzero().unbind(dim=1)
        near = (gray[start + rows] - gray[firsts]).abs().mean(dim=1) <= LEVELS
        found = dict(zip(reversed(rows[near].tolist()), reversed(firsts[near].tolist()), strict=True))
        yield from ((photographs[start + row], photographs[found[row]]) for row in sorted(found))

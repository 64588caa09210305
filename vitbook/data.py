"""Images to learn from and to look at: every data set in one form, from one function."""

import csv
import io
import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64, UInt8
from PIL import Image, ImageDraw
from torch import Tensor
from torch.utils.data import DataLoader, StackDataset, default_collate

from vitbook._common.files import ASSETS, read_whole
from vitbook._common.images import center_crop, decode_image, looks_like_image, read_pixels, to_tensor
from vitbook._common.suggestions import unknown
from vitbook._common.validation import check_sizes
from vitbook._downloads.datasets import CIFAR10_CLASSES, SOURCES
from vitbook.image_files import ImageFiles, MaskFiles, count_levels
from vitbook.patches import Images
from vitbook.targets import IGNORED

Levels = UInt8[Tensor, "batch channels height width"]  # 0 to 255
PerChannel = Float[Tensor, " channels"]

PHOTOGRAPHS = ("china", "flower", "portrait")
TEST_SHARE = 0.2  # of a folder's images, for testing
MAX_SIDE = 8192  # pixels; of larger images no training set fits into memory
MAX_BYTES = 2**30  # of a folder's images in memory; of more, each is read from its file whenever it is needed
MOMENTS_OF = 2000  # images in files, from which their mean and standard deviation are estimated


@dataclass(frozen=True)
class Split:
    """Some of a data set's images, and what they show."""

    images: Levels | ImageFiles
    # indices into class_names; or `vitbook.targets.Targets`, or masks
    labels: Int64[Tensor, " batch"] | Float[Tensor, "batch K"] | MaskFiles
    groups: np.ndarray | None = None  # (N,) of str: images of one group stay on one side of every split

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, chosen: Sequence[bool] | np.ndarray | Tensor) -> "Split":
        """The images for which `chosen`, bool (N,), is True. Raises ValueError for anything else."""
        chosen = np.asarray(chosen)
        if chosen.dtype != bool or chosen.shape != (len(self),):
            raise ValueError(f"chosen must be bool of shape (N,) = ({len(self)},), got {chosen.dtype} {chosen.shape}")
        index = torch.from_numpy(np.flatnonzero(chosen))
        groups = None if self.groups is None else self.groups[index.numpy()]
        return Split(cast(Levels | ImageFiles, self.images[index]), cast(Any, self.labels[index]), groups)


@dataclass(frozen=True)
class Dataset:
    """Images to train on, images to test on, and the names of their classes."""

    name: str
    train: Split
    test: Split  # to be used once, at the end
    class_names: tuple[str, ...]
    validation: Split | None = None  # taken out of the training images, to choose by
    task: str = "classes"  # what is asked of an image, one of `vitbook.targets.TASKS`
    scale: tuple[float, float] = (0.0, 1.0)  # mean and standard deviation by which a number was standardized
    given_moments: tuple[Tensor, Tensor] | None = None  # mean and std to normalize by, in place of the images' own

    @property
    def mean(self) -> PerChannel:
        """Mean of each channel over the training images, or the one given, in units of white = 1."""
        return self.moments[0]

    @property
    def std(self) -> PerChannel:
        """Standard deviation of each channel, likewise; 1 where a channel has a single level."""
        return self.moments[1]

    @property
    def in_files(self) -> bool:
        """Whether the images stay in their files."""
        return isinstance(self.train.images, ImageFiles)

    @cached_property
    def moments(self) -> tuple[PerChannel, PerChannel]:
        """Mean and standard deviation, computed once."""
        if self.given_moments:
            return self.given_moments
        some = self.train.images[:: len(self.train) // MOMENTS_OF + 1 if self.in_files else 1]
        mean, std = mean_and_std(loaded(some))
        return mean, torch.where(std > 0, std, 1.0)  # a single level is left unscaled

    def with_validation(self, fraction: float, seed: int = 0) -> "Dataset":
        """The same data set with a share of every class of its training images set apart; `seed` says which.

        Errors are those of `split_at_random`.
        """
        train, validation = split_at_random(self.train, fraction, seed, self.class_names)
        return replace(self, train=train, validation=validation)

    def with_share(self, share: float, seed: int = 0, length: int | None = None) -> "Dataset":
        """The same data set with a share of every class of its training images, repeated in turn.

        length: the number of training images then; by default as many as before, so that an epoch stays as long.
        `seed` says which are taken. Errors are those of `split_at_random`.
        """
        few = self.train if share == 1 else split_at_random(self.train, share, seed, self.class_names)[1]
        index = torch.arange(len(self.train) if length is None else length) % len(few)
        return replace(self, train=Split(cast(Levels | ImageFiles, few.images[index]), cast(Any, few.labels[index])))

    def normalize(self, images: Levels) -> Images:
        """Images as a model expects them: each channel with mean 0 and standard deviation 1 over the training set."""
        return normalize(images, self.mean, self.std)

    def loader(self, split: Split, batch_size: int, shuffle: bool = False, seed: int = 0) -> DataLoader:
        """Batches of normalized images and labels, (B, C, H, W) and (B,); the last batch holds what is left.

        shuffle: a new order in each epoch, from `seed`, so that every run sees the same orders.
        """

        def batch(pairs: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
            images, labels = default_collate(pairs)
            return self.normalize(images), labels

        generator = torch.Generator().manual_seed(seed)
        pairs = StackDataset(*cast(Any, (split.images, split.labels)))
        return DataLoader(pairs, batch_size, shuffle=shuffle, generator=generator, collate_fn=batch)


def mean_and_std(images: Levels) -> tuple[PerChannel, PerChannel]:
    """Mean and standard deviation of each channel, in units of white = 1, on the CPU.

    Counting how often each of the 256 levels occurs is exact, and turns no image into floating point.
    """
    level = torch.arange(256, dtype=torch.float64) / 255
    counts = torch.stack([torch.bincount(channel.flatten(), minlength=256) for channel in images.unbind(dim=1)])
    counts = counts.cpu()
    share = counts.double() / counts.sum(dim=1, keepdim=True)  # (C, 256)
    mean = share @ level
    variance = (share * (level - mean[:, None]) ** 2).sum(dim=1)
    return mean.float(), variance.sqrt().float()


def loaded(images: Levels | ImageFiles) -> Levels:
    """Images in memory; of those in files, the middle of each."""
    return images.load() if isinstance(images, ImageFiles) else images


def normalize(images: Levels, mean: PerChannel, std: PerChannel) -> Images:
    """(x/255 − mean) / std for each channel.

    Raises ValueError for images that are not uint8 or have other channels, which would silently come out wrong.
    """
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != len(mean):
        got = f"{images.dtype} of shape {tuple(images.shape)}"
        raise ValueError(f"images must be uint8, 0 to 255, of shape (B, C, H, W) with C = {len(mean)}, got {got}")
    mean, std = (channel.to(images.device)[:, None, None] for channel in (mean, std))
    return (images.float() / 255 - mean) / std


def split_at_random(split: Split, fraction: float, seed: int, class_names: Sequence[str]) -> tuple[Split, Split]:
    """The images in two parts, the second with that share of every class, and at least one image of it.

    Which ones depends on `seed` alone; both parts keep the order. Raises ValueError as `drawn_apart` does.
    """
    labels = split.labels
    if not isinstance(labels, Tensor) or labels.is_floating_point():  # of what is no class, shares are of all images
        labels, class_names = torch.zeros(len(labels), dtype=torch.int64), ("all images",)
    apart = drawn_apart(labels, fraction, seed, class_names, split.groups)
    return split.select(~apart), split.select(apart)


def drawn_apart(
    labels: Int64[Tensor, " N"],
    fraction: float,
    seed: int,
    class_names: Sequence[str],
    groups: np.ndarray | None = None,
) -> np.ndarray:
    """Which images `split_at_random` puts into the second part, bool (N,).

    groups: the name of each image's, (N,), which then goes with all its images; shares are then about what was asked
    for. Raises ValueError unless 0 < fraction < 1 and every class has at least two images, of two groups.
    """
    if not 0 < fraction < 1:
        raise ValueError(f"the share to set apart must lie between 0 and 1, got {fraction}")
    if groups is not None:
        return _groups_apart(labels.cpu().numpy(), fraction, seed, class_names, groups)
    random = np.random.RandomState(seed)  # numpy promises that its numbers never change
    apart = np.zeros(len(labels), dtype=bool)
    for label in labels.unique().tolist():
        members = random.permutation(np.flatnonzero((labels == label).cpu().numpy()))
        if len(members) < 2:
            raise ValueError(f"class {class_names[label]!r} has one image left, which cannot be in two parts")
        apart[members[: min(max(1, round(fraction * len(members))), len(members) - 1)]] = True
    return apart


def _groups_apart(
    labels: np.ndarray, fraction: float, seed: int, class_names: Sequence[str], groups: np.ndarray
) -> np.ndarray:
    """As `drawn_apart`, with whole groups: in random order, each whose images are missing more than they are too many.

    Where a class is then without any, the smallest group that has some follows.
    """
    names, member = np.unique(groups, return_inverse=True)
    counts = np.zeros((len(names), len(class_names)), int)
    np.add.at(counts, (member, labels), 1)
    every = counts.sum(axis=0)
    for k in np.flatnonzero(every):
        if (counts[:, k] > 0).sum() < 2:
            only = names[counts[:, k].argmax()]
            raise ValueError(
                f"all images of class {class_names[int(k)]!r} are of group {only!r}, which goes into one part"
            )
    missing, taken = np.maximum(np.round(fraction * every), every > 0), np.zeros(len(names), bool)
    for group in np.random.RandomState(seed).permutation(len(names)):
        if np.minimum(counts[group], missing).sum() * 2 > counts[group].sum():
            taken[group] = True
            missing = np.maximum(missing - counts[group], 0)
    for k in np.flatnonzero((every > 0) & (counts[taken].sum(axis=0) == 0)):
        having = np.flatnonzero(counts[:, k])
        taken[having[counts[having].sum(axis=1).argmin()]] = True
    if (left := np.flatnonzero((every > 0) & (counts[~taken].sum(axis=0) == 0))).size:
        raise ValueError(f"class {class_names[int(left[0])]!r} has no group left to train on: its groups are too few")
    return taken[member]


def groups_of(files: Sequence[Path], folder: Path, pattern: str) -> np.ndarray:
    """What a regular expression finds in the name of each file below the folder: its first parentheses, or all of it.

    Raises ValueError for what is no regular expression, and for a file in whose name it finds nothing.
    """
    try:
        found = [re.search(pattern, file.relative_to(folder).as_posix()) for file in files]
    except re.error as error:
        raise ValueError(f"group {pattern!r} is no regular expression: {error}") from None
    for file, match in zip(files, found, strict=True):
        if match is None or match[min(match.re.groups, 1)] is None:
            raise ValueError(f"group {pattern!r} finds nothing in {file.relative_to(folder).as_posix()}")
    return np.array([match[min(match.re.groups, 1)] for match in found if match], object)


def load_dataset(
    name: str | Path,
    data_dir: str | Path | None = None,
    *,
    validation: float = 0.1,
    seed: int = 0,
    image_size: int | None = None,
    in_files: bool = False,
    workers: int | None = None,
    group: str | None = None,
    labels: Path | None = None,
    masks: bool = False,
    mirrors: Sequence[str] = (),
    progress: bool = True,
) -> Dataset:
    """A data set by name, with images to train on, to choose by and to test on.

    name: "digits", "fashion_mnist", "cifar10", "cifar100", "tiny_imagenet", or a folder for `load_folder`; one that has
        such a name itself is "./cifar10", or a Path.
    data_dir: the folder of the data set's files, packed or unpacked. Without it, those that do not come with the
        package are downloaded once, verified, and kept in `vitbook._downloads.fetching.cache_dir()`.
    validation: the share of the training images to set apart, 0 for none; `seed` says which. It never touches the test.
    image_size: for a folder, the side in pixels to which each image is cropped and scaled; 64 by default.
    in_files, workers, group, labels: of a folder, as in `load_folder`; where there are no labels at their path, they
        are looked for in data_dir, as the folder is; masks: whether it is one for `load_masks`.
    mirrors: addresses of folders to download from, tried before the known ones; progress: whether to show a bar.

    Raises ValueError for an unknown or ambiguous name and for files that are not what they should be;
    FileNotFoundError where data_dir lacks them; ConnectionError where no mirror has them, with what to put where.
    """
    if data_dir is not None and not Path(data_dir).expanduser().is_dir():
        raise FileNotFoundError(f"data_dir must be a folder, and there is none at {data_dir}")
    folder = folder_of(name, data_dir)
    if labels is not None and data_dir is not None and not labels.exists():
        labels = folder_of(labels, data_dir)
    public = str(name) in ("digits", *SOURCES) and not (isinstance(name, Path) and folder.is_dir())
    if public and any(map(looks_like_image, folder.glob("*/*"))):
        other = f"name the folder './{name}', or work in another directory for the public one"
        raise ValueError(f"{name!r} is a public data set, and {folder} a folder of images: {other}")
    if public and image_size is not None:
        raise ValueError(f"image_size is for folders of your own images; those of {name} have a fixed size")
    if public and group is not None:
        raise ValueError(f"group is for folders of your own images; those of {name} have no names")
    if public and (masks or labels is not None):
        asked = "masks" if masks else "labels"
        raise ValueError(f"{asked} are for a folder of your own images; those of {name} have classes")
    if public and in_files:
        raise ValueError(f"random resized crops are for folders of your own images; those of {name} are small already")
    if public and str(name) == "digits":
        dataset = digits()
    elif public:
        train, test, class_names = SOURCES[str(name)].load(data_dir, mirrors, progress)
        dataset = Dataset(str(name), Split(*train), Split(*test), class_names)
    elif folder.is_dir():
        size = 64 if image_size is None else image_size
        dataset = (
            load_masks(folder, size, workers=workers, group=group)
            if masks
            else load_folder(folder, size, in_files=in_files, workers=workers, group=group, labels=labels)
        )
    else:
        raise ValueError(unknown("data set", str(name), ("digits", *SOURCES)) + " Or name a folder of images.")
    return dataset.with_validation(validation, seed) if validation else dataset


def folder_of(name: str | Path, data_dir: str | Path | None) -> Path:
    """Where a folder of images is: in data_dir where that is given, also if its name is a whole path."""
    path = Path(name).expanduser()
    return path if data_dir is None else Path(data_dir, path.name if path.is_absolute() else path).expanduser()


def digits(test_fraction: float = 0.2, seed: int = 0) -> Dataset:
    """1,797 handwritten digits of 8×8 gray pixels, in ten classes, split at random with every class in proportion.

    The test part of the UCI "Optical Recognition of Handwritten Digits" set (Alpaydin and Kaynak 1998), as it comes
    with scikit-learn. Gray levels 0 to 16 are stretched to 0 to 255.
    """
    from sklearn.datasets import load_digits  # takes a second to import
    from sklearn.model_selection import train_test_split

    levels, digit = load_digits(return_X_y=True)  # (N, 64) from 0 to 16, and (N,)
    images = torch.from_numpy(np.round(levels * (255 / 16)).astype(np.uint8)).view(-1, 1, 8, 8)
    labels = torch.from_numpy(digit.astype(np.int64))
    train, test = train_test_split(np.arange(len(labels)), test_size=test_fraction, stratify=digit, random_state=seed)
    names = tuple("0123456789")
    return Dataset("digits", Split(images[train], labels[train]), Split(images[test], labels[test]), names)


def load_folder(
    folder: Path,
    image_size: int = 64,
    test_fraction: float = TEST_SHARE,
    seed: int = 0,
    in_files: bool = False,
    workers: int | None = None,
    group: str | None = None,
    labels: Path | None = None,
) -> Dataset:
    """Your own images, of any size and kind: a sub-folder for each class, named after it, with its images in it.

    The middle square of each image is scaled to image_size pixels; where every file has more than three channels, so
    has the data set. A share of every class, chosen by `seed`, is for testing. Passed over: what begins with a dot, and
    folders that hold a training run, with all below them.

    in_files: whether the images stay in their files, to be decoded as they are needed. They do so anyway where they
    would take more than `MAX_BYTES`. workers: processes that then decode; as many as there are processors if None.
    group: a pattern as in `groups_of`; what it finds alike stays on one side of every split, as of one patient.
    labels: a CSV file that says of each image, wherever it lies in the folder, any number of labels, or one number. Its
    columns are "file", a name below the folder, and "labels", names with semicolons between, or "number", which is
    standardized over the training images.

    Raises ValueError for fewer than two classes or images in one, for sub-folders such as train and test, for a
    training run among images, for a file that is no image or has other channels, and for a link that leads back; with
    the line of the CSV file, for other columns, a file that is not there or has two rows, and what is no number; for
    numbers that are all the same or too large to be standardized; FileNotFoundError for a broken link.
    """
    check_sizes(image_size=image_size)
    if image_size > MAX_SIDE:
        raise ValueError(f"image_size must be at most {MAX_SIDE:,}, got {image_size}")
    if labels is None:
        classes, task = classes_in(folder), "classes"
        files, names = [file for some in classes.values() for file in some], tuple(classes)
        targets = torch.tensor([label for label, some in enumerate(classes.values()) for _ in some])
    else:
        files, targets, names, task = _told_by(labels, folder)
    if in_files or len(files) * 3 * image_size**2 > MAX_BYTES:
        images = ImageFiles.listed(files, image_size, folder, workers)
    else:
        images = _in_memory(files, image_size)
    groups = None if group is None else groups_of(files, folder, group)
    train, test = split_at_random(Split(images, targets, groups), test_fraction, seed, names)
    data = Dataset(folder.resolve().name, train, test, names, task=task)
    if task != "number":
        return data
    known = cast(Tensor, train.labels)
    mean, std = known.mean().item(), known.std(correction=min(1, len(known) - 1)).item()
    if not 0 < std < math.inf:
        got = f"the standard deviation of these {len(known)} is {std:g}"
        raise ValueError(f"{labels}: the numbers of the training images must differ, and be below 1e150; {got}")
    train, test = (replace(part, labels=((cast(Tensor, part.labels) - mean) / std).float()) for part in (train, test))
    return replace(data, train=train, test=test, scale=(mean, std))


def load_masks(
    folder: Path,
    image_size: int = 64,
    test_fraction: float = TEST_SHARE,
    seed: int = 0,
    workers: int | None = None,
    group: str | None = None,
) -> Dataset:
    """Your own images and what each of their pixels shows: images/ and, by the same names, masks/ with a PNG for each.

    A mask has as many pixels as its upright image, and as level or place in a palette the number of each pixel's class;
    255 is none. classes.txt in the folder names the classes, one a line, from 0 on; without it their names are these
    numbers. Images and masks stay in their files; every mask is read once, to see whether it fits. Other arguments are
    as in `load_folder`.

    Raises ValueError for a folder without both, an image without a mask, a mask that is no PNG, of another size, in
    colors or with a level that has no name, names that are not in UTF-8, and fewer than two classes or images.
    """
    images, masks, names, _ = masks_in(folder, image_size, workers)
    groups = None if group is None else groups_of([Path(path) for path in images.paths], folder, group)
    train, test = split_at_random(Split(images, masks, groups), test_fraction, seed, names)
    return Dataset(folder.resolve().name, train, test, names, task="masks")


def masks_in(
    folder: Path, image_size: int, workers: int | None = None
) -> tuple[ImageFiles, MaskFiles, tuple[str, ...], Int64[np.ndarray, "N 256"]]:
    """What `load_masks` divides, the names of the classes, and how many pixels of each mask have each level."""
    check_sizes(image_size=image_size)
    places = folder / "images", folder / "masks"
    if not all(place.is_dir() for place in places):
        raise ValueError(f"{folder} must hold the folders images and masks")
    files = sorted(files_in(places[0]), key=Path.as_posix)
    masks = [places[1] / file.relative_to(places[0]).with_suffix(".png") for file in files]
    if lonely := [pair for pair in zip(files, masks, strict=True) if not pair[1].is_file()]:
        raise ValueError("{} has no mask {}; so it is for {} of {}".format(*lonely[0], len(lonely), len(files)))
    if len(files) < 2:
        raise ValueError(f"{places[0]} must have two or more images, has {len(files)}")
    images = ImageFiles.listed(files, image_size, folder, workers)
    sizes = np.array([mask.stat().st_size for mask in masks])
    targets = MaskFiles(np.array([str(mask) for mask in masks], object), sizes, 1, image_size, folder, images.workers)
    counts = count_levels(images, targets)
    there = counts[:, :IGNORED] > 0
    highest = int(np.flatnonzero(there.any(axis=0)).max(initial=0))
    names = tuple(map(str, range(highest + 1)))
    if (listed := folder / "classes.txt").is_file():
        try:
            names = tuple(name.strip() for name in read_whole(listed).decode("utf-8-sig").split("\n"))
        except UnicodeDecodeError as error:
            raise ValueError(f"{listed} is no text in UTF-8: {error}") from None
        names = names[: max((i + 1 for i, name in enumerate(names) if name), default=0)]
    if highest >= len(names):
        mask = masks[int(there[:, highest].argmax())]
        raise ValueError(f"{mask} has level {highest}, and {listed} names {len(names)} classes, from 0 on")
    if len(names) < 2:
        raise ValueError(f"{places[1]} must have two or more classes, has level 0 alone: level {IGNORED} is no class")
    return images, targets, names, counts


def _told_by(table: Path, folder: Path) -> tuple[list[Path], Tensor, tuple[str, ...], str]:
    """The files that a CSV file names, what it says of each, (N, K), the names of the K, and "labels" or "number"."""
    kind, rows = _rows_of(table, folder)
    files = [folder / name for name in rows]
    if kind == "number":
        numbers = torch.tensor([[float(said)] for said in rows.values()], dtype=torch.float64)  # until standardized
        return files, numbers, ("number",), kind
    given = [[label.strip() for label in said.split(";") if label.strip()] for said in rows.values()]
    names = tuple(sorted({label for some in given for label in some}))
    if not names:
        raise ValueError(f"{table} names no label")
    return files, torch.tensor([[float(name in some) for name in names] for some in given]), names, kind


def _rows_of(table: Path, folder: Path) -> tuple[str, dict[str, str]]:
    """Whether a CSV file has "labels" or a "number", and what it says of each file. Raises as `load_folder`."""
    try:
        lines = list(csv.reader(io.StringIO(read_whole(table).decode("utf-8-sig")), strict=True))
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{table} is no CSV file in UTF-8: {error}") from None
    head = [name.strip() for name in lines[0]] if lines else []
    if len(head) != 2 or head[0] != "file" or head[1] not in ("labels", "number"):
        raise ValueError(f"{table} must have the columns file, and labels or number, has {', '.join(head) or 'none'}")
    rows: dict[str, str] = {}
    there: set[Path] = set()
    for number, line in enumerate(lines[1:], 2):
        if not line:
            continue
        if len(line) != 2:
            raise ValueError(f"{table}, line {number}: expected 2 cells, got {len(line)}")
        name, said = (cell.strip() for cell in line)
        if not name or not (folder / name).is_file():
            raise ValueError(f"{table}, line {number}: there is no file {name!r} in {folder}")
        if (file := (folder / name).resolve()) in there:  # by another spelling or link, it could be in two parts
            raise ValueError(f"{table}, line {number}: a second row for {name}")
        there.add(file)
        if head[1] == "number" and not _is_finite(said):
            raise ValueError(f"{table}, line {number}: {said!r} is no number")
        rows[name] = said
    return head[1], rows


def _is_finite(said: str) -> bool:
    try:
        return math.isfinite(float(said))
    except ValueError:
        return False


def _in_memory(files: Sequence[Path], image_size: int) -> Levels:
    """The middle of each image. Raises ValueError where they have not all as many channels."""
    images, first = torch.empty(0), Path()
    for i, file in enumerate(files):
        image = to_tensor(center_crop(read_pixels(file), image_size, image_size))
        if not i:
            images, first = torch.empty(len(files), *image.shape, dtype=torch.uint8), file
        if len(image) != images.shape[1]:
            raise ValueError(f"{file} has {len(image)} channels, {first} has {images.shape[1]}: all must have as many")
        images[i] = image
    return images


_PARTS = {"train", "training", "val", "valid", "validation", "dev", "eval", "evaluation", "test", "testing"}
# What Windows leaves in folders, and macOS in archives; what else systems leave begins with a dot.
_LITTER = ("thumbs.db", "desktop.ini", "__macosx")  # in small letters
_OF_A_RUN = re.compile(r"(run|last|best)\.json|.*\.safetensors|events\.out\.tfevents\..*")


def classes_in(folder: Path, at_least: int = 2) -> dict[str, list[Path]]:
    """The image files of each class, by its name, both in order. Raises ValueError as `load_folder` does.

    at_least: how many images a class must have.
    """
    classes = _sub_folders(folder)
    if classes.keys() == {"images", "masks"}:
        raise ValueError(f"{folder} has images and masks, and no classes: train on it with --task segment")
    if parts := parts_in(folder):
        raise ValueError(f"{folder} must have a sub-folder for each class, has one for each part, {parts}: name one")
    if len(classes) < 2:
        raise ValueError(f"{folder} must have a sub-folder for each of two or more classes, has {len(classes)}")
    for name, files in classes.items():
        if len(files) < at_least:
            raise ValueError(f"{folder / name} must have at least two images, has {len(files)}")
    return classes


def parts_in(folder: Path) -> list[str]:
    """The sub-folders that are parts of a data set, such as train and test, and no classes; usually there are none."""
    classes = _sub_folders(folder)
    parts = [name for name in classes if name.casefold() in _PARTS]
    nested = [name for name in parts if not any(map(looks_like_image, (folder / name).iterdir())) and classes[name]]
    return parts if len(parts) > 1 or nested else []


def _sub_folders(folder: Path) -> dict[str, list[Path]]:
    """The image files in each sub-folder, by its name, both in order."""
    found = {}
    for place in sorted(folder.iterdir(), key=lambda path: path.name):
        if place.is_dir() and not _is_litter(place):
            _refuse_circle(place, [folder.resolve()])
            files = sorted(files_in(place), key=Path.as_posix)  # the same order on every system
            if files or not any(_OF_A_RUN.fullmatch(path.name) for path in place.rglob("*")):
                found[place.name] = files
    return found


def files_in(folder: Path, way: tuple[Path, ...] = ()) -> Iterator[Path]:
    """The files in a folder and those below it, also by links, without training runs and what systems leave there.

    way: the folders that led here, resolved. Raises ValueError for a training run among images, and for a link that
    leads back.
    """
    way = (*way, folder.resolve())
    paths = [path for path in sorted(folder.iterdir()) if not _is_litter(path)]
    if of_run := [path.name for path in paths if _OF_A_RUN.fullmatch(path.name)]:
        if any(map(looks_like_image, paths)):
            raise ValueError(f"{folder} holds a training run ({of_run[0]}) among images: give each a folder of its own")
        return
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        _refuse_circle(path, way)
        yield from files_in(path, way)


def _is_litter(path: Path) -> bool:
    return path.name.startswith(".") or path.name.casefold() in _LITTER


def _refuse_circle(place: Path, way: Sequence[Path]) -> None:
    """Raise ValueError for a link to one of these folders, or to one that holds them."""
    if any(folder.is_relative_to(place.resolve()) for folder in way):
        raise ValueError(f"{place} is a link that leads back to {place.resolve()}: delete it")


def photograph(name: str) -> UInt8[Tensor, "3 H W"]:
    """One of three photographs, by name.

    "china", 427×640: the Summer Palace in Beijing, © Rob Hulatt, CC BY 2.0; "flower", 427×640: a dahlia, © dany13,
    CC BY 2.0; both come with scikit-learn. "portrait", 224×224: the astronaut Eileen Collins, NASA, public domain.
    Raises ValueError for another name.
    """
    if name not in PHOTOGRAPHS:
        raise ValueError(f"photograph must be one of {', '.join(PHOTOGRAPHS)}, got {name!r}")
    if name == "portrait":
        return to_tensor(decode_image((ASSETS / "portrait.jpg").read_bytes(), "portrait.jpg"))
    from sklearn.datasets import load_sample_image

    return to_tensor(load_sample_image(f"{name}.jpg"))


def album(size: int = 32) -> Split:
    """22 photographs of what CIFAR-10's classes name, not taken from CIFAR-10: some to try a trained model on.

    images: uint8 (22, 3, size, size), each a square about its subject, scaled down from 128×128 pixels by the mean of
    the area that a new pixel covers; labels: indices into `CIFAR10_CLASSES`, ascending, each class at least once.
    `album_credits` says, in the same order, who took them and under which license.

    Raises ValueError unless 1 ≤ size ≤ 128.
    """
    if not 1 <= size <= 128:
        raise ValueError(f"size must lie in 1 … 128, got {size}")
    images, labels = [], []
    for entry in album_credits():
        image = decode_image((ASSETS / "album" / entry["file"]).read_bytes(), entry["file"])
        images.append(to_tensor(image.resize((size, size), Image.Resampling.BOX)))
        labels.append(CIFAR10_CLASSES.index(entry["label"]))
    return Split(torch.stack(images), torch.tensor(labels))


def album_masks(size: int = 128) -> tuple[Int64[Tensor, " n"], Bool[Tensor, "n size size"]]:
    """Which pixels show the subject, for twelve of the album's photographs, from outlines drawn by hand.

    The photographs' places in the album, (n,), ascending, and their masks: True where the subject covers at least half
    of a pixel of `album(size)`. Raises ValueError unless 1 ≤ size ≤ 128.
    """
    if not 1 <= size <= 128:
        raise ValueError(f"size must lie in 1 … 128, got {size}")
    outlines = json.loads((ASSETS / "album_masks.json").read_bytes())
    places, masks, scale = [], [], 8  # drawn at 8 times the size, then each pixel's share is counted
    for place, entry in enumerate(album_credits()):
        if entry["file"] in outlines:
            canvas = Image.new("L", (128 * scale, 128 * scale))
            for outline in outlines[entry["file"]]:
                ImageDraw.Draw(canvas).polygon([(scale * x, scale * y) for x, y in outline], fill=255)
            places.append(place)
            share = np.array(canvas.resize((size, size), Image.Resampling.BOX))  # 0 to 255
            masks.append(torch.from_numpy(share) >= 128)
    return torch.tensor(places), torch.stack(masks)


def album_credits() -> list[dict]:
    """Where each photograph of the album is from, and under which license, in the album's order.

    Keys: file; label, a class of CIFAR-10; title; author; licence, SPDX's short name or "public domain"; source, the
    package it was taken from; original, an address or None; crop, (left, top, right, bottom) in pixels of the source,
    white beyond its edges; changes.
    """
    return json.loads((ASSETS / "album" / "credits.json").read_bytes())

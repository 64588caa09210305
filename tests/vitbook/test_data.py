"""Every data set in one form, wherever it lies; splits and statistics; folders of one's own, whatever is in them."""

import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from on_a_gpu import OnAGpu
from PIL import Image
from sklearn.datasets import load_digits
from small_sets import SMALL_SETS, put_in_place, unpack

from vitbook._downloads.datasets import SOURCES
from vitbook.data import (
    Dataset,
    Split,
    digits,
    load_dataset,
    load_folder,
    loaded,
    mean_and_std,
    normalize,
    photograph,
    split_at_random,
)

pytest_plugins = ["local_mirror"]
EACH_SET = pytest.mark.parametrize("name", SMALL_SETS)


@pytest.fixture(scope="module")
def data():
    return digits()


# The digits and the photographs


def test_all_digits_are_in_one_split_each_with_every_class_in_proportion(data):
    raw = load_digits()
    assert (data.name, data.class_names) == ("digits", tuple("0123456789"))
    assert (len(data.train), len(data.test)) == (1437, 360)
    images = torch.cat([data.train.images, data.test.images])
    labels = torch.cat([data.train.labels, data.test.labels])
    assert images.shape == (1797, 1, 8, 8) and (images.dtype, labels.dtype) == (torch.uint8, torch.int64)
    got = sorted(zip(images.flatten(1).tolist(), labels.tolist(), strict=True))
    stretched = np.round(raw.data * 255 / 16).astype(int).tolist()
    assert got == sorted(zip(stretched, raw.target.tolist(), strict=True))
    train, test = (split.labels.bincount() for split in (data.train, data.test))
    assert ((test - 0.2 * (train + test)).abs() < 1).all()
    assert torch.equal(digits().test.images, data.test.images)
    assert not torch.equal(digits(seed=1).test.images, data.test.images)


# Statistics and batches


def test_mean_and_standard_deviation_are_numpys(data):
    for split in (data.train, Split(torch.randint(256, (5, 3, 4, 6), dtype=torch.uint8), torch.zeros(5).long())):
        pixels, (mean, std) = split.images.numpy() / 255, mean_and_std(split.images)
        np.testing.assert_allclose(mean, pixels.mean(axis=(0, 2, 3)), rtol=1e-6)
        np.testing.assert_allclose(std, pixels.std(axis=(0, 2, 3)), rtol=1e-6)
    images = data.normalize(data.train.images)
    torch.testing.assert_close(torch.stack(torch.std_mean(images)), torch.tensor([1.0, 0.0]), rtol=0, atol=1e-3)


def test_each_channel_is_normalized_by_its_own_numbers_and_a_constant_one_becomes_0():
    images = torch.randint(256, (4, 3, 5, 6), dtype=torch.uint8)
    images[:, 1] = 200
    data = Dataset("red and blue", Split(images, torch.arange(4)), Split(images[:1], torch.arange(1)), tuple("abcd"))
    assert data.std[1] == 1 and not data.normalize(images)[:, 1].any()
    mean, std = torch.tensor([0.1, 0.5, 0.7]), torch.tensor([0.2, 0.3, 0.4])
    expected = (images.movedim(1, -1) / 255 - mean) / std
    torch.testing.assert_close(normalize(images, mean, std), expected.movedim(-1, 1))


@pytest.mark.door
@pytest.mark.parametrize(
    "images", [torch.rand(2, 3, 4, 5), torch.zeros(2, 1, 4, 5).byte(), torch.zeros(3, 4, 5).byte()]
)
def test_images_that_would_silently_come_out_wrong_are_refused(images):
    message = rf"images must be uint8, 0 to 255, of shape \(B, C, H, W\) with C = 3, got {images.dtype} of shape"
    with pytest.raises(ValueError, match=message):
        normalize(images, torch.ones(3), torch.ones(3))


def test_a_loader_follows_its_seed_and_no_other_random_number(data):
    batches = list(data.loader(data.test, 50))
    assert [len(labels) for _, labels in batches] == [50] * 7 + [10]
    images, labels = (torch.cat(parts) for parts in zip(*batches, strict=True))
    assert torch.equal(images, data.normalize(data.test.images)) and torch.equal(labels, data.test.labels)

    def orders(seed):
        torch.rand(1)  # what else is drawn does not matter
        loader = data.loader(data.test, 360, shuffle=True, seed=seed)
        return [next(iter(loader))[1] for _ in range(2)]

    (first, second), again, other = orders(0), orders(0), orders(1)
    assert torch.equal(first, again[0]) and torch.equal(second, again[1])
    assert not torch.equal(first, second), "each epoch has an order of its own"
    assert not torch.equal(first, other[0])


# Splits


def numbered(*counts: int) -> Split:
    """As many images of each class as said, one pixel each; image i has the level i."""
    labels = torch.cat([torch.full((count,), label) for label, count in enumerate(counts)])
    order = torch.from_numpy(np.random.RandomState(0).permutation(len(labels)))
    return Split(torch.arange(len(labels), dtype=torch.uint8).view(-1, 1, 1, 1), labels[order])


@pytest.mark.parametrize(
    ("fraction", "shares"), [(0.3, [9, 15, 6, 1, 1]), (0.01, [1, 1, 1, 1, 1]), (0.99, [29, 49, 19, 2, 1])]
)
def test_every_class_gives_its_share_and_every_image_keeps_label_and_place(fraction, shares):
    split = numbered(30, 50, 20, 3, 2)
    kept, apart = split_at_random(split, fraction, 0, "abcde")
    assert apart.labels.bincount().tolist() == shares
    for part in (kept, apart):
        numbers = part.images.flatten().long()
        assert torch.equal(numbers, numbers.sort().values) and torch.equal(part.labels, split.labels[numbers])
    assert sorted(torch.cat([kept.images, apart.images]).flatten().tolist()) == list(range(105))


def test_the_seed_says_which_on_every_machine():
    apart = [split_at_random(numbered(30, 50, 20), 0.3, seed, "abc")[1].images.flatten() for seed in (0, 0, 1)]
    assert torch.equal(apart[0], apart[1]) and not torch.equal(apart[0], apart[2])
    assert apart[0][:8].tolist() == [1, 5, 6, 18, 25, 28, 29, 32]


def test_the_seed_leaves_the_test_images_alone(tmp_path):
    for name in ("digits", make_folder(tmp_path)):
        first, second = (load_dataset(name, seed=seed) for seed in (0, 1))
        assert torch.equal(first.test.images, second.test.images)
        assert not torch.equal(first.validation.images, second.validation.images)


def test_a_share_of_every_class_is_repeated_in_turn(data):
    few, again, other = (data.with_share(0.05, seed).train for seed in (0, 0, 1))
    assert len(few) == 1437 and torch.equal(few.images, again.images) and not torch.equal(few.images, other.images)
    rows, times = torch.cat([few.images.flatten(1).long(), few.labels[:, None]], 1).unique(dim=0, return_counts=True)
    assert (rows[:, -1].bincount() - 7).abs().max() <= 1 and times.max() - times.min() <= 1
    longer = data.with_share(0.05, length=2000)
    assert len(longer.train) == 2000 and torch.equal(longer.train.images[:1437], few.images)
    assert longer.test is data.test and not torch.equal(longer.mean, data.mean), "statistics are of the images at hand"


def test_a_data_set_may_lie_on_a_gpu(data):
    train = Split(data.train.images.as_subclass(OnAGpu), data.train.labels.as_subclass(OnAGpu))
    there, here = (Dataset("digits", part, data.test, data.class_names) for part in (train, data.train))
    there, here = there.with_validation(0.25), here.with_validation(0.25)
    assert isinstance(there.validation.images, OnAGpu)
    assert torch.equal(there.validation.images.cpu(), here.validation.images)
    assert torch.equal(there.train.labels.cpu(), here.train.labels)
    assert torch.equal(there.mean, here.mean) and torch.equal(there.std, here.std)


@pytest.mark.door
@pytest.mark.parametrize("chosen", [[5, 6, 0], np.array([True]), torch.ones(3, dtype=torch.int64)])
def test_images_are_selected_by_yes_and_no_alone(chosen):
    split = Split(torch.arange(3).view(3, 1, 1, 1).byte(), torch.arange(3))
    assert split.select([True, False, True]).labels.tolist() == [0, 2]
    with pytest.raises(ValueError, match=r"chosen must be bool of shape \(N,\) = \(3,\), got"):
        split.select(chosen)


# The public sets


def assert_is(dataset: Dataset, name: str) -> None:
    """The data set holds the images, labels and class names of the small one, all of them for training or testing."""
    small = SMALL_SETS[name]
    assert (dataset.name, dataset.class_names, dataset.validation) == (name, small.class_names, None)
    for split, (images, labels) in ((dataset.train, small.train), (dataset.test, small.test)):
        assert (split.images.dtype, split.labels.dtype) == (torch.uint8, torch.int64) and split.images.is_contiguous()
        assert np.array_equal(split.images.numpy(), images) and np.array_equal(split.labels.numpy(), labels)


@EACH_SET
def test_a_set_is_downloaded_once_from_the_mirrors_named_first(mirror, cache, monkeypatch, name):
    published = SMALL_SETS[name].published
    mirror.files |= published
    put_in_place(monkeypatch, mirror("good"))
    for _ in range(2):
        assert_is(load_dataset(name, validation=0, mirrors=[mirror("missing")], progress=False), name)
    assert mirror.asked == [f"{way}/{file}" for file in published for way in ("missing", "good")]
    assert sorted(path.name for path in cache.iterdir()) == sorted(published)


@EACH_SET
def test_files_that_are_here_are_read_where_they_lie(cache, tmp_path, monkeypatch, name):
    put_in_place(monkeypatch, "http://127.0.0.1:1")  # where nobody answers
    (tmp_path / "packed" / name).mkdir(parents=True)
    for file, content in SMALL_SETS[name].published.items():
        (tmp_path / "packed" / name / file).write_bytes(content)
    folder = unpack(SMALL_SETS[name], tmp_path / "unpacked" / SOURCES[name].folder)
    before = sorted(tmp_path.rglob("*"))
    for place in ("packed", f"packed/{name}", "unpacked", folder):
        assert_is(load_dataset(name, tmp_path / place, validation=0), name)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(("name", "nearest"), [("CIFAR-100", "cifar100"), (Path("digit"), "digits")])
def test_an_unknown_name_is_answered_with_the_nearest(name, nearest):
    assert load_dataset(Path("digits")).name == "digits"
    with pytest.raises(ValueError, match=f"unknown data set '{name}', did you mean {nearest!r}.* Or name a folder"):
        load_dataset(name)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: load_dataset("cifar10", image_size=48), "those of cifar10 have a fixed size"),
        (lambda: load_dataset("digits", validation=1.5), "between 0 and 1, got 1.5"),
        (lambda: split_at_random(numbered(30, 1), 0.3, 0, "ab"), "class 'b' has one image left"),
        (lambda: load_folder(Path("nowhere"), 8193), "image_size must be (at|below) "),
        (lambda: photograph("chine"), "china, flower, portrait, got 'chine'"),
    ],
)
def test_what_does_not_fit_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# A folder of one's own

CLASSES = (".hidden", "Äpfel & Birnen", "a.b", "dogs 'n' cats", "10", "9")
COLORS = {name: (40 * i, 250 - 30 * i, 90) for i, name in enumerate(CLASSES)}


def make_folder(folder: Path) -> Path:
    """Images of one color a class, of several sizes and kinds, some of them deeper down, with litter between."""
    for name, color in COLORS.items():
        (folder / name / "deeper").mkdir(parents=True)
        for i, kind in enumerate((".png", ".JPG", ".bmp", ".gif", "")):
            place = folder / name / ("deeper" if i % 2 else "") / f"Bild {i}{kind}"
            Image.new("RGB", (20 + 7 * i, 60 - 9 * i), color).save(place, "PNG" if kind == "" else None)
        for litter in (".DS_Store", "Thumbs.db", "desktop.ini", "thumbs.db"):
            (folder / name / litter).write_bytes(b"litter")
    (folder / "9" / ".ipynb_checkpoints").mkdir()
    (folder / "9" / ".ipynb_checkpoints" / "copy.png").write_bytes(b"litter")
    (folder / "notes.txt").write_text("not in a class")
    (folder / "__MACOSX" / "9").mkdir(parents=True)
    (folder / "__MACOSX" / "9" / "._Bild 0.png").write_bytes(b"litter")
    return folder


def test_a_folder_is_a_data_set(tmp_path, monkeypatch):
    data = load_dataset(make_folder(tmp_path / "my fruit"), image_size=24)
    assert (data.name, data.class_names) == ("my fruit", ("10", "9", "a.b", "dogs 'n' cats", "Äpfel & Birnen"))
    assert (len(data.train), len(data.validation), len(data.test)) == (15, 5, 5)
    for split in (data.train, data.validation, data.test):
        assert (split.images.dtype, split.images.shape[1:]) == (torch.uint8, (3, 24, 24))
        for image, label in zip(split.images, split.labels.tolist(), strict=True):
            color = torch.tensor(COLORS[data.class_names[label]]).view(3, 1, 1)
            assert (image - color).abs().max() <= 3, "JPEG and GIF are a little off, no more"
    monkeypatch.chdir(tmp_path / "my fruit")
    for again in (load_dataset("my fruit", tmp_path), load_dataset("/elsewhere/my fruit", tmp_path), load_dataset(".")):
        assert again.name == "my fruit" and again.train.images.shape[1:] == (3, 64, 64)


def test_linked_folders_and_files_belong_to_their_class(tmp_path):
    make_folder(tmp_path / "fruit")
    shutil.move(tmp_path / "fruit" / "9" / "deeper", tmp_path / "elsewhere")
    (tmp_path / "fruit" / "9" / "deeper").symlink_to(tmp_path / "elsewhere")
    data = load_dataset(tmp_path / "fruit", image_size=24)
    assert (len(data.train), len(data.validation), len(data.test)) == (15, 5, 5)


def test_images_come_in_the_same_order_everywhere_cropped_to_their_middle(tmp_path):
    for i, name in enumerate(("C/2", "Z", "a", "b/1")):
        for label in "xy":
            (tmp_path / label / name).parent.mkdir(exist_ok=True, parents=True)
            image = Image.new("RGB", (90, 30), "red")
            image.paste((0, 0, 10 * i + 10), (30, 0, 60, 30))
            image.save(tmp_path / label / name, "PNG")
    data = load_folder(tmp_path, 15, test_fraction=0.01)
    levels = torch.cat([split.images[:, 2, 7, 7] for split in (data.train, data.test)])
    assert levels[:3].sort().values.equal(levels[:3]) and sorted(levels.tolist()) == sorted([10, 20, 30, 40] * 2)
    assert not data.train.images[..., 1:-1][:, :2].any(), "nothing of the red beside the middle"


def test_a_folder_of_five_channels_is_a_data_set_of_five_channels(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        for i in range(4):
            np.save(tmp_path / name / f"{i}.npy", np.full((12, 9, 5), 40 * i + np.arange(5), np.uint8))
    data = load_folder(tmp_path, 6)
    assert data.train.images.shape == (6, 5, 6, 6)
    assert data.mean.shape == (5,) and data.mean.diff().mul(255).allclose(torch.ones(4), atol=1e-4)


RUN = ("run.json", "last.json", "best-0123456789ab.safetensors", "log.jsonl", "tensorboard/events.out.tfevents.1.host")


@pytest.mark.parametrize("place", ["", "runs/vit_digits", "9/deeper/run"])
def test_training_runs_among_the_classes_are_passed_over(tmp_path, place):
    """Such as `vitbook train --dataset .` leaves in the folder of the images."""
    before = load_dataset(make_folder(tmp_path))
    for name in RUN:
        (tmp_path / place / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place / name).write_text("{}")
    after = load_dataset(tmp_path)
    assert after.class_names == before.class_names and torch.equal(after.train.images, before.train.images)


def put(folder: Path, name: str, content: str = "hello") -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(content)


def cross(one: Path, other: Path) -> None:
    """A link in each of two folders to the other."""
    for place, target in ((one, other), (other, one)):
        (place / "link").symlink_to(target)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: put(folder, "9/list.txt"), "9.list.txt cannot be read as an image: its format is unknown"),
        (lambda folder: put(folder, "9/run.json"), r"9 holds a training run \(run.json\) among images"),
        (lambda folder: os.mkfifo(folder / "9" / "pipe.png"), "9.pipe.png must be an image file, got .* pipe"),
        (lambda folder: (folder / "more").symlink_to(folder), "more is a link that leads back to"),
        (lambda folder: (folder / "9" / "more").symlink_to(folder), "9.more is a link that leads back to"),
        (lambda folder: cross(folder / "9", folder / "10" / "deeper"), "is a link that leads back to"),
        (
            lambda folder: np.save(folder / "9" / "x.npy", np.ones((9, 9, 5), np.uint8)),
            "x.npy has 5 channels, .* has 3",
        ),
        (lambda folder: (folder / "new class").mkdir(), "new class must have at least two images, has 0"),
        (lambda folder: [path.rename(f"{folder}/.{path.name}") for path in folder.glob("[!9]*")], "classes, has 1$"),
        (lambda folder: [put(folder, f"{part}/{i}.png") for part in ("Training", "TEST") for i in (0, 1)], "each part"),
    ],
)
def test_what_is_wrong_in_a_folder_is_named(tmp_path, spoil, message):
    spoil(make_folder(tmp_path))
    with pytest.raises(ValueError, match=f"{re.escape(str(tmp_path))}.*{message}"):
        load_dataset(tmp_path)


@pytest.mark.parametrize("name", ["cifar10", "digits"])
def test_a_folder_named_like_a_public_set_is_never_silently_one_of_the_two(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    make_folder(tmp_path / name)
    for data_dir in (None, tmp_path):
        with pytest.raises(ValueError, match=rf"'{name}' is a public data set, and .* name the folder './{name}'"):
            load_dataset(name, data_dir)
        assert load_dataset(f"./{name}", data_dir).class_names == load_dataset(Path(name)).class_names
        assert "a.b" in load_dataset(f"./{name}", data_dir).class_names


# Groups


def clips(folder: Path, groups: int = 12, each: int = 6) -> Path:
    """Images of two classes, some of each in most groups, each of a color of its own."""
    for group in range(groups):
        for i in range(each):
            place = folder / "ab"[(i + group) % 3 == 0] / f"clip{group:02}_{i}.png"
            place.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (8, 8), (20 * group, 40 * i, 0)).save(place)
    return folder


@pytest.mark.parametrize("in_files", [False, True])
def test_what_belongs_together_stays_on_one_side_of_every_split(tmp_path, in_files):
    settings = dict(image_size=8, validation=0.25, in_files=in_files, workers=0)
    data = load_dataset(clips(tmp_path), group=r"clip(\d+)", **settings)
    sides = [set(part.groups) for part in (data.train, data.validation, data.test)]
    assert sum(map(len, sides)) == 12 == len(set.union(*sides))
    for part, share in ((data.test, 0.2), (data.validation, 0.2)):
        assert abs(len(part) / 72 - share) < 0.1 and set(part.labels.tolist()) == {0, 1}
    reds = loaded(data.test.images)[:, 0, 0, 0] // 20
    assert {int(name) for name in data.test.groups} == set(reds.tolist())
    again = load_dataset(tmp_path, image_size=8, group=r"clip\d+")
    assert sorted(name.removeprefix("clip") for name in set(again.test.groups)) == sorted(sides[2])


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("[", r"group '\[' is no regular expression"),
        ("patient", "group 'patient' finds nothing in a/clip"),
        ("clip", "all images of class 'a' are of group 'clip', which goes into one part"),
        ("^[ab]", "all images of class 'a' are of group 'a', which goes into one part"),
    ],
)
def test_groups_that_cannot_be_kept_apart_are_named(tmp_path, pattern, message):
    with pytest.raises(ValueError, match=message):
        load_folder(clips(tmp_path), 8, group=pattern)

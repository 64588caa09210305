"""Every data set comes through one function in one form, whether it lies here or far away."""

import gzip
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from small_sets import SMALL_SETS, put_in_place, unpack

from vitbook.data import Dataset, Split, load_dataset, load_folder, mean_and_std, picture_files, split_at_random
from vitbook.downloads.datasets import SOURCES

pytest_plugins = ["local_mirror"]

EACH_SET = pytest.mark.parametrize("name", SMALL_SETS)


@pytest.fixture
def near(mirror, monkeypatch):
    """The small sets, at a mirror on this machine."""
    for small in SMALL_SETS.values():
        mirror.files |= small.published
    put_in_place(monkeypatch, mirror("good"))
    return mirror


@pytest.fixture
def far(cache, monkeypatch):
    """The small sets, where nobody answers."""
    put_in_place(monkeypatch, "http://127.0.0.1:1")
    return cache


def assert_is(dataset: Dataset, name: str) -> None:
    """The data set holds the pictures, labels and class names of the small one, all of them for training or testing."""
    small = SMALL_SETS[name]
    assert (dataset.name, dataset.class_names, dataset.validation) == (name, small.class_names, None)
    for split, (images, labels) in ((dataset.train, small.train), (dataset.test, small.test)):
        assert (split.images.dtype, split.labels.dtype) == (torch.uint8, torch.int64)
        assert split.images.is_contiguous() and len(split) == len(labels)
        assert np.array_equal(split.images.numpy(), images)
        assert np.array_equal(split.labels.numpy(), labels)


# Where it comes from


@EACH_SET
def test_a_set_is_downloaded_once(near, cache, name):
    assert_is(load_dataset(name, validation=0, progress=False), name)
    asked = list(near.asked)
    assert asked == [f"good/{file}" for file in SMALL_SETS[name].published]
    assert_is(load_dataset(name, validation=0, progress=False), name)
    assert near.asked == asked
    assert sorted(path.name for path in cache.iterdir()) == sorted(SMALL_SETS[name].published)


@pytest.mark.parametrize("progress", [True, False])
def test_a_bar_is_shown_where_it_is_wanted(near, capfd, progress):
    load_dataset("cifar10", progress=progress)
    assert ("cifar-10-binary.tar.gz: 100%" in capfd.readouterr().err) == progress


@EACH_SET
def test_mirrors_named_are_tried_first(near, name):
    near.pause = 0.001
    load_dataset(name, mirrors=[near("missing"), near("slow")], progress=False)
    first = next(iter(SMALL_SETS[name].published))
    assert near.asked[:2] == [f"missing/{first}", f"slow/{first}"]
    assert not any(asked.startswith("good") for asked in near.asked)


@EACH_SET
def test_mirrors_are_a_list(near, name):
    with pytest.raises(TypeError, match=f"mirrors must be a list of addresses, got the one address '{near('slow')}'"):
        load_dataset(name, mirrors=near("slow"), progress=False)
    assert near.asked == []


@EACH_SET
@pytest.mark.parametrize("below", ["", "name"])
def test_packed_files_that_are_here_are_read_where_they_lie(far, tmp_path, name, below):
    folder = tmp_path / "my data" / (name if below else "")
    folder.mkdir(parents=True)
    for file, content in SMALL_SETS[name].published.items():
        (folder / file).write_bytes(content)
    assert_is(load_dataset(name, tmp_path / "my data", validation=0), name)
    assert sorted(path.name for path in folder.iterdir()) == sorted(SMALL_SETS[name].published)


@EACH_SET
@pytest.mark.parametrize("below", ["", "name", "folder"])
def test_unpacked_files_that_are_here_are_read(far, tmp_path, name, below):
    folder = unpack(SMALL_SETS[name], tmp_path / (name if below == "name" else "") / SOURCES[name].folder)
    before = sorted(tmp_path.rglob("*"))
    assert_is(load_dataset(name, str(folder if below == "folder" else tmp_path), validation=0), name)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", ["fashion_mnist", "cifar10", "cifar100"])
def test_files_that_a_browser_has_half_unpacked_are_read(far, tmp_path, name):
    for file, content in SMALL_SETS[name].published.items():
        (tmp_path / file.removesuffix(".gz")).write_bytes(gzip.decompress(content))
    assert_is(load_dataset(name, tmp_path, validation=0), name)


def test_a_home_folder_is_understood(far, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    unpack(SMALL_SETS["cifar10"], tmp_path / "sets" / "cifar-10-batches-bin")
    assert_is(load_dataset("cifar10", "~/sets", validation=0), "cifar10")


@EACH_SET
def test_files_that_are_not_where_they_should_be_are_named(far, tmp_path, name):
    wanted = (
        f"{name}: expected {' and '.join(SOURCES[name].files)}, or the folder {SOURCES[name].folder}, in {tmp_path}"
    )
    with pytest.raises(FileNotFoundError, match=re.escape(wanted)):
        load_dataset(name, tmp_path)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        load_dataset(name, tmp_path / "nowhere")


@EACH_SET
def test_a_set_of_which_a_file_is_missing_is_not_there(far, tmp_path, name):
    for file, content in list(SMALL_SETS[name].published.items())[1:]:
        (tmp_path / file).write_bytes(content)
    with pytest.raises(FileNotFoundError, match=f"{name}: expected "):
        load_dataset(name, tmp_path)


@EACH_SET
def test_without_a_network_it_is_said_what_to_put_where(far, name):
    first, *others = SMALL_SETS[name].published
    with pytest.raises(ConnectionError, match=re.escape(f"put it at {far / first}, or name the folder")):
        load_dataset(name, progress=False)
    assert list(far.iterdir()) == []
    for file, content in SMALL_SETS[name].published.items():  # as told
        (far / file).write_bytes(content)
    assert_is(load_dataset(name, validation=0, progress=False), name)


def test_the_embedded_set_needs_nothing(far):
    data = load_dataset("digits")
    assert (len(data.train), len(data.validation), len(data.test)) == (1295, 142, 360)
    assert not far.exists()


# The form


@EACH_SET
def test_mean_and_deviation_are_those_of_the_training_pictures(far, tmp_path, name):
    unpack(SMALL_SETS[name], tmp_path / SOURCES[name].folder)
    data = load_dataset(name, tmp_path, validation=0.25)
    pixels = data.train.images.double() / 255
    torch.testing.assert_close(data.mean, pixels.mean(dim=(0, 2, 3)).float(), rtol=0, atol=1e-7)
    torch.testing.assert_close(data.std, pixels.std(dim=(0, 2, 3), correction=0).float(), rtol=0, atol=1e-7)
    whole = load_dataset(name, tmp_path, validation=0)
    assert not torch.equal(whole.mean, data.mean) and not torch.equal(whole.std, data.std)


def test_mean_and_deviation_of_few_levels_are_exact():
    images = torch.tensor([0, 255, 255, 255, 51, 51, 51, 51], dtype=torch.uint8).view(1, 2, 2, 2)
    mean, std = mean_and_std(images)
    torch.testing.assert_close(mean, torch.tensor([0.75, 0.2]), rtol=0, atol=1e-7)
    torch.testing.assert_close(std, torch.tensor([3**0.5 / 4, 0.0]), rtol=0, atol=1e-7)


def test_the_loader_gives_normalised_pictures_of_each_split(far, tmp_path):
    unpack(SMALL_SETS["cifar10"], tmp_path / "cifar-10-batches-bin")
    data = load_dataset("cifar10", tmp_path, validation=0.25)
    images, labels = next(iter(data.loader(data.validation, 7)))
    assert (images.dtype, images.shape) == (torch.float32, (7, 3, 32, 32))
    assert torch.equal(labels, data.validation.labels[:7])
    assert torch.equal(images, data.normalise(data.validation.images[:7]))


# The pictures set apart


def numbered(*counts: int) -> Split:
    """As many pictures of each class as said, one pixel each; picture i has the level i."""
    labels = torch.cat([torch.full((count,), label) for label, count in enumerate(counts)])
    order = torch.from_numpy(np.random.RandomState(0).permutation(len(labels)))
    return Split(torch.arange(len(labels), dtype=torch.uint8).view(-1, 1, 1, 1), labels[order])


def test_every_picture_is_in_one_part_and_keeps_its_label_and_place():
    split = numbered(30, 50, 20)
    kept, apart = split_at_random(split, 0.3, 0, "abc")
    for part in (kept, apart):
        numbers = part.images.flatten().long()
        assert torch.equal(numbers, numbers.sort().values)
        assert torch.equal(part.labels, split.labels[numbers])
    assert sorted(torch.cat([kept.images, apart.images]).flatten().tolist()) == list(range(100))


@pytest.mark.parametrize(
    ("fraction", "shares"), [(0.3, [9, 15, 6, 1, 1]), (0.01, [1, 1, 1, 1, 1]), (0.99, [29, 49, 19, 2, 1])]
)
def test_every_class_gives_its_share(fraction, shares):
    kept, apart = split_at_random(numbered(30, 50, 20, 3, 2), fraction, 0, "abcde")
    assert apart.labels.bincount().tolist() == shares
    assert kept.labels.bincount().tolist() == [
        30 - shares[0],
        50 - shares[1],
        20 - shares[2],
        3 - shares[3],
        2 - shares[4],
    ]


def test_the_seed_says_which():
    split = numbered(30, 50, 20)
    apart = [split_at_random(split, 0.3, seed, "abc")[1].images.flatten().tolist() for seed in (0, 0, 1)]
    assert apart[0] == apart[1] != apart[2]
    assert apart[0][:8] == [1, 5, 6, 18, 25, 28, 29, 32]  # on every machine, and whatever numpy's version


@pytest.mark.parametrize("fraction", [-0.1, 1, 1.5, float("nan")])
def test_a_share_that_is_none_is_refused(fraction):
    with pytest.raises(ValueError, match=f"between 0 and 1, got {fraction}"):
        load_dataset("digits", validation=fraction)


def test_a_class_of_one_picture_cannot_be_split():
    with pytest.raises(ValueError, match="class 'b' has one picture left"):
        split_at_random(numbered(30, 1), 0.3, 0, "ab")


def test_the_seed_leaves_the_test_pictures_alone(tmp_path):
    make_folder(tmp_path)
    for name in ("digits", tmp_path):
        first, second = (load_dataset(name, seed=seed) for seed in (0, 1))
        assert torch.equal(first.test.images, second.test.images)
        assert not torch.equal(first.validation.images, second.validation.images)


# Names


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("cifar", "cifar10"),
        ("CIFAR-100", "cifar100"),
        ("fashion-mnist", "fashion_mnist"),
        ("TinyImageNet", "tiny_imagenet"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(name, nearest):
    known = "There are digits, fashion_mnist, cifar10, cifar100, tiny_imagenet. Or name a folder of pictures."
    with pytest.raises(ValueError, match=f"unknown data set {name!r}, did you mean {nearest!r}. {known}"):
        load_dataset(name)


@pytest.mark.parametrize("name", ["digits", *SMALL_SETS])
def test_a_size_for_pictures_that_have_theirs_is_refused(name):
    with pytest.raises(ValueError, match=f"those of {name} have the size they have"):
        load_dataset(name, image_size=48)


# A folder of one's own

CLASSES = (".hidden", "Äpfel & Birnen", "a.b", "dogs 'n' cats", "10", "9")
COLOURS = {name: (40 * i, 250 - 30 * i, 90) for i, name in enumerate(CLASSES)}


def make_folder(folder, each: int = 5):
    """Pictures of one colour a class, of several sizes and kinds, some of them deeper down, with litter between."""
    for name, colour in COLOURS.items():
        (folder / name / "deeper").mkdir(parents=True)
        for i in range(each):
            kind = (".png", ".JPG", ".bmp", ".gif", "")[i % 5]
            place = folder / name / ("deeper" if i % 2 else "") / f"Bild {i}{kind}"
            Image.new("RGB", (20 + 7 * i, 60 - 9 * i), colour).save(place, "PNG" if kind == "" else None)
        for litter in (".DS_Store", "Thumbs.db", "desktop.ini"):
            (folder / name / litter).write_bytes(b"litter")
    (folder / "notes.txt").write_text("not in a class")
    return folder


def test_a_folder_is_a_data_set(tmp_path):
    data = load_dataset(make_folder(tmp_path / "my fruit"), image_size=24)
    assert (data.name, data.class_names) == ("my fruit", ("10", "9", "a.b", "dogs 'n' cats", "Äpfel & Birnen"))
    assert (len(data.train), len(data.validation), len(data.test)) == (15, 5, 5)
    for split in (data.train, data.validation, data.test):
        assert (split.images.dtype, split.images.shape[1:], split.labels.dtype) == (
            torch.uint8,
            (3, 24, 24),
            torch.int64,
        )
        for image, label in zip(split.images, split.labels.tolist(), strict=True):
            colour = torch.tensor(COLOURS[data.class_names[label]]).view(3, 1, 1)
            assert (image - colour).abs().max() <= 3, "JPEG and GIF are a little off, no more"


def test_a_folder_can_be_named_in_data_dir_and_has_a_size(tmp_path):
    make_folder(tmp_path / "fruit")
    assert load_dataset("fruit", tmp_path).train.images.shape[1:] == (3, 64, 64)


def test_the_folder_one_is_in_is_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(make_folder(tmp_path / "fruit"))
    assert load_dataset(".").name == "fruit"


def test_the_pictures_of_a_class_come_in_the_same_order_everywhere(tmp_path):
    for name in ("b/1", "C/2", "a", "Z"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert [path.relative_to(tmp_path).as_posix() for path in picture_files(tmp_path)] == ["C/2", "Z", "a", "b/1"]


def test_what_is_hidden_is_passed_over_and_a_link_that_leads_nowhere_is_not(tmp_path):
    make_folder(tmp_path / "fruit")
    before = picture_files(tmp_path / "fruit")
    hidden = tmp_path / "fruit" / "9" / ".ipynb_checkpoints"
    hidden.mkdir()
    (hidden / "copy.png").write_bytes(before[0].read_bytes())
    assert picture_files(tmp_path / "fruit") == before
    (tmp_path / "fruit" / "9" / "lost.png").symlink_to(tmp_path / "nowhere.png")
    with pytest.raises(FileNotFoundError, match="lost.png"):
        load_dataset(tmp_path / "fruit")


def test_the_parts_of_a_data_set_are_not_taken_for_classes(tmp_path):
    for part in ("train", "val"):
        make_folder(tmp_path / part)
    with pytest.raises(ValueError, match=r"has one for each part, \['train', 'val'\]: name one"):
        load_dataset(tmp_path)


def test_a_name_may_be_a_path():
    assert load_dataset(Path("digits")).name == "digits"
    with pytest.raises(ValueError, match="unknown data set 'digit', did you mean 'digits'"):
        load_dataset(Path("digit"))


@pytest.mark.parametrize("chosen", [[5, 6, 0], np.array([True]), torch.ones(3, dtype=torch.int64)])
def test_pictures_are_selected_by_yes_and_no_alone(chosen):
    split = Split(torch.arange(3).view(3, 1, 1, 1).byte(), torch.arange(3))
    assert split.select([True, False, True]).labels.tolist() == [0, 2]
    assert split.select(torch.tensor([False, True, False])).labels.tolist() == [1]
    with pytest.raises(ValueError, match=r"chosen must be bool of shape \(N,\) = \(3,\), got"):
        split.select(chosen)


def test_the_middle_of_a_picture_is_taken(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        for i in range(2):
            picture = Image.new("RGB", (90, 30), "red")
            picture.paste("blue", (30, 0, 60, 30))
            picture.save(tmp_path / name / f"{i}.png")
    images = load_folder(tmp_path, 15).train.images
    assert images.shape == (2, 3, 15, 15)
    assert (images[:, :, :, 1:-1] == torch.tensor([0, 0, 255]).view(3, 1, 1)).all()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda folder: (folder / "9" / "list.txt").write_text("hello"),
            "9.list.txt is no picture .*format is unknown",
        ),
        (lambda folder: (folder / "9" / "empty.png").touch(), "9.empty.png is no picture"),
        (lambda folder: (folder / "new class").mkdir(), "new class should have two pictures at least, has 0"),
        (lambda folder: [path.unlink() for path in (folder / "9").rglob("*[1-4]*")], "9 should have two .*, has 1"),
        (
            lambda folder: [path.rename(folder / f".{path.name}") for path in folder.iterdir() if path.name != "9"],
            "has 1$",
        ),
    ],
)
def test_what_is_wrong_in_a_folder_is_named(tmp_path, spoil, message):
    spoil(make_folder(tmp_path))
    with pytest.raises(ValueError, match=f"{re.escape(str(tmp_path))}.*{message}"):
        load_dataset(tmp_path)


def test_a_size_that_is_none_is_refused(tmp_path):
    with pytest.raises(ValueError, match="image_size must be at least 1, got 0"):
        load_dataset(make_folder(tmp_path), image_size=0)

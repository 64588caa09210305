"""The album: pictures that can be read, labels that are right, and credits that leave none of them out."""

import io
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from small_sets import CIFAR10_CLASSES as NAMES

from vitbook.data import album, album_credits
from vitbook.downloads.datasets import CIFAR10_CLASSES

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "vitbook" / "assets" / "album"
CREDITS = album_credits()
LICENCES = {"public domain", "CC0-1.0", "CC-BY-2.0", "CC-BY-2.5", "CC-BY-SA-3.0", "CC-BY-SA-4.0"}
KEYS = {"file", "label", "title", "author", "licence", "source", "original", "crop", "changes"}
EACH = pytest.mark.parametrize("entry", CREDITS, ids=lambda entry: entry["file"])


def test_every_file_has_its_credits_and_every_credit_its_file():
    named = [entry["file"] for entry in CREDITS]
    assert sorted(named) == sorted(path.name for path in FOLDER.iterdir() if path.name != "credits.json")
    assert len(set(named)) == len(named)


@EACH
def test_the_credits_of_a_picture_are_complete(entry):
    assert entry.keys() == KEYS
    assert all(entry[key].strip() for key in KEYS - {"original", "crop"})
    assert entry["original"] is None or entry["original"].startswith(("http://", "https://"))
    assert entry["licence"] in LICENCES
    left, top, right, bottom = entry["crop"]
    assert right - left == bottom - top > 128, "the crop is a square, and larger than what was made of it"


@EACH
def test_a_picture_is_a_small_rgb_jpeg_without_its_makers_notes(entry):
    content = (FOLDER / entry["file"]).read_bytes()
    picture = Image.open(io.BytesIO(content))
    assert (picture.format, picture.mode, picture.size) == ("JPEG", "RGB", (128, 128))
    assert not picture.getexif() and len(content) < 16_000
    assert np.asarray(picture).std() > 20, "something is to be seen"


def test_the_album_is_small_and_no_picture_is_in_it_twice():
    pictures = album(128).images.flatten(1).float()
    distance = torch.cdist(pictures, pictures) / pictures.shape[1] ** 0.5
    assert (distance + 255 * torch.eye(len(pictures))).min() > 20
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 250_000


@pytest.mark.parametrize("size", [1, 24, 32, 128])
def test_the_album_has_the_documented_form(size):
    split = album(size)
    assert split.images.shape == (22, 3, size, size) and split.images.dtype == torch.uint8
    assert split.labels.shape == (22,) and split.labels.dtype == torch.int64
    assert split.images.is_contiguous()


def test_32_pixels_are_those_of_cifar10():
    assert torch.equal(album().images, album(32).images)


def test_the_labels_are_cifar10s_numbers_of_what_the_files_are_named_after():
    assert list(CIFAR10_CLASSES) == NAMES
    labels = album(1).labels
    assert [NAMES[label] for label in labels] == [entry["file"].split("_")[0] for entry in CREDITS]
    assert [NAMES[label] for label in labels] == [entry["label"] for entry in CREDITS]
    assert labels.unique().tolist() == list(range(10)) and torch.equal(labels, labels.sort().values)


@pytest.mark.parametrize("size", [64, 32, 16, 1])
def test_a_smaller_pixel_is_the_mean_of_those_it_covers(size):
    whole = torch.stack(
        [torch.from_numpy(np.array(Image.open(FOLDER / entry["file"]))).permute(2, 0, 1) for entry in CREDITS]
    )
    assert torch.equal(album(128).images, whole)
    mean = torch.nn.functional.avg_pool2d(whole.double(), 128 // size)
    assert (album(size).images - mean).abs().max() <= 1  # rounded once along each axis


@pytest.mark.parametrize("size", [0, -32, 129])
def test_another_size_is_refused(size):
    with pytest.raises(ValueError, match=rf"size must lie in 1 … 128, got {size}"):
        album(size)


def test_an_album_is_the_readers_own_copy():
    before = album(4).images.clone()
    album(4).images.zero_()
    assert torch.equal(album(4).images, before)


def test_the_readme_beside_the_pictures_names_each_with_its_author_and_licence():
    rows = {}
    for line in (FOLDER.parent / "README.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("| `"):
            file, title, author, licence = (cell.strip() for cell in line.strip("|").split("|"))
            rows[file.strip("`")] = (title, author, licence)
    assert rows.keys() == {entry["file"] for entry in CREDITS}
    for entry in CREDITS:
        title, author, licence = rows[entry["file"]]
        linked = f"[{entry['title']}]({entry['original']})" if entry["original"] else entry["title"]
        assert (title, author) == (linked, entry["author"])
        assert licence.startswith(f"[{entry['licence']}](https://creativecommons.org/") or licence == "public domain"
        assert ("public domain" in licence) == (entry["licence"] == "public domain")


def test_the_album_is_in_the_package_that_is_installed():
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    packed = {path for pattern in tools["package-data"]["vitbook"] for path in (ROOT / "vitbook").glob(pattern)}
    assert set(FOLDER.iterdir()) <= packed

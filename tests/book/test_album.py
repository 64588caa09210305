"""The album: images that can be read, labels that are right, and credits that leave none of them out."""

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
LICENSES = {"public domain", "CC0-1.0", "CC-BY-2.0", "CC-BY-2.5", "CC-BY-SA-3.0", "CC-BY-SA-4.0"}
KEYS = {"file", "label", "title", "author", "licence", "source", "original", "crop", "changes"}


def test_every_file_has_complete_credits_and_is_a_small_rgb_jpeg_without_its_makers_notes():
    files = [entry["file"] for entry in CREDITS]
    assert sorted(files) == sorted(path.name for path in FOLDER.iterdir() if path.name != "credits.json")
    for entry in CREDITS:
        assert entry.keys() == KEYS and all(entry[key].strip() for key in KEYS - {"original", "crop"})
        assert entry["original"] is None or entry["original"].startswith(("http://", "https://"))
        left, top, right, bottom = entry["crop"]
        assert entry["licence"] in LICENSES and right - left == bottom - top > 128
        content = (FOLDER / entry["file"]).read_bytes()
        image = Image.open(io.BytesIO(content))
        assert (image.format, image.mode, image.size) == ("JPEG", "RGB", (128, 128))
        assert not image.getexif() and len(content) < 16_000 and np.asarray(image).std() > 20, entry["file"]


def test_no_image_is_in_it_twice_and_the_labels_are_cifar10s():
    split = album(128)
    distance = torch.cdist(split.images.flatten(1).float(), split.images.flatten(1).float()) / (3 * 128 * 128) ** 0.5
    assert (distance + 255 * torch.eye(len(split))).min() > 20
    assert list(CIFAR10_CLASSES) == NAMES
    assert [NAMES[label] for label in split.labels] == [entry["label"] for entry in CREDITS]
    assert [entry["file"].split("_")[0] for entry in CREDITS] == [entry["label"] for entry in CREDITS]
    assert split.labels.unique().tolist() == list(range(10)) and torch.equal(split.labels, split.labels.sort().values)


@pytest.mark.parametrize("size", [128, 64, 32, 1])
def test_a_smaller_pixel_is_the_mean_of_those_it_covers(size):
    split = album(size)
    assert split.images.shape == (22, 3, size, size) and split.images.is_contiguous()
    assert (split.images.dtype, split.labels.dtype) == (torch.uint8, torch.int64)
    opened = [np.array(Image.open(FOLDER / entry["file"])) for entry in CREDITS]
    whole = torch.from_numpy(np.stack(opened)).permute(0, 3, 1, 2).double()
    difference = (split.images - torch.nn.functional.avg_pool2d(whole, 128 // size)).abs().max()
    assert difference <= (0 if size == 128 else 1)  # rounded once along each axis


def test_another_size_is_refused_and_an_album_is_the_readers_own_copy():
    for size in (0, -32, 129):
        with pytest.raises(ValueError, match=rf"size must lie in 1 … 128, got {size}"):
            album(size)
    before = album().images.clone()
    album().images.zero_()
    assert torch.equal(album(32).images, before)


def test_the_readme_beside_the_images_names_each_with_its_author_and_license():
    rows = {}
    for line in (FOLDER.parent / "README.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("| `"):
            file, title, author, license = (cell.strip() for cell in line.strip("|").split("|"))
            rows[file.strip("`")] = (title, author, license)
    assert rows.keys() == {entry["file"] for entry in CREDITS}
    for entry in CREDITS:
        title, author, license = rows[entry["file"]]
        linked = f"[{entry['title']}]({entry['original']})" if entry["original"] else entry["title"]
        assert (title, author) == (linked, entry["author"])
        free = entry["licence"] == "public domain"
        assert license == "public domain" if free else license.startswith(f"[{entry['licence']}](https://creativecomm")


def test_the_album_is_in_the_package_that_is_installed():
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    packed = {path for pattern in tools["package-data"]["vitbook"] for path in (ROOT / "vitbook").glob(pattern)}
    assert set(FOLDER.iterdir()) <= packed

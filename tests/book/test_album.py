"""The album: images that can be read, labels that are right, and credits that leave none of them out."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

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


@pytest.mark.parametrize("size", [128, 32])
def test_a_smaller_pixel_is_the_mean_of_those_it_covers(size):
    split = album(size)
    opened = [np.array(Image.open(FOLDER / entry["file"])) for entry in CREDITS]
    whole = torch.from_numpy(np.stack(opened)).permute(0, 3, 1, 2).double()
    difference = (split.images - torch.nn.functional.avg_pool2d(whole, 128 // size)).abs().max()
    assert difference <= (0 if size == 128 else 1)  # rounded once along each axis
    assert [CIFAR10_CLASSES[label] for label in split.labels] == [entry["label"] for entry in CREDITS]


def test_another_size_is_refused_and_an_album_is_the_readers_own_copy():
    with pytest.raises(ValueError, match="size must lie in 1 … 128, got 129"):
        album(129)
    before = album().images.clone()
    album().images.zero_()
    assert torch.equal(album(32).images, before)


def test_the_readme_beside_the_images_names_each_with_its_author_and_license():
    page = (FOLDER.parent / "README.md").read_text(encoding="utf-8")
    for entry in CREDITS:
        (row,) = (line for line in page.splitlines() if line.startswith(f"| `{entry['file']}`"))
        assert all(
            words in row for words in (entry["title"], entry["author"], entry["licence"], entry["original"] or "")
        )

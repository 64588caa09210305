"""The album: images that can be read, labels that are right, and credits that leave none of them out."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from vitbook._downloads.datasets import CIFAR10_CLASSES
from vitbook.data import album, album_credits, album_masks

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
        assert all(text in row for text in (entry["title"], entry["author"], entry["licence"], entry["original"] or ""))


def test_masks_show_the_subject_and_not_what_is_around_it():
    places, masks = album_masks()
    files = [CREDITS[place]["file"] for place in places.tolist()]
    assert masks.shape == (12, 128, 128) and places.tolist() == sorted(set(places.tolist()))
    assert ((masks.float().mean(dim=(1, 2)) > 0.2) & (masks.float().mean(dim=(1, 2)) < 0.5)).all()
    beyond = {  # x and y of pixels that show the subject, and of some that do not
        "bird_kingfisher.jpg": ([(65, 15), (100, 30), (35, 110), (60, 60)], [(100, 10), (90, 96), (50, 110)]),
        "cat_yarn.jpg": ([(20, 45), (38, 70), (100, 50), (115, 70)], [(60, 60), (60, 110), (20, 90)]),
        "horse_nokota.jpg": ([(30, 20), (10, 60), (20, 110), (100, 50)], [(35, 50), (72, 100), (60, 5)]),
    }
    for file, (inside, outside) in beyond.items():
        mask = masks[files.index(file)]
        assert all(mask[y, x] for x, y in inside) and not any(mask[y, x] for x, y in outside), file


@pytest.mark.parametrize("size", [64, 32])
def test_a_smaller_mask_has_the_pixels_that_are_covered_by_half(size):
    whole, small = album_masks()[1].float(), album_masks(size)[1]
    share = torch.nn.functional.avg_pool2d(whole, 128 // size)
    clear = (share - 0.5).abs() > 0.3  # a pixel at the outline may fall to either side
    assert torch.equal(small[clear], share[clear] > 0.5) and clear.float().mean() > 0.9
    with pytest.raises(ValueError, match="size must lie in 1 … 128, got 0"):
        album_masks(0)


def test_every_outline_is_of_a_file_of_the_album_and_lies_within_it():
    outlines = json.loads((FOLDER.parent / "album_masks.json").read_text())
    assert outlines.keys() <= {entry["file"] for entry in CREDITS} and len(outlines) == 12
    corners = [corner for polygons in outlines.values() for polygon in polygons for corner in polygon]
    assert all(0 <= x <= 128 and 0 <= y <= 128 for x, y in corners)
    assert "album_masks.json" in (FOLDER.parent / "README.md").read_text(encoding="utf-8")

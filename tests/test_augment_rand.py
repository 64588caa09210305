"""RandAugment and random erasing: each operation against PIL, each picture its own, the same draws on any device."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch.testing import assert_close

from vitbook import augment
from vitbook._support.images import to_tensor
from vitbook.augment import COLOURS, MOVES, OPERATIONS, operate, rand_augment, random_erasing
from vitbook.data import photograph

WITHOUT_STRENGTH = ("auto_contrast", "equalize")


def batch(size: int = 5, channels: int = 3, height: int = 9, width: int = 14) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(256, (size, channels, height, width), generator=generator, dtype=torch.uint8)


def photographs() -> torch.Tensor:
    """Two, of low contrast, so that stretching it has something to do. uint8 (2, 3, 427, 640)."""
    return (torch.stack([photograph("china"), photograph("flower")]) * 0.7 + 30).to(torch.uint8)


def applied(name: str, images: torch.Tensor, strength: float) -> torch.Tensor:
    """One operation on all pictures."""
    numbers = torch.full((len(images),), OPERATIONS.index(name))
    return operate(images.float(), numbers, torch.full((len(images),), strength)).to(torch.uint8)


def by_pil(name: str, picture: Image.Image, s: float) -> Image.Image:
    """What PIL makes of it."""
    enhance = dict(color="Color", contrast="Contrast", brightness="Brightness", sharpness="Sharpness")
    if name in enhance:
        return getattr(ImageEnhance, enhance[name])(picture).enhance(1 + 0.9 * s)
    if name in MOVES:
        x, y = picture.width / 2, picture.height / 2
        a = math.radians(30 * s)
        (a, b, c), (d, e, f) = dict(
            rotate=((math.cos(a), -math.sin(a), 0), (math.sin(a), math.cos(a), 0)),
            shear_x=((1, 0.3 * s, 0), (0, 1, 0)),
            shear_y=((1, 0, 0), (0.3 * s, 1, 0)),
            translate_x=((1, 0, 0.45 * s * picture.width), (0, 1, 0)),
            translate_y=((1, 0, 0), (0, 1, 0.45 * s * picture.height)),
        )[name]
        about_middle = (a, b, c + x - a * x - b * y, d, e, f + y - d * x - e * y)
        kinds = Image.Transform.AFFINE, Image.Resampling.BILINEAR
        return picture.transform(picture.size, kinds[0], about_middle, kinds[1], fillcolor=(128, 128, 128))
    return dict(
        solarize=lambda: ImageOps.solarize(picture, math.ceil(256 * (1 - abs(s)))),
        posterize=lambda: ImageOps.posterize(picture, 8 - round(4 * abs(s))),
        auto_contrast=lambda: ImageOps.autocontrast(picture),
        equalize=lambda: ImageOps.equalize(picture),
        identity=lambda: picture,
    )[name]()


@pytest.mark.parametrize("strength", [1.0, -0.7, 0.25])
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_does_to_photographs_what_pil_does(name, strength):
    images = photographs()
    ours = applied(name, images, strength)
    pictures = [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in images]
    theirs = torch.stack([to_tensor(by_pil(name, picture, strength)) for picture in pictures])
    gap = (ours.int() - theirs.int()).abs()
    exact = name in ("solarize", "posterize", "identity")
    # PIL rounds down where this rounds; along the edge of a moved picture it does not blend with what is outside
    assert (gap > (0 if exact else 1)).double().mean() <= (0.005 if name in MOVES else 0)
    assert name == "identity" or (ours != images).double().mean() > 0.1, "something was done"


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", [name for name in OPERATIONS if name not in WITHOUT_STRENGTH])
def test_strength_zero_changes_nothing(name, channels):
    images = batch(channels=channels)
    assert torch.equal(applied(name, images, 0.0), images)


def test_magnitude_zero_leaves_pictures_of_full_range_and_even_levels_alone():
    """Such as auto-contrast and equalize do not change."""
    images = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16).repeat(50, 1, 1, 1)
    assert torch.equal(rand_augment(images, 3, 0.0), images)
    assert not torch.equal(rand_augment(images, 3, 2.0), images)


@pytest.mark.parametrize("name", OPERATIONS)
def test_grey_pictures_are_changed_as_colour_pictures_of_the_same_grey(name):
    grey = batch(channels=1)
    assert_close(applied(name, grey, 0.6).expand(-1, 3, -1, -1), applied(name, grey.repeat(1, 3, 1, 1), 0.6))


def test_closed_forms():
    steps = torch.arange(16, dtype=torch.uint8).view(1, 1, 4, 4)
    ramp = 10 * steps
    assert torch.equal(applied("equalize", ramp, 1.0), 17 * steps)  # 0 … 255, though there are 16 pixels alone
    assert torch.equal(applied("auto_contrast", ramp + 40, 1.0), 17 * steps)
    assert torch.equal(applied("solarize", ramp, 1.0), 255 - ramp)
    assert torch.equal(applied("posterize", ramp, 1.0), ramp // 16 * 16)
    assert torch.equal(applied("brightness", ramp, 1.0), (ramp.float() * 1.9).clamp(max=255).round().byte())
    constant = torch.full((2, 3, 4, 5), 77, dtype=torch.uint8)
    for name in (*WITHOUT_STRENGTH, "contrast", "color", "sharpness"):
        assert torch.equal(applied(name, constant, 0.9), constant)


def test_a_picture_is_changed_as_if_it_were_alone():
    images, numbers = batch(len(OPERATIONS)).float(), torch.randperm(len(OPERATIONS))
    strengths = torch.linspace(-1, 1, len(OPERATIONS))
    together = operate(images, numbers, strengths)
    for i in range(len(OPERATIONS)):
        assert_close(operate(images[i : i + 1], numbers[i : i + 1], strengths[i : i + 1])[0], together[i])


def test_each_picture_draws_its_own_operations_evenly(monkeypatch):
    drawn = []
    monkeypatch.setattr(augment, "operate", lambda pixels, *draws: drawn.append(draws) or pixels)
    torch.manual_seed(0)
    rand_augment(torch.zeros(2800, 1, 3, 3, dtype=torch.uint8), 2, 4.0)
    assert len(drawn) == 2
    for numbers, strengths in drawn:
        counts = Counter(numbers.tolist())
        assert set(counts) == set(range(14)) and 150 < min(counts.values()) and max(counts.values()) < 250
        assert_close(strengths.abs(), torch.full((2800,), 0.4))
        assert 1300 < (strengths > 0).sum() < 1500
    (first, _), (second, _) = drawn
    assert 150 < (first == second).sum() < 250, "the second draw knows nothing of the first"


@pytest.mark.parametrize("num_ops", [0, 1, 3])
def test_as_many_operations_as_asked_for(monkeypatch, num_ops):
    calls = []
    monkeypatch.setattr(augment, "operate", lambda pixels, *_: calls.append(1) or pixels)
    assert torch.equal(rand_augment(batch(), num_ops, 9.0), batch())
    assert len(calls) == num_ops


def test_equal_pictures_come_out_different():
    assert len(rand_augment(batch(1).repeat(60, 1, 1, 1), 2, 9.0).flatten(1).unique(dim=0)) > 40


@pytest.mark.parametrize("magnitude", [9.0, 10.0, 25.0])
@pytest.mark.parametrize("name", OPERATIONS)
def test_levels_stay_whole_and_in_range_at_any_magnitude(name, magnitude):
    images = batch(4)
    for strength in (magnitude / 10, -magnitude / 10):
        numbers = torch.full((4,), OPERATIONS.index(name))
        levels = operate(images.float(), numbers, torch.full((4,), strength))
        assert levels.min() >= 0 and levels.max() <= 255 and torch.equal(levels, levels.round())


def test_the_draws_are_those_of_the_cpu_on_any_device():
    """A tensor on "meta" has a device and no numbers."""
    states = []
    for device in ("cpu", "meta"):
        torch.manual_seed(3)
        images = batch(40).to(device)
        changed, erased = rand_augment(images, 2, 9.0), random_erasing(images.float(), 0.5)
        assert changed.device == erased.device == images.device
        assert (changed.dtype, changed.shape) == (torch.uint8, images.shape)
        states.append(torch.get_rng_state())
    assert torch.equal(*states)


CHANGES = [(rand_augment, batch(), 2, 9.0), (random_erasing, batch().float() + 1, 0.5)]


@pytest.mark.parametrize("call", CHANGES, ids=lambda call: call[0].__name__)
def test_the_same_seed_gives_the_same_change_and_what_comes_in_stays(call):
    change, images, *rest = call
    before, results = images.clone(), []
    for seed in (3, 3, 5):
        torch.manual_seed(seed)
        results.append(change(images, *rest))
    assert torch.equal(results[0], results[1]) and not torch.equal(results[0], results[2])
    assert torch.equal(images, before)
    assert results[0].dtype == images.dtype and results[0].shape == images.shape


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((batch().float(), 2, 9.0), r"uint8 \(B, 1 or 3, H, W\), at least 3×3, got torch.float32 of"),
        ((batch()[0], 2, 9.0), r"got torch.uint8 of shape \(3, 9, 14\)"),
        ((batch(channels=2), 2, 9.0), r"got torch.uint8 of shape \(5, 2, 9, 14\)"),
        ((batch(width=2), 2, 9.0), r"got torch.uint8 of shape \(5, 3, 9, 2\)"),
        ((batch(), -1, 9.0), "num_ops must be finite and at least 0, got -1"),
        ((batch(), 2, -0.1), "magnitude must be finite and at least 0, got -0.1"),
        ((batch(), 2, math.nan), "magnitude must be finite and at least 0, got nan"),
    ],
)
def test_what_does_not_fit_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        rand_augment(*arguments)


def test_erasing_blots_out_one_rectangle_of_the_stated_size_and_shape():
    torch.manual_seed(0)
    erased = random_erasing(torch.ones(2000, 2, 40, 40), 1.0) == 0
    assert torch.equal(erased[:, 0], erased[:, 1])
    areas, ratios, touched = [], [], torch.zeros(40, 40, dtype=torch.int64)
    for mask in erased[:, 0]:
        rows, columns = mask.any(dim=1).nonzero(), mask.any(dim=0).nonzero()
        height, width = (int(side.max() - side.min() + 1) for side in (rows, columns))
        assert mask.sum() == height * width, "one rectangle"
        areas.append(height * width / 1600)
        ratios.append(math.log(height / width))
        touched += mask
    assert 0.015 < min(areas) < 0.03 and 0.31 < max(areas) < 0.35
    assert np.mean(areas) == pytest.approx(0.175, abs=0.01)
    assert max(map(abs, ratios)) < math.log(10 / 3) + 0.2 and abs(np.mean(ratios)) < 0.1
    assert touched.min() > 0, "every place is erased at some time"
    assert touched[:20].sum() / touched.sum() == pytest.approx(0.5, abs=0.03)
    assert touched[:, :20].sum() / touched.sum() == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("probability", [0.0, 0.3, 1.0])
def test_erasing_takes_its_share_of_the_pictures(probability):
    torch.manual_seed(0)
    kept = random_erasing(torch.ones(1000, 1, 8, 12), probability).flatten(1).all(dim=1).double().mean()
    assert kept == pytest.approx(1 - probability, abs=0.05 if 0 < probability < 1 else 0)


def test_an_erased_picture_keeps_the_rest():
    images = torch.rand(20, 3, 9, 14) + 1
    erased = random_erasing(images, 1.0)
    assert torch.equal(erased[erased != 0], images[erased != 0])


@pytest.mark.parametrize("probability", [-0.1, 1.1])
def test_a_probability_out_of_range_is_named(probability):
    with pytest.raises(ValueError, match=rf"probability must lie in 0 … 1, got {probability}"):
        random_erasing(batch().float(), probability)


def test_the_operations_are_those_of_the_paper():
    assert len(OPERATIONS) == len(set(OPERATIONS)) == 14 == len(MOVES) + len(COLOURS) + 1

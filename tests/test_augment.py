"""Random turns, moves and zooms: none at strength zero, each picture its own, the same from the same seed."""

import math

import pytest
import torch
from torch.testing import assert_close

from vitbook.augment import mixup, random_affine, warp


def batch() -> torch.Tensor:
    return torch.rand(4, 3, 9, 14)


def drawn(seed: int, images: torch.Tensor, **strengths) -> torch.Tensor:
    torch.manual_seed(seed)
    return random_affine(images, **strengths)


def test_strength_zero_changes_nothing():
    images = batch()
    assert_close(random_affine(images, degrees=0, shift=0, scale=0), images, rtol=0, atol=1e-5)


@pytest.mark.parametrize("strength", ["degrees", "shift", "scale"])
def test_each_strength_changes_every_picture_in_its_own_way(strength):
    images = batch()[:1].repeat(4, 1, 1, 1)
    alone = dict(degrees=0, shift=0, scale=0) | {strength: {"degrees": 30, "shift": 0.2, "scale": 0.4}[strength]}
    changed = random_affine(images, **alone)
    for i, one in enumerate(changed):
        assert not torch.allclose(one, images[0], atol=1e-3)
        assert not any(torch.allclose(one, other, atol=1e-3) for other in changed[:i])


def test_pictures_keep_shape_dtype_and_range():
    for dtype in (torch.float32, torch.float64):
        images = batch().to(dtype)
        changed = random_affine(images, 45, 0.5, 0.5)
        assert (changed.shape, changed.dtype) == (images.shape, dtype)
        assert images.min() <= changed.min() and changed.max() <= images.max()


def test_a_constant_picture_stays_constant():
    assert_close(random_affine(torch.full((4, 1, 9, 14), 0.3), 45, 0.5, 0.5), torch.full((4, 1, 9, 14), 0.3))


def test_the_same_seed_gives_the_same_changes():
    images = batch()
    assert torch.equal(drawn(3, images), drawn(3, images))
    assert not torch.equal(drawn(3, images), drawn(4, images))


def test_the_pictures_that_come_in_stay_as_they_are():
    images = batch()
    before = images.clone()
    random_affine(images)
    assert torch.equal(images, before)


@pytest.mark.parametrize("down", [False, True], ids=["across", "down"])
@pytest.mark.parametrize(
    ("strength", "place", "largest"),
    [
        (dict(shift=0.2), (10, 10), 0.2 * 21 / 20),  # a share of the 21 pixels, on a slope of 20 steps
        (dict(scale=0.5), (10, 15), 0.5 * 5 / 20),
        (dict(degrees=30), (15, 10), math.sin(math.radians(30)) * 5 / 20),
    ],
    ids=["shift", "scale", "degrees"],
)
def test_changes_are_spread_evenly_up_to_their_strength(strength, place, largest, down):
    """A slope from 0 to 1 shows how far each place has come from."""
    slope = torch.linspace(0, 1, 21).expand(400, 1, 21, 21)
    if down:
        slope, place = slope.mT, place[::-1]
    moved = random_affine(slope, **dict(degrees=0, shift=0, scale=0) | strength) - slope
    shares = moved[:, 0, *place] / largest
    assert -1 - 1e-4 <= shares.min() < -0.95 and 0.95 < shares.max() <= 1 + 1e-4
    assert abs(shares.mean()) < 0.1 and shares.std().item() == pytest.approx(3**-0.5, rel=0.1)


def test_a_turned_disc_stays_a_disc():
    y, x = torch.meshgrid(torch.arange(31) - 15, torch.arange(61) - 30, indexing="ij")
    disc = (x**2 + y**2 < 100).float()[None, None]
    assert_close(drawn(2, disc, degrees=90, shift=0, scale=0), disc, rtol=0, atol=0.9)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.rand(3, 8, 12), r"floats \(B, C, H, W\), got torch.float32 of shape \(3, 8, 12\)"),
        (torch.zeros(2, 3, 8, 12, dtype=torch.uint8), r"got torch.uint8 of shape \(2, 3, 8, 12\)"),
    ],
)
def test_what_does_not_fit_is_named(images, message):
    with pytest.raises(ValueError, match=message):
        random_affine(images)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_places_are_exact_in_half_precision(dtype):
    images = torch.rand(2, 3, 9, 1).to(dtype)  # a picture one pixel wide is where affine_grid knows no float16
    torch.manual_seed(1)
    expected = random_affine(images.float()).to(dtype)
    torch.manual_seed(1)
    assert torch.equal(random_affine(images), expected)


def test_a_map_may_lie_on_any_device():
    images = torch.rand(2, 3, 9, 14, device="meta")
    assert warp(images, torch.rand(2, 2, 3, device="meta"), "zeros").device == images.device


def test_mixup_wants_a_target_for_each_picture():
    with pytest.raises(ValueError, match="images and targets must be equally many, got 0 and 1"):
        mixup(torch.ones(0, 1, 1, 1), torch.ones(1, 4), 0.2)

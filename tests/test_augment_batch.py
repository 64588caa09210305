"""Crops, flips, mixup and CutMix: each picture its own change, targets that follow, the same from the same seed."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from vitbook.augment import cutmix, mixup, random_crop, random_flip

B, C, H, W, K = 5, 3, 9, 14, 7


def batch(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.rand(B, C, H, W, generator=torch.Generator().manual_seed(1)).to(dtype)


def targets() -> torch.Tensor:
    return F.one_hot(torch.tensor([0, 6, 2, 3, 5]), K).float()


def drawn(seed: int, change, *arguments):
    torch.manual_seed(seed)
    return change(*arguments)


def test_a_crop_is_a_window_of_the_mirrored_picture():
    images, padding = batch(), 2
    padded = F.pad(images, (2, 2, 2, 2), mode="reflect")
    seen = set()
    for seed in range(40):
        for picture, cropped in zip(padded, drawn(seed, random_crop, images, padding), strict=True):
            windows = [(y, x) for y in range(5) for x in range(5)]
            found = [(y, x) for y, x in windows if torch.equal(picture[:, y : y + H, x : x + W], cropped)]
            assert len(found) == 1
            seen |= set(found)
    assert len(seen) == 25, "every place is taken at some time"


def test_pictures_of_a_batch_are_cropped_each_in_its_own_way():
    same = batch()[:1].repeat(20, 1, 1, 1)
    assert len(drawn(0, random_crop, same, 3).flatten(1).unique(dim=0)) > 10


def test_a_crop_by_nothing_changes_nothing():
    assert torch.equal(random_crop(batch(), 0), batch())


@pytest.mark.parametrize("padding", [-1, H])
def test_padding_that_does_not_fit_is_named(padding):
    with pytest.raises(ValueError, match=f"padding must lie in 0 … 8 for 9×14, got {padding}"):
        random_crop(batch(), padding)


def test_half_of_the_pictures_are_mirrored():
    images = batch()[:1].repeat(400, 1, 1, 1)
    flipped = drawn(0, random_flip, images)
    mirrored = (flipped == images.flip(-1)).flatten(1).all(dim=1)
    assert ((flipped == images).flatten(1).all(dim=1) ^ mirrored).all()
    assert 160 < mirrored.sum() < 240


def larger_share(mixed: torch.Tensor) -> float:
    """Of the two pictures mixed, the larger one's share; a picture that happens to be mixed with itself has 1."""
    return mixed.amax(dim=1).min().item()


def test_mixup_mixes_pictures_and_targets_by_the_same_share():
    images = targets()[:, :, None, None].expand(B, K, H, W)  # a picture that says what it is
    shares = set()
    for seed in range(20):
        mixed, mixed_targets = drawn(seed, mixup, images, targets(), 0.4)
        assert_close(mixed, mixed_targets[:, :, None, None].expand(B, K, H, W))
        assert_close(mixed_targets.sum(dim=1), torch.ones(B))
        shares.add(round(larger_share(mixed_targets), 4))
    assert len(shares) > 10


def test_cutmix_mixes_targets_by_the_area_that_is_seen():
    images = targets()[:, :, None, None].expand(B, K, H, W)
    areas = set()
    for seed in range(40):
        mixed, mixed_targets = drawn(seed, cutmix, images, targets(), 1.0)
        assert_close(mixed.mean(dim=(2, 3)), mixed_targets)
        assert set(mixed.unique().tolist()) <= {0.0, 1.0}, "a pixel is of one picture"
        pasted = (mixed != images).any(dim=(0, 1))  # (H, W)
        if pasted.any():
            rows, columns = pasted.any(dim=1).nonzero(), pasted.any(dim=0).nonzero()
            assert pasted[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1].all(), "one rectangle"
        areas.add(int(pasted.sum()))
    assert len(areas) > 20


@pytest.mark.parametrize("alpha", [0.2, 1.0])
def test_the_share_in_mixup_follows_the_beta_distribution(alpha):
    torch.manual_seed(0)
    shares = [larger_share(mixup(torch.rand(8, 1, 1, 1), torch.eye(8), alpha)[1]) for _ in range(1000)]
    expected = torch.distributions.Beta(alpha, alpha).sample((20_000,))
    assert sum(shares) / 1000 == pytest.approx(torch.maximum(expected, 1 - expected).mean().item(), abs=0.02)


CHANGES = [
    (random_crop, batch(), 2),
    (random_flip, batch()),
    (mixup, batch(), targets(), 0.4),
    (cutmix, batch(), targets(), 1.0),
]


@pytest.mark.parametrize("call", CHANGES, ids=lambda call: call[0].__name__)
def test_the_same_seed_gives_the_same_change_and_what_comes_in_stays(call):
    change, images, *rest = call
    before = images.clone()
    one, again, other = (drawn(seed, change, images, *rest) for seed in (3, 3, 5))
    assert_close(one, again, rtol=0, atol=0)
    first = one[0] if isinstance(one, tuple) else one
    assert not torch.equal(first, other[0] if isinstance(other, tuple) else other)
    assert torch.equal(images, before)
    assert first.shape == images.shape and first.dtype == images.dtype

"""Augmentation: each image its own change, targets that follow, operations as in PIL, the same from the same seed."""

import math
from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from PIL import Image, ImageEnhance, ImageOps
from torch.testing import assert_close

from vitbook import augment
from vitbook._common.images import to_tensor
from vitbook.augment import (
    OPERATIONS,
    augmented,
    check_magnitude,
    cutmix,
    mixup,
    operate,
    rand_augment,
    random_affine,
    random_crop,
    random_erasing,
    random_flip,
)
from vitbook.data import normalize, photograph
from vitbook.engine import TrainConfig

B, C, H, W, K = 5, 3, 9, 14, 7
STILL = dict(degrees=0.0, shift=0.0, scale=0.0)


def levels(size: int = B, channels: int = C, height: int = H, width: int = W) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(256, (size, channels, height, width), generator=generator, dtype=torch.uint8)


def floats(size: int = B) -> torch.Tensor:
    return levels(size) / 255


def targets() -> torch.Tensor:
    return F.one_hot(torch.tensor([0, 6, 2, 3, 5]), K).float()


def drawn(seed: int, change, *arguments, **strengths):
    torch.manual_seed(seed)
    return change(*arguments, **strengths)


# What all have in common

CHANGES = [
    (random_affine, floats()),
    (random_crop, floats(), 2),
    (random_flip, floats()),
    (random_erasing, floats() + 1, 0.5),
    (mixup, floats(), targets(), 0.4),
    (cutmix, floats(), targets(), 1.0),
    (rand_augment, levels(), 2, 9.0),
]
EACH_CHANGE = pytest.mark.parametrize("call", CHANGES, ids=lambda call: call[0].__name__)


@EACH_CHANGE
def test_the_same_seed_gives_the_same_change_and_the_input_stays(call):
    change, images, *rest = call
    before = images.clone()
    one, again, other = (drawn(seed, change, images, *rest) for seed in (3, 3, 5))
    assert_close(one, again, rtol=0, atol=0)
    first, third = (result[0] if isinstance(result, tuple) else result for result in (one, other))
    assert not torch.equal(first, third)
    assert torch.equal(images, before)
    assert first.shape == images.shape and first.dtype == images.dtype


@EACH_CHANGE
def test_the_draws_are_those_of_the_cpu_on_any_device(call):
    """A tensor on "meta" has a device and no numbers."""
    change, *rest = call
    states = []
    for device in ("cpu", "meta"):
        moved = [part.to(device) if isinstance(part, torch.Tensor) else part for part in rest]
        result = drawn(3, change, *moved)
        assert (result[0] if isinstance(result, tuple) else result).device.type == device
        states.append(torch.get_rng_state())
    assert torch.equal(*states)


def test_strength_zero_changes_nothing():
    assert_close(random_affine(floats(), **STILL), floats(), rtol=0, atol=1e-5)
    assert torch.equal(random_crop(floats(), 0), floats())
    assert torch.equal(random_erasing(floats(), 0.0), floats())
    assert torch.equal(rand_augment(levels(), 0, 9.0), levels())


# A batch on its way into training

SETTINGS = dict(randaugment_ops=2, affine=0.5, crop=1, flip=True, erasing=0.3)


def batch_with(seed: int = 4, **changes):
    """20 images and labels, their mean and standard deviation, augmented as a config with these settings says."""
    mean, std = torch.tensor([0.4, 0.5, 0.6]), torch.tensor([0.2, 0.3, 0.25])
    config = TrainConfig(**dict(affine=0.0) | changes)
    return drawn(seed, augmented, levels(20), torch.arange(20) % K, config, mean, std, K), (mean, std)


def test_a_batch_is_changed_in_the_documented_order():
    (images, labels), moments = batch_with(**SETTINGS, randaugment_magnitude=7.0)
    torch.manual_seed(4)
    expected = normalize(rand_augment(levels(20), 2, 7.0), *moments)
    expected = random_crop(random_affine(expected, 5.0, 0.04, 0.05), 1)
    assert torch.equal(images, random_erasing(random_flip(expected), 0.3))
    assert torch.equal(labels, torch.arange(20) % K)
    (plain, _), moments = batch_with()
    assert torch.equal(plain, normalize(levels(20), *moments))


def test_with_mixup_and_cutmix_chance_takes_one():
    pasted = 0
    for seed in range(40):
        (images, mixed), moments = batch_with(seed, mixup=1.0, cutmix=1.0)
        assert mixed.shape == (20, K)
        assert_close(mixed.sum(dim=1), torch.ones(20))
        known = torch.cat([normalize(levels(20), *moments)]).flatten().unique()
        pasted += torch.isin(images, known).all().item()
    assert 10 < pasted < 30


# Affine maps, crops and flips


@pytest.mark.parametrize("down", [False, True], ids=["across", "down"])
@pytest.mark.parametrize(
    ("strength", "place", "largest"),
    [
        (dict(shift=0.2), (10, 10), 0.2 * 21 / 20),  # a share of the 21 pixels, on a slope of 20 steps
        (dict(scale=0.5), (10, 15), 0.5 * 5 / 20),
        (dict(degrees=30.0), (15, 10), math.sin(math.radians(30)) * 5 / 20),
    ],
    ids=["shift", "scale", "degrees"],
)
def test_changes_are_spread_evenly_up_to_their_strength(strength, place, largest, down):
    """A slope from 0 to 1 shows how far each place has come from."""
    slope = torch.linspace(0, 1, 21).expand(400, 1, 21, 21)
    if down:
        slope, place = slope.mT, place[::-1]
    shares = (random_affine(slope, **STILL | strength) - slope)[:, 0, *place] / largest
    assert -1 - 1e-4 <= shares.min() < -0.95 and 0.95 < shares.max() <= 1 + 1e-4
    assert abs(shares.mean()) < 0.1 and shares.std().item() == pytest.approx(3**-0.5, rel=0.1)


def test_a_turned_disc_stays_a_disc():
    y, x = torch.meshgrid(torch.arange(31) - 15, torch.arange(61) - 30, indexing="ij")
    disc = (x**2 + y**2 < 100).float()[None, None]
    assert_close(drawn(2, random_affine, disc, 90.0, 0.0, 0.0), disc, rtol=0, atol=0.9)


def test_places_are_exact_in_half_precision():
    images = torch.rand(2, 3, 9, 1).bfloat16()
    expected = drawn(1, random_affine, images.float()).bfloat16()
    assert torch.equal(drawn(1, random_affine, images), expected)


def test_a_crop_is_a_window_of_the_mirrored_image():
    image = floats(1)
    padded = F.pad(image, (2, 2, 2, 2), mode="reflect")[0]
    windows = {padded[:, y : y + H, x : x + W].numpy().tobytes() for y in range(5) for x in range(5)}
    cropped = random_crop(image.repeat(300, 1, 1, 1), 2)
    assert {one.numpy().tobytes() for one in cropped} == windows, "each its own, and every place at some time"


@pytest.mark.parametrize("padding", [-1, H])
def test_padding_that_does_not_fit_is_named(padding):
    with pytest.raises(ValueError, match=f"padding must lie in 0 … 8 for 9×14, got {padding}"):
        random_crop(floats(), padding)


def test_half_of_the_images_are_mirrored():
    images = floats(1).repeat(400, 1, 1, 1)
    flipped = drawn(0, random_flip, images)
    mirrored = (flipped == images.flip(-1)).flatten(1).all(dim=1)
    assert ((flipped == images).flatten(1).all(dim=1) ^ mirrored).all()
    assert 160 < mirrored.sum() < 240


# Mixup, CutMix and erasing


def larger_share(mixed: torch.Tensor) -> float:
    """Of the two images mixed, the larger one's share; an image that happens to be mixed with itself has 1."""
    return mixed.amax(dim=1).min().item()


def test_mixup_mixes_images_and_targets_by_the_same_share():
    images = targets()[:, :, None, None].expand(B, K, H, W)  # an image that says what it is
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
    for seed in range(30):
        mixed, mixed_targets = drawn(seed, cutmix, images, targets(), 1.0)
        assert_close(mixed.mean(dim=(2, 3)), mixed_targets)
        assert set(mixed.unique().tolist()) <= {0.0, 1.0}, "a pixel is of one image"
        pasted = (mixed != images).any(dim=(0, 1))  # (H, W)
        if pasted.any():
            rows, columns = pasted.any(dim=1).nonzero(), pasted.any(dim=0).nonzero()
            assert pasted[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1].all(), "one rectangle"
        areas.add(int(pasted.sum()))
    assert len(areas) > 12


def test_erasing_fills_one_rectangle_of_the_stated_size_and_shape_anywhere():
    erased = random_erasing(torch.ones(1000, 2, 40, 40), 1.0) == 0
    assert torch.equal(erased[:, 0], erased[:, 1])
    rows, columns = erased[:, 0].any(dim=2).sum(dim=1), erased[:, 0].any(dim=1).sum(dim=1)
    areas = erased[:, 0].sum(dim=(1, 2))
    assert torch.equal(areas, rows * columns), "one rectangle"
    assert 0.015 < areas.min() / 1600 < 0.03 and 0.30 < areas.max() / 1600 < 0.35
    assert (rows / columns).log().abs().max() < math.log(10 / 3) + 0.2 and (rows / columns).log().mean().abs() < 0.1
    touched = erased[:, 0].sum(dim=0)
    assert touched.min() > 0, "every place is erased at some time"
    assert touched[:20].sum() / touched.sum() == pytest.approx(0.5, abs=0.04)


def test_erasing_takes_its_share_of_the_images_and_keeps_the_rest():
    images = floats(20).repeat(50, 1, 1, 1) + 1
    erased = random_erasing(images, 0.3)
    assert (erased == images).flatten(1).all(dim=1).double().mean() == pytest.approx(0.7, abs=0.05)
    assert torch.equal(erased[erased != 0], images[erased != 0])


# RandAugment

MOVES = OPERATIONS[:5]


def applied(name: str, images: torch.Tensor, strength: float) -> torch.Tensor:
    """One operation on all images."""
    numbers = torch.full((len(images),), OPERATIONS.index(name))
    return operate(images.float(), numbers, torch.full((len(images),), strength)).to(torch.uint8)


def by_pil(name: str, image: Image.Image, s: float) -> Image.Image:
    """What PIL makes of it."""
    enhance = dict(color="Color", contrast="Contrast", brightness="Brightness", sharpness="Sharpness")
    if name in enhance:
        return getattr(ImageEnhance, enhance[name])(image).enhance(1 + 0.9 * s)
    if name in MOVES:
        x, y = image.width / 2, image.height / 2
        a = math.radians(30 * s)
        (a, b, c), (d, e, f) = dict(
            rotate=((math.cos(a), -math.sin(a), 0), (math.sin(a), math.cos(a), 0)),
            shear_x=((1, 0.3 * s, 0), (0, 1, 0)),
            shear_y=((1, 0, 0), (0.3 * s, 1, 0)),
            translate_x=((1, 0, 0.45 * s * image.width), (0, 1, 0)),
            translate_y=((1, 0, 0), (0, 1, 0.45 * s * image.height)),
        )[name]
        about_middle = (a, b, c + x - a * x - b * y, d, e, f + y - d * x - e * y)
        kinds = Image.Transform.AFFINE, Image.Resampling.BILINEAR
        return image.transform(image.size, kinds[0], about_middle, kinds[1], fillcolor=(128, 128, 128))
    return dict(
        solarize=lambda: ImageOps.solarize(image, math.ceil(256 * (1 - abs(s)))),
        posterize=lambda: ImageOps.posterize(image, 8 - round(4 * abs(s))),
        auto_contrast=lambda: ImageOps.autocontrast(image),
        equalize=lambda: ImageOps.equalize(image),
        identity=lambda: image,
    )[name]()


@pytest.mark.parametrize("strength", [1.0, -0.7])
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_does_to_photographs_what_pil_does(name, strength):
    images = torch.stack([photograph("china"), photograph("flower")])
    images = (images * 0.7 + 30).to(torch.uint8)  # of low contrast, so that stretching it has something to do
    ours = applied(name, images, strength)
    opened = [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in images]
    theirs = torch.stack([to_tensor(by_pil(name, image, strength)) for image in opened])
    gap = (ours.int() - theirs.int()).abs()
    exact = name in ("solarize", "posterize", "identity")
    # PIL rounds down where this rounds; along the edge of a moved image it does not blend with what is outside
    assert (gap > (0 if exact else 1)).double().mean() <= (0.005 if name in MOVES else 0)
    assert name == "identity" or (ours != images).double().mean() > 0.1, "something was done"


@pytest.mark.parametrize("name", OPERATIONS)
def test_gray_images_are_changed_as_color_images_of_the_same_gray(name):
    gray = levels(channels=1)
    assert_close(applied(name, gray, 0.6).expand(-1, 3, -1, -1), applied(name, gray.repeat(1, 3, 1, 1), 0.6))


def test_an_image_is_changed_as_if_it_were_alone():
    images, numbers = levels(len(OPERATIONS)).float(), torch.randperm(len(OPERATIONS))
    strengths = torch.linspace(-1, 1, len(OPERATIONS))
    alone = [operate(images[i : i + 1], numbers[i : i + 1], strengths[i : i + 1]) for i in range(len(OPERATIONS))]
    assert_close(torch.cat(alone), operate(images, numbers, strengths))


def test_each_image_draws_its_own_of_the_papers_fourteen_operations_evenly(monkeypatch):
    draws = []
    monkeypatch.setattr(augment, "operate", lambda pixels, *draw: draws.append(draw) or pixels)
    rand_augment(torch.zeros(2800, 1, 3, 3, dtype=torch.uint8), 2, 4.0)
    assert len(draws) == 2
    for numbers, strengths in draws:
        counts = Counter(numbers.tolist())
        assert set(counts) == set(range(14)) and 150 < min(counts.values()) and max(counts.values()) < 250
        assert_close(strengths.abs(), torch.full((2800,), 0.4))
        assert 1300 < (strengths > 0).sum() < 1500
    (first, _), (second, _) = draws
    assert 150 < (first == second).sum() < 250, "the second draw knows nothing of the first"


@pytest.mark.parametrize("magnitude", [-0.1, 30.5, math.nan])
def test_a_magnitude_out_of_range_is_refused(magnitude):
    for door in (check_magnitude, lambda magnitude: rand_augment(levels(), 2, magnitude)):
        with pytest.raises(ValueError, match=rf"magnitude must lie in 0 … 30, got {magnitude}".replace("+", r"\+")):
            door(magnitude)


@pytest.mark.door
@pytest.mark.parametrize("images", [floats(), levels(channels=2)], ids=["floats", "two channels"])
def test_images_that_would_silently_be_wrong_are_refused(images):
    with pytest.raises(ValueError, match=r"images must be uint8 \(B, 1 or 3, H, W\), got torch"):
        rand_augment(images, 2, 9.0)

"""Images changed at random on their way into training, a batch at a time, on the device where they are."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from vitbook.data import Levels, PerChannel, normalize
from vitbook.patches import Images
from vitbook.targets import Masks

Targets = Float[Tensor, "batch classes"]

MAX_MAGNITUDE = 30.0  # of RandAugment: three times as far as the paper's


def augmented(
    images: Levels,
    labels: Int[Tensor, " batch"] | Targets | Masks,
    config: Any,
    mean: PerChannel,
    std: PerChannel,
    num_classes: int,
) -> tuple[Images, Int[Tensor, " batch"] | Targets | Masks]:
    """A batch as it goes into a model: augmented and normalized images, and labels, or targets where they are mixed.

    Masks are moved and mirrored with their images.
    config: a `TrainConfig`: its settings from `randaugment_ops` to `cutmix`. Of mixup and CutMix, chance takes one.
    """
    if config.randaugment_ops:
        images = rand_augment(images, config.randaugment_ops, config.randaugment_magnitude)
    images = normalize(images, mean, std)
    if config.affine:
        images = random_affine(images, 10 * config.affine, 0.08 * config.affine, 0.1 * config.affine)
    masked = labels.ndim == 3
    if masked:  # as one more channel: they do what the image does
        images = torch.cat([images, labels[:, None].to(images)], dim=1)
    if config.crop:
        images = random_crop(images, config.crop)
    if config.flip:
        images = random_flip(images)
    if masked:
        images, labels = images[:, :-1], images[:, -1].to(labels.dtype)
    if config.erasing:
        images = random_erasing(images, config.erasing)
    mixes = [(mix, alpha) for mix, alpha in ((mixup, config.mixup), (cutmix, config.cutmix)) if alpha]
    if not mixes:
        return images, labels
    mix, alpha = mixes[int(torch.randint(len(mixes), ()))]
    return mix(images, F.one_hot(labels, num_classes).float(), alpha)


def random_affine(images: Images, degrees: float = 10.0, shift: float = 0.08, scale: float = 0.1) -> Images:
    """Turn, move and zoom each image by a small amount of its own.

    degrees: largest turn to either side; shift: largest move, as a share of height and width; scale: largest zoom in or
    out, as a share. Each is drawn uniformly, on the CPU, so that a GPU sees the same ones. What comes into view from
    outside repeats the border.
    """
    turn, zoom, right, down = torch.rand(4, len(images)) * 2 - 1  # each in −1 … 1
    angle, zoom = turn * math.radians(degrees), 1 + zoom * scale
    x = torch.stack([zoom * angle.cos(), -zoom * angle.sin(), shift * right], dim=-1)
    y = torch.stack([zoom * angle.sin(), zoom * angle.cos(), shift * down], dim=-1)
    return _warp(images, torch.stack([x, y], dim=1), "border")


def random_crop(images: Images, padding: int) -> Images:
    """Move each image by up to `padding` pixels, fewer than H and W, along each axis, with a mirrored border."""
    batch, _, height, width = images.shape
    if not 0 <= padding < min(height, width):
        raise ValueError(f"padding must lie in 0 … {min(height, width) - 1} for {height}×{width}, got {padding}")
    padded = F.pad(images, (padding, padding, padding, padding), mode="reflect")
    down, right = torch.randint(2 * padding + 1, (2, batch, 1))
    rows = (down + torch.arange(height)).to(images.device)  # (B, H)
    columns = (right + torch.arange(width)).to(images.device)  # (B, W)
    image = torch.arange(batch, device=images.device)[:, None, None]
    return padded[image, :, rows[:, :, None], columns[:, None, :]].movedim(-1, 1)


def random_flip(images: Images) -> Images:
    """Mirror half of the images, left to right."""
    chosen = (torch.rand(len(images)) < 0.5).to(images.device)
    return torch.where(chosen[:, None, None, None], images.flip(-1), images)


def random_erasing(images: Images, probability: float) -> Images:
    """Erase a rectangle in a share of the images: fill it with 0, the mean of normalized images.

    Zhong et al. 2020, with the numbers of timm and torchvision: 2 to 33 % of the area, in a square image 0.3 to 3.3
    times as high as wide. Differs: the paper has up to 40 %, and draws the ratio uniformly, not its logarithm; a
    rectangle that does not fit is shortened, not drawn again.
    """
    chance, area, ratio, *places = torch.rand(5, len(images), 1)
    area, ratio = 0.02 + 0.31 * area, (10 / 3) ** (2 * ratio - 1)
    erased = (chance < probability)[:, :, None]
    for axis, share in ((2, (area * ratio).sqrt()), (3, (area / ratio).sqrt())):
        side = images.shape[axis]
        length = (share * side).round().clamp(1, side)
        start = (places[axis - 2] * (side - length + 1)).floor()  # (B, 1)
        inside = (start <= torch.arange(side)) & (torch.arange(side) < start + length)  # (B, side)
        erased = erased & inside.unsqueeze(4 - axis)
    return images.masked_fill(erased[:, None].to(images.device), 0)


def mixup(images: Images, targets: Targets, alpha: float) -> tuple[Images, Targets]:
    """Blend each image with another of the batch, λ of the one and 1 − λ of the other, and their targets alike.

    λ is drawn from Beta(alpha, alpha), once a batch. Zhang et al. 2018.
    """
    share = float(torch.distributions.Beta(float(alpha), float(alpha)).sample())
    other = torch.randperm(len(images)).to(images.device)
    return share * images + (1 - share) * images[other], share * targets + (1 - share) * targets[other]


def cutmix(images: Images, targets: Targets, alpha: float) -> tuple[Images, Targets]:
    """Paste a rectangle of another image of the batch into each, and mix the targets by area.

    The area is about 1 − λ with λ drawn from Beta(alpha, alpha), place and size once a batch. Yun et al. 2019.
    """
    height, width = images.shape[2:]
    side = (1 - float(torch.distributions.Beta(float(alpha), float(alpha)).sample())) ** 0.5
    y, x = float(torch.rand(())) * height, float(torch.rand(())) * width
    top, bottom = round(max(0.0, y - side * height / 2)), round(min(height, y + side * height / 2))
    left, right = round(max(0.0, x - side * width / 2)), round(min(width, x + side * width / 2))
    other = torch.randperm(len(images)).to(images.device)
    mixed = images.clone()
    mixed[:, :, top:bottom, left:right] = images[other, :, top:bottom, left:right]
    share = 1 - (bottom - top) * (right - left) / (height * width)
    return mixed, share * targets + (1 - share) * targets[other]


# Kornia's and torchvision's RandAugment draw their operations once for a whole batch. With one image a call, Kornia's
# (0.9) is about 20 times slower than this, and it shears by up to 1.3 where the paper has 0.3.


def rand_augment(images: Levels, num_ops: int, magnitude: float) -> Levels:
    """Change each image by `num_ops` of the OPERATIONS, drawn for it alone, one after another. Cubuk et al. 2020.

    images: C is 1 or 3. magnitude: how far each goes, 0 to `MAX_MAGNITUDE`. At 10: turned by 30°, sheared by 0.3, moved
    by 0.45 of the side; color, contrast, brightness and sharpness 0.1 or 1.9 of what they were; every level inverted; 4
    bits of 8 left. Where there are two directions, chance takes one. At 0, only auto-contrast and equalize, which have
    no strength, change anything.

    Differs: in the paper's code some operations grow weaker as the magnitude grows; here all grow stronger.
    Raises ValueError for other images and magnitudes, whose levels would silently be wrong.
    """
    if images.dtype != torch.uint8 or images.shape[1] not in (1, 3):
        raise ValueError(f"images must be uint8 (B, 1 or 3, H, W), got {images.dtype} of shape {tuple(images.shape)}")
    check_magnitude(magnitude)
    drawn = torch.randint(len(OPERATIONS), (num_ops, len(images)))
    signs = torch.randint(2, (num_ops, len(images))) * 2 - 1
    pixels = images.float()
    for numbers, strengths in zip(drawn, signs * (magnitude / 10), strict=True):
        pixels = operate(pixels, numbers, strengths)
    return pixels.to(torch.uint8)


def check_magnitude(magnitude: float) -> None:
    """Raise ValueError for a magnitude of RandAugment at which its numbers would overflow."""
    if not 0 <= magnitude <= MAX_MAGNITUDE:
        raise ValueError(f"RandAugment's magnitude must lie in 0 … {MAX_MAGNITUDE:g}, got {magnitude}")


def operate(pixels: Images, numbers: Int[Tensor, " batch"], strengths: Float[Tensor, " batch"]) -> Images:
    """One operation on each image, in whole levels 0 … 255.

    numbers: which of the OPERATIONS; strengths: how far, −1 … 1 at magnitude 10.
    """
    pixels = pixels.clone()
    rows = (numbers < len(_MOVES)).nonzero().flatten()
    if len(rows):
        here = rows.to(pixels.device)
        pixels[here] = _move(pixels[here], numbers[rows], strengths[rows])
    for number, change in enumerate(_CHANGES, len(_MOVES)):
        rows = (numbers == number).nonzero().flatten()
        if len(rows):
            here = rows.to(pixels.device)
            pixels[here] = change(pixels[here], strengths[rows, None, None, None].to(pixels))
    return pixels.clamp(0, 255).round()


def _warp(images: Images, matrices: Float[Tensor, "batch 2 3"], outside: str) -> Images:
    """Each image seen through a map of its own, from a place in the result to the place that is shown there.

    Places are (x, y) from the middle, in pixels; the last column is a share of width and height. outside: "border"
    repeats it, "zeros" shows 0.
    """
    ratio = images.shape[2] / images.shape[3]  # the view is 2 wide and 2 high, whatever the image
    view = matrices * torch.tensor([[1, ratio, 2], [1 / ratio, 1, 2]], device=matrices.device)
    wide = images.to(torch.promote_types(images.dtype, torch.float32))  # in half precision places would be coarse
    grid = F.affine_grid(view.to(wide), list(images.shape), align_corners=False)
    return F.grid_sample(wide, grid, padding_mode=outside, align_corners=False).to(images.dtype)


def _move(pixels: Tensor, numbers: Tensor, strengths: Tensor) -> Tensor:
    """One of _MOVES on each image, about its middle; gray comes into view from outside. (B, C, H, W), (B,), (B,)."""
    turn, shear_x, shear_y, right, down = F.one_hot(numbers, len(_MOVES)).T * strengths
    angle = turn * math.radians(30)
    x = torch.stack([angle.cos(), 0.3 * shear_x - angle.sin(), 0.45 * right], dim=-1)
    y = torch.stack([0.3 * shear_y + angle.sin(), angle.cos(), 0.45 * down], dim=-1)
    return _warp(pixels - 128, torch.stack([x, y], dim=1), "zeros") + 128


# The other operations: levels (B, C, H, W) and strengths (B, 1, 1, 1) → levels (B, C, H, W).


def _color(pixels: Tensor, strength: Tensor) -> Tensor:
    """Away from the gray image or towards it; one channel stays as it is."""
    return torch.lerp(_gray(pixels), pixels, 1 + 0.9 * strength)


def _contrast(pixels: Tensor, strength: Tensor) -> Tensor:
    """Away from the image's mean gray or towards it."""
    return torch.lerp(_gray(pixels).mean(dim=(2, 3), keepdim=True), pixels, 1 + 0.9 * strength)


def _brightness(pixels: Tensor, strength: Tensor) -> Tensor:
    """Away from black or towards it."""
    return pixels * (1 + 0.9 * strength)


def _sharpness(pixels: Tensor, strength: Tensor) -> Tensor:
    """Away from the mean over 3×3 pixels, the middle one counting 5 of 13, or towards it; the border stays."""
    smooth = pixels.clone()
    smooth[..., 1:-1, 1:-1] = (9 * F.avg_pool2d(pixels, 3, 1) + 4 * pixels[..., 1:-1, 1:-1]) / 13
    return torch.lerp(smooth, pixels, 1 + 0.9 * strength)


def _solarize(pixels: Tensor, strength: Tensor) -> Tensor:
    """Invert the levels from a threshold on, which falls from 256 to 0."""
    return torch.where(pixels >= 256 * (1 - strength.abs()), 255 - pixels, pixels)


def _posterize(pixels: Tensor, strength: Tensor) -> Tensor:
    """Set up to 4 of a level's 8 bits to 0, the lowest first."""
    step = 2 ** (4 * strength.abs()).round()
    return (pixels / step).floor() * step


def _auto_contrast(pixels: Tensor, _: Tensor) -> Tensor:
    """Stretch each channel to 0 … 255."""
    low, high = pixels.amin(dim=(2, 3), keepdim=True), pixels.amax(dim=(2, 3), keepdim=True)
    return torch.where(high > low, (pixels - low) * 255 / (high - low), pixels)


def _equalize(pixels: Tensor, _: Tensor) -> Tensor:
    """Spread each channel's levels so that all are about equally frequent.

    A level becomes the share of pixels below it, of all but the brightest. Differs: not counted in whole 255ths of the
    pixels, of which small images have too few.
    """
    levels = pixels.long().flatten(2)  # (B, C, HW)
    counts = levels.new_zeros(*levels.shape[:2], 256).scatter_add_(2, levels, torch.ones_like(levels))
    darker = (counts.cumsum(dim=2) - counts).gather(2, levels)
    span = levels.shape[2] - counts.gather(2, levels.amax(dim=2, keepdim=True))
    return torch.where(span > 0, 255 * darker / span, levels).view_as(pixels)


def _gray(pixels: Tensor) -> Tensor:
    """How bright each pixel is. (B, 1 or 3, H, W) → (B, 1, H, W)."""
    share = [0.299, 0.587, 0.114] if pixels.shape[1] == 3 else [1.0]
    return (pixels * pixels.new_tensor(share)[:, None, None]).sum(dim=1, keepdim=True)


_MOVES = ("rotate", "shear_x", "shear_y", "translate_x", "translate_y")
_CHANGES = (_color, _contrast, _brightness, _sharpness, _solarize, _posterize, _auto_contrast, _equalize)
# the fourteen of Cubuk et al. 2020
OPERATIONS = (*_MOVES, *(change.__name__[1:] for change in _CHANGES), "identity")

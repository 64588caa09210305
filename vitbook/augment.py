"""Pictures changed at random on their way into training, a batch at a time, on the device where they are."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from vitbook._support.validation import (
    check_choice,
    check_floats,
    check_numbers,
    check_positive,
    check_shape,
    check_shares,
    check_sizes,
    check_tensors,
)


def random_affine(images: Tensor, degrees: float = 10.0, shift: float = 0.08, scale: float = 0.1) -> Tensor:
    """Turn, move and zoom each picture by a little of its own. float (B, C, H, W) → (B, C, H, W).

    degrees: largest turn to either side; shift: largest move, as a share of height and width; scale: largest zoom, as a
    share, in or out. Each is drawn evenly, on the CPU, so that a GPU sees the same ones. What comes into view from
    outside repeats the border.

    Raises ValueError unless images is a batch of floats.
    """
    check_tensors(images=images)
    if images.ndim != 4 or not images.is_floating_point():
        raise ValueError(f"images must be floats (B, C, H, W), got {images.dtype} of shape {tuple(images.shape)}")
    check_numbers(degrees=degrees, shift=shift, scale=scale)
    turn, zoom, right, down = torch.rand(4, len(images)) * 2 - 1  # each in −1 … 1
    angle, zoom = turn * math.radians(degrees), 1 + zoom * scale
    x = torch.stack([zoom * angle.cos(), -zoom * angle.sin(), shift * right], dim=-1)
    y = torch.stack([zoom * angle.sin(), zoom * angle.cos(), shift * down], dim=-1)
    return warp(images, torch.stack([x, y], dim=1), "border")


def warp(images: Tensor, matrices: Tensor, outside: str) -> Tensor:
    """Each picture seen through a map of its own, from a place in the result to the place that is shown there.

    (B, C, H, W), (B, 2, 3) → (B, C, H, W). Places are (x, y) from the middle, in pixels; the last column is a share of
    width and height. outside: "border" repeats it, "zeros" shows 0.
    """
    check_pictures(images)
    check_floats(images=images)
    check_shape("matrices", matrices, "B", 2, 3)
    if len(matrices) != len(images):
        raise ValueError(f"images and matrices must be equally many, got {len(images)} and {len(matrices)}")
    check_choice("outside", outside, ("border", "zeros"))
    if not len(images):
        return images.clone()
    ratio = images.shape[2] / images.shape[3]  # the view is 2 wide and 2 high, whatever the picture
    view = matrices * torch.tensor([[1, ratio, 2], [1 / ratio, 1, 2]], device=matrices.device)
    wide = images.to(torch.promote_types(images.dtype, torch.float32))  # in half precision places would be coarse
    grid = F.affine_grid(view.to(wide), list(images.shape), align_corners=False)
    return F.grid_sample(wide, grid, padding_mode=outside, align_corners=False).to(images.dtype)


def random_crop(images: Tensor, padding: int) -> Tensor:
    """Move each picture by up to `padding` pixels along each axis; what comes into view mirrors the border.

    float (B, C, H, W) → (B, C, H, W). Raises ValueError unless 0 ≤ padding < H and W.
    """
    check_pictures(images)
    check_floats(images=images)
    check_sizes(None, padding=padding)
    batch, _, height, width = images.shape
    if not 0 <= padding < min(height, width):
        raise ValueError(f"padding must lie in 0 … {min(height, width) - 1} for {height}×{width}, got {padding}")
    padded = F.pad(images, (padding, padding, padding, padding), mode="reflect")
    down, right = torch.randint(2 * padding + 1, (2, batch, 1))
    rows = (down + torch.arange(height)).to(images.device)  # (B, H)
    columns = (right + torch.arange(width)).to(images.device)  # (B, W)
    picture = torch.arange(batch, device=images.device)[:, None, None]
    return padded[picture, :, rows[:, :, None], columns[:, None, :]].movedim(-1, 1)


def random_flip(images: Tensor) -> Tensor:
    """Mirror half of the pictures, left to right. (B, C, H, W) → (B, C, H, W)."""
    check_shape("images", images, "B", "C", "H", "W")
    chosen = (torch.rand(len(images)) < 0.5).to(images.device)
    return torch.where(chosen[:, None, None, None], images.flip(-1), images)


def random_erasing(images: Tensor, probability: float) -> Tensor:
    """Blot out a rectangle in a share of the pictures with 0, the mean of normalised ones. (B, C, H, W) → the same.

    Zhong et al. 2020, with the numbers of timm and torchvision: 2 to 33 % of the area, in a square picture 0.3 to 3.3
    times as high as wide. Differs: the paper has up to 40 %, and draws the ratio evenly, not its logarithm; what does
    not fit is shortened, not drawn again. Raises ValueError unless 0 ≤ probability ≤ 1.
    """
    check_shares(probability=probability)
    check_pictures(images)
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


def mixup(images: Tensor, targets: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    """Lay each picture over another of the batch: λ of the one, 1 − λ of the other, and of their targets alike.

    (B, C, H, W), (B, K) → the same; λ is drawn from Beta(alpha, alpha), once a batch. Zhang et al. 2018.
    """
    check_mixing(images, targets, alpha)
    share = float(torch.distributions.Beta(float(alpha), float(alpha)).sample())
    other = torch.randperm(len(images)).to(images.device)
    return share * images + (1 - share) * images[other], share * targets + (1 - share) * targets[other]


def cutmix(images: Tensor, targets: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    """Put a rectangle of another picture of the batch into each, and mix the targets by area.

    (B, C, H, W), (B, K) → the same; the area is about 1 − λ with λ drawn from Beta(alpha, alpha), place and size once a
    batch. Yun et al. 2019.
    """
    check_mixing(images, targets, alpha)
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


# Kornia's RandAugment (0.9) was tried: it draws its operations once for a whole batch, is about 20 times slower than
# this with one picture a call, and shears by up to 1.3 where the paper has 0.3.


def rand_augment(images: Tensor, num_ops: int, magnitude: float) -> Tensor:
    """Change each picture by operations that it draws for itself: `num_ops` out of OPERATIONS, one after another.

    uint8 (B, C, H, W) → the same, C being 1 or 3. Cubuk et al. 2020.
    magnitude: how far each goes. At 10: turned by 30°, sheared by 0.3, moved by 0.45 of the side; colour, contrast,
        brightness and sharpness 0.1 or 1.9 of what they were; every level inverted; 4 bits of 8 left. Where there are
        two directions, chance takes one. At 0, auto-contrast and equalize alone, which have no strength, do anything.

    Differs: in the paper's code some operations grow weaker as the magnitude grows; here all grow stronger.
    Raises ValueError for other pictures, and for num_ops or a magnitude below 0.
    """
    check_tensors(images=images)
    check_sizes(None, num_ops=num_ops)
    check_numbers(magnitude=magnitude)
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] not in (1, 3) or min(images.shape[2:]) < 3:
        expected = "uint8 (B, 1 or 3, H, W), at least 3×3"
        raise ValueError(f"images must be {expected}, got {images.dtype} of shape {tuple(images.shape)}")
    for name, value in (("num_ops", num_ops), ("magnitude", magnitude)):
        if not 0 <= value < math.inf:
            raise ValueError(f"{name} must be finite and at least 0, got {value}")
    drawn = torch.randint(len(OPERATIONS), (num_ops, len(images)))
    signs = torch.randint(2, (num_ops, len(images))) * 2 - 1
    pixels = images.float()
    for numbers, strengths in zip(drawn, signs * (magnitude / 10), strict=True):
        pixels = operate(pixels, numbers, strengths)
    return pixels.to(torch.uint8)


def operate(pixels: Tensor, numbers: Tensor, strengths: Tensor) -> Tensor:
    """One operation on each picture. float (B, C, H, W) in whole levels 0 … 255 → the same.

    numbers: which of OPERATIONS, int64 (B,); strengths: how far, −1 … 1 at magnitude 10, (B,).
    """
    pixels = pixels.clone()
    rows = (numbers < len(MOVES)).nonzero().flatten()
    if len(rows):
        here = rows.to(pixels.device)
        pixels[here] = move(pixels[here], numbers[rows], strengths[rows])
    for number, change in enumerate(COLOURS.values(), len(MOVES)):
        rows = (numbers == number).nonzero().flatten()
        if len(rows):
            here = rows.to(pixels.device)
            pixels[here] = change(pixels[here], strengths[rows, None, None, None].to(pixels))
    return pixels.clamp(0, 255).round()


def move(pixels: Tensor, numbers: Tensor, strengths: Tensor) -> Tensor:
    """One of MOVES on each picture, about its middle; grey comes into view from outside.

    pixels (B, C, H, W), numbers and strengths (B,) → (B, C, H, W).
    """
    turn, shear_x, shear_y, right, down = F.one_hot(numbers, len(MOVES)).T * strengths
    angle = turn * math.radians(30)
    x = torch.stack([angle.cos(), 0.3 * shear_x - angle.sin(), 0.45 * right], dim=-1)
    y = torch.stack([0.3 * shear_y + angle.sin(), angle.cos(), 0.45 * down], dim=-1)
    return warp(pixels - 128, torch.stack([x, y], dim=1), "zeros") + 128


def color(pixels: Tensor, strength: Tensor) -> Tensor:
    """Away from the grey picture or towards it; one channel stays as it is. (B, C, H, W), (B, 1, 1, 1) → the same."""
    return torch.lerp(grey(pixels), pixels, 1 + 0.9 * strength)


def contrast(pixels: Tensor, strength: Tensor) -> Tensor:
    """Away from the picture's mean grey or towards it. (B, C, H, W), (B, 1, 1, 1) → (B, C, H, W)."""
    return torch.lerp(grey(pixels).mean(dim=(2, 3), keepdim=True), pixels, 1 + 0.9 * strength)


def brightness(pixels: Tensor, strength: Tensor) -> Tensor:
    """Away from black or towards it. (B, C, H, W), (B, 1, 1, 1) → (B, C, H, W)."""
    return pixels * (1 + 0.9 * strength)


def sharpness(pixels: Tensor, strength: Tensor) -> Tensor:
    """Away from the mean over 3×3 pixels, the middle one counting 5 of 13, or towards it; the border stays.

    (B, C, H, W), (B, 1, 1, 1) → (B, C, H, W).
    """
    smooth = pixels.clone()
    smooth[..., 1:-1, 1:-1] = (9 * F.avg_pool2d(pixels, 3, 1) + 4 * pixels[..., 1:-1, 1:-1]) / 13
    return torch.lerp(smooth, pixels, 1 + 0.9 * strength)


def solarize(pixels: Tensor, strength: Tensor) -> Tensor:
    """Invert the levels from a threshold on, which falls from 256 to 0. (B, C, H, W), (B, 1, 1, 1) → the same."""
    return torch.where(pixels >= 256 * (1 - strength.abs()), 255 - pixels, pixels)


def posterize(pixels: Tensor, strength: Tensor) -> Tensor:
    """Set up to 4 of a level's 8 bits to 0, the lowest first. (B, C, H, W), (B, 1, 1, 1) → (B, C, H, W)."""
    step = 2 ** (4 * strength.abs()).round()
    return (pixels / step).floor() * step


def auto_contrast(pixels: Tensor, strength: Tensor) -> Tensor:
    """Stretch each channel to 0 … 255. Has no strength. (B, C, H, W), any → (B, C, H, W)."""
    low, high = pixels.amin(dim=(2, 3), keepdim=True), pixels.amax(dim=(2, 3), keepdim=True)
    return torch.where(high > low, (pixels - low) * 255 / (high - low), pixels)


def equalize(pixels: Tensor, strength: Tensor) -> Tensor:
    """Spread each channel's levels so that all are about equally frequent. Has no strength.

    (B, C, H, W), any → (B, C, H, W). A level becomes the share of pixels below it, of all but the
    brightest. Differs: not counted in whole 255ths of the pixels, of which small pictures have too few.
    """
    levels = pixels.long().flatten(2)  # (B, C, HW)
    counts = levels.new_zeros(*levels.shape[:2], 256).scatter_add_(2, levels, torch.ones_like(levels))
    darker = (counts.cumsum(dim=2) - counts).gather(2, levels)
    span = levels.shape[2] - counts.gather(2, levels.amax(dim=2, keepdim=True))
    return torch.where(span > 0, 255 * darker / span, levels).view_as(pixels)


def grey(pixels: Tensor) -> Tensor:
    """How bright each pixel is. (B, 1 or 3, H, W) → (B, 1, H, W)."""
    share = [0.299, 0.587, 0.114] if pixels.shape[1] == 3 else [1.0]
    return (pixels * pixels.new_tensor(share)[:, None, None]).sum(dim=1, keepdim=True)


MOVES = ("rotate", "shear_x", "shear_y", "translate_x", "translate_y")
COLOURS = {
    change.__name__: change
    for change in (color, contrast, brightness, sharpness, solarize, posterize, auto_contrast, equalize)
}
OPERATIONS = (*MOVES, *COLOURS, "identity")  # the fourteen of Cubuk et al. 2020


def check_pictures(images: Tensor) -> None:
    """Raise TypeError or ValueError unless images has shape (B, C, H, W), with pixels in it."""
    check_shape("images", images, "B", "C", "H", "W")
    if 0 in images.shape[1:]:
        raise ValueError(f"images must have channels, rows and columns, got {tuple(images.shape)}")


def check_mixing(images: Tensor, targets: Tensor, alpha: float) -> None:
    """Raise TypeError or ValueError unless there is a target (B, K) for each picture, and alpha is positive."""
    check_pictures(images)
    check_floats(images=images, targets=targets)
    check_shape("targets", targets, "B", "K")
    if len(targets) != len(images):
        raise ValueError(f"images and targets must be equally many, got {len(images)} and {len(targets)}")
    check_positive(alpha=alpha)

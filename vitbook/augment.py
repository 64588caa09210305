"""Pictures changed at random on their way into training, a batch at a time, on the device where they are."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def random_affine(images: Tensor, degrees: float = 10.0, shift: float = 0.08, scale: float = 0.1) -> Tensor:
    """Turn, move and zoom each picture by a little of its own. float (B, C, H, W) → (B, C, H, W).

    degrees: largest turn to either side; shift: largest move, as a share of height and width; scale: largest zoom, as a
    share, in or out. Each is drawn evenly, on the CPU, so that a GPU sees the same ones. What comes into view from
    outside repeats the border.

    Raises ValueError unless images is a batch of floats.
    """
    if images.ndim != 4 or not images.is_floating_point():
        raise ValueError(f"images must be floats (B, C, H, W), got {images.dtype} of shape {tuple(images.shape)}")
    turn, zoom, right, down = torch.rand(4, len(images)) * 2 - 1  # each in −1 … 1
    angle, zoom = turn * math.radians(degrees), 1 + zoom * scale
    ratio = images.shape[2] / images.shape[3]  # the view is 2 wide and 2 high, whatever the picture
    x = torch.stack([zoom * angle.cos(), -zoom * angle.sin() * ratio, 2 * shift * right], dim=-1)
    y = torch.stack([zoom * angle.sin() / ratio, zoom * angle.cos(), 2 * shift * down], dim=-1)
    grid = F.affine_grid(torch.stack([x, y], dim=1).to(images), list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, padding_mode="border", align_corners=False)


def random_crop(images: Tensor, padding: int) -> Tensor:
    """Move each picture by up to `padding` pixels along each axis; what comes into view mirrors the border.

    (B, C, H, W) → (B, C, H, W). Raises ValueError unless 0 ≤ padding < H and W.
    """
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
    chosen = (torch.rand(len(images)) < 0.5).to(images.device)
    return torch.where(chosen[:, None, None, None], images.flip(-1), images)


def mixup(images: Tensor, targets: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    """Lay each picture over another of the batch: λ of the one, 1 − λ of the other, and of their targets alike.

    (B, C, H, W), (B, K) → the same; λ is drawn from Beta(alpha, alpha), once a batch. Zhang et al. 2018.
    """
    share = float(torch.distributions.Beta(alpha, alpha).sample())
    other = torch.randperm(len(images)).to(images.device)
    return share * images + (1 - share) * images[other], share * targets + (1 - share) * targets[other]


def cutmix(images: Tensor, targets: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    """Put a rectangle of another picture of the batch into each, and mix the targets by area.

    (B, C, H, W), (B, K) → the same; the area is about 1 − λ with λ drawn from Beta(alpha, alpha), place and size once a
    batch. Yun et al. 2019.
    """
    height, width = images.shape[2:]
    side = (1 - float(torch.distributions.Beta(alpha, alpha).sample())) ** 0.5
    y, x = float(torch.rand(())) * height, float(torch.rand(())) * width
    top, bottom = round(max(0.0, y - side * height / 2)), round(min(height, y + side * height / 2))
    left, right = round(max(0.0, x - side * width / 2)), round(min(width, x + side * width / 2))
    other = torch.randperm(len(images)).to(images.device)
    mixed = images.clone()
    mixed[:, :, top:bottom, left:right] = images[other, :, top:bottom, left:right]
    share = 1 - (bottom - top) * (right - left) / (height * width)
    return mixed, share * targets + (1 - share) * targets[other]

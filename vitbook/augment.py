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

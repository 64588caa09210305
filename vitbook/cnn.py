"""A small residual CNN: what a Vision Transformer is measured against, and what can teach one."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitbook._support.validation import check_fits, check_grids, check_shape, check_sizes, check_tensors


class SmallCNN(nn.Module):
    """Three stages of one residual block, each twice as wide and half as large. (B, C, H, W) → (B, K).

    He et al. 2016, with pre-activation. That neighbours belong together, wherever they lie, is built in; a Vision
    Transformer has to learn both.

    width: channels of the first stage; `features` gives the (B, 4·width) vector that the linear head sees.
    Raises ValueError for pictures under 4 pixels wide or high.
    """

    def __init__(self, channels: int, num_classes: int, width: int = 32):
        super().__init__()
        check_sizes(channels=channels, num_classes=num_classes, width=width)
        self.stem = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.stages = nn.Sequential(
            ResidualBlock(width, width, stride=1),
            ResidualBlock(width, 2 * width, stride=2),
            ResidualBlock(2 * width, 4 * width, stride=2),
        )
        self.norm = nn.BatchNorm2d(4 * width)
        self.head = nn.Linear(4 * width, num_classes)

    def features(self, images: Tensor) -> Tensor:
        """One vector a picture. (B, C, H, W) → (B, 4·width)."""
        check_tensors(images=images)
        if images.ndim != 4 or images.shape[1] != self.stem.in_channels or min(images.shape[2:]) < 4:
            expected = f"(B, {self.stem.in_channels}, H, W), at least 4×4"
            raise ValueError(f"images must have shape {expected}, got {tuple(images.shape)}")
        check_fits("images", images, self.stem.weight)
        return torch.relu(self.norm(self.stages(self.stem(images)))).mean(dim=(2, 3))

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images))


class ResidualBlock(nn.Module):
    """Two 3×3 convolutions beside a shortcut. (B, C_in, H, W) → (B, C_out, H/stride, W/stride), rounded up."""

    def __init__(self, in_channels: int, out_channels: int, stride: int):
        super().__init__()
        check_sizes(in_channels=in_channels, out_channels=out_channels, stride=stride)
        self.norm1 = nn.BatchNorm2d(in_channels)
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        plain = stride == 1 and in_channels == out_channels
        self.shortcut = nn.Identity() if plain else nn.Conv2d(in_channels, out_channels, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        check_shape("x", x, "B", self.conv1.in_channels, "H", "W")
        check_grids(x=tuple(x.shape[2:]))
        check_fits("x", x, self.conv1.weight)
        y = self.conv1(F.relu(self.norm1(x)))
        return self.conv2(F.relu(self.norm2(y))) + self.shortcut(x)

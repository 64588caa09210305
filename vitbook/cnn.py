"""A small residual CNN: what a Vision Transformer is measured against, and what can teach one."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn


class SmallCNN(nn.Module):
    """Three stages of one residual block, each twice as wide and half as large. (B, C, H, W) → (B, K).

    He et al. 2016, with pre-activation. That neighbors belong together, wherever they lie, is built in; a Vision
    Transformer has to learn both. width: channels of the first stage.
    """

    def __init__(self, channels: int, num_classes: int, width: int = 32):
        super().__init__()
        self.stem = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.stages = nn.Sequential(
            ResidualBlock(width, width, stride=1),
            ResidualBlock(width, 2 * width, stride=2),
            ResidualBlock(2 * width, 4 * width, stride=2),
        )
        self.norm = nn.BatchNorm2d(4 * width)
        self.head = nn.Linear(4 * width, num_classes)

    def features(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B features"]:
        """One vector an image, which the linear head sees. (B, C, H, W) → (B, 4·width).

        Raises ValueError for images of other channels, or under 4 pixels wide or high.
        """
        if images.ndim != 4 or images.shape[1] != self.stem.in_channels or min(images.shape[2:]) < 4:
            expected = f"(B, {self.stem.in_channels}, H, W), at least 4×4"
            raise ValueError(f"images must have shape {expected}, got {tuple(images.shape)}")
        return torch.relu(self.norm(self.stages(self.stem(images)))).mean(dim=(2, 3))

    def forward(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B K"]:
        return self.head(self.features(images))


class ResidualBlock(nn.Module):
    """Two 3×3 convolutions beside a shortcut. (B, C_in, H, W) → (B, C_out, H/stride, W/stride), rounded up."""

    def __init__(self, in_channels: int, out_channels: int, stride: int):
        super().__init__()
        self.norm1 = nn.BatchNorm2d(in_channels)
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        plain = stride == 1 and in_channels == out_channels
        self.shortcut = nn.Identity() if plain else nn.Conv2d(in_channels, out_channels, 1, stride, bias=False)

    def forward(self, x: Float[Tensor, "B C_in H W"]) -> Float[Tensor, "B C_out H2 W2"]:
        y = self.conv1(F.relu(self.norm1(x)))
        return self.conv2(F.relu(self.norm2(y))) + self.shortcut(x)

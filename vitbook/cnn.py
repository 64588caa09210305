"""Convolutional networks: what a Vision Transformer is measured against, and what can teach one."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from vitbook._common.validation import check_grids, check_several, check_sizes


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


@dataclass(frozen=True)
class CNNConfig:
    """Everything that fixes the shape of a `WhiteningCNN`. Raises ValueError for numbers that are none."""

    image_size: tuple[int, int] = (32, 32)  # height and width in pixels
    channels: int = 3  # C
    num_classes: int = 10  # K
    widths: tuple[int, ...] = (64, 256, 256)  # channels of each block

    def __post_init__(self):
        check_grids(image_size=self.image_size)
        check_several(widths=self.widths)
        check_sizes(channels=self.channels, num_classes=self.num_classes, widths=len(self.widths))
        object.__setattr__(self, "image_size", tuple(self.image_size))
        object.__setattr__(self, "widths", tuple(self.widths))  # JSON has lists alone
        if min(self.image_size) <= 2 ** len(self.widths):
            least = f"more than {2 ** len(self.widths)} pixels for {len(self.widths)} blocks"
            raise ValueError(f"image_size must be {least}, got {self.image_size}")


class WhiteningCNN(nn.Module):
    """Whitened patches of 2×2 pixels, then blocks, each half as large as what it sees. (B, C, H, W) → (B, K).

    Jordan 2024, "94% on CIFAR-10 in 3.29 Seconds on a Single GPU": quick to train, and a teacher for Vision
    Transformers. Call `whiten` before training. Differs: the gains of the BatchNorms learn as well, the logits are not
    divided by 9.
    """

    def __init__(self, config: CNNConfig):
        super().__init__()
        self.config, patch = config, 4 * config.channels
        self.whitening = nn.Conv2d(config.channels, 2 * patch, kernel_size=2)
        self.whitening.weight.requires_grad_(False)
        widths = (2 * patch, *config.widths)
        self.blocks = nn.Sequential(*map(_block, widths, widths[1:]))
        self.head = nn.Linear(widths[-1], config.num_classes)

    @torch.no_grad()
    def whiten(self, images: Float[Tensor, "N C H W"], eps: float = 5e-4) -> None:
        """Make the first layer's outputs uncorrelated on these images: λᵢ^(−½) uᵢ and its negative, for each i.

        uᵢ and λᵢ are the eigenvectors and eigenvalues of the covariance of all patches of 2×2 pixels; eps, added to
        each λᵢ, keeps noise from being blown up.
        """
        patches = F.unfold(images, kernel_size=2).transpose(1, 2).flatten(0, 1)  # (N·places, 4C)
        values, vectors = torch.linalg.eigh(patches.T.cov())
        filters = (vectors / (values + eps).sqrt()).T.view(-1, *self.whitening.weight.shape[1:])
        self.whitening.weight.copy_(torch.cat([filters, -filters]))
        self.whitening.get_parameter("bias").zero_()

    def features(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B features"]:
        """One vector an image, which the linear head sees. (B, C, H, W) → (B, last width).

        Raises ValueError for images of another size or other channels.
        """
        expected = (self.config.channels, *self.config.image_size)
        if images.ndim != 4 or images.shape[1:] != expected:
            raise ValueError(f"images must have shape (B, C, H, W), (C, H, W) = {expected}, got {tuple(images.shape)}")
        x = images.contiguous(memory_format=torch.channels_last)  # on a CPU half as quick again
        return self.blocks(F.gelu(self.whitening(x))).amax(dim=(2, 3))

    def forward(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B K"]:
        return self.head(self.features(images))


def _block(in_channels: int, out_channels: int) -> nn.Sequential:
    """(B, C_in, H, W) → (B, C_out, H/2, W/2), rounded down."""
    return nn.Sequential(
        nn.Conv2d(in_channels, out_channels, 3, padding=1, bias=False),
        nn.MaxPool2d(2),
        nn.BatchNorm2d(out_channels),
        nn.GELU(),
        nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False),
        nn.BatchNorm2d(out_channels),
        nn.GELU(),
    )

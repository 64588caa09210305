"""Images to patches, and patches to tokens: the x_p E of Equation 1.

H is always height and W width. An image is cut row by row, left to right, into N = HW/P² patches of P×P pixels; inside
a patch the numbers run channel, row, column: (C, P, P) flattened, the order of a convolution's weight.
"""

from collections.abc import Sequence
from itertools import groupby

from einops import rearrange
from jaxtyping import Float, Shaped
from torch import Tensor, nn

Images = Float[Tensor, "batch channels height width"]


def patchify(
    images: Shaped[Tensor, "batch channels height width"], patch_size: int
) -> Shaped[Tensor, "batch patches numbers"]:
    """Cut images into flattened patches. (B, C, H, W) → (B, N, P²C).

    Dosovitskiy et al. 2021, section 3.1. Raises ValueError where the patch size does not divide height and width.
    """
    grid_size(images.shape[2:], patch_size)
    return rearrange(images, "b c (h p) (w q) -> b (h w) (c p q)", p=patch_size, q=patch_size)


def unpatchify(
    patches: Shaped[Tensor, "batch patches numbers"], patch_size: int, image_size: Sequence[int]
) -> Shaped[Tensor, "batch channels height width"]:
    """Lay flattened patches back into images of height and width image_size: the inverse of `patchify`."""
    rows, columns = grid_size(image_size, patch_size)
    return rearrange(patches, "b (h w) (c p q) -> b c (h p) (w q)", h=rows, w=columns, p=patch_size, q=patch_size)


class PatchEmbedding(nn.Module):
    """One linear map from each patch to a token: x_p E. (B, C, H, W) → (B, N, D).

    Dosovitskiy et al. 2021, Eq. 1. A convolution whose kernel and stride are the patch size: the same numbers as
    `patchify` followed by a Linear with the weight flattened to (D, CP²), in one kernel.

    patch_size: P in pixels; channels: C; dim: width D. Raises ValueError for images of another form.
    """

    def __init__(self, patch_size: int, channels: int, dim: int):
        super().__init__()
        self.patch_size, self.dim = patch_size, dim
        self.proj = nn.Conv2d(channels, dim, kernel_size=patch_size, stride=patch_size)

    def forward(self, images: Images) -> Float[Tensor, "batch patches dim"]:
        _check_images(images, self.proj.in_channels, self.patch_size)
        return self.proj(images).flatten(2).transpose(1, 2)


class HybridEmbedding(nn.Module):
    """Patches of a CNN's feature map instead of the image: the hybrid. (B, C, H, W) → (B, N, D).

    Dosovitskiy et al. 2021, section 3.1, "Hybrid Architecture". With patch_size 1, each place of the map is a token.

    stem: any module (B, C, H, W) → (B, F, H/s, W/s); stem_channels: F; stem_stride: s; patch_size: side in map places.
    Raises ValueError for images whose sides s · patch_size does not divide.
    """

    def __init__(self, stem: nn.Module, stem_channels: int, stem_stride: int, dim: int, patch_size: int = 1):
        super().__init__()
        self.stem = stem
        self.patch_size, self.dim = stem_stride * patch_size, dim  # in pixels, as seen from outside
        self.patch_embed = PatchEmbedding(patch_size, stem_channels, dim)

    def forward(self, images: Images) -> Float[Tensor, "batch patches dim"]:
        _check_images(images, None, self.patch_size)
        return self.patch_embed(self.stem(images))


def conv_stem(channels: int, widths: tuple[int, ...]) -> nn.Sequential:
    """A small CNN for `HybridEmbedding`: one 3×3 convolution for each width. (B, C, H, W) → (B, widths[-1], H/s, W/s).

    The first convolution and each that changes the width have stride 2, the others 1: `stem_stride` is s. Differs: the
    paper's hybrid uses a modified ResNet-50; this is the stem of Xiao et al. 2021, "Early Convolutions Help
    Transformers See Better", small enough to train in a page.
    """
    layers: list[nn.Module] = []
    for index, outputs in enumerate(widths):
        inputs = widths[index - 1] if index else channels
        stride = 1 if index and inputs == outputs else 2
        convolution = nn.Conv2d(inputs, outputs, kernel_size=3, stride=stride, padding=1, bias=False)
        layers += [convolution, nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers)


def stem_stride(widths: tuple[int, ...]) -> int:
    """How many pixels one place of a `conv_stem`'s map spans along each axis: 2 to the power of its halvings."""
    return 2 ** len(list(groupby(widths)))


def grid_size(image_size: Sequence[int], patch_size: int) -> tuple[int, int]:
    """Rows and columns of patches in an image of (height, width). Raises ValueError where the patch does not fit."""
    height, width = image_size
    if min(height, width) < 1 or height % patch_size or width % patch_size:
        raise ValueError(f"image {height}×{width} is not divisible by patch size {patch_size}")
    return height // patch_size, width // patch_size


def _check_images(images: Tensor, channels: int | None, patch_size: int) -> None:
    """A convolution takes an image without a batch, and ignores the pixels that fill no patch."""
    if images.ndim != 4:
        raise ValueError(f"images must have shape (B, C, H, W), got {tuple(images.shape)}")
    if channels is not None and images.shape[1] != channels:
        raise ValueError(f"images must have {channels} channels, got {images.shape[1]} in {tuple(images.shape)}")
    grid_size(images.shape[2:], patch_size)

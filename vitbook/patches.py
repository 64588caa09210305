"""Pictures to patches, and patches to tokens: the E of Equation 1.

H is always height and W width. A picture is cut row by row, left to right, into N = HW/P² patches of P×P pixels; inside
a patch the numbers run channel, row, column: (C, P, P) flattened, the order of a convolution's weight.
"""

from itertools import groupby

from einops import rearrange
from torch import Tensor, nn

from vitbook._support.validation import check_fits, check_kind, check_lengths, check_shape, check_sizes, check_tensors


def patchify(images: Tensor, patch_size: int) -> Tensor:
    """Cut pictures into flattened patches. (B, C, H, W) → (B, N, P²C).

    Dosovitskiy et al. 2021, section 3.1. Raises ValueError where the patch does not divide height and width.
    """
    check_images(images, patch_size=patch_size)
    return rearrange(images, "b c (h p) (w q) -> b (h w) (c p q)", p=patch_size, q=patch_size)


def unpatchify(patches: Tensor, patch_size: int, image_size: tuple[int, int]) -> Tensor:
    """Lay flattened patches back into pictures of height and width image_size. (B, N, P²C) → (B, C, H, W).

    The inverse of `patchify`. Raises ValueError where number or width of the patches does not fit.
    """
    check_shape("patches", patches, "B", "N", "P²C")
    rows, columns = grid_size(image_size, patch_size)
    if patches.shape[1] != rows * columns:
        raise ValueError(
            f"a {image_size[0]}×{image_size[1]} picture has {rows}·{columns} = {rows * columns} patches "
            f"of size {patch_size}, got {patches.shape[1]}"
        )
    if patches.shape[2] % patch_size**2:
        raise ValueError(f"a patch of size {patch_size} has {patch_size**2}·C numbers, got {patches.shape[2]}")
    return rearrange(patches, "b (h w) (c p q) -> b c (h p) (w q)", h=rows, w=columns, p=patch_size, q=patch_size)


class PatchEmbedding(nn.Module):
    """One linear map from each patch to a token: x_p E. (B, C, H, W) → (B, N, D).

    Dosovitskiy et al. 2021, Eq. 1. A convolution whose kernel and stride are the patch size: the same numbers as
    `patchify` followed by a Linear with the weight flattened to (D, CP²), in one kernel.

    patch_size: P in pixels; channels: C; dim: width D. Raises ValueError for pictures of another form.
    """

    def __init__(self, patch_size: int, channels: int, dim: int):
        super().__init__()
        check_sizes(patch_size=patch_size, channels=channels, dim=dim)
        self.patch_size, self.dim = patch_size, dim
        self.proj = nn.Conv2d(channels, dim, kernel_size=patch_size, stride=patch_size)

    def forward(self, images: Tensor) -> Tensor:
        check_images(images, self.proj.weight, self.patch_size)
        return self.proj(images).flatten(2).transpose(1, 2)


class HybridEmbedding(nn.Module):
    """Patches of a CNN's feature map instead of the picture: the hybrid. (B, C, H, W) → (B, N, D).

    Dosovitskiy et al. 2021, section 3.1, "Hybrid Architecture". With patch_size 1 each place of the map is a token.

    stem: any module (B, C, H, W) → (B, F, H/s, W/s); stem_channels: F; stem_stride: s; patch_size: side in map places.
    Raises ValueError for pictures that s · patch_size does not divide.
    """

    def __init__(self, stem: nn.Module, stem_channels: int, stem_stride: int, dim: int, patch_size: int = 1):
        super().__init__()
        check_kind(nn.Module, stem=stem)
        check_sizes(stem_channels=stem_channels, stem_stride=stem_stride, patch_size=patch_size)
        self.stem = stem
        self.patch_size, self.dim = stem_stride * patch_size, dim  # in pixels, as seen from outside
        self.stem_stride = stem_stride
        self.patch_embed = PatchEmbedding(patch_size, stem_channels, dim)

    def forward(self, images: Tensor) -> Tensor:
        check_images(images, patch_size=self.patch_size)
        check_fits("images", images, self.patch_embed.proj.weight)
        features = self.stem(images)
        expected, got = grid_size(tuple(images.shape[2:]), self.stem_stride), tuple(features.shape[2:])
        if got != expected:
            raise ValueError(f"a stem of stride {self.stem_stride} must make maps of {expected}, got {got}")
        return self.patch_embed(features)


def conv_stem(channels: int, widths: tuple[int, ...]) -> nn.Sequential:
    """A small CNN for `HybridEmbedding`: one 3×3 convolution for each width. (B, C, H, W) → (B, widths[-1], H/s, W/s).

    The first convolution and each that changes the width have stride 2, the others 1: `stem_stride` is s. Differs: the
    paper's hybrid uses a modified ResNet-50; this is the stem of Xiao et al. 2021, "Early Convolutions Help
    Transformers See Better", small enough to train in a page.
    """
    check_sizes(channels=channels)
    check_lengths(None, widths=widths)
    check_sizes(widths=min(widths, default=1))
    layers: list[nn.Module] = []
    for index, outputs in enumerate(widths):
        inputs = widths[index - 1] if index else channels
        stride = 1 if index and inputs == outputs else 2
        convolution = nn.Conv2d(inputs, outputs, kernel_size=3, stride=stride, padding=1, bias=False)
        layers += [convolution, nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers)


def stem_stride(widths: tuple[int, ...]) -> int:
    """How many pixels one place of a `conv_stem`'s map spans along each axis: 2 to the power of its halvings."""
    check_lengths(None, widths=widths)
    return 2 ** len(list(groupby(widths)))


def grid_size(image_size: tuple[int, int], patch_size: int) -> tuple[int, int]:
    """Rows and columns of patches in a picture of (height, width). Raises ValueError where the patch does not fit."""
    check_lengths(2, image_size=image_size)
    check_sizes(patch_size=patch_size)
    height, width = image_size
    if min(height, width) < 1 or height % patch_size or width % patch_size:
        raise ValueError(f"image {height}×{width} is not divisible by patch size {patch_size}")
    return height // patch_size, width // patch_size


def check_images(images: Tensor, weight: Tensor | None = None, patch_size: int = 1) -> None:
    """Raise TypeError or ValueError unless images has shape (B, C, H, W) and sizes that the patch divides.

    weight: that of the convolution (D, C, P, P) which the images are for, and whose dtype and device they must have.
    """
    check_tensors(images=images)
    if images.ndim != 4:
        raise ValueError(f"images must have shape (B, C, H, W), got {tuple(images.shape)}")
    if weight is not None:
        if images.shape[1] != weight.shape[1]:
            got = f"{images.shape[1]} in {tuple(images.shape)}"
            raise ValueError(f"images must have {weight.shape[1]} channels, got {got}")
        check_fits("images", images, weight)
    grid_size(tuple(images.shape[2:]), patch_size)

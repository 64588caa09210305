"""Equation 1: z₀ = [x_class; x_p¹E; …; x_pᴺE] + E_pos. The class token, the patches, their positions.

T = N + 1 with a class token, N without.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from vitbook.multihead import Tokens
from vitbook.patches import HybridEmbedding, Images, PatchEmbedding, grid_size
from vitbook.positions import POSITIONS, Grid


class ImageEmbedding(nn.Module):
    """Equation 1 of Dosovitskiy et al. 2021. (B, C, H, W) → (B, T, D).

    patch_embed: makes the N patch tokens; image_size: (height, width) in pixels; dim: width D.
    class_token: whether a learned token comes first; positions: one of `POSITIONS`; dropout: on the sum.

    In training, the attribute `patch_dropout` is the share of patches dropped from each image; see `drop_patches`. It
    is 0 unless a training run sets it.
    """

    def __init__(
        self,
        patch_embed: PatchEmbedding | HybridEmbedding,
        image_size: Sequence[int],
        dim: int,
        class_token: bool = True,
        positions: str = "learned",
        dropout: float = 0.0,
    ):
        super().__init__()
        self.image_size: Sequence[int] = tuple(image_size)
        self.patch_embed = patch_embed
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim)) if class_token else None
        self.positions = POSITIONS[positions](self.grid, dim, num_prefix_tokens=int(class_token))
        self.dropout = nn.Dropout(dropout)
        self.patch_dropout = 0.0

    @property
    def grid(self) -> Grid:
        """Rows and columns of patches."""
        return grid_size(self.image_size, self.patch_embed.patch_size)

    @property
    def prefix_tokens(self) -> list[Tensor]:
        """The learned tokens before the patches, each (1, 1, D)."""
        return [] if self.cls_token is None else [self.cls_token]

    def forward(self, images: Images, any_size: bool = False) -> Tokens:
        """any_size: whether to take images of another size, with the positions of their grid, or raise ValueError."""
        x = self.patch_embed(images)  # (B, N, D)
        if not any_size and images.shape[2:] != self.image_size:  # 8×12 has as many patches as 12×8
            expected, got = (f"{height}×{width}" for height, width in (self.image_size, images.shape[2:]))
            raise ValueError(f"images must be {expected}, as the positions are, got {got}: resize one or the other")
        grid = grid_size(images.shape[2:], self.patch_embed.patch_size) if any_size else None
        prefix = [token.to(x.dtype).expand(x.shape[0], -1, -1) for token in self.prefix_tokens]
        x = torch.cat([*prefix, x], dim=1) + self.positions(grid).to(x.dtype)  # (B, T, D), in bfloat16 under autocast
        if self.training and self.patch_dropout:
            x = drop_patches(x, self.patch_dropout, num_prefix_tokens=len(prefix))
        return self.dropout(x)

    def resize(self, image_size: Sequence[int]) -> None:
        """Fit the positions to images of another (height, width), in place."""
        self.positions.resize(grid_size(image_size, self.patch_embed.patch_size))
        self.image_size = tuple(image_size)


def drop_patches(x: Tokens, share: float, num_prefix_tokens: int = 1) -> Float[Tensor, "batch fewer dim"]:
    """Drop some patches of each image, drawn at random each time: the rest costs less. (B, T, D) → (B, T', D).

    Liu et al. 2022, "PatchDropout". Of N patches, N − ⌊share · N⌋ stay, in another order: their positions are already
    added. All tokens before the patches stay. 0 ≤ share < 1.
    """
    patches = x.shape[1] - num_prefix_tokens
    order = torch.rand(len(x), patches).argsort(dim=1)[:, : patches - int(share * patches)]  # same draws on any device
    prefix = torch.arange(num_prefix_tokens).expand(len(x), -1)
    return take_tokens(x, torch.cat([prefix, num_prefix_tokens + order], dim=1).to(x.device))


def take_tokens(x: Tokens, places: Int64[Tensor, "batch taken"]) -> Float[Tensor, "batch taken dim"]:
    """The tokens of each image at its own places, in their order. (B, T, D), (B, T') → (B, T', D)."""
    return x.gather(1, places.unsqueeze(-1).expand(-1, -1, x.shape[-1]))

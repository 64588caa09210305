"""Equation 1: z₀ = [x_class; x_p¹E; …; x_pᴺE] + E_pos. The class token, the patches, their positions.

A grid is (rows, columns) of patches, N = rows · columns; T = N + 1 with a class token, N without.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitbook._support.validation import (
    check_choice,
    check_floats,
    check_grids,
    check_lengths,
    check_numbers,
    check_shape,
    check_shares,
    check_sizes,
)
from vitbook.patches import HybridEmbedding, PatchEmbedding, grid_size
from vitbook.transformer import sincos_positions

Grid = tuple[int, int]


class ImageEmbedding(nn.Module):
    """Equation 1 of Dosovitskiy et al. 2021. (B, C, H, W) → (B, T, D).

    patch_embed: makes the N patch tokens; image_size: (height, width) in pixels; dim: width D.
    class_token: whether a learned token is put in front; positions: one of `POSITIONS`; dropout: on the sum.

    In training, the attribute `patch_dropout` says what share of the patches each picture does without; see
    `drop_patches`. It is 0 until a training sets it.

    Raises ValueError for pictures of another size than image_size (see `resize`), for unknown positions, and for a
    patch_embed of another width.
    """

    def __init__(
        self,
        patch_embed: PatchEmbedding | HybridEmbedding,
        image_size: tuple[int, int],
        dim: int,
        class_token: bool = True,
        positions: str = "learned",
        dropout: float = 0.0,
    ):
        super().__init__()
        check_choice("positions", positions, POSITIONS)
        check_lengths(2, image_size=image_size)
        check_sizes(dim=dim)
        check_shares(dropout=dropout)
        if (width := getattr(patch_embed, "dim", None)) != dim:
            raise ValueError(f"patch_embed must make tokens of width {dim}, got {width}")
        self.image_size = tuple(image_size)
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
        """The learned tokens in front of the patches, each (1, 1, D)."""
        return [] if self.cls_token is None else [self.cls_token]

    def forward(self, images: Tensor) -> Tensor:
        x = self.patch_embed(images)  # (B, N, D)
        if tuple(images.shape[2:]) != self.image_size:
            expected, got = (f"{height}×{width}" for height, width in (self.image_size, images.shape[2:]))
            raise ValueError(f"images must be {expected}, as the positions are, got {got}: resize one or the other")
        prefix = [token.to(x.dtype).expand(x.shape[0], -1, -1) for token in self.prefix_tokens]
        x = torch.cat([*prefix, x], dim=1) + self.positions().to(x.dtype)  # (B, T, D), in bfloat16 under autocast
        if self.training and self.patch_dropout:
            x = drop_patches(x, self.patch_dropout, num_prefix_tokens=len(prefix))
        return self.dropout(x)

    def resize(self, image_size: tuple[int, int]) -> None:
        """Make the positions fit pictures of another (height, width), in place."""
        self.positions.resize(grid_size(image_size, self.patch_embed.patch_size))
        self.image_size = tuple(image_size)


def drop_patches(x: Tensor, share: float, num_prefix_tokens: int = 1) -> Tensor:
    """Leave some patches of each picture out, drawn anew each time: the rest costs less. (B, T, D) → (B, T', D).

    Liu et al. 2022, "PatchDropout". Of N patches, N − ⌊share · N⌋ stay, in another order: they have their positions in
    them already. The tokens before the patches all stay. Raises ValueError unless 0 ≤ share < 1.
    """
    check_shape("x", x, "B", "T", "D")
    check_numbers(share=share)
    check_sizes(0, num_prefix_tokens=num_prefix_tokens)
    if not 0 <= share < 1:
        raise ValueError(f"share must be 0 or more and below 1, got {share}")
    patches = x.shape[1] - num_prefix_tokens
    if patches < 0:
        raise ValueError(f"num_prefix_tokens must be at most T = {x.shape[1]}, got {num_prefix_tokens}")
    order = torch.rand(len(x), patches).argsort(dim=1)[:, : patches - int(share * patches)]  # on the CPU: any GPU alike
    prefix = torch.arange(num_prefix_tokens).expand(len(x), -1)
    kept = torch.cat([prefix, num_prefix_tokens + order], dim=1).to(x.device)
    return x.gather(1, kept.unsqueeze(-1).expand(-1, -1, x.shape[-1]))


class LearnedPositions(nn.Module):
    """One learned vector for each token, numbered along the rows: 1-D, the paper's choice. → (1, T, D).

    Nothing says which numbers are neighbours; training finds out (Dosovitskiy et al. 2021, Figure 7).
    """

    def __init__(self, grid: Grid, dim: int, num_prefix_tokens: int):
        super().__init__()
        check_places(grid, dim, num_prefix_tokens)
        self.grid, self.num_prefix_tokens = grid, num_prefix_tokens
        self.pos_embed = nn.Parameter(torch.empty(1, num_prefix_tokens + grid[0] * grid[1], dim).normal_(std=0.02))

    def forward(self) -> Tensor:
        return self.pos_embed

    @torch.no_grad()
    def resize(self, grid: Grid) -> None:
        resized = resize_positions(self.pos_embed, self.grid, grid, self.num_prefix_tokens)
        self.grid, self.pos_embed = grid, nn.Parameter(resized, self.pos_embed.requires_grad)


class LearnedPositions2D(nn.Module):
    """A learned vector for each row beside one for each column, D/2 wide each. → (1, T, D).

    Dosovitskiy et al. 2021, appendix D.4. The class token has no place in the grid: its row is zero.
    """

    def __init__(self, grid: Grid, dim: int, num_prefix_tokens: int):
        super().__init__()
        check_places(grid, dim, num_prefix_tokens)
        if dim % 2:
            raise ValueError(f"rows and columns share the width: dim must be even, got {dim}")
        self.num_prefix_tokens = num_prefix_tokens
        self.rows = nn.Parameter(torch.empty(1, grid[0], dim // 2).normal_(std=0.02))
        self.columns = nn.Parameter(torch.empty(1, grid[1], dim // 2).normal_(std=0.02))

    def forward(self) -> Tensor:
        height, width = self.rows.shape[1], self.columns.shape[1]
        rows = self.rows.unsqueeze(2).expand(-1, -1, width, -1)
        columns = self.columns.unsqueeze(1).expand(-1, height, -1, -1)
        table = torch.cat([rows, columns], dim=-1).flatten(1, 2)  # (1, N, D)
        return F.pad(table, (0, 0, self.num_prefix_tokens, 0))

    @torch.no_grad()
    def resize(self, grid: Grid) -> None:
        """Stretch the rows and the columns to another grid."""
        check_grids(grid=grid)

        def stretch(table: nn.Parameter, length: int) -> nn.Parameter:
            stretched = F.interpolate(table.mT, size=length, mode="linear").mT.contiguous()
            return nn.Parameter(stretched, table.requires_grad)

        self.rows = stretch(self.rows, grid[0])
        self.columns = stretch(self.columns, grid[1])


class SinCosPositions2D(nn.Module):
    """A fixed code: sin-cos of the row beside sin-cos of the column, D/2 wide each. → (1, T, D).

    Nothing to learn, so nothing to interpolate. The class token has no place in the grid: its row is zero. He et al.
    2022 (masked autoencoders), Beyer, Zhai and Kolesnikov 2022 ("Better plain ViT baselines for ImageNet-1k").
    Differs: in both the columns' half comes first, and all sines before all cosines.
    """

    def __init__(self, grid: Grid, dim: int, num_prefix_tokens: int):
        super().__init__()
        check_places(grid, dim, num_prefix_tokens)
        self.dim, self.num_prefix_tokens = dim, num_prefix_tokens
        self.register_buffer("pos_embed", self.table(grid), persistent=False)

    def forward(self) -> Tensor:
        return self.pos_embed

    def resize(self, grid: Grid) -> None:
        """Compute the code of another grid."""
        self.pos_embed = self.table(grid).to(self.pos_embed)

    def table(self, grid: Grid) -> Tensor:
        """The code of a grid. → (1, T, D)."""
        return F.pad(sincos_positions_2d(grid, self.dim), (0, 0, self.num_prefix_tokens, 0)).unsqueeze(0)


def check_places(grid: Grid, dim: int, num_prefix_tokens: int) -> None:
    """Raise TypeError or ValueError unless these are the sizes of a table of positions."""
    check_grids(grid=grid)
    check_sizes(dim=dim)
    check_sizes(0, num_prefix_tokens=num_prefix_tokens)


class NoPositions(nn.Module):
    """A bag of patches: the model cannot tell one order from another. → (1, 1, 1) zero."""

    def __init__(self, grid: Grid, dim: int, num_prefix_tokens: int):
        super().__init__()
        self.register_buffer("zero", torch.zeros(1, 1, 1), persistent=False)

    def forward(self) -> Tensor:
        return self.zero

    def resize(self, grid: Grid) -> None:
        """Nothing: no grid has positions."""


POSITIONS = {
    "learned": LearnedPositions,
    "learned_2d": LearnedPositions2D,
    "sincos_2d": SinCosPositions2D,
    "none": NoPositions,
}


def sincos_positions_2d(grid: Grid, dim: int) -> Tensor:
    """Sin-cos of each patch's row, beside sin-cos of its column. → (N, D), row by row.

    Raises ValueError where dim is not divisible by 4.
    """
    check_grids(grid=grid)
    check_sizes(0, dim=dim)
    if dim % 4:
        raise ValueError(f"sin and cos of row and column: dim must be divisible by 4, got {dim}")
    rows, columns = sincos_positions(grid[0], dim // 2), sincos_positions(grid[1], dim // 2)
    return torch.cat([rows.repeat_interleave(grid[1], dim=0), columns.repeat(grid[0], 1)], dim=-1)


def resize_positions(
    pos_embed: Tensor,
    old_grid: Grid,
    new_grid: Grid,
    num_prefix_tokens: int = 1,
    mode: str = "bicubic",
    align_corners: bool = False,
    antialias: bool = True,
) -> Tensor:
    """Learned positions for another grid of patches, interpolated like a picture. (1, T, D) → (1, T', D).

    Dosovitskiy et al. 2021, section 3.2. The first num_prefix_tokens rows (the class token) stay as they are; the same
    grid gives the same numbers back. Interpolation is torch's: the default is timm's choice; Google's own code is
    mode="bilinear", align_corners=True, antialias=False.

    Raises ValueError where pos_embed does not have the shape that old_grid and num_prefix_tokens make.
    """
    check_floats(pos_embed=pos_embed)
    check_grids(old_grid=old_grid, new_grid=new_grid)
    check_sizes(0, num_prefix_tokens=num_prefix_tokens)
    check_choice("mode", mode, ("bicubic", "bilinear"))
    tokens = num_prefix_tokens + old_grid[0] * old_grid[1]
    if pos_embed.ndim != 3 or pos_embed.shape[:2] != (1, tokens):
        expected = f"(1, {num_prefix_tokens} + {old_grid[0]}·{old_grid[1]}, D)"
        raise ValueError(f"pos_embed must have shape {expected}, got {tuple(pos_embed.shape)}")
    if tuple(old_grid) == tuple(new_grid):
        return pos_embed.clone()
    prefix, table = pos_embed[:, :num_prefix_tokens], pos_embed[:, num_prefix_tokens:]
    table = table.to(torch.promote_types(table.dtype, torch.float32))  # a CPU interpolates nothing narrower
    picture = table.unflatten(1, old_grid).permute(0, 3, 1, 2)  # (1, D, rows, columns)
    picture = F.interpolate(picture, size=new_grid, mode=mode, align_corners=align_corners, antialias=antialias)
    return torch.cat([prefix, picture.flatten(2).transpose(1, 2).to(prefix.dtype)], dim=1)

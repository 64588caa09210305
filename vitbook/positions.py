"""Where a token stands, as a vector: sin-cos and learned, in one dimension and in two.

A grid is (rows, columns) of patches, N = rows · columns. A class token before the patches counts as a prefix token.
Modules give the table of the grid that they were made for, or of any other that they are asked for; `resize` keeps it.
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

Grid = tuple[int, int]


def sincos_positions(length: int, dim: int, base: float = 10_000.0) -> Float[Tensor, "length dim"]:
    """A fixed code for each position, with entries in [−1, 1]. Vaswani et al. 2017, section 3.5.

    PE(t, 2i) = sin(t / base^(2i/D)), PE(t, 2i + 1) = cos(t / base^(2i/D)): pairs of clock hands, from one turn every 2π
    positions to one every 2π · base^(1 − 2/D). Raises ValueError where dim is odd.
    """
    if dim % 2:
        raise ValueError(f"sin and cos come in pairs: dim must be even, got {dim}")
    position = torch.arange(length, dtype=torch.float64).unsqueeze(1)
    frequency = base ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angles = position * frequency
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1).to(torch.get_default_dtype())


def sincos_positions_2d(grid: Grid, dim: int) -> Float[Tensor, "patches dim"]:
    """Sin-cos of each patch's row beside sin-cos of its column, row by row.

    Raises ValueError where dim is not divisible by 4.
    """
    if dim % 4:
        raise ValueError(f"sin and cos of row and column: dim must be divisible by 4, got {dim}")
    rows, columns = sincos_positions(grid[0], dim // 2), sincos_positions(grid[1], dim // 2)
    return rows_beside_columns(rows, columns)


def rows_beside_columns(
    rows: Float[Tensor, "rows half"], columns: Float[Tensor, "columns half"]
) -> Float[Tensor, "patches dim"]:
    """Each patch's row beside its column, row by row."""
    table = [rows.unsqueeze(1).expand(-1, columns.shape[0], -1), columns.expand(rows.shape[0], -1, -1)]
    return torch.cat(table, dim=-1).flatten(0, 1)


class LearnedPositions(nn.Module):
    """One learned vector for each token, numbered along the rows: 1-D, the paper's choice. → (1, T, D).

    Nothing says which numbers are neighbors; training finds out (Dosovitskiy et al. 2021, Figure 7). The attribute
    `interpolation` holds arguments of `resize_positions`, which makes the table of another grid.
    """

    def __init__(self, grid: Grid, dim: int, num_prefix_tokens: int):
        super().__init__()
        self.grid, self.num_prefix_tokens = grid, num_prefix_tokens
        self.pos_embed = nn.Parameter(torch.empty(1, num_prefix_tokens + grid[0] * grid[1], dim).normal_(std=0.02))
        self.interpolation: dict[str, Any] = {}

    def forward(self, grid: Grid | None = None) -> Float[Tensor, "1 tokens dim"]:
        if grid is None:
            return self.pos_embed
        return resize_positions(self.pos_embed, self.grid, grid, self.num_prefix_tokens, **self.interpolation)

    @torch.no_grad()
    def resize(self, grid: Grid) -> None:
        """Interpolate the vectors for another grid."""
        self.grid, self.pos_embed = grid, nn.Parameter(self(grid), self.pos_embed.requires_grad)


class LearnedPositions2D(nn.Module):
    """A learned vector for each row beside one for each column, D/2 wide each. → (1, T, D).

    Dosovitskiy et al. 2021, appendix D.4. The class token has no place in the grid: its row is zero.
    """

    def __init__(self, grid: Grid, dim: int, num_prefix_tokens: int):
        super().__init__()
        self.num_prefix_tokens = num_prefix_tokens
        self.rows = nn.Parameter(torch.empty(1, grid[0], dim // 2).normal_(std=0.02))
        self.columns = nn.Parameter(torch.empty(1, grid[1], dim // 2).normal_(std=0.02))

    def forward(self, grid: Grid | None = None) -> Float[Tensor, "1 tokens dim"]:
        rows, columns = (self.rows, self.columns) if grid is None else self._stretched(grid)
        return F.pad(rows_beside_columns(rows[0], columns[0]), (0, 0, self.num_prefix_tokens, 0)).unsqueeze(0)

    @torch.no_grad()
    def resize(self, grid: Grid) -> None:
        """Stretch the rows and the columns to another grid."""
        learn = self.rows.requires_grad
        self.rows, self.columns = (nn.Parameter(table.contiguous(), learn) for table in self._stretched(grid))

    def _stretched(self, grid: Grid) -> list[Tensor]:
        tables = zip((self.rows, self.columns), grid, strict=True)
        return [F.interpolate(table.mT, size=length, mode="linear").mT for table, length in tables]


class SinCosPositions2D(nn.Module):
    """A fixed code: sin-cos of the row beside sin-cos of the column, D/2 wide each. → (1, T, D).

    There is nothing to learn, so nothing to interpolate. The class token has no place in the grid: its row is zero.
    He et al. 2022 (masked autoencoders), Beyer, Zhai and Kolesnikov 2022 ("Better plain ViT baselines for
    ImageNet-1k"). Differs: in both, the columns' half comes first, and all sines come before all cosines;
    Beyer et al. space the frequencies by 1/(D/4 − 1).
    """

    def __init__(self, grid: Grid, dim: int, num_prefix_tokens: int):
        super().__init__()
        self.dim, self.num_prefix_tokens = dim, num_prefix_tokens
        self.register_buffer("pos_embed", self._table(grid), persistent=False)

    def forward(self, grid: Grid | None = None) -> Float[Tensor, "1 tokens dim"]:
        return self.pos_embed if grid is None else self._table(grid).to(self.pos_embed)

    def resize(self, grid: Grid) -> None:
        """Compute the code of another grid."""
        self.pos_embed = self(grid)

    def _table(self, grid: Grid) -> Float[Tensor, "1 tokens dim"]:
        return F.pad(sincos_positions_2d(grid, self.dim), (0, 0, self.num_prefix_tokens, 0)).unsqueeze(0)


class NoPositions(nn.Module):
    """A bag of patches: the model cannot tell one order from another. → (1, T, 1), zeros."""

    def __init__(self, grid: Grid, dim: int, num_prefix_tokens: int):
        super().__init__()
        self.num_prefix_tokens = num_prefix_tokens
        self.register_buffer("zeros", torch.zeros(1, num_prefix_tokens + grid[0] * grid[1], 1), persistent=False)

    def forward(self, grid: Grid | None = None) -> Float[Tensor, "1 tokens 1"]:
        return self.zeros if grid is None else self.zeros.new_zeros(1, self.num_prefix_tokens + grid[0] * grid[1], 1)

    def resize(self, grid: Grid) -> None:
        """Have a zero for each token of another grid."""
        self.zeros = self(grid)


POSITIONS = {
    "learned": LearnedPositions,
    "learned_2d": LearnedPositions2D,
    "sincos_2d": SinCosPositions2D,
    "none": NoPositions,
}


def resize_positions(
    pos_embed: Float[Tensor, "1 tokens dim"],
    old_grid: Grid,
    new_grid: Grid,
    num_prefix_tokens: int = 1,
    mode: str = "bicubic",
    align_corners: bool = False,
    antialias: bool = True,
) -> Float[Tensor, "1 new_tokens dim"]:
    """Learned positions for another grid of patches, interpolated like an image. (1, T, D) → (1, T', D).

    Dosovitskiy et al. 2021, section 3.2. The first num_prefix_tokens rows (the class token) stay as they are; the same
    grid gives the same numbers back. Interpolation is torch's: the default is timm's choice; Google's own code uses
    mode="bilinear", align_corners=True, antialias=False.
    """
    prefix, table = pos_embed[:, :num_prefix_tokens], pos_embed[:, num_prefix_tokens:]
    table = table.to(torch.promote_types(table.dtype, torch.float32))  # a CPU interpolates nothing narrower
    image = table.unflatten(1, old_grid).permute(0, 3, 1, 2)  # (1, D, rows, columns)
    image = F.interpolate(image, size=new_grid, mode=mode, align_corners=align_corners, antialias=antialias)
    return torch.cat([prefix, image.flatten(2).transpose(1, 2).to(prefix.dtype)], dim=1)

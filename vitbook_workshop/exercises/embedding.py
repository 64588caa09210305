"""The exercises of chapters/07_embedding.ipynb."""

import torch
import torch.nn.functional as F

from vitbook.positions import resize_positions
from vitbook_workshop.exercises.grader.inputs import normal
from vitbook_workshop.exercises.grader.judging import Exercise, combined
from vitbook_workshop.exercises.my_vit.components import COMPONENTS

CHAPTER = "07_embedding"

Embedding = COMPONENTS["Embedding"]


def _mirrored(pos_embed, grid, axis=3, mean=True):
    """The mean of each place and its mirror image; axis 3 are the columns."""
    table = pos_embed[:, 1:].unflatten(1, grid)[None]  # (1, 1, rows, columns, D)
    table = (table + table.flip(axis)) / 2 if mean else table.flip(axis)
    return torch.cat([pos_embed[:, :1], table[0].flatten(1, 2)], dim=1)


mirrored = Exercise(
    _mirrored,
    "cut the places into rows and columns, flip the columns, take the mean of both tables; keep the class token's row.",
    lambda g: [
        (normal(g, 1, 1 + rows * columns, d), (rows, columns)) for rows, columns, d in ((3, 4, 5), (4, 7, 3), (2, 6, 8))
    ],
) | {
    "You mirror top to bottom. Flip the columns, not the rows.": lambda p, grid: _mirrored(p, grid, axis=2),
    "You reverse the whole list of places, which turns the grid upside down as well.": (
        lambda p, grid: torch.cat([p[:, :1], (p[:, 1:] + p[:, 1:].flip(1)) / 2], dim=1)
    ),
    "You flip the table, but do not take the mean: a place and its mirror image still differ.": (
        lambda p, grid: _mirrored(p, grid, mean=False)
    ),
    "You add the two tables. Take their mean.": lambda p, grid: torch.cat([p[:, :1], 2 * _mirrored(p, grid)[:, 1:]], 1),
    "The class token's row is lost; keep it as it is, in front.": lambda p, grid: _mirrored(p, grid)[:, 1:],
    "You flip the numbers within each vector, not the places.": lambda p, grid: _mirrored(p, grid, axis=4),
    "Rows and columns of the grid are exchanged.": lambda p, grid: _mirrored(p, grid[::-1]),
}

_RESHAPED = "Your reshape mixes places and width. Cut the places into rows and columns first, then move the width."
_NOT_ALIGNED = "Your corners are not aligned: align_corners=True."


def _resized(made, pos_embed, old_grid, new_grid):
    table = pos_embed[:, 1:].reshape(1, -1, *old_grid)
    if _RESHAPED not in made:
        table = pos_embed[:, 1:].unflatten(1, old_grid).permute(0, 3, 1, 2)
    table = F.interpolate(table, size=new_grid, mode="bilinear", align_corners=_NOT_ALIGNED not in made)
    return torch.cat([pos_embed[:, :1], table.flatten(2).mT], dim=1)


resize = Exercise(
    lambda pos_embed, old_grid, new_grid: resize_positions(
        pos_embed, old_grid, new_grid, mode="bilinear", align_corners=True, antialias=False
    ),
    "cut the places into rows and columns before the width moves to the front; align the corners.",
    lambda g: [
        (normal(g, 1, 1 + old[0] * old[1], d), old, new)
        for old, new, d in (((3, 4), (5, 6), 7), ((2, 5), (4, 9), 6), ((4, 4), (7, 3), 5))
    ],
    level="hard",
    kind="repair",
) | {
    **combined(_resized, _RESHAPED, _NOT_ALIGNED),
    "Rows and columns of the old grid are exchanged.": lambda p, old, new: _resized((), p, old[::-1], new),
    "The class token's row is lost; keep it as it is, in front.": lambda *given: _resized((), *given)[:, 1:],
    "You interpolate the class token's row with the patches'. It has no place in the grid: keep it apart.": (
        lambda p, old, new: F.interpolate(p.mT, size=1 + new[0] * new[1], mode="linear", align_corners=True).mT
    ),
}

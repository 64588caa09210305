"""The exercises of chapters/07_embedding.ipynb."""

import torch
import torch.nn.functional as F

from vitbook.exercises.grading import Exercise, combined
from vitbook.exercises.inputs import normal
from vitbook.positions import resize_positions

equation_1 = Exercise(
    lambda x_p, E, x_class, E_pos: torch.cat([x_class.expand(len(x_p), -1, -1), x_p @ E], dim=1) + E_pos,
    "multiply by E, put the class token in front of every image's patches, then add the positions to all.",
    lambda g: [
        (normal(g, b, n, p), normal(g, p, d), normal(g, 1, 1, d), normal(g, 1, n + 1, d))
        for b, n, p, d in ((2, 6, 12, 5), (1, 4, 9, 10), (3, 5, 4, 7))
    ],
    gradients=True,
    level="easy",
) | {
    "Your class token comes last. It is token 0.": lambda x_p, E, x_class, E_pos: (
        torch.cat([x_p @ E, x_class.expand(len(x_p), -1, -1)], dim=1) + E_pos
    ),
    "Your positions are not added.": lambda *given: equation_1.reference(*given[:3], 0 * given[3]),
    "Your class token gets no position: put it in front before you add E_pos.": (
        lambda x_p, E, x_class, E_pos: equation_1.reference(x_p, E, x_class - E_pos[:, :1], E_pos)
    ),
    "Your class token gets no position, and the patches get the first ones: add E_pos after the cat.": (
        lambda x_p, E, x_class, E_pos: torch.cat([x_class.expand(len(x_p), -1, -1), x_p @ E + E_pos[:, :-1]], dim=1)
    ),
    # Without `expand`, or with the wrong axis expanded, the error is the same.
    "Before the cat, axis 0 of the class token has to be expanded to the number of images.": (
        lambda x_p, E, x_class, E_pos: torch.cat([x_class, x_p @ E], dim=1) + E_pos
    ),
}

growth = Exercise(
    (16 * 32 - 14 * 14) * 1024, "only the positions grow: count the places of both grids, each D = 1024 wide."
) | {
    "That is the number of new places; each is D numbers.": 16 * 32 - 14 * 14,
    "That is all of the new positions, not how many more there are.": 16 * 32 * 1024,
    "That is all of the new positions and the class token's, not how many more there are.": 513 * 1024,
    "The class token has a position before and after, and adds nothing.": (16 * 32 + 1 - 14 * 14) * 1024,
    "The new image is 256 by 512, not square.": (16 * 16 - 14 * 14) * 1024,
}

_RESHAPED = "Your reshape takes the numbers as they lie, the width last. Cut the places first, then bring it forward."
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

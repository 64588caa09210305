"""The exercises of chapters/18_heads.ipynb."""

import math

import torch

from vitbook import heads
from vitbook.exercises.grading import Exercise
from vitbook.exercises.inputs import normal
from vitbook.features import neighbor_votes

iou = Exercise(
    3 / 5,
    "columns are enough: how many have both squares in common, and how many does either of them cover?",
    level="easy",
)

soft_argmax = Exercise(
    heads.soft_argmax,
    "softmax over all cells of a map together; cell j has its center at (j + ½) · cell − ½; x goes with columns.",
    lambda g: [(normal(g, 2, 3, 4, 6), 2.0), (3 * normal(g, 3, 1, 7, 5), 6.0), (normal(g, 1, 2, 3, 9), 1.0)],
) | {
    "x and y are exchanged: x goes with columns.": lambda maps, cell: heads.soft_argmax(maps, cell).flip(-1),
    "Your places are in cells; each is `cell` pixels wide.": lambda maps, cell: heads.soft_argmax(maps, 1.0),
}

votes = Exercise(
    neighbor_votes,
    "divide features by their lengths first; and where two neighbors have one class, add their votes.",
    lambda g: [
        (normal(g, m, d), normal(g, n, d) * normal(g, n, 1).exp(), torch.randint(c, (n,), generator=g), c, k, tau)
        for m, n, d, c, k, tau in ((3, 20, 4, 2, 7, 0.5), (5, 30, 6, 3, 10, 0.07))
    ],
) | {
    "All your votes weigh the same; nearer neighbors weigh more.": (
        lambda *given: neighbor_votes(*given[:-1], temperature=math.inf)
    )
}

floor = Exercise(
    math.log(2 * math.pi * math.e * (3 / 2) ** 2),
    "−ln p of the Gaussian's density has the mean ln(2πσ²) + 1; a cell's probability is density times area.",
)

"""The exercises of chapters/18_heads.ipynb."""

import math

import torch

from vitbook import task_heads
from vitbook.features import neighbor_votes
from vitbook_workshop.exercises.grader.inputs import normal
from vitbook_workshop.exercises.grader.judging import Exercise, Personal

CHAPTER = "18_heads"


def _iou(side: int, off: int) -> Exercise:
    hint = "columns are enough: how many have both squares in common, and how many does either of them cover?"
    return Exercise((side - off) / (side + off), hint, level="easy") | {
        "That divides by one square. The union holds what either of them covers.": (side - off) / side,
        "That counts what both have in common twice.": (side - off) / (2 * side),
    }


iou = Personal(
    dict(side=(12, 15, 18), off=(3, 4, 5)),
    lambda side, off: (
        f"The truth is a square of {side}×{side} pixels. The prediction is a square of the same size, {off} pixels too "
        "far to the right."
    ),
    _iou,
).exercise()

average_precision = Exercise(
    task_heads.average_precision,
    "sort by score, highest first; the precision at a rank is the share of right guesses so far.",
    lambda g: [
        (torch.rand(n, generator=g), torch.rand(n, generator=g) < 0.4, objects) for n, objects in ((12, 9), (30, 21))
    ],
) | {
    "An object that no guess finds counts too, with 0: divide by all objects.": (
        lambda scores, right, objects: task_heads.average_precision(scores, right, int(right.sum()))
    ),
    "You take the guesses as they come; the surest is first.": (
        lambda scores, right, objects: task_heads.average_precision(-torch.arange(len(right)).float(), right, objects)
    ),
    "You average over all guesses; only those that find an object count.": (
        lambda scores, right, objects: (
            ((found := right[scores.argsort(descending=True)].cumsum(dim=0)) / torch.arange(1, len(found) + 1))
            .mean()
            .item()
        )
    ),
}

soft_argmax = Exercise(
    task_heads.soft_argmax,
    "softmax over all cells of a map together; cell j has its center at (j + ½) · cell − ½; x goes with columns.",
    lambda g: [(normal(g, 2, 3, 4, 6), 2.0), (3 * normal(g, 3, 1, 7, 5), 6.0), (normal(g, 1, 2, 3, 9), 1.0)],
) | {
    "x and y are exchanged: x goes with columns.": lambda maps, cell: task_heads.soft_argmax(maps, cell).flip(-1),
    "Your places are in cells; each is `cell` pixels wide.": lambda maps, cell: task_heads.soft_argmax(maps, 1.0),
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

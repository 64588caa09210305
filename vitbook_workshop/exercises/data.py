"""The exercises of chapters/12_data.ipynb."""

import math
from functools import partial

import torch
import torch.nn.functional as F

from vitbook_workshop.exercises.grader.inputs import normal
from vitbook_workshop.exercises.grader.judging import Exercise, Personal

CHAPTER = "12_data"


def _shifts(patch: int) -> Exercise:
    hint = f"of the {patch} shifts to the side that differ by less than a patch, one is a whole one."
    return Exercise(1 / patch**2, hint, level="easy") | {
        "That counts the shifts along one axis; there are two.": 1 / patch
    }


shifts = Personal(
    dict(patch=(4, 2, 8)),
    lambda patch: f"a ViT with patches of {patch}×{patch}, without positions and with mean pooling",
    _shifts,
).exercise()

matrix = Exercise(
    lambda kernel, n: F.conv1d(torch.eye(n).to(kernel)[:, None], kernel[None, None], padding=len(kernel) // 2)[:, 0].T,
    "row i holds the kernel with its middle on the diagonal; what would stick out at either end is cut off.",
    lambda g: [(normal(g, k), n) for k, n in ((3, 5), (5, 7), (1, 4))],
) | {"Your kernel is reversed; each row holds it as it is.": lambda k, n: matrix.reference(k.flip(0), n)}


def _share(labels, share, rounded=round, least=1, ascending=True):
    members = [(labels == label).nonzero().flatten() for label in labels.unique()]
    chosen = torch.cat([indices[: max(least, rounded(share * len(indices)))] for indices in members])
    return chosen.sort().values if ascending else chosen


def _shuffled(generator, *counts):
    """Labels in random order, so many of each class."""
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    return labels[torch.randperm(len(labels), generator=generator)]


share = Exercise(
    _share,
    "go through the classes one by one; of each, take round(share · its images), and one at least; then sort.",
    # The share of one class is rounded up, of another down, and of a third to nothing.
    lambda g: [(_shuffled(g, 7, 13, 2), 0.2), (_shuffled(g, 28, 33, 5, 4), 0.05), (_shuffled(g, 3, 8, 6), 1.0)],
) | {
    "You take the first images of all, whatever their class.": lambda y, share: torch.arange(round(share * len(y))),
    "You round down; take round(share · count).": partial(_share, rounded=int),
    "You round up; take round(share · count).": partial(_share, rounded=math.ceil),
    "A class with few images gets none; take at least one.": partial(_share, least=0),
    "Your indices are not in ascending order.": partial(_share, ascending=False),
}

reach = Exercise(
    lambda kernels, strides: 1 + int(((kernels - 1) * strides.cumprod(0) // strides).sum()),
    "a kernel of k adds k − 1 steps; a step is as many pixels as the strides before it, multiplied together.",
    lambda g: [
        (2 * torch.randint(1, 4, (n,), generator=g) + 1, torch.randint(1, 4, (n,), generator=g)) for n in (5, 3, 8)
    ],
)

"""The exercises of chapters/04_multihead.ipynb."""

import torch
from einops import rearrange

from vitbook import multihead
from vitbook_workshop.exercises.grader.inputs import normal
from vitbook_workshop.exercises.grader.judging import Exercise
from vitbook_workshop.exercises.my_vit.components import COMPONENTS
from vitbook_workshop.faults.mistakes import parts as wrong

CHAPTER = "04_multihead"

merge_heads = Exercise(
    multihead.merge_heads,
    "exchange heads and tokens first, then join heads and columns, the last two axes.",
    lambda g: [(normal(g, 2, 3, 5, 4),), (normal(g, 3, 2, 4, 5),), (normal(g, 2, 4, 4, 3),)],
    level="easy",
) | {
    wrong.MergedWithoutTranspose: lambda x: x.reshape(x.shape[0], x.shape[2], -1),
    "Your heads take turns column by column; keep each together.": lambda x: x.permute(0, 2, 3, 1).flatten(2),
    "You join heads and tokens. Join heads and columns, which make the width.": lambda x: x.flatten(1, 2),
    "You exchange heads and tokens but do not join heads and columns.": lambda x: x.transpose(1, 2),
}


def _asks_for(places):
    """W_Q of a head that asks for what stands so many places to the left, in a ring."""
    return lambda x: x.mT @ x.roll(places, dims=0)


left_neighbor = Exercise(
    _asks_for(1),
    "x W_Q are the queries, and place t should ask with the code of place t − 1; x is orthonormal, so x⁻¹ = xᵀ.",
    lambda g: [(torch.linalg.qr(normal(g, size, size)).Q,) for size in (5, 6)],
    kind="derive",
) | {
    "Your head finds the right neighbor.": _asks_for(-1),
    "Your head looks at the token itself.": _asks_for(0),
    "Your head looks two places to the left.": _asks_for(2),
    "These are the queries. x W_Q has to give them: multiply by the inverse of x on the left.": (
        lambda x: x.roll(1, dims=0)
    ),
    "You multiply in the wrong order: the inverse of x stands on the left.": lambda x: x.roll(1, dims=0) @ x.mT,
    "You roll the columns; the codes are the rows of x.": lambda x: x.mT @ x.roll(1, dims=1),
}


def _reordered(order):
    return lambda weight, num_heads: rearrange(weight, order, three=3, h=num_heads)


qkv_order = Exercise(
    lambda weight, num_heads: rearrange(weight, "(h three d) D -> (three h d) D", three=3, h=num_heads),
    "the rows are (head, which of the three, column). Exchange the first two of these and keep the third.",
    lambda g: [(normal(g, 24, 8), 2), (normal(g, 36, 12), 3), (normal(g, 30, 10), 5)],
    level="hard",
) | {
    "Your rows have not moved.": lambda weight, num_heads: weight,
    "You go the wrong way: (head, which of the three, column) is theirs.": _reordered("(three h d) D -> (h three d) D"),
    "You take the three for the last axis. It is the middle one.": _reordered("(h d three) D -> (three h d) D"),
    "Your rows end up as (three, column, head). Exchange the last two.": _reordered("(h three d) D -> (three d h) D"),
}

MultiHeadAttention = COMPONENTS["MultiHeadAttention"]

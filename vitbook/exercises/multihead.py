"""The exercises of chapters/04_multihead.ipynb."""

from einops import rearrange

from vitbook import mistakes as wrong
from vitbook import multihead
from vitbook.exercises.grading import Exercise
from vitbook.exercises.inputs import normal

merge_heads = Exercise(
    multihead.merge_heads,
    "exchange heads and tokens first, then join heads and columns, the last two axes.",
    lambda g: [(normal(g, 2, 3, 5, 4),), (normal(g, 3, 2, 4, 5),), (normal(g, 2, 4, 4, 3),)],
    level="easy",
) | {
    wrong.MergedWithoutTranspose: lambda x: x.reshape(x.shape[0], x.shape[2], -1),
    "Your heads alternate; each lies in one piece beside the next.": lambda x: x.permute(0, 2, 3, 1).flatten(2),
    "You join heads and tokens; join heads and columns, which make the width.": lambda x: x.flatten(1, 2),
    "You exchange heads and tokens, and do not join heads and columns.": lambda x: x.transpose(1, 2),
}

parameters = Exercise(
    4 * 384**2 + 384, "four D×D weights; without qkv_bias only W_O keeps its bias, of D numbers.", level="easy"
) | {
    "That counts the biases of Q, K and V too.": 4 * 384**2 + 4 * 384,
    "That leaves out the bias of W_O, which stays.": 4 * 384**2,
    "That leaves out W_O.": 3 * 384**2,
    "That leaves out the weights of W_O.": 3 * 384**2 + 384,
    "That keeps the biases of Q, K and V and leaves out W_O's.": 4 * 384**2 + 3 * 384,
}


def _reordered(order):
    return lambda weight, num_heads: rearrange(weight, order, three=3, h=num_heads)


qkv_order = Exercise(
    lambda weight, num_heads: rearrange(weight, "(h three d) D -> (three h d) D", three=3, h=num_heads),
    "the rows are (head, which of the three, column); exchange the first two of these and keep the third.",
    lambda g: [(normal(g, 24, 8), 2), (normal(g, 36, 12), 3), (normal(g, 30, 10), 5)],
    level="hard",
) | {
    "Your rows are where they were.": lambda weight, num_heads: weight,
    "You go the wrong way: (head, which of the three, column) is theirs.": _reordered("(three h d) D -> (h three d) D"),
    "The three stand in the middle, and you take them for the last axis.": _reordered("(h d three) D -> (three h d) D"),
    "Your rows end as (three, column, head); exchange the last two.": _reordered("(h three d) D -> (three d h) D"),
}

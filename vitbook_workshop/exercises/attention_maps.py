"""The exercises of chapters/13_attention_maps.ipynb."""

import torch

from vitbook import attention_maps
from vitbook_workshop.exercises.grader.inputs import normal
from vitbook_workshop.exercises.grader.judging import Exercise, Personal
from vitbook_workshop.faults.mistakes import procedures as wrong

CHAPTER = "13_attention_maps"

_WORDS = {2: ("two", "both"), 3: ("three", "all three"), 4: ("four", "all four")}


def _share(blocks: int) -> Exercise:
    hint = "after one block the class token is half patch; in each later one it keeps half of that, and takes a half."
    return Exercise(1 - 0.5**blocks, hint, level="easy") | {
        "That is after the first block.": 1 / 2,
        "Without the residual the class token would be all patch; half of it stays in each block.": 1.0,
        "That is what is left of the class token itself.": 0.5**blocks,
    }


predict = Personal(
    dict(blocks=tuple(_WORDS)),
    lambda blocks: (
        f"In each of {_WORDS[blocks][0]} blocks the class token attends to the patch alone, and the patch to itself. "
        f"How much of the patch has reached the class token after {_WORDS[blocks][1]} blocks"
    ),
    _share,
).exercise()

rollout = Exercise(
    attention_maps.rollout,
    "mean over heads, not images; each query's row sums to 1; the later block stands on the left.",
    lambda g: [(normal(g, *shape).softmax(dim=-1),) for shape in ((2, 3, 4, 5, 5), (3, 2, 3, 6, 6), (4, 1, 2, 3, 3))],
) | {
    wrong.rollout_without_the_identity: wrong.rollout_without_the_identity,
    wrong.rollout_normalized_over_the_queries: wrong.rollout_normalized_over_the_queries,
    "Your blocks are in the wrong order. The later one stands on the left.": lambda w: rollout.reference(w.flip(0)),
}

lengths = Exercise(
    lambda weights, values, w_o: weights * (values @ w_o.unflatten(0, (values.shape[1], -1))).norm(dim=-1)[:, :, None],
    "multiply each head's values by its own strip of W_O; the length of a key's vector scales that key's column.",
    lambda g: [
        (normal(g, b, h, t, t).softmax(dim=-1), normal(g, b, h, t, d), normal(g, h * d, h * d))
        for b, h, t, d in ((2, 3, 5, 4), (1, 2, 4, 3), (3, 4, 6, 2))
    ],
) | {
    "Those are the weights alone.": lambda weights, values, w_o: weights,
    "You measure the values before W_O, not what it makes of them.": lambda w, v, w_o: w * v.norm(dim=-1)[:, :, None],
}


def _center_first(rows: int, columns: int, shift: float = 0.5) -> torch.Tensor:
    """Minus each patch's distance from the center; shift is where a patch's own center lies in it."""
    down, across = (torch.arange(n, dtype=torch.float64) + shift - n / 2 for n in (rows, columns))
    return -torch.hypot(down[:, None], across)


center_first = Exercise(
    _center_first,
    "the centers of n patches in a row lie at 0.5, 1.5, …, and the middle of the row at n/2.",
    lambda g: [(8, 8), (5, 4), (3, 7)],
) | {
    "That puts the border first: the center needs the largest number.": lambda r, c: -_center_first(r, c),
    "Your center is that of a patch. The image's lies half a patch further.": lambda r, c: _center_first(r, c, 0.0),
    "Those are squares of distances.": lambda r, c: -_center_first(r, c).square(),
}

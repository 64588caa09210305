"""The exercises of chapters/26_export.ipynb."""

import torch
from torch import Tensor

from vitbook import export
from vitbook_workshop.exercises.grader.inputs import normal
from vitbook_workshop.exercises.grader.judging import Exercise, Personal
from vitbook_workshop.faults.mistakes import procedures as wrong

CHAPTER = "26_export"


def _both(pair: tuple[Tensor, Tensor] | Tensor | None) -> Tensor | None:
    """Whole numbers beside their scales, as one tensor; what is one already, or nothing, stays."""
    if pair is None or isinstance(pair, Tensor):
        return pair
    whole, scale = pair
    return torch.cat([whole.double(), scale.double()], dim=-1)


def _whole(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randint(-127, 128, shape, generator=generator).double()


def _error(largest: float) -> Exercise:
    hint = "the scale is the largest over 127; rounding is off by half of it."
    return Exercise(largest / 254, hint, level="easy") | {
        "That is the scale; rounding is off by half a step at most.": largest / 127,
        "That divides by 254 and halves again.": largest / 508,
    }


error = Personal(
    dict(largest=(0.635, 0.254, 0.381, 1.27)),
    lambda largest: f"The largest absolute value in a row of weights is {largest}.",
    _error,
).exercise()

quantize = Exercise(
    lambda weight: _both(export.quantize(weight)),
    "scale = weight.abs().amax(dim=1, keepdim=True) / 127.",
    lambda g: [(normal(g, 4, 7) * normal(g, 4, 1).exp(),), (normal(g, 6, 5) * normal(g, 6, 1).exp(),)],
    adapt=lambda attempt: lambda weight: _both(attempt(weight)),
) | {
    wrong.one_scale_for_the_matrix: lambda w: _both(wrong.one_scale_for_the_matrix(w)),
    "Your maximum runs over the outputs; each row, an output, needs its own: dim=1.": (
        lambda w: _both(((w / (s := w.abs().amax(dim=0, keepdim=True) / 127)).round(), s.mT))
    ),
    "You divide by 128; the whole numbers then end at 128, which a byte does not hold.": (
        lambda w: _both(((w / (s := w.abs().amax(dim=1, keepdim=True) / 128)).round(), s))
    ),
    wrong.scale_without_absolute_values: lambda w: _both(wrong.scale_without_absolute_values(w)),
    "Your numbers are not rounded.": lambda w: _both((w / (s := w.abs().amax(dim=1, keepdim=True) / 127), s)),
    wrong.fractions_cut_off: lambda w: _both(wrong.fractions_cut_off(w)),
}

linear = Exercise(
    lambda q, s, Q, S: (q @ Q.mT) * s * S.mT,
    "every token has a scale, every output has one: the product is multiplied by both.",
    lambda g: [
        (_whole(g, t, d), normal(g, t, 1).exp(), _whole(g, n, d), normal(g, n, 1).exp())
        for t, d, n in ((3, 5, 4), (4, 6, 7))
    ],
) | {
    "The scales of the weights are missing.": lambda q, s, Q, S: (q @ Q.mT) * s,
    "The scales of the tokens are missing.": lambda q, s, Q, S: (q @ Q.mT) * S.mT,
    "You divide by the scales; W ≈ sQ, so they multiply.": lambda q, s, Q, S: (q @ Q.mT) / s / S.mT,
    "The scales are added; the product of sq and SQ is sS times the product of the whole numbers.": (
        lambda q, s, Q, S: (q @ Q.mT) * (s + S.mT)
    ),
}

_WORDS = {4: "four", 6: "six", 12: "twelve"}


def _bytes(blocks: int, wide: int) -> Exercise:
    hint = f"3D² for q, k and v, D² for the output, 2 · D · 2D for the MLP; {_WORDS[blocks]} times."
    return Exercise(blocks * 8 * wide**2, hint) | {
        f"That is one block; there are {_WORDS[blocks]}.": 8 * wide**2,
        "That is in float32, four bytes each.": 4 * blocks * 8 * wide**2,
        "The MLP here is 2D wide, not 4D.": blocks * 12 * wide**2,
    }


bytes = Personal(
    dict(blocks=tuple(_WORDS), wide=(128, 192, 256)),
    lambda blocks, wide: (
        f"model has {_WORDS[blocks]} blocks, $D = {wide}$, and an MLP of width $2D$ in each block. How many bytes do "
        f"the matrices of all {_WORDS[blocks]} blocks take in eight bits"
    ),
    _bytes,
).exercise()

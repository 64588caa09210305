"""The exercises of chapters/05_transformer.ipynb."""

from functools import partial

import torch

from vitbook.positions import sincos_positions
from vitbook.transformer import causal_mask, padding_mask
from vitbook_workshop.exercises.grader.judging import Exercise
from vitbook_workshop.exercises.my_vit.components import COMPONENTS
from vitbook_workshop.faults.mistakes import parts as wrong

CHAPTER = "05_transformer"


def _past(tokens):
    return causal_mask(tokens.shape[1])


mask = Exercise(
    lambda tokens, padding: _past(tokens) & padding_mask(tokens, padding),
    "True = may look: the key is not after the query, and the key (the last axis) is not padding; B comes first.",
    lambda g: [
        (torch.randint(0, 3, (2, 5), generator=g).scatter(1, torch.tensor([[3], [1]]), 0), 0),
        (torch.randint(4, 7, (3, 4), generator=g).scatter(1, torch.tensor([[2], [0], [3]]), 5), 5),
    ],
) | {
    wrong.mask_says_where_not_to_look: lambda x, p: ~(_past(x) & padding_mask(x, p)),
    "Your two conditions are joined by “or”. Both must hold.": lambda x, p: _past(x) | padding_mask(x, p),
    "You show the future, not the past: keys not after the query.": lambda x, p: _past(x).mT & padding_mask(x, p),
    "You show the padding and hide the letters.": lambda x, p: _past(x) & ~padding_mask(x, p),
    "You also hide each query's own place.": lambda x, p: _past(x).tril(-1) & padding_mask(x, p),
    "You hide queries that are padding (axis 2); hide keys (axis 3).": lambda x, p: _past(x) & padding_mask(x, p).mT,
    "You hide the padding and show the future.": lambda x, p: padding_mask(x, p).expand(-1, -1, x.shape[1], -1),
    "The axis of the heads is missing: (B, 1, T, T).": lambda x, p: _past(x) & (x != p)[:, None],
}


def _rotated(code, k, base=10_000.0, halves=False):
    """sin + i cos of each pair of columns, turned by −ωk. halves: all sines stand before all cosines."""
    pairs = code.unflatten(-1, (2, -1)).mT if halves else code.unflatten(-1, (-1, 2))
    frequency = base ** (-torch.arange(0, code.shape[-1], 2, dtype=code.dtype) / code.shape[-1])
    turned = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * torch.exp(-1j * k * frequency))
    return (turned.mT if halves else turned).flatten(-2)


shift = Exercise(
    _rotated,
    "turn each pair (column 2i: sine, column 2i + 1: cosine) by equation 2, with ω from the width D.",
    lambda g: [
        (sincos_positions(30, d).double()[torch.randperm(30, generator=g)[:t]], k)
        for t, d, k in ((5, 8, 3), (7, 12, -4))
    ],
    tolerance=1e-5,  # so that angles in float32 pass
    level="hard",
    kind="derive",
) | {
    "You turn the other way: these are the codes k positions back.": lambda code, k: _rotated(code, -k),
    "Your ω falls half as fast as it should: ωᵢ = 10000^(−2i/D), and i counts pairs.": partial(_rotated, base=1e2),
    "Your ω falls twice as fast as it should: in 10000^(−2i/D), i counts pairs.": partial(_rotated, base=1e8),
    "You take the first half of the columns for sines. Sines and cosines alternate.": partial(_rotated, halves=True),
    "Your codes have not moved.": lambda code, k: code,
}

MLP = COMPONENTS["MLP"]

"""The exercises of chapters/14_attention_distance.ipynb."""

import math

import torch
from torch import nn

from vitbook.attention_maps import attention_distance, attention_entropy, linear_cka, patch_distances
from vitbook_workshop.exercises.grader.inputs import normal, random_mask, random_module
from vitbook_workshop.exercises.grader.judging import Exercise, Personal

CHAPTER = "14_attention_distance"

_WORDS = {3: "three", 4: "four", 5: "five"}


def _distance(columns: int, side: int) -> Exercise:
    hint = f"list the distances from each of the {_WORDS[columns]} patches to all; the mean of {columns**2} numbers."
    return Exercise(side * (columns**2 - 1) / (3 * columns), hint, level="easy") | {
        "A patch's distance to itself is 0, and counts.": side * (columns + 1) / 3
    }


predict = Personal(
    dict(columns=tuple(_WORDS), side=(16, 14, 8)),
    lambda columns, side: (
        f"one row and {_WORDS[columns]} columns of patches, each {side} × {side} pixels. How far away, in pixels, does "
        f"a head look on average if it attends to all {_WORDS[columns]} equally?"
    ),
    _distance,
).exercise()

distance = Exercise(
    lambda weights, rows, columns, patch_size: attention_distance(weights[None], (rows, columns), patch_size)[0],
    "leave out row and column 0, divide each row by its sum, weight the pixels between centers, then take means.",
    lambda g: [
        (normal(g, b, h, 1 + rows * columns, 1 + rows * columns).softmax(dim=-1), rows, columns, patch_size)
        for b, h, rows, columns, patch_size in ((2, 3, 2, 3, 4), (1, 2, 3, 4, 16), (3, 4, 4, 2, 5))
    ],
) | {
    "Your distances are in patches: multiply by the patch's side.": lambda w, r, c, p: distance.reference(w, r, c, 1),
    "Your rows no longer sum to 1 once the class token is left out.": lambda weights, rows, columns, patch_size: (
        (weights[..., 1:, 1:] * patch_distances((rows, columns), patch_size).to(weights)).sum(-1).mean(dim=(0, 2))
    ),
}

entropy = Exercise(
    lambda weights: attention_entropy(weights[None])[0],
    "the sum over keys, with 0 · ln 0 = 0; then the mean over queries and images.",
    lambda g: [
        (normal(g, b, h, t, t).masked_fill(~random_mask(g, t, t), -torch.inf).softmax(dim=-1),)
        for b, h, t in ((2, 3, 5), (1, 2, 7), (3, 4, 6))
    ],
) | {
    "That is in bits: take the natural logarithm.": lambda weights: entropy.reference(weights) / math.log(2),
    "Your sign is reversed: an entropy is never negative.": lambda weights: -entropy.reference(weights),
    "You add up over the queries; take their mean.": lambda weights: entropy.reference(weights) * weights.shape[-1],
}

lens = Exercise(
    lambda z, norm, head, k: head(norm(z[:, :, 1:])).softmax(dim=-1)[..., k],
    "leave out the class token, then norm, head and softmax over classes, for all tokens and depths at once.",
    lambda g: [
        (normal(g, *shape, d), *random_module(g, lambda d=d, k=k: nn.Sequential(nn.LayerNorm(d), nn.Linear(d, k))), 2)
        for *shape, d, k in ((3, 2, 5, 12, 4), (4, 1, 6, 8, 5))
    ],
) | {
    "Your tokens miss the last LayerNorm before the head.": lambda z, _, *rest: lens.reference(z, nn.Identity(), *rest),
    "Those are logits, not probabilities.": lambda z, norm, head, k: head(norm(z[:, :, 1:]))[..., k],
}


def _cka(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x.T @ y).square().sum() / ((x.T @ x).norm() * (y.T @ y).norm())


cka = Exercise(
    linear_cka,
    "subtract each column's mean from X and from Y; then squares of a norm over a product of two norms.",
    lambda g: [(normal(g, n, a) + 1, normal(g, n, b) - 2) for n, a, b in ((9, 4, 6), (12, 5, 3), (7, 2, 8))],
) | {
    "Your vectors are not centered.": _cka,
    "Square the norm on top: X^T Y stands there twice.": lambda x, y: (
        linear_cka(x, y) / (((x - x.mean(dim=0)).T @ (y - y.mean(dim=0))).norm())
    ),
}

"""The exercises of chapters/15_pretrained.ipynb."""

import torch

from vitbook_workshop.exercises.grader.inputs import normal
from vitbook_workshop.exercises.grader.judging import Exercise, Personal

CHAPTER = "15_pretrained"

_BODY, _WIDTH = 86_567_656 - 769 * 1_000, 768


def _numbers(classes: int) -> Exercise:
    hint = "only the head differs: 768 weights and a bias for each class."
    return Exercise(_BODY + (_WIDTH + 1) * classes, hint, level="easy") | {
        "You keep the old head's thousand classes too.": _BODY + (_WIDTH + 1) * (classes + 1_000),
        "The bias of the head is missing.": _BODY + 1_000 + _WIDTH * classes,
    }


numbers = Personal(
    dict(classes=(21_843, 19_167, 11_221, 10_450)),
    lambda classes: f"The file from ImageNet-21k has a head of {classes:,} classes. How many numbers are in it?",
    _numbers,
).exercise()

out = Exercise(
    lambda kernel: kernel.flatten(0, 1).T,
    "the first two axes, head and column of the head, are the inputs; torch has outputs first.",
    lambda g: [(normal(g, h, d, h * d),) for h, d in ((3, 4), (2, 5), (5, 3))],
) | {"Your matrix is not transposed: torch has outputs first.": lambda kernel: kernel.flatten(0, 1)}

qkv = Exercise(
    lambda query, key, value: torch.cat([kernel.flatten(1).T for kernel in (query, key, value)]),
    "each kernel becomes its own block of rows, transposed: all of query, then all of key, then all of value.",
    lambda g: [tuple(normal(g, h * d, h, d) for _ in range(3)) for h, d in ((3, 4), (2, 5), (5, 3))],
) | {
    "Your kernels are not transposed: torch has outputs first.": lambda *qkv: torch.cat([x.flatten(1) for x in qkv]),
    "The order is query, key, value.": lambda query, key, value: qkv.reference(key, query, value),
}

fold = Exercise(
    lambda weight, bias, mean, std: bias - torch.einsum("dcpq,c->d", weight, mean / std),
    "the sum of weight · (x − mean)/std falls into a part with x and a part without, which the bias can take in.",
    lambda g: [
        (normal(g, d, c, p, p), normal(g, d), normal(g, c).abs(), normal(g, c).abs() + 0.5)
        for d, c, p in ((5, 3, 4), (7, 1, 2), (4, 2, 3))
    ],
) | {
    "You add what has to be subtracted.": lambda weight, bias, mean, std: fold.reference(weight, bias, -mean, std),
    "You do not divide by the standard deviation.": lambda w, b, mean, std: fold.reference(w, b, mean, 1.0),
}

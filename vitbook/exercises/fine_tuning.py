"""The exercises of chapters/16_fine_tuning.ipynb."""

import math

import torch
import torch.nn.functional as F

from vitbook.exercises.grading import Exercise
from vitbook.exercises.inputs import normal
from vitbook.features import neighbor_votes

tokens = Exercise(577, "24 patches along each side, and the class token.", level="easy") | {
    "The class token is missing.": 576,
    "That is the number at 224 pixels.": 197,
}


def _votes(nearness, labels, num_classes, k):
    return F.one_hot(labels[nearness.topk(k, dim=-1).indices], num_classes).to(nearness.dtype).mean(dim=1)


votes = Exercise(
    lambda queries, bank, labels, num_classes, k: neighbor_votes(queries, bank, labels, num_classes, k, math.inf),
    "normalize both, multiply, take the k largest cosines of each row, and count their labels.",
    lambda g: [
        (normal(g, m, d), normal(g, n, d), torch.randint(classes, (n,), generator=g), classes, k)
        for m, n, d, classes, k in ((5, 11, 3, 4, 1), (13, 19, 6, 2, 3), (8, 17, 7, 5, 6))
    ],
) | {
    "You take the products; normalize both for the cosines.": lambda q, bank, *rest: _votes(q @ bank.mT, *rest),
    "You take the distance, not the cosine.": lambda q, bank, *rest: _votes(-torch.cdist(q, bank), *rest),
    "You take those farthest away.": lambda queries, *rest: votes.reference(-queries, *rest),
}

standardise = Exercise(
    lambda train, test: (test - train.mean(dim=0)) / train.std(dim=0),
    "mean and standard deviation are those of the training features alone.",
    lambda g: [(3 + 2 * normal(g, n, d), normal(g, m, d)) for n, m, d in ((7, 4, 3), (9, 12, 5))],
    kind="repair",
) | {
    "The test features still have a say.": lambda a, b: standardise.reference(torch.cat([a, b]), b),
    "The test features are standardized separately: a single image has no standard deviation.": (
        lambda train, test: standardise.reference(test, test)
    ),
}

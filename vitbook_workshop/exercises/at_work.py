"""The exercises of chapters/27_at_work.ipynb."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from vitbook.confidence import unknown_above
from vitbook.imbalance import by_class, class_weights, log_prior
from vitbook.targets import mean_average_precision
from vitbook_workshop.exercises.grader.inputs import normal
from vitbook_workshop.exercises.grader.judging import Exercise, Personal
from vitbook_workshop.faults.mistakes import procedures as wrong

CHAPTER = "27_at_work"


def _balanced(sound: int, rust: int) -> Exercise:
    hint = f"three recalls, {sound}/90, {rust}/8 and 0/2, and their mean."
    return Exercise((sound / 90 + rust / 8) / 3, hint, level="easy") | {
        wrong.accuracy_on_an_imbalanced_set: (sound + rust) / 100,
        "The class that was never found counts, too: its recall is 0.": (sound / 90 + rust / 8) / 2,
    }


balanced = Personal(
    dict(sound=(88, 81, 72, 85), rust=(4, 2, 6, 3)),
    lambda sound, rust: (
        f"A model finds {sound} of the 90 sound leaves in a test, {rust} of the 8 with rust, "
        "and neither of the 2 with mildew."
    ),
    _balanced,
).exercise()

f1 = Exercise(
    lambda confusion: by_class(confusion)[2],
    "tp is the diagonal; of what was called so, confusion.sum(dim=0), and of what is so, confusion.sum(dim=1).",
    lambda g: [(torch.randint(1, 20, (k, k), generator=g).double(),) for k in (4, 7)],
) | {
    "That is the precision alone.": lambda c: c.diagonal() / c.sum(dim=0),
    "That is the recall alone.": lambda c: c.diagonal() / c.sum(dim=1),
    "That is the mean of precision and recall; F1 is their harmonic mean, which is nearer to the smaller.": (
        lambda c: (c.diagonal() / c.sum(dim=0) + c.diagonal() / c.sum(dim=1)) / 2
    ),
    "That is tp / (tp + fp + fn), the intersection over the union: tp counts twice, above and below.": (
        lambda c: c.diagonal() / (c.sum(dim=0) + c.sum(dim=1) - c.diagonal())
    ),
}


def _unequal(generator: torch.Generator) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Logits, labels, and how many training images each class has."""
    return [
        (
            normal(generator, n, k),
            torch.randint(k, (n,), generator=generator),
            torch.randperm(50, generator=generator)[:k] + 1,
        )
        for n, k in ((5, 3), (8, 4))
    ]


adjusted = Exercise(
    lambda logits, labels, counts: F.cross_entropy(logits + log_prior(counts).double(), labels),
    "add ln(n_k / N) to the logits, then take the cross-entropy.",
    _unequal,
    tolerance=1e-5,
    gradients=True,
) | {
    "That is the plain cross-entropy.": lambda z, y, n: F.cross_entropy(z, y),
    "You subtract the logarithms. In training they are added; whoever trains without them subtracts them afterwards.": (
        lambda z, y, n: F.cross_entropy(z - log_prior(n).double(), y)
    ),
    "You add the shares themselves, not their logarithms.": lambda z, y, n: F.cross_entropy(z + n / n.sum(), y),
    "Those are class weights: they multiply the loss and leave the logits as they are.": (
        lambda z, y, n: F.cross_entropy(z, y, class_weights(n).double())
    ),
}


def _place(scores: Tensor, place: int) -> float:
    return scores.sort().values[place].item()


threshold = Exercise(
    unknown_above,
    "how many of n + 1 scores may lie above, and which of the n is then the last one below?",
    lambda g: [(normal(g, n), share) for n, share in ((40, 0.05), (30, 0.1), (24, 0.25))],
    kind="repair",
) | {
    "Your line is at the lower end: nearly every known image lies above it.": (
        lambda scores, share: _place(scores, int(share * len(scores)))
    ),
    "You count among n scores. The new image's is one more: n + 1.": (
        lambda scores, share: _place(scores, math.ceil((1 - share) * len(scores) - 1e-9) - 1)
    ),
    "You interpolate between two scores, as torch.quantile does.": lambda scores, share: scores.quantile(1 - share),
    "You assume a normal distribution; scores have none in particular.": (
        lambda scores, share: (
            scores.mean() + scores.std() * torch.special.ndtri(torch.tensor(1 - share, dtype=torch.float64))
        )
    ),
}


def _ranked(generator: torch.Generator) -> list[tuple[Tensor, Tensor]]:
    """Scores, and which images have the label: some, and not the first ones alone."""
    pairs = [(normal(generator, n), torch.rand(n, generator=generator) < 0.4) for n in (7, 12)]
    return [(scores, right.index_fill(0, scores.argmin(), True)) for scores, right in pairs]


def _precisions(scores: Tensor, right: Tensor, descending: bool = True) -> tuple[Tensor, Tensor]:
    """Down to each rank: the precision, and whether that image has the label."""
    ranked = right[scores.argsort(descending=descending)].double()
    return ranked.cumsum(dim=0) / torch.arange(1, len(ranked) + 1), ranked.bool()


def _average(scores: Tensor, right: Tensor, descending: bool = True) -> Tensor:
    precision, ranked = _precisions(scores, right, descending)
    return precision[ranked].mean()


average_precision = Exercise(
    lambda scores, right: mean_average_precision(scores[:, None], right[:, None].double()),
    "sort by score, highest first; at each image that has the label, which share so far has it?",
    _ranked,
    level="hard",
) | {
    "You sort the wrong way: the highest score comes first.": lambda s, r: _average(s, r, descending=False),
    "You average over all ranks; only those count at which an image has the label.": (
        lambda s, r: _precisions(s, r)[0].mean()
    ),
    "You divide by all images; there are only as many terms as images with the label.": (
        lambda s, r: _precisions(s, r)[0][_precisions(s, r)[1]].sum() / len(r)
    ),
    "That is the precision of the answers with a score above 0. Average precision has no threshold.": (
        lambda s, r: (r & (s > 0)).sum() / (s > 0).sum().clamp(min=1)
    ),
}

"""The exercises of chapters/01_attention.ipynb."""

import math
from dataclasses import replace

import torch

from vitbook.attention import attention, attention_scores
from vitbook_workshop.exercises.grader.inputs import normal, random_mask
from vitbook_workshop.exercises.grader.judging import Exercise, Personal, combined
from vitbook_workshop.faults.mistakes import parts as wrong

CHAPTER = "01_attention"


def _exponentials(scores, axes=-1):
    return (scores - scores.amax(dim=axes, keepdim=True)).exp()


weights = Exercise(
    lambda scores: scores.softmax(dim=-1),
    "subtract each row's maximum before the exponential, and divide by the sum over the keys, the last axis.",
    # The large scores are whole, so that float32 holds them too.
    lambda g: [(normal(g, 2, 3, 5),), ((1000 * normal(g, 4, 9)).round() + 5000 * torch.arange(4)[:, None],)],
    level="easy",
) | {
    wrong.softmax_over_the_queries: lambda scores: scores.softmax(dim=-2),
    wrong.softmax_over_the_first_axis: lambda scores: scores.softmax(dim=0),
    "Your exponentials overflow: exp(1000) is ∞, and ∞/∞ is not a number. Subtract each row's maximum first.": (
        lambda scores: scores.exp() / scores.exp().sum(dim=-1, keepdim=True)
    ),
    "You subtract one maximum from all rows, and a row far below it becomes 0/0. Each row needs its own.": (
        lambda scores: (x := _exponentials(scores, ())) / x.sum(dim=-1, keepdim=True)
    ),
    "You divide by one sum, not by each row's: dim=-1, keepdim=True.": lambda s: (x := _exponentials(s)) / x.sum(),
    "Your maximum and sum are not each row's: dim=-1, keepdim=True.": lambda s: (x := _exponentials(s, ())) / x.sum(),
    "Your exponentials are not divided by their sum.": _exponentials,
}

_NTH = {2: ("two", "third"), 3: ("three", "fourth"), 4: ("four", "fifth"), 5: ("five", "sixth")}


def _weight(others: int, times: int) -> Exercise:
    return Exercise(
        times / (times + others), "exponentiate all scores first; e to the power of a logarithm is a round number."
    ) | {
        "That is the last exponential. Divide it by the sum of all.": float(times),
        "That would be right if all scores were equal.": 1 / (others + 1),
        "That is what each of the other keys gets.": 1 / (times + others),
        "That is the score itself.": math.log(times),
        "That divides the scores. They have to go through the exponential first.": 1.0,
    }


predict = replace(
    Personal(
        dict(others=(3, 2, 4, 5), times=(2, 3, 5, 7)),
        lambda others, times: (
            f"A query scores 0 with each of {_NTH[others][0]} keys, and $\\ln {times}$ with a {_NTH[others][1]}. "
            f"Which weight does the {_NTH[others][1]} key get? Work it out before you compute it."
        ),
        _weight,
    ).exercise(),
    level="easy",
)


def _centered(q):
    return q - q.mean()


query = Exercise(
    lambda weights: _centered(weights.log() * len(weights) ** 0.5),
    "here the scores are q/√d. The softmax exponentiates them, and a logarithm undoes that.",
    lambda g: [(normal(g, d).softmax(dim=-1),) for d in (4, 7)],
    kind="derive",
) | {
    "Your weights are right, but the entries do not sum to 0: subtract their mean.": lambda w: w.log() * len(w) ** 0.5,
    "That would be right if the scores were not divided by √d.": lambda w: _centered(w.log()),
    "You divide by √d. Undo the division instead: multiply by √d.": lambda w: _centered(w.log() / len(w) ** 0.5),
    "You multiply by d. The scores are divided by its root, so multiply by √d.": lambda w: _centered(w.log() * len(w)),
}

masked = Exercise(
    lambda q, k, v, mask: attention(q, k, v, mask)[0],
    "divide by √d, hide with −∞ where the mask is False, softmax over the keys, multiply by v.",
    lambda g: [
        (normal(g, *batch, t, d), normal(g, *batch, s, d), normal(g, *batch, s, w), random_mask(g, t, s))
        for *batch, t, s, d, w in ((3, 5, 4, 2), (4, 6, 9, 7), (2, 3, 5, 4, 6))
    ],
    gradients=True,
    sizes=lambda q, k, v, mask: {"√D_h": q.shape[-1] ** 0.5},
) | {
    **combined(
        lambda made, q, k, v, mask: made[0](q, k, v, mask)[0],
        wrong.no_scale,
        wrong.multiplied_by_the_scale,
        wrong.scaled_after_the_softmax,
        wrong.softmax_over_the_queries,
        wrong.softmax_over_the_first_axis,
        wrong.mask_says_where_not_to_look,
        wrong.mask_added_as_zero_and_one,
        wrong.masked_after_the_softmax,
        at_once=1,
    ),
    "Your transpose of k reverses all axes, the batch among them. k.mT exchanges the last two.": (
        lambda q, k, v, mask: (q @ k.T / q.shape[-1] ** 0.5).masked_fill(~mask, -math.inf).softmax(dim=-1) @ v
    ),
    "Your mask changes nothing.": lambda q, k, v, mask: attention(q, k, v)[0],
    "You divide by d instead of its root.": lambda q, k, v, mask: attention(q / q.shape[-1] ** 0.5, k, v, mask)[0],
    "You return the weights; multiply them by v.": lambda q, k, v, mask: attention(q, k, v, mask)[1],
    "You hide keys with a score of 0, which is a score like any other. Use −∞.": (
        lambda q, k, v, mask: attention_scores(q, k).masked_fill(~mask, 0.0).softmax(dim=-1) @ v
    ),
}

attend = Exercise(
    lambda scores, v: scores.softmax(dim=-1) @ v,
    "exponentials, divided by their sum over the keys (the last axis), then multiplied by v.",
    lambda g: [
        (normal(g, 2, 3, 4, 5), normal(g, 2, 3, 5, 6)),
        ((2 * normal(g, 3, 4, 9)).round() + 1000, normal(g, 3, 9, 7)),  # whole, so that float32 holds them too
    ],
    gradients=True,
) | {
    wrong.softmax_over_the_queries: lambda scores, v: scores.softmax(dim=-2) @ v,
    wrong.softmax_over_the_first_axis: lambda scores, v: scores.softmax(dim=0) @ v,
    "Your softmax runs over axis 1. The keys are the last axis: dim=-1.": lambda scores, v: scores.softmax(dim=1) @ v,
    wrong.scaled_after_the_softmax: lambda scores, v: scores.softmax(dim=-1) / v.shape[-1] ** 0.5 @ v,
    "Your scores are not put through a softmax.": lambda scores, v: scores @ v,
    "You return the weights; multiply them by v.": lambda scores, v: scores.softmax(dim=-1),
    "Your exponentials overflow: exp(1000) is ∞, and ∞/∞ is not a number. Subtract each row's maximum first.": (
        lambda scores, v: scores.exp() / scores.exp().sum(dim=-1, keepdim=True) @ v
    ),
    "Your exponentials are not divided by their sum.": (
        lambda scores, v: (scores - scores.amax(dim=-1, keepdim=True)).exp() @ v
    ),
    "You divide by one sum, not by each row's: dim=-1, keepdim=True.": (
        lambda scores, v: (x := (scores - scores.amax(dim=-1, keepdim=True)).exp()) / x.sum() @ v
    ),
}

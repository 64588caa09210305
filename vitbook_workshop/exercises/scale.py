"""The exercises of chapters/02_scale.ipynb."""

import torch

from vitbook.attention import attention_scores, attention_weights
from vitbook_workshop.exercises.grader.inputs import normal
from vitbook_workshop.exercises.grader.judging import Exercise, Personal, combined
from vitbook_workshop.faults.mistakes import parts as wrong

CHAPTER = "02_scale"

jacobian = Exercise(
    lambda weights: torch.diag_embed(weights) - weights.unsqueeze(-1) * weights.unsqueeze(-2),
    "entry (i, j) is wᵢ(1 − wᵢ) where i = j and −wᵢwⱼ elsewhere, for each row of weights separately.",
    lambda g: [(normal(g, 5).softmax(dim=-1),), (normal(g, 2, 3, 4).softmax(dim=-1),)],
    level="easy",
) | {
    "Your signs are reversed: it is diag(w) − w wᵀ.": lambda w: -jacobian.reference(w),
    "The term diag(w) is missing.": lambda w: -w.unsqueeze(-1) * w.unsqueeze(-2),
    "Only the diagonal is there. Weight i depends on the other scores too.": lambda w: torch.diag_embed(w * (1 - w)),
    "You apply softmax to w, which are weights, not scores.": lambda w: jacobian.reference(w.softmax(dim=-1)),
}


def _deviation(of_q: int, of_k: int, d: int) -> Exercise:
    return Exercise(
        of_q * of_k,
        f"each of the d products has variance {of_q**2} · {of_k**2}; add them, take the root, divide by √d.",
    ) | {
        "That is a variance. Take its root.": (of_q * of_k) ** 2,
        "That is the standard deviation of q·k, before the division by √d.": of_q * of_k * d**0.5,
        "That divides by d instead of its root.": of_q * of_k / d**0.5,
        "The variance of a product is the product of the two variances here, not their sum.": (of_q**2 + of_k**2)
        ** 0.5,
    }


predict = Personal(
    dict(of_q=(2, 4, 5), of_k=(3, 6, 7), d=(100, 64, 400)),
    lambda of_q, of_k, d: (
        "All entries of $q$ and $k$ are independent of one another, with mean 0. Those of $q$ have standard deviation "
        f"{of_q}, those of $k$ have {of_k}, and $d = {d}$. What is the standard deviation of $q\\cdot k/\\sqrt d$?"
    ),
    _deviation,
).exercise()


def _weights(made, q, k):
    root = (q.shape[-1] * (q.shape[1] if wrong.ScaledByTheWholeWidth in made else 1)) ** 0.5
    axis = -2 if wrong.softmax_over_the_queries in made else -1
    if wrong.scaled_after_the_softmax in made:
        return (q @ k.mT).softmax(dim=axis) / root
    return (q @ k.mT / root).softmax(dim=axis)


repair = Exercise(
    lambda q, k: attention_weights(attention_scores(q, k)),
    "divide by √D_h, the width of one head, before the softmax, which runs over the keys, the last axis.",
    lambda g: [(normal(g, b, h, t, d), normal(g, b, h, t, d)) for b, h, t, d in ((1, 2, 3, 4), (2, 6, 4, 7))],
    level="hard",
    kind="repair",
    sizes=lambda q, k: {"√D": (q.shape[1] * q.shape[-1]) ** 0.5, "D_h": q.shape[-1], "√D_h": q.shape[-1] ** 0.5},
) | {
    **combined(_weights, wrong.ScaledByTheWholeWidth, wrong.scaled_after_the_softmax, wrong.softmax_over_the_queries),
    wrong.no_scale: lambda q, k: (q @ k.mT).softmax(dim=-1),
}

scores = Exercise(
    attention_scores,
    "multiply q by k with its last two axes exchanged, and divide by √D_h, the root of their width.",
    lambda g: [(normal(g, 2, 3, 4, 5), normal(g, 2, 3, 6, 5)), (normal(g, 3, 5, 7), normal(g, 3, 4, 7))],
    gradients=True,
    level="easy",
    sizes=lambda q, k: {"√D_h": q.shape[-1] ** 0.5},
) | {
    wrong.no_scale: lambda q, k: q @ k.mT,
    wrong.multiplied_by_the_scale: lambda q, k: q @ k.mT * q.shape[-1] ** 0.5,
    "You divide by D_h instead of its root.": lambda q, k: q @ k.mT / q.shape[-1],
    "You divide by the root of the number of keys. Divide by the root of the width, √D_h.": (
        lambda q, k: q @ k.mT / k.shape[-2] ** 0.5
    ),
    "You divide by the root of the number of queries. Divide by the root of the width, √D_h.": (
        lambda q, k: q @ k.mT / q.shape[-2] ** 0.5
    ),
    "Your queries and keys are exchanged. The result has one row for each query.": lambda q, k: attention_scores(k, q),
    "Your transpose of k reverses all axes. k.mT exchanges the last two.": (
        lambda q, k: q @ k.permute(*reversed(range(k.ndim))) / q.shape[-1] ** 0.5
    ),
    "You apply the softmax already. It belongs in attend.": lambda q, k: attention_scores(q, k).softmax(dim=-1),
}

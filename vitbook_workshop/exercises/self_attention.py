"""The exercises of chapters/03_self_attention.ipynb."""

from collections.abc import Callable

import torch
from einops import rearrange
from torch import Tensor, nn

from vitbook.attention import attention
from vitbook_workshop.exercises.grader.inputs import normal, random_module
from vitbook_workshop.exercises.grader.judging import Exercise, combined
from vitbook_workshop.faults.mistakes import parts as wrong

CHAPTER = "03_self_attention"

by_hand = Exercise(
    lambda x, w_q, w_k, w_v: attention(x @ w_q, x @ w_k, x @ w_v)[0],
    "project x three times, divide the scores by √D_h, softmax over the keys, average the values with these weights.",
    lambda g: [(normal(g, 4, 6), *normal(g, 3, 6, 3)), (normal(g, 2, 5, 7), *normal(g, 3, 7, 4))],
    gradients=True,
    level="easy",
    sizes=lambda x, w_q, w_k, w_v: product.sizes(w_q, w_k),
) | {
    **combined(
        lambda made, x, w_q, w_k, w_v: made[0](x @ w_q, x @ w_k, x @ w_v)[0],
        wrong.no_scale,
        wrong.multiplied_by_the_scale,
        wrong.scaled_after_the_softmax,
        wrong.softmax_over_the_queries,
        wrong.softmax_over_the_first_axis,
        at_once=1,
    ),
    wrong.ScaledByTheWholeWidth: lambda x, q, k, v: (x @ q @ (x @ k).mT / x.shape[-1] ** 0.5).softmax(-1) @ (x @ v),
    "Your transpose of the keys reverses all axes, the batch among them. .mT exchanges the last two.": (
        lambda x, w_q, w_k, w_v: (x @ w_q @ (x @ w_k).T / w_q.shape[-1] ** 0.5).softmax(dim=-1) @ (x @ w_v)
    ),
    "Your queries and keys are exchanged: Q Kᵀ has a row for each query.": lambda x, q, k, v: by_hand.reference(
        x, k, q, v
    ),
    "Your values are the tokens themselves: multiply x by W_V.": lambda x, q, k, v: attention(x @ q, x @ k, x)[0],
}

product = Exercise(
    lambda w_q, w_k: w_q @ w_k.T / w_q.shape[-1] ** 0.5,
    "X M Xᵀ must equal Q Kᵀ/√D_h with Q = X W_Q and K = X W_K.",
    lambda g: [(normal(g, 6, 3), normal(g, 6, 3)), (normal(g, 5, 8), normal(g, 5, 8))],
    level="hard",
    kind="derive",
    sizes=lambda w_q, w_k: {"√D": w_q.shape[0] ** 0.5, "D_h": w_q.shape[1], "√D_h": w_q.shape[1] ** 0.5},
) | {
    wrong.no_scale: lambda w_q, w_k: w_q @ w_k.T,
    wrong.multiplied_by_the_scale: lambda w_q, w_k: w_q @ w_k.T * w_q.shape[-1] ** 0.5,
    wrong.ScaledByTheWholeWidth: lambda w_q, w_k: w_q @ w_k.T / w_q.shape[0] ** 0.5,
    "Your matrices are exchanged. M = W_Q W_Kᵀ/√D_h, and yours is Mᵀ.": lambda w_q, w_k: product.reference(w_k, w_q),
    "Your product is W_Qᵀ W_K. In X W_Q (X W_K)ᵀ, W_K is transposed.": lambda q, k: q.T @ k / q.shape[-1] ** 0.5,
}


def _order(order: str) -> Callable:
    return lambda x, qkv: rearrange(qkv(x), f"b t ({order}) -> three b t d", three=3)


def _biased(shift: int) -> Callable:
    """The score of the token `shift` places away gets b."""

    def attempt(scores: Tensor, b: float) -> Tensor:
        return (scores + b * torch.ones(scores.shape[-1] - abs(shift)).to(scores).diag(shift)).softmax(dim=-1)

    return attempt


neighbor = Exercise(
    lambda scores, b: _biased(-1)(scores, b),
    "add b to the scores one place below the diagonal, (i, i − 1), then take the softmax over the keys.",
    lambda g: [(normal(g, 5, 5), 1.7), (normal(g, 2, 3, 4, 4), -0.6)],
) | {
    "You add b to the right neighbor's score. The left neighbor, (i, i − 1), lies below the diagonal.": _biased(1),
    "You add b to each token's own score. The left neighbor is one place below the diagonal.": _biased(0),
    "You treat the last token as the left neighbor of token 0, which has none.": lambda scores, b: (
        scores + b * torch.eye(scores.shape[-1]).to(scores).roll(-1, dims=1)
    ).softmax(dim=-1),
    "You add b after the softmax, so the rows no longer sum to 1. Add it to the scores.": lambda scores, b: (
        scores.softmax(dim=-1) + b * torch.ones(scores.shape[-1] - 1).to(scores).diag(-1)
    ),
    "You add b to all scores alike, which does not change the softmax.": lambda scores, b: (scores + b).softmax(-1),
    wrong.softmax_over_the_queries: lambda scores, b: _biased(1)(scores.mT, b).mT,
}


def _stacked(attempt: Callable) -> Callable:
    def adapted(x: Tensor, qkv: nn.Module) -> Tensor | None:
        three = attempt(x, qkv)
        return None if three is None else torch.stack(tuple(three))

    return adapted


project = Exercise(
    lambda x, qkv: _order("three d")(x, qkv),
    "apply qkv to x and cut the last axis into three equal pieces: query, key, value.",
    lambda g: [
        (normal(g, b, t, d), random_module(g, lambda d=d: nn.Linear(d, 3 * d))) for b, t, d in ((2, 5, 6), (3, 4, 8))
    ],
    gradients=True,
    level="easy",
    adapt=_stacked,
) | {
    wrong.QkvInterleaved: _order("d three"),
    "Your query and key are exchanged.": lambda x, qkv: _order("three d")(x, qkv)[[1, 0, 2]],
    "Your three are in the wrong order: query, key, value.": lambda x, qkv: _order("three d")(x, qkv)[[2, 0, 1]],
    "The bias of qkv is missing: call it, qkv(x).": lambda x, qkv: torch.stack((x @ qkv.weight.mT).chunk(3, dim=-1)),
}

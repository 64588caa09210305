"""The exercises of chapters/16_fine_tuning.ipynb."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitbook.features import neighbor_votes
from vitbook_workshop.exercises.grader.inputs import normal, random_module
from vitbook_workshop.exercises.grader.judging import Exercise, Refused

CHAPTER = "16_fine_tuning"

share = Exercise(
    lambda layer, depth, decay: decay ** (depth + 1 - layer),
    "the head is layer depth + 1 and has a share of 1; each layer below it has decay times that of the one above.",
    lambda g: [(layer, depth, decay) for layer, depth, decay in ((0, 4, 0.7), (3, 6, 0.8), (5, 4, 0.5))],
    level="easy",
) | {
    "You let the embedding learn fastest. It holds what serves any task; the head is what is new.": (
        lambda layer, depth, decay: decay**layer
    ),
    "You give the last block all of the rate. The layer above it, with the head, has all; it has decay times that.": (
        lambda layer, depth, decay: decay ** (depth - layer)
    ),
    "You multiply the decay by the number of layers. Each layer multiplies once more: a power.": (
        lambda layer, depth, decay: decay * (depth + 1 - layer)
    ),
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

standardize = Exercise(
    lambda train, test: (test - train.mean(dim=0)) / train.std(dim=0),
    "mean and standard deviation are those of the training features alone.",
    lambda g: [(3 + 2 * normal(g, n, d), normal(g, m, d)) for n, m, d in ((7, 4, 3), (9, 12, 5))],
    kind="repair",
) | {
    "The test features still have a say.": lambda a, b: standardize.reference(torch.cat([a, b]), b),
    "The test features are standardized separately: a single image has no standard deviation.": (
        lambda train, test: standardize.reference(test, test)
    ),
}


def _lora(x: Tensor, linear: nn.Linear, rank: int, alpha: float, a: Tensor, b: Tensor, scale: float = 1.0) -> Tensor:
    """xWᵀ + b + (α/r) xAᵀBᵀ."""
    return linear(x) + scale * alpha / rank * (x @ a.T @ b.T)


def _as_lora(theirs: type) -> Callable:
    """A class of modules as a function of its input, and of what A and B have learned."""
    if not isinstance(theirs, type):
        return theirs

    def attempt(x: Tensor, linear: nn.Linear, rank: int, alpha: float, a: Tensor, b: Tensor) -> Tensor:
        before = {name: parameter.clone() for name, parameter in linear.named_parameters()}
        module = theirs(linear, rank, alpha).to(x)
        for name, expected in (("a", a), ("b", b)):
            got = getattr(module, name, None)
            if not isinstance(got, nn.Parameter):
                raise Refused(f"{name} must be an nn.Parameter of the module, got {type(got).__name__}")
            if got.shape != expected.shape:
                raise Refused(f"{name}: expected shape {tuple(expected.shape)}, got {tuple(got.shape)}")
        if module.b.any():
            raise Refused("b starts with other numbers than zeros: the model is changed before it has learned anything")
        if not module.a.any():
            raise Refused("a and b both start with zeros: neither ever gets a gradient, as each waits for the other")
        if learn := [name for name, p in module.named_parameters() if p.requires_grad and name not in ("a", "b")]:
            raise Refused(f"W and its bias stay as they are, {', '.join(learn)} would learn: requires_grad_(False)")
        if any(not torch.equal(before[name].to(p), p) for name, p in linear.named_parameters()):
            raise Refused("the weights of the linear map were changed")
        with torch.no_grad():
            module.a.copy_(a)
            module.b.copy_(b)
        return module(x)

    return attempt


lora = Exercise(
    _lora,
    "linear(x) + alpha / rank * (x @ a.T @ b.T), a random of shape (rank, D_in), b zeros of shape (D_out, rank).",
    lambda g: [
        (
            normal(g, 2, t, d_in),
            random_module(g, lambda d_in=d_in, d_out=d_out: nn.Linear(d_in, d_out)),
            rank,
            alpha,
            normal(g, rank, d_in),
            normal(g, d_out, rank),
        )
        for t, d_in, d_out, rank, alpha in ((3, 5, 7, 2, 6.0), (4, 9, 6, 3, 8.0))
    ],
    level="hard",
    adapt=_as_lora,
) | {
    "You forgot the scale α/r.": lambda x, linear, r, alpha, a, b: _lora(x, linear, r, alpha, a, b, r / alpha),
    "You multiply by α and do not divide by r.": lambda x, linear, r, alpha, a, b: _lora(x, linear, r, alpha, a, b, r),
    "You divide by √r: that is rsLoRA. Hu et al. divide by r.": (
        lambda x, linear, r, alpha, a, b: _lora(x, linear, r, alpha, a, b, math.sqrt(r))
    ),
    "You left W out: LoRA is added to it.": lambda x, linear, *lora: _lora(x, linear, *lora) - linear(x),
}

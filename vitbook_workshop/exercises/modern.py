"""The exercises of chapters/21_modern.ipynb."""

import torch
import torch.nn.functional as F

from vitbook import modern
from vitbook_workshop.exercises.grader.inputs import normal
from vitbook_workshop.exercises.grader.judging import Exercise, Personal
from vitbook_workshop.faults.mistakes import procedures as wrong

CHAPTER = "21_modern"


def _rms_norm(x: torch.Tensor, gain: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """x / √(mean x² + ε) · γ. (..., D), (D,) → (..., D)."""
    return x * (x.square().mean(dim=-1, keepdim=True) + eps).rsqrt() * gain


rms_norm = Exercise(
    _rms_norm,
    "divide by the square root of x.square().mean(dim=-1, keepdim=True) + eps, then multiply by the gain.",
    lambda g: [(3 * normal(g, 2, 5, d) + 1, normal(g, d)) for d in (6, 9)],
    level="easy",
    gradients=True,
) | {
    "You subtract the mean. RMSNorm leaves it where it is; that is LayerNorm.": (
        lambda x, gain, eps=1e-6: F.layer_norm(x, x.shape[-1:], eps=eps) * gain
    ),
    "You divide by the length of x, the root of the sum. RMSNorm takes the root of the mean.": (
        lambda x, gain, eps=1e-6: F.normalize(x, dim=-1) * gain
    ),
    "You forgot the gain.": lambda x, gain, eps=1e-6: _rms_norm(x, torch.ones_like(gain), eps),
}


def _turn_neighbors(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """The paper's pairs, 2i with 2i + 1."""
    halves = modern.rotate(torch.cat([x[..., ::2], x[..., 1::2]], dim=-1), angles)
    return torch.stack(halves.chunk(2, dim=-1), dim=-1).flatten(-2)


_NAMED = {3072: "B", 1536: "S", 768: "Ti"}


def _width(mlp: int) -> Exercise:
    return Exercise(2 * mlp // 3, f"three matrices of D × width against two of D × {mlp}.", level="easy") | {
        "At half the width SwiGLU has 3/4 of the weights: it has three matrices, not four.": mlp // 2,
        "At the same width SwiGLU has half as many weights again.": mlp,
    }


width = Personal(
    dict(mlp=tuple(_NAMED)), lambda mlp: f"The blocks of a ViT-{_NAMED[mlp]} have an MLP of width {mlp:,}.", _width
).exercise()


def _bound(wide: int) -> Exercise:
    return Exercise(wide**0.5, "with gains of 1, a normalized query has the length √D_h.") | {
        "That is the largest dot product; scores are divided by √D_h.": float(wide),
        "That would be the bound for queries and keys of length 1. RMSNorm gives them length √D_h.": wide**-0.5,
    }


bound = Personal(
    dict(wide=(64, 16, 36, 100)), lambda wide: f"A head is {wide} wide. Queries and keys are normalized", _bound
).exercise()

rotate = Exercise(
    modern.rotate,
    "a, b = x.chunk(2, dim=-1); the pair becomes a·cos − b·sin and a·sin + b·cos.",
    lambda g: [(normal(g, 2, 3, t, d), normal(g, t, d // 2)) for t, d in ((5, 8), (4, 6))],
    gradients=True,
) | {
    wrong.one_pair_by_two_angles: wrong.one_pair_by_two_angles,
    "You turn the other way, clockwise. Scores are the same as long as queries and keys agree; somebody's weights are "
    "not.": lambda x, angles: modern.rotate(x, -angles),
    "You pair neighbors, 2i with 2i + 1. Here, entry i goes with entry i + D_h/2.": _turn_neighbors,
}

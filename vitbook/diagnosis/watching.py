"""Watching the attention that a model computes, whoever wrote it, by looking at torch's own operations as they run.

A product that is scaled, goes through a softmax and meets another product is attention, whatever the module is called.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


@dataclass(frozen=True)
class Look:
    """One attention, as it was computed."""

    width: int  # over how many numbers the dot products of queries and keys run
    factor: float  # what they are multiplied by before the softmax
    sums: Tensor  # of the weights that each output is blended with; all 1, or not


@dataclass(frozen=True)
class Past:
    """Where a tensor comes from."""

    factor: float = 1.0  # the numbers that it was multiplied by
    width: int = 0  # of the product that it is; 0 for none
    scores: "Past | None" = None  # what it was before the softmax


MOVES = (
    "view _unsafe_view reshape transpose permute t expand unsqueeze squeeze select slice split split_with_sizes unbind"
)
KEEPS = MOVES + " clone _to_copy detach alias chunk contiguous masked_fill masked_fill_ where add add_ native_dropout"


class Watch(TorchDispatchMode):
    """Inside `with Watch() as watch`, every attention that is computed leaves a `Look` in watch.looks."""

    def __init__(self):
        super().__init__()
        self.looks: list[Look] = []
        self.pasts: dict[int, tuple[Past, Tensor]] = {}  # with the tensor, so that no other takes over its id

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        name = operation.overloadpacket.__name__
        past = self.past_of_result(name, args, kwargs or {}, result)
        if past != Past():
            for tensor in result if isinstance(result, tuple | list) else [result]:
                if isinstance(tensor, Tensor):
                    self.pasts[id(tensor)] = past, tensor
        return result

    def past(self, value: Any) -> Past:
        return self.pasts[id(value)][0] if id(value) in self.pasts else Past()

    def past_of_result(self, name: str, args: tuple, kwargs: dict, result: Any) -> Past:
        tensors = [value for value in args if isinstance(value, Tensor)]
        first = self.past(tensors[0]) if tensors else Past()
        if name in KEEPS.split():
            return max(
                (self.past(tensor) for tensor in tensors), key=lambda past: (past.scores is not None, past.width)
            )
        if name in ("mul", "mul_", "div", "div_") and (number := single(args[1])) is not None:
            return Past(first.factor * (number if "mul" in name else 1 / number), first.width, first.scores)
        if name in ("bmm", "mm", "baddbmm", "matmul"):
            left, right = tensors[-2:]
            self.note_blend(self.past(left), left.sum(dim=-1))
            self.note_blend(self.past(right), right.sum(dim=-2))
            alpha = kwargs.get("alpha", 1.0)
            return Past(self.past(left).factor * self.past(right).factor * alpha, left.shape[-1])
        if name in ("_softmax", "softmax", "_safe_softmax") and first.width:
            return Past(scores=first)
        if name.startswith("_scaled_dot_product"):
            q, k = tensors[:2]
            scale = kwargs.get("scale") or q.shape[-1] ** -0.5
            self.looks.append(Look(q.shape[-1], scale * first.factor * self.past(k).factor, torch.ones(1)))
        return Past()

    def note_blend(self, weights: Past, sums: Tensor) -> None:
        if weights.scores is not None:
            self.looks.append(Look(weights.scores.width, weights.scores.factor, sums))


def single(value: Any) -> float | None:
    """A number, or what a tensor of one number holds; None for anything else."""
    if isinstance(value, Tensor):
        return float(value) if value.ndim == 0 else None
    return float(value) if isinstance(value, int | float) else None


def watched(call: Callable[[], object]) -> list[Look]:
    """Every attention that is computed during a call."""
    with Watch() as watch:
        call()
    return watch.looks


def is_right_scale(look: Look) -> bool:
    """Whether the dot products are divided by √ of what they run over."""
    return math.isclose(look.factor, look.width**-0.5, rel_tol=1e-4)

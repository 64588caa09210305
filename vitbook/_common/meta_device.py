"""Modules as shapes without numbers, to be counted and checked before they take memory."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.overrides import TorchFunctionMode


class _NothingDrawn(TorchFunctionMode):
    """Passes over `Tensor.normal_`, which has no numbers to draw and would import torch's compiler, for seconds."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        return args[0] if function is torch.Tensor.normal_ else function(*args, **(kwargs or {}))


@contextmanager
def shapes_alone() -> Iterator[None]:
    """What is built meanwhile has shapes and no numbers, and no random number is drawn."""
    with torch.device("meta"), _NothingDrawn():
        yield

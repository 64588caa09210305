"""Modules without numbers: as shapes to be counted before they take memory, or about to be filled."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

# What draws the numbers of linear maps, and of embeddings; later ones reach a mode before they call the first.
_UNIFORM = (torch.Tensor.uniform_, nn.init.uniform_, nn.init.kaiming_uniform_)
_NORMAL = (torch.Tensor.normal_, nn.init.normal_)


class _NothingDrawn(TorchFunctionMode):
    """Passes over functions that would draw a tensor's numbers in place."""

    def __init__(self, *functions: Callable):
        super().__init__()
        self.functions = functions

    def __torch_function__(self, function, types, args=(), kwargs=None):
        given = kwargs or {}
        return (args or (given["tensor"],))[0] if function in self.functions else function(*args, **given)


@contextmanager
def shapes_alone() -> Iterator[None]:
    """What is built meanwhile has shapes and no numbers, and no random number is drawn."""
    with torch.device("meta"), _NothingDrawn(*_NORMAL):  # which would import torch's compiler, for seconds
        yield


@contextmanager
def unfilled() -> Iterator[None]:
    """Linear maps that are built meanwhile hold whatever their memory held, and random numbers go on as before."""
    with torch.random.fork_rng(devices=[]), _NothingDrawn(*_UNIFORM):
        yield

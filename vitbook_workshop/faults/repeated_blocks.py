"""Blocks of a deep model that do what others do, so that what is asked of all of them can be asked of a few."""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

Calls = dict[int, list[Any]]  # id of a block → for each call: tokens, what it gave, and what it got beside; or None
OF_ANY_MODULE = set(vars(nn.Module()))  # where it keeps what is registered, and its hooks


class Passing(nn.Module):
    """In the place of a block that is left out: it gives what it gets."""

    def forward(self, x: Tensor, *others: Any, **named: Any) -> Tensor:
        return x


@contextmanager
def calls_of(blocks: Sequence[nn.Module]) -> Iterator[Calls]:
    """Meanwhile, note the calls of blocks; None for one that does not give a tensor of the shape that it gets first."""
    calls: Calls = {}

    def note(block: nn.Module, got: tuple, named: dict, output: Any) -> None:
        both = [x for x in (*got[:1], output) if isinstance(x, Tensor)]
        kept = len(both) == 2 and both[0].shape == both[1].shape and both[0].dtype == both[1].dtype
        calls.setdefault(id(block), []).append((*both, [got[1:], named]) if kept else None)

    with ExitStack() as stack:
        for block in blocks:
            stack.callback(block.register_forward_hook(note, with_kwargs=True).remove)
        yield calls


def spare(blocks: Sequence[nn.Module], calls: Calls) -> list[nn.Module]:
    """All but the first, one in the middle and the last, if one differs from another in its numbers alone.

    Each has to get just what the one before it gave, so that nothing but they themselves makes the tokens.
    """
    ways = [calls.get(id(block), []) for block in blocks]
    if not all(len(way) == 1 and way[0] is not None and _equal(way[0][2], ways[0][0][2]) for way in ways):
        return []
    chained = all(given[0][1] is got[0][0] for given, got in itertools.pairwise(ways))
    if not chained or not all(_alike(blocks[0], block) for block in blocks[1:]):
        return []
    kept = {0, len(blocks) // 2, len(blocks) - 1}
    return [block for i, block in enumerate(blocks) if i not in kept]


def _alike(one: nn.Module, other: nn.Module) -> bool:
    """Whether two modules are of one class, with equal attributes and buffers, and parameters of the same shapes."""
    ours, theirs = dict(one.named_modules()), dict(other.named_modules())
    return ours.keys() == theirs.keys() and all(_are_of_one_kind(ours[name], theirs[name]) for name in ours)


def _are_of_one_kind(one: nn.Module, other: nn.Module) -> bool:
    hooks = [*one._forward_hooks, *one._forward_pre_hooks, *other._forward_hooks, *other._forward_pre_hooks]
    return type(one) is type(other) and not hooks and _equal(_state(one), _state(other))


def _state(module: nn.Module) -> list[dict[str, Any]]:
    parameters = {n: p is not None and (p.shape, p.dtype) for n, p in module._parameters.items()}
    own = {name: value for name, value in vars(module).items() if name not in OF_ANY_MODULE}
    return [own, parameters, dict(module._buffers)]


def _equal(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_equal, one, other))
    try:
        return bool(one == other)
    except Exception:  # of a class of unknown making
        return False

"""A class of modules as an attempt: built with the sizes of the reference, given its parameters, called.

The attempt is then a function of an input and of a reference module, like any other: its numbers and gradients are
compared as those of a function are.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.func import functional_call

from vitbook import mistakes as wrong
from vitbook.exercises.grading import Refused

OURS, READERS = "positions.pos_embed", "pos_embed"  # the one parameter whose name differs
_BATCH_SIZED = {"cls_token": wrong.BatchSizedClassToken, "pos_embed": wrong.BatchSizedPositions}


def as_modules(build: Callable[[type, nn.Module], nn.Module]) -> Callable[[type], Callable]:
    """What judges a class of modules. build: (class, reference module) → an instance of the same sizes."""

    def adapt(theirs: type) -> Callable:
        if not isinstance(theirs, type):
            return theirs
        built_before: dict[str, list] = {}

        def attempt(x: Tensor, module: nn.Module) -> Tensor:
            mine = build(theirs, module).eval()
            parameters = {name.replace(OURS, READERS): p for name, p in module.named_parameters()}
            misfits = list(_misfits(mine, parameters, built_before))
            if misfits:
                reasons, mistakes = zip(*misfits, strict=True)
                more = f"; and {len(reasons) - 3} more" if len(reasons) > 3 else ""
                raise Refused("; ".join(reasons[:3]) + more, *{m: None for m in mistakes if m})
            result, again = (functional_call(mine, parameters, (x,)) for _ in range(2))
            if isinstance(result, Tensor) and not torch.allclose(result, again, equal_nan=True):
                raise Refused("in evaluation the same input gives other numbers at each call", wrong.FunctionalDropout)
            return result

        return attempt

    return adapt


def load(mine: nn.Module, state: dict[str, Tensor]) -> None:
    """Put a state in our names into a reader's module. Raises ValueError with name, expected and got."""
    state = {name.replace(OURS, READERS): tensor for name, tensor in state.items()}
    known = dict(mine.named_buffers())
    parameters = {name: tensor for name, tensor in state.items() if name not in known}
    if misfits := [reason for reason, _ in _misfits(mine, parameters, {})]:
        raise ValueError("; ".join(misfits))
    mine.load_state_dict(state, strict=False)  # buffers of the reader's own stay as they are


def _misfits(mine: nn.Module, expected: dict[str, Tensor], built: dict[str, list]) -> Iterator[tuple]:
    """What is wrong with the parameters of a reader's module: reasons, each with the mistake that it shows, or None.

    built: the shapes expected and got by name, each time before; this time is added.
    """
    got = dict(mine.named_parameters(remove_duplicate=False))
    for name in (name for name in expected if name not in got):
        yield f"parameter {name} is missing, expected shape {tuple(expected[name].shape)}", None
    for name in (name for name in got if name not in expected):
        yield f"parameter {name}, of shape {tuple(got[name].shape)}, has no place among the trained weights", None
    for name in (name for name in expected if name in got):
        theirs, ours = tuple(got[name].shape), tuple(expected[name].shape)
        before = built.setdefault(name, [])
        before.append((ours, theirs))
        if theirs != ours:
            fixed = any(size == theirs and other != ours for other, size in before[:-1])
            last = name.rpartition(".")[2]
            batch_sized = _BATCH_SIZED.get(last) if theirs[1:] == ours[1:] else None
            reason = f"parameter {name}: expected shape {ours}, got {theirs}"
            yield reason, batch_sized or (wrong.SizesFixed if fixed else None)
    for name in (name for name in got if "blocks.1." in name and got[name].ndim > 1):
        if (first := got.get(name.replace("blocks.1.", "blocks.0."))) is not None and torch.equal(first, got[name]):
            yield "all blocks begin with the same weights", wrong.BlocksAreCopies
            return

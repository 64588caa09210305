"""A class of modules as an attempt: built with the sizes of the reference, given its parameters, called.

The attempt is then a function of an input and of a reference module, like any other: its numbers and gradients are
compared as those of a function are.
"""

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call

from vitbook_workshop.exercises.grader.judging import Refused
from vitbook_workshop.faults.mistakes import parts as wrong

_BATCH_SIZED = {"cls_token": wrong.BatchSizedClassToken, "pos_embed": wrong.BatchSizedPositions}


def as_modules(build: Callable[[type, nn.Module], nn.Module], inputs: Callable) -> Callable[[type], Callable]:
    """What makes a function of a class, as `Exercise.adapt`. build: (class, reference module) → of the same sizes.

    inputs: those of the exercise, pairs of an input and a reference module.
    """

    def adapt(theirs: type) -> Callable:
        if not isinstance(theirs, type):
            return theirs

        def attempt(x: Tensor, module: nn.Module) -> Tensor:
            mine, parameters = build(theirs, module).eval(), _named_as_theirs(dict(module.named_parameters()))
            if misfits := list(_misfits(mine, parameters)):
                named = [mistake for _, mistake in misfits if mistake]
                built = [build(theirs, reference) for _, reference in inputs(torch.Generator())]
                first, *others = ([parameter.shape for parameter in made.parameters()] for made in built)
                if not named and first and all(first == other for other in others):  # the references have other sizes
                    named = [wrong.SizesFixed]
                raise Refused("; ".join(reason for reason, _ in misfits[:3]), *dict.fromkeys(named))
            result, again = (functional_call(mine, parameters, (x.clone(),)) for _ in range(2))
            if isinstance(result, Tensor) and not torch.allclose(result, again, equal_nan=True):
                raise Refused("in evaluation the same input gives other numbers at each call", wrong.FunctionalDropout)
            return result

        return attempt

    return adapt


def load(mine: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Put all of a state in our names into a reader's module. Raises ValueError with name, expected and got."""
    state = _named_as_theirs(state)
    buffers = dict(mine.named_buffers())
    parameters = {name: tensor for name, tensor in state.items() if name not in buffers}
    if misfits := list(_misfits(mine, parameters)):
        raise ValueError("; ".join(reason for reason, _ in misfits))
    mine.load_state_dict(state, strict=False)  # a buffer of the reader's own, such as a table of indices, stays


def _named_as_theirs(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The reader's model has no module of positions."""
    return {name.replace("positions.pos_embed", "pos_embed"): tensor for name, tensor in state.items()}


def _misfits(mine: nn.Module, expected: Mapping[str, Tensor]) -> Iterator[tuple[str, Callable | None]]:
    """What is wrong with a module's parameters, each with the mistake that it shows, or None."""
    got = dict(mine.named_parameters(remove_duplicate=False))
    if expected and not got:
        yield "it holds no parameters; layers that are in a Python list belong in an nn.ModuleList", None
        return
    for what, these, others in (("missing", expected, got), ("not expected", got, expected)):
        if names := [f"{name} {tuple(these[name].shape)}" for name in these if name not in others]:
            yield f"parameters {what}: {', '.join(names[:3])}{' …' * (len(names) > 3)}", None
    for name in (name for name in expected if name in got):
        ours, theirs = tuple(expected[name].shape), tuple(got[name].shape)
        if ours != theirs:
            batch_sized = _BATCH_SIZED.get(name.rpartition(".")[2]) if ours[1:] == theirs[1:] else None
            yield f"parameter {name}: expected shape {ours}, got {theirs}", batch_sized
    for name in (name for name in got if "blocks.1." in name and got[name].ndim > 1):
        first = got.get(name.replace("blocks.1.", "blocks.0."))
        if first is got[name]:
            yield "all blocks are one and the same module", None
            return
        if first is not None and torch.equal(first, got[name]):
            yield "all blocks begin with the same weights", wrong.BlocksAreCopies
            return

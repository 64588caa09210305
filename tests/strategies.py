"""What hypothesis draws for the functions of the package: sensible arguments, and what nobody should give them.

A `Case` stands for one function or class: it draws arguments that fit together, and says what must hold of the result.
`as_stated` demands that; `or_refused` puts something else in one argument's place, and demands a result or an error
that names the argument.
"""

import importlib
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hypothesis import note
from hypothesis import strategies as st
from torch import Tensor, nn

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
NUMBERS = (*FLOATS, torch.uint8, torch.int32, torch.int64, torch.bool, torch.complex64)
LAYOUTS = ("contiguous", "transposed", "stepped", "offset", "expanded")

Draw = Callable[[st.SearchStrategy], Any]


# Tensors


def laid_out(x: Tensor, layout: str) -> Tensor:
    """The same numbers, otherwise in memory; "expanded" repeats the first along the first axis."""
    if layout == "transposed" and x.ndim > 1:
        return x.transpose(0, -1).contiguous().transpose(0, -1)
    if layout == "stepped" and x.ndim:
        wide = x.new_zeros([2 * size for size in x.shape])
        part = wide[(slice(None, None, 2),) * x.ndim]
        return part.copy_(x)
    if layout == "offset":
        return torch.cat([x.new_zeros(3), x.flatten()])[3:].view_as(x)
    if layout == "expanded" and x.ndim and len(x):
        return x[:1].expand_as(x)
    return x


def tensor(draw: Draw, *shape: int, dtype: Any = FLOATS, scale: tuple[float, ...] = (1.0, 1e-6, 30.0)) -> Tensor:
    """Random numbers of a drawn dtype, size and layout in memory."""
    dtype = dtype if isinstance(dtype, torch.dtype) else draw(st.sampled_from(dtype))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    if dtype.is_floating_point or dtype.is_complex:
        x = torch.randn(shape, generator=generator, dtype=torch.float64) * draw(st.sampled_from(scale))
    else:
        x = torch.randint(0, 2 if dtype == torch.bool else 100, shape, generator=generator)
    return laid_out(x.to(dtype), draw(st.sampled_from(LAYOUTS)))


def whole(draw: Draw, shape: tuple[int, ...], below: int) -> Tensor:
    """Whole numbers, 0 … below − 1."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    return laid_out(torch.randint(0, below, shape, generator=generator), draw(st.sampled_from(LAYOUTS)))


def size(draw: Draw, least: int = 1, most: int = 4) -> int:
    return draw(st.integers(least, most))


# What nobody should give


def instead_of(draw: Draw, value: Any) -> Any:
    """Something that stands in the place of a value: of another type, shape or dtype, empty, or extreme."""
    if isinstance(value, bool):
        return draw(st.sampled_from((0, 1, None, "yes")))
    others: list[Any] = [None, "text", [[1.0, 2.0]], np.ones((2, 3)), object(), {}]
    if isinstance(value, Tensor):
        others += [3, value[None], value.flatten(), value.new_zeros(()), value.new_zeros((0,)), value.tolist()]
        others += [value.to(dtype) for dtype in NUMBERS if dtype != value.dtype and not value.is_complex()]
        for axis in range(value.ndim):
            others += [
                value.narrow(axis, 0, 0),
                torch.cat([value, value.narrow(axis, 0, min(1, value.shape[axis]))], axis),
            ]
        if value.is_floating_point():
            others += [torch.full_like(value, number) for number in (torch.inf, -torch.inf, torch.nan)]
            others += [torch.full_like(value, torch.finfo(value.dtype).max), torch.full_like(value, 1e4)]
    elif isinstance(value, (int, float)):
        others += [0, -1, 1, 2, 5, 1000, 2.5, -0.5, 1e-30, 3.0, torch.nan, torch.inf, True, "3", (3,), torch.ones(2, 3)]
        others += [np.int64(3), np.float32(0.5)]
    elif isinstance(value, (tuple, list)):
        others += [3, -1, (), (0,), (0, 0), (-1, 2), (2, 3, 4), (2.5, 3), ("a", "b"), (None, 2), [], (5, 7)]
        others += [torch.ones(2, 3), torch.tensor([2, 3])]
    elif isinstance(value, str):
        others += ["", "mean ", 3, b"mean", ("mean",)]
    else:
        others += [3, torch.ones(2, 3), torch.nn.Identity()]
    return draw(st.sampled_from(others))


def in_words(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{value.dtype} {tuple(value.shape)} strides {value.stride()}"
    return f"{type(value).__name__} {value!r}"[:200]


def names(error: Exception, argument: str, also: str = "") -> bool:
    """Whether an error speaks of an argument: by its name, in words, in the singular, or as `also` has it."""
    word = re.escape(argument).replace("_", "[_ ]").removesuffix("s")
    pattern = rf"(?<![a-z]){word}s?(?![a-z])" + (f"|{also}" if also else "")
    return re.search(pattern, str(error), re.IGNORECASE) is not None


# Cases


@dataclass(frozen=True)
class Case:
    """How to call one function. draw: → (arguments, what must hold of the result)."""

    function: Callable
    draw: Callable[[Draw], tuple[dict[str, Any], Callable[[Any], None]]]
    also: Mapping[str, str] = field(default_factory=dict)  # other words (regular expressions) for an argument
    free: tuple[str, ...] = ()  # arguments of which nothing is demanded: any object will do


CASES: dict[str, Case] = {}


def name_of(function: Callable) -> str:
    return f"{function.__module__.removeprefix('vitbook.')}.{function.__qualname__}"


def covers(function: Callable, also: Mapping[str, str] | None = None, free: tuple[str, ...] = ()):
    """Make the decorated function the case of a function, class or method."""

    def register(draw):
        assert name_of(function) not in CASES, f"{name_of(function)} has two cases"
        CASES[name_of(function)] = Case(function, draw, also or {}, free)
        return draw

    return register


def of_modules(modules: str) -> list[str]:
    """The names of the cases of some modules."""
    return sorted(name for name in CASES if name.partition(".")[0] in modules.split())


def as_stated(name: str, data) -> None:
    """What must hold of a result holds, whatever arguments were drawn."""
    case = CASES[name]
    arguments, holds = case.draw(data.draw)
    note(f"{name}: " + "; ".join(f"{key}: {in_words(value)}" for key, value in arguments.items()))
    torch.manual_seed(0)
    assert holds(case.function(**arguments)) is not False


def or_refused(name: str, data) -> None:
    """With something else in the place of one argument there is a result, or an error that names the argument."""
    case = CASES[name]
    arguments, _ = case.draw(data.draw)
    choices = [key for key in arguments if key not in case.free and key != "self"]
    if not choices:
        return
    changed = data.draw(st.sampled_from(choices))
    arguments[changed] = instead_of(data.draw, arguments[changed])
    note(f"{name}: " + "; ".join(f"{key}: {in_words(value)}" for key, value in arguments.items()))
    torch.manual_seed(0)
    try:
        case.function(**arguments)
    except (ValueError, TypeError) as error:
        if not names(error, changed, case.also.get(changed, "")):
            raise AssertionError(
                f"{name}: this error does not name {changed}: {type(error).__name__}: {error}"
            ) from error
    except Exception as error:
        raise AssertionError(f"{name}: {changed} = {in_words(arguments[changed])} raises {error!r}") from error


def made(draw: Draw, module: Callable, *arguments, dtype=None, **settings):
    """A module in a drawn dtype, in evaluation, and that dtype."""
    dtype = dtype or draw(st.sampled_from((torch.float32, torch.float64, torch.bfloat16)))
    torch.manual_seed(0)
    return module(*arguments, **settings).to(dtype).eval(), dtype


# What must hold


def is_like(result: Tensor, shape: tuple[int, ...], dtype: torch.dtype | None = None) -> None:
    assert isinstance(result, Tensor), type(result)
    assert tuple(result.shape) == tuple(shape), f"expected {tuple(shape)}, got {tuple(result.shape)}"
    assert dtype is None or result.dtype == dtype, f"expected {dtype}, got {result.dtype}"


def is_finite(result: Tensor) -> None:
    assert result.isfinite().all(), "not finite"


def sums_to_one(weights: Tensor) -> None:
    """Every row of weights is a distribution, to the rounding of its dtype."""
    is_finite(weights)
    assert (weights >= 0).all()
    if weights.shape[-1]:
        sums = weights.double().sum(dim=-1)
        tolerance = 2 * weights.shape[-1] * torch.finfo(weights.dtype).eps
        torch.testing.assert_close(sums, torch.ones_like(sums), rtol=tolerance, atol=tolerance)


def close_to(got: Tensor, expected: Tensor, rounding: float = 64.0) -> None:
    """The same to some roundings of the dtype, relative to the largest number there is."""
    eps, normal = torch.finfo(got.dtype).eps, torch.finfo(got.dtype).smallest_normal
    largest = float(expected.detach().double().abs().max()) if expected.numel() else 0.0
    underflow = 2 * eps * normal  # below the smallest number that there is
    atol = rounding * eps * (largest + 1e-30) + underflow
    torch.testing.assert_close(got.double(), expected.double(), rtol=0, atol=atol)


def counts(model: nn.Module, expected: int) -> None:
    assert sum(parameter.numel() for parameter in model.parameters()) == expected


# Public names


def public_names(module: str) -> set[str]:
    """Functions and classes of a module of the package, and the public methods that its classes define themselves."""
    source = importlib.import_module(f"vitbook.{module}")
    found = set()
    for name, value in vars(source).items():
        if name.startswith("_") or getattr(value, "__module__", None) != source.__name__:
            continue
        if inspect.isclass(value) or inspect.isroutine(value):
            found.add(f"{module}.{name}")
        if inspect.isclass(value):
            for method, member in vars(value).items():
                member = getattr(member, "__func__", member)
                if inspect.isfunction(member) and (not method.startswith("_") or method == "__call__"):
                    found.add(f"{module}.{name}.{method}")
    return found


def out_of_step(modules: str, elsewhere: set[str]) -> list[str]:
    """Public names of some modules, beside their `check_…`, without a case; and cases or exceptions of no such name."""
    public = set().union(*map(public_names, modules.split()))
    public -= {name for name in public if name.split(".")[-1].startswith("check_")}
    return sorted((public - elsewhere) ^ set(of_modules(modules)) | (elsewhere - public))


PACKAGE = Path(importlib.import_module("vitbook").__file__).parent

"""What functions ask of their arguments first, with errors that say which, what was expected and what came.

Of a tensor they look at shape, dtype and device alone: to read its values, a program would have to wait for the GPU.
`check_classes` reads them all the same, and is for evaluation alone.
TypeError is for what is of another kind altogether, ValueError for all else.
"""

import math
from collections.abc import Collection, Sequence
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor


def in_words(value: Any) -> str:
    """A value for an error message: a tensor's dtype and shape, a number or name as it is, of all else the type."""
    if isinstance(value, Tensor):
        return f"{value.dtype} of shape {tuple(value.shape)}"
    return repr(value)[:80] if isinstance(value, (Real, str, tuple, list)) else type(value).__name__


def is_whole(value: Any) -> bool:
    """Whether a value is a whole number; shapes hold others than int while torch traces or exports a model."""
    if isinstance(value, Tensor):
        return value.ndim == 0 and not value.is_floating_point()
    return isinstance(value, (Integral, torch.SymInt)) and not isinstance(value, bool)


def check_kind(kind: type, /, **values: Any) -> None:
    """Raise TypeError unless all are of this kind."""
    for name, value in values.items():
        if not isinstance(value, kind):
            raise TypeError(f"{name} must be a {kind.__name__}, got {in_words(value)}")


def check_tensors(**tensors: Tensor) -> None:
    """Raise TypeError unless all are tensors, of any shape."""
    check_kind(Tensor, **tensors)


def check_floats(**tensors: Tensor) -> None:
    """Raise TypeError unless all are tensors, of any shape, ValueError unless they hold floating-point numbers."""
    check_tensors(**tensors)
    for name, x in tensors.items():
        if not x.is_floating_point():
            raise ValueError(f"{name} must be floating-point, got {in_words(x)}")


def check_shape(name: str, x: Tensor, *shape: str | int) -> None:
    """Raise unless x is a tensor of this shape, as ("B", 3, "D"); an axis that has a letter may be of any length."""
    check_tensors(**{name: x})
    if len(shape) != x.ndim or any(
        isinstance(axis, int) and axis != size for axis, size in zip(shape, x.shape, strict=True)
    ):
        raise ValueError(f"{name} must have shape ({', '.join(map(str, shape))}), got {tuple(x.shape)}")


def check_fits(name: str, x: Tensor, weight: Tensor) -> None:
    """Raise ValueError unless x lies where the weights lie, in their dtype; autocast changes any floating-point one.

    Both may have any shape.
    """
    if x.device != weight.device:
        raise ValueError(f"{name} must be on the weights' device {weight.device}, got {x.device}")
    if x.dtype != weight.dtype and not (x.is_floating_point() and torch.is_autocast_enabled(x.device.type)):
        raise ValueError(f"{name} must have the weights' dtype {weight.dtype}, got {x.dtype}")


def check_width(name: str, x: Tensor, weight: Tensor) -> None:
    """Raise unless x has shape (..., D), and dtype and device of a linear map's weight (D', D)."""
    check_tensors(**{name: x})
    if not x.ndim or x.shape[-1] != weight.shape[1]:
        raise ValueError(f"{name} must have shape (..., D) with D = {weight.shape[1]}, got {tuple(x.shape)}")
    check_fits(name, x, weight)


def check_sizes(least: int | None = 1, /, **sizes: int) -> None:
    """Raise TypeError unless all are whole numbers, ValueError unless they are at least so much and below 2³¹."""
    for name, size in sizes.items():
        if not is_whole(size):
            raise TypeError(f"{name} must be a whole number, got {in_words(size)}")
        if least is not None and size < least:
            raise ValueError(f"{name} must be at least {least}, got {size}")
        if size >= 2**31:
            raise ValueError(f"{name} must be below 2³¹, got {size:.6g}")


def check_lengths(count: int | None = 2, /, **lengths: Sequence[int]) -> None:
    """Raise TypeError unless each is so many whole numbers, such as rows and columns; None for any number of them."""
    for name, values in lengths.items():
        if not isinstance(values, (tuple, list)) or not all(map(is_whole, values)) or count not in (None, len(values)):
            raise TypeError(f"{name} must be {count or 'some'} whole numbers, got {in_words(values)}")


def check_grids(**grids: tuple[int, int]) -> None:
    """Raise unless each is a pair of sizes: rows and columns, or height and width."""
    check_lengths(2, **grids)
    for name, grid in grids.items():
        check_sizes(**{name: min(grid)})
        check_sizes(**{name: max(grid)})


def check_numbers(**numbers: float) -> None:
    """Raise TypeError unless all are real numbers."""
    for name, number in numbers.items():
        if not isinstance(number, Real) or isinstance(number, bool):
            raise TypeError(f"{name} must be a number, got {in_words(number)}")


def check_positive(**numbers: float) -> None:
    """Raise unless all are finite numbers above 0."""
    check_numbers(**numbers)
    for name, number in numbers.items():
        if not 0 < number < math.inf:
            raise ValueError(f"{name} must be a positive number, got {number}")


def check_shares(**shares: float) -> None:
    """Raise unless all are numbers from 0 to 1."""
    check_numbers(**shares)
    for name, share in shares.items():
        if not 0 <= share <= 1:
            raise ValueError(f"{name} must lie in 0 … 1, got {share}")


def check_classes(name: str, classes: Tensor, num_classes: int) -> None:
    """Raise TypeError or ValueError unless all classes, (...), are int64 and lie in 0 … num_classes − 1."""
    check_tensors(**{name: classes})
    check_sizes(num_classes=num_classes)
    if classes.dtype != torch.int64:
        raise ValueError(f"{name} must be int64, got {classes.dtype}")
    if classes.numel() and not 0 <= classes.min() <= classes.max() < num_classes:
        raise ValueError(f"{name} must lie in 0 … {num_classes - 1}, got {classes.min()} … {classes.max()}")


def decomposed(name: str, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The singular value decomposition U, S, Vᵀ of a matrix: (m, n) → (m, r), (r), (r, n) with r = min(m, n).

    Raises ValueError where its numbers have none.
    """
    check_floats(**{name: x})
    if x.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"{name} must be float32 or float64, got {x.dtype}")
    try:
        return torch.linalg.svd(x, full_matrices=False)
    except torch.linalg.LinAlgError:
        raise ValueError(f"{name} must be finite numbers, got others") from None


def check_choice(name: str, value: str, known: Collection[str]) -> None:
    """Raise ValueError unless the value is one of those known."""
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}")

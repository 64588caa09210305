"""Checks at the doors: an error names the argument, says what was expected, and what came.

TypeError is for what is of another kind altogether, ValueError for all else.
"""

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
    """Whether a value is a whole number; while torch traces or exports a model, shapes hold others than int."""
    if isinstance(value, Tensor):
        return value.ndim == 0 and not value.is_floating_point()
    return isinstance(value, (Integral, torch.SymInt)) and not isinstance(value, bool)


def check_kind(kind: type, /, **values: Any) -> None:
    """Raise TypeError unless all are of this kind."""
    for name, value in values.items():
        if not isinstance(value, kind):
            raise TypeError(f"{name} must be a {kind.__name__}, got {in_words(value)}")


def check_sizes(least: int = 1, /, **sizes: int) -> None:
    """Raise TypeError unless all are whole numbers, ValueError unless from `least` to 2³¹ − 1."""
    for name, size in sizes.items():
        if not is_whole(size):
            raise TypeError(f"{name} must be a whole number, got {in_words(size)}")
        if size < least:
            raise ValueError(f"{name} must be at least {least}, got {size}")
        if size >= 2**31:
            raise ValueError(f"{name} must be below 2³¹, got {size:.6g}")


def check_several(**several: Sequence[int]) -> None:
    """Raise TypeError unless each is a tuple of sizes, or a list, and as `check_sizes` for what is in it."""
    for name, sizes in several.items():
        if not isinstance(sizes, (tuple, list)):
            raise TypeError(f"{name} must be a tuple of whole numbers, got {in_words(sizes)}")
        for size in sizes:
            check_sizes(**{name: size})


def check_grids(**grids: tuple[int, int]) -> None:
    """Raise TypeError or ValueError unless each is a pair of sizes: rows and columns, or height and width."""
    check_several(**grids)
    for name, grid in grids.items():
        if len(grid) != 2:
            raise TypeError(f"{name} must be 2 whole numbers, got {in_words(grid)}")


def check_shares(**shares: float) -> None:
    """Raise unless all are numbers from 0 to 1."""
    for name, share in shares.items():
        if not isinstance(share, Real) or isinstance(share, bool):
            raise TypeError(f"{name} must be a number, got {in_words(share)}")
        if not 0 <= share <= 1:
            raise ValueError(f"{name} must lie in 0 … 1, got {share}")


def check_choice(name: str, value: str, known: Collection[str]) -> None:
    """Raise ValueError unless the value is one of those known."""
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}")

"""Tests made of a table: what is right passes its check, and the smallest wrong variants of it do not."""

import inspect
from collections.abc import Callable
from types import ModuleType

import pytest

Table = list[tuple[Callable, Callable, list[Callable]]]  # a check, what is right, and what the check has to reject


def name(value: Callable) -> str:
    return value.__name__


def accepted_and_rejected(table: Table) -> tuple[Callable, Callable]:
    """Two tests: of every right implementation and of every wrong variant."""

    @pytest.mark.parametrize(("check", "right"), [row[:2] for row in table], ids=name)
    def accepted(check, right):
        check(right)

    @pytest.mark.parametrize(("check", "wrong"), [(row[0], wrong) for row in table for wrong in row[2]], ids=name)
    def rejected(check, wrong):
        with pytest.raises(AssertionError):
            check(wrong)

    return accepted, rejected


def defined_in(module: ModuleType) -> set[Callable]:
    """The functions and classes that a module defines itself."""
    own = [value for value in vars(module).values() if getattr(value, "__module__", None) == module.__name__]
    return {value for value in own if inspect.isroutine(value) or inspect.isclass(value)}

"""Dataclasses from JSON files: every value has the type that its field names."""

from collections.abc import Mapping
from dataclasses import is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

_Made = TypeVar("_Made")
_WORDS = {int: "an integer", float: "a number", bool: "true or false", str: "a string", Path: "a string"}
_WORDS |= {NoneType: "null", tuple: "a list"}
_ALSO: dict[Any, Any] = {float: (int, float)}  # what a type takes besides its own values


def from_json(cls: type[_Made], facts: Any) -> _Made:
    """An instance of a dataclass, and of those in its fields, from a JSON object; lists are tuples, strings paths.

    Raises ValueError, with the setting's name, for an unknown name, a value of another type, and what the class raises.
    """
    return _made(cls, facts, "")


def is_of_type(kind: Any, value: Any) -> bool:
    """Whether a value is of a type such as tuple[float, float]; whole numbers count as floats, bools as no numbers."""
    try:
        _made(kind, value, "")
        return True
    except ValueError:
        return False


def _made(kind: Any, value: Any, name: str) -> Any:
    """The value as this type has it. name: of the setting, with dots between, for errors."""
    origin, inner = get_origin(kind), get_args(kind)
    if is_dataclass(kind) and isinstance(value, Mapping):
        return _instance(kind, value, name)
    if origin in (Union, UnionType):
        for some in inner:
            try:
                return _made(some, value, name)
            except ValueError:
                continue
    elif origin is tuple and isinstance(value, list | tuple):
        kinds = inner[:1] * len(value) if inner[-1] is ... else inner
        if len(kinds) == len(value):
            pairs = enumerate(zip(kinds, value, strict=True))
            return tuple(_made(some, one, f"{name}.{place}".strip(".")) for place, (some, one) in pairs)
    elif kind is Path and isinstance(value, str):
        return Path(value)
    elif kind in _WORDS and isinstance(value, _ALSO.get(kind, kind)) and (kind is bool or not isinstance(value, bool)):
        return value
    raise ValueError(f"{name or getattr(kind, '__name__', kind)}: expected {_in_words(kind)}, got {value!r:.80}")


def _instance(cls: Any, facts: Mapping[str, Any], name: str) -> Any:
    """A dataclass's instance of these settings."""
    kinds, values = get_type_hints(cls), {}
    for key, value in facts.items():
        inside = f"{name}.{key}".strip(".")
        if key not in kinds:
            raise ValueError(f"{inside}: unknown setting, got {value!r:.80}")
        values[key] = _made(kinds[key], value, inside)
    try:
        return cls(**values)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name or cls.__name__}: {error}") from None


def _in_words(kind: Any) -> str:
    """A type for an error message."""
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(map(_in_words, get_args(kind)))
    if get_origin(kind) is tuple and get_args(kind)[-1] is not ...:
        return f"a list of {len(get_args(kind))}"
    return _WORDS.get(get_origin(kind) or kind, "an object")

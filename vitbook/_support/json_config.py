"""Dataclasses from what a JSON file says: every value of the type that its field names."""

from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

Made = TypeVar("Made")


def from_json(cls: type[Made], facts: Any) -> Made:
    """An instance of a dataclass from a JSON object, in which lists stand for tuples and strings for paths.

    Raises ValueError for what is no object, for a name that the class has not and for a value of another type, and what
    the class itself raises.
    """
    if not isinstance(facts, dict):
        raise ValueError(f"{cls.__name__} must be an object, got {type(facts).__name__}")
    types, values = get_type_hints(cls), {}
    for name, value in facts.items():
        if name not in types:
            raise ValueError(f"{cls.__name__} has no setting {name!r}")
        if not conforms(value, types[name]):
            raise ValueError(f"{name} must be of type {described(types[name])}, got {value!r:.80}")
        is_path = isinstance(value, str) and Path in (types[name], *get_args(types[name]))
        values[name] = Path(value) if is_path else value
    return cls(**values)


def conforms(value: Any, kind: Any) -> bool:
    """Whether a value from a JSON file can stand for one of this type."""
    parts = get_args(kind)
    if get_origin(kind) is tuple:
        if not isinstance(value, list | tuple):
            return False
        wanted = parts[:1] * len(value) if parts[-1] is ... else parts
        return len(value) == len(wanted) and all(map(conforms, value, wanted))
    if parts:  # one type or another
        return any(conforms(value, part) for part in parts)
    if kind is float:
        kind = float | int
    return isinstance(value, str if kind is Path else kind) and isinstance(value, bool) == (kind is bool)


def described(kind: Any) -> str:
    """A type in a word or two."""
    return getattr(kind, "__name__", str(kind)) if not get_args(kind) else str(kind).replace(f"{Path.__module__}.", "")

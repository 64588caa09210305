"""Dataclasses from JSON files: every value has the type that its field names."""

import json
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

_Made = TypeVar("_Made")


def from_json(cls: type[_Made], facts: Any) -> _Made:
    """An instance of a dataclass, and of those in its fields, from a JSON object; lists are tuples, strings paths.

    Raises ValueError, with the setting's name, for an unknown name, a value of another type, and what the class raises.
    """
    try:
        return TypeAdapter(cls).validate_json(json.dumps(facts), strict=True, extra="forbid")
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(str(part) for part in first["loc"]) or cls.__name__
        raise ValueError(f"{name}: {first['msg']}, got {first['input']!r:.80}") from None


def is_of_type(kind: Any, value: Any) -> bool:
    """Whether a value is of a type such as tuple[float, float]; whole numbers count as floats, bools as no numbers."""
    try:
        TypeAdapter(kind).validate_python(value, strict=True)
        return True
    except ValidationError:
        return False

"""What is not read here, called by its name: for the end of an error message."""

import re
from collections.abc import Callable, Iterable
from typing import Any

from vitbook._common.files import ASSETS, read_table

_PATTERNS = read_table(ASSETS / "refused_formats.toml")


def named(kind: str, texts: Iterable[str], matches: Callable[[str, str], Any] = re.search) -> str:
    """What assets/refused_formats.toml says of the first pattern of a kind that one of these texts has; "" if none has.

    matches: how a pattern is looked for, as `re.search`, `re.match` or `re.fullmatch`.
    """
    texts = list(texts)
    return next((what for pattern, what in _PATTERNS[kind].items() if any(matches(pattern, t) for t in texts)), "")

"""What to say about a name that nobody knows, and about many names."""

import difflib
from collections.abc import Iterable


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """An error message: "unknown model 'ViT-B16', did you mean 'vit_b_16'? There are vit_ti_16, …".

    The nearest of the known names is offered where one is near, whatever its case, hyphens and slashes.
    """
    known = list(known)
    plain = str(name).lower().replace("-", "_").replace("/", "_")
    nearest = difflib.get_close_matches(plain, known, n=1)
    question = f", did you mean {nearest[0]!r}?" if nearest else "."
    return f"unknown {kind} {name!r}{question} There are {', '.join(known)}."


def listed(names: Iterable[object], most: int = 4, between: str = ", ") -> str:
    """The first of some names, and how many more there are."""
    words = [str(name) for name in names]
    return between.join(words[:most]) + (f" and {len(words) - most} more" if len(words) > most else "")

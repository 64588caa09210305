"""What is known of a mistake: a wrong variant of right code with its symptom and cause, shown as a card."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from pathlib import Path

from vitbook._common.files import read_table
from vitbook_workshop.book_address import chapters_address, page_of


@dataclass(frozen=True)
class Mistake:
    """A wrong variant of something right, with its symptom, its cause, and what catches it."""

    variant: Callable  # the wrong code
    instead_of: Callable  # the right code, called in the same way
    symptom: str  # what one sees
    cause: str  # what is wrong, said to whoever wrote it
    where: str  # the section that explains it, as a link from another chapter
    caught_by: tuple[str, ...]  # which invariants reject it, asked of a part; the most telling first
    seen_in_a_model: tuple[str, ...] = ()  # and what `diagnose` finds in a model that makes it, beside `equations_hold`
    found: str = ""  # where somebody made it: the end of an address on GitHub; "" for one of our own

    @property
    def name(self) -> str:
        """That of the variant; the key in `MISTAKES`."""
        return self.variant.__name__

    @property
    def title(self) -> str:
        """The name, in words."""
        return re.sub(r"(?<!^)(?=[A-Z])|_", " ", self.name).lower()

    @property
    def source(self) -> str:
        """Where it was found, as one cites it: OWNER/REPOSITORY#THREAD, OWNER/REPOSITORY/FILE, or "our own"."""
        return re.sub(r"/blob/\w+", "", re.sub(r"/(issues|pull)/", "#", self.found)) or "our own"


SAID = read_table(Path(__file__).with_name("mistakes.toml"))


def wrong_variant(mistakes: dict[str, Mistake], of: Callable | None = None) -> Callable[[Callable], Callable]:
    """Put what is defined below into `mistakes`, by its name, with what mistakes.toml says of it.

    of: what it is a wrong variant of; for a class, what it derives from.
    """

    def register(variant: Callable) -> Callable:
        right = of or next(base for base in variant.__mro__[1:] if base.__module__ != variant.__module__)
        said = SAID[variant.__name__]
        told = {name: tuple(value) if isinstance(value, list) else value for name, value in said.items()}
        where = said["where"].replace("#", ".ipynb#")
        mistakes[variant.__name__] = Mistake(variant, right, **told | {"where": where})
        return variant

    return register


@dataclass(frozen=True)
class Cards:
    """What there is to say about some mistakes: in a notebook a card each, with links; elsewhere the same as text."""

    mistakes: tuple[Mistake, ...]

    def __repr__(self) -> str:
        return "\n\n".join(
            "\n".join([mistake.title.upper(), *(f"  {label} {text}" for label, text, _ in _lines(mistake))])
            for mistake in self.mistakes
        )

    def _repr_html_(self) -> str:
        cards = []
        for mistake in self.mistakes:
            lines = "".join(
                f'<br /><b>{label}</b> {f"""<a href="{url}">{escape(text)}</a>""" if url else escape(text)}'
                for label, text, url in _lines(mistake)
            )
            title = mistake.title[0].upper() + mistake.title[1:]
            cards.append(f'<div id="{mistake.title.replace(" ", "-")}" style="{_CARD}"><b>{title}</b>{lines}</div>')
        return f'<div class="vitbook-cards" style="{_GRID}">{"".join(cards)}</div>'


_GRID = "display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,20rem),1fr));gap:.75rem"
_CARD = "border:1px solid #8886;border-radius:.5rem;padding:.6rem .9rem"


def _lines(mistake: Mistake) -> list[tuple[str, str, str]]:
    """The lines of a card: label, text, and the address that the text links to."""
    return [
        ("Seen:", mistake.symptom, ""),
        ("Cause:", mistake.cause, ""),
        ("Caught by:", ", ".join(mistake.caught_by), ""),
        ("Read:", f"chapter {int(mistake.where[:2])}", chapters_address() + page_of(mistake.where)),
        ("Found in:", mistake.source, mistake.found and f"https://github.com/{mistake.found}"),
    ]

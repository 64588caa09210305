"""Links from "Dosovitskiy et al. 2021", as it stands in the plain text of chapters and docstrings, to the references.

What counts as a citation are the names of an entry's authors as one writes them ("Ba, Kiros and Hinton", "Xu et al.",
"Abnar and Zuidema") before its year ("Xu et al. 2022", "Xu et al., 2022", "Xu et al. (2022)"), or before a link to the
paper that the year follows ("Xu et al., [ViTPose](…), 2022"). Names and year of which `references.bib` knows nothing
are a warning. The page of references gets anchors that stay: the keys.
"""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from docutils import nodes
from prose import link, on_missing, put_links, texts
from pybtex.database import parse_file
from pybtex.richtext import Text as LatexText
from sphinx.application import Sphinx
from sphinx.util import logging

logger = logging.getLogger(__name__)

PAGE = "references"
KIND = "citation-link"
YEAR = r"(?:1[89]|20)\d\d"
NAME = r"(?:d[eiu] |van (?:de[nr] )?)?[A-Z][\w’'-]+"
# What looks like a citation, whoever the authors are.
ANY = re.compile(rf"({NAME}(?:(?:, {NAME})* (?:and|&) {NAME}| et al\.))(?:,?\s|\s\(|,\s\()({YEAR})\b")


@dataclass(frozen=True)
class Entry:
    """An entry of the bibliography."""

    key: str
    surnames: tuple[str, ...]
    year: str
    url: str

    @property
    def spelling(self) -> str:
        """Its authors, as one writes them."""
        if len(self.surnames) > 3 or "others" in self.surnames:
            return f"{self.surnames[0]} et al."
        return " and ".join(part for part in (", ".join(self.surnames[:-1]), self.surnames[-1]) if part)

    @property
    def other_spellings(self) -> list[str]:
        """Other ways to write them, which another entry may have for its own."""
        if len(self.surnames) == 2:
            return [" & ".join(self.surnames)]
        return [f"{self.surnames[0]} et al."] if len(self.surnames) == 3 else []


@cache
def read_entries(path: Path) -> dict[str, Entry]:
    """The bibliography, by key."""
    entries = {}
    for key, entry in parse_file(str(path)).entries.items():
        people = entry.persons.get("author", [])
        surnames = tuple(str(LatexText.from_latex(" ".join([*p.prelast_names, *p.last_names]))) for p in people)
        doi = entry.fields.get("doi")
        url = entry.fields.get("url") or (f"https://doi.org/{doi}" if doi else "")
        entries[key] = Entry(key, surnames, entry.fields["year"], url)
    return entries


@cache
def finder(path: Path) -> tuple[re.Pattern, dict[tuple[str, str], str]]:
    """An expression for the authors of any entry; and the key of each (authors, year)."""
    entries = read_entries(path).values()
    keys = {(spelling, entry.year): entry.key for entry in entries for spelling in entry.other_spellings}
    keys |= {(entry.spelling, entry.year): entry.key for entry in entries}
    spellings = sorted({spelling for spelling, _ in keys}, key=len, reverse=True)
    authors = "|".join(re.escape(spelling).replace(r"\ ", r"\s+") for spelling in spellings)
    return re.compile(rf"(?<![\w-])({authors})(?:(\s\()({YEAR})(\))?|,?\s({YEAR})\b|,\s$)"), keys


def citations(text: str, path: Path, behind: str = "", address: str = "") -> list[tuple[int, int, str]]:
    """(start, end, key) of every citation in a text.

    address and behind: that of the link that follows the text, and the words behind that, where there is one.
    """
    expression, keys = finder(path)
    by_url = {entry.url: entry.key for entry in read_entries(path).values() if entry.url}
    places = []
    for match in expression.finditer(text):
        authors = " ".join(match.group(1).split())
        year = match.group(3) or match.group(5)
        end = match.end()
        if match.group(2) and not match.group(4):  # "(2021; …": the bracket goes on
            end = match.end(1)
        if year is None:
            said = re.match(rf",\s({YEAR})\b", behind)
            year, end = said.group(1) if said else "", match.end(1)
            if (key := by_url.get(address)) and read_entries(path)[key].year == year:
                places.append((match.start(), end, key))
                continue
        if (authors, year) in keys:
            places.append((match.start(), end, keys[authors, year]))
    return places


def unknown(text: str, path: Path) -> list[str]:
    """What looks like a citation in a text, and has no entry."""
    _, keys = finder(path)
    return [
        match.group(0) for match in ANY.finditer(text) if (" ".join(match.group(1).split()), match.group(2)) not in keys
    ]


def following(text: nodes.Text) -> tuple[str, str]:
    """The address of the link right behind a text, and the words behind it; or nothing."""
    siblings = text.parent.children
    at = siblings.index(text)
    if at + 1 >= len(siblings) or not isinstance(siblings[at + 1], nodes.reference):
        return "", ""
    return siblings[at + 1].get("refuri", ""), siblings[at + 2].astext() if at + 2 < len(siblings) else ""


def link_citations(app: Sphinx, doctree: nodes.document) -> None:
    """Link every citation on a page."""
    path = Path(app.srcdir) / "references.bib"
    app.env.note_dependency(str(path))
    app.env.note_dependency(__file__)
    for text in texts(doctree):
        address, behind = following(text)
        mentions = citations(text.astext(), path, behind, address)
        for words in unknown(text.astext(), path):
            logger.warning("%r has no entry in references.bib", words, location=text.parent)
        put_links(text, [(start, end, link(KIND, key, text.astext()[start:end])) for start, end, key in mentions])


def finish_references(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Give each entry on the page of references its key as an anchor."""
    if docname != PAGE:
        return
    keys = {citation.citation_id: citation.key for citation in app.env.get_domain("cite").citations}
    for entry in doctree.findall(nodes.citation):
        entry["ids"].insert(0, next(keys[name] for name in entry["ids"] if name in keys))


def setup(app: Sphinx) -> None:
    app.connect("doctree-read", link_citations, priority=600)
    app.connect("doctree-resolved", finish_references)
    app.connect("missing-reference", on_missing(KIND, PAGE, lambda env, key: (key, "")))

"""Links from the first mention of each glossary term on a page to its entry, put in when the site is built.

A term is linked in singular and plural, whole, and not inside a word with a hyphen, so that neither "ahead" nor
"multi-head" leads to "Head". Terms written with capitals inside, such as MLP, are linked only so. Where a word of the
glossary is used in another sense, `OTHER_SENSES` says by which words around it that is known, or `OTHER_PAGES` on which
pages it always is.
"""

import re
from functools import cache
from pathlib import Path

from docutils import nodes
from prose import link, on_missing, put_links, texts
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

PAGE = "glossary"
KIND = "glossary-term"
WITHOUT = {PAGE, "references"}  # pages that are lists themselves
CAPITAL = {"Adam", "Adams", "Transformer", "Transformers"}  # in small letters, `transformers` is a library

# Phrases in which a term means something else. A mention inside one of them is passed over.
OTHER_SENSES = {
    "Batch": r"batch normali[sz]ation",
    "Channel": r"stretches each channel",
    "Decoder": r"small decoder",
    "Mask": r"mask embedding",
    "Memory": r"(?:lies?|fits?) in(?:to)? memory|axis in memory",
    "Parameter": r"parameter count",
    "Permutation": r"permutation equivariance",
    "Register": r"stay in registers",
    "Value": r"lowest value|singular values?|no value here|true value",
    "Width": r"height and width|kernels of width|hidden width|of hidden width|same width as|this width",
}

# Pages on which a term means something else wherever it stands: a dictionary's keys, a computer's memory, a
# photograph whose neighbors are sought, somebody with a class.
OTHER_PAGES = {
    "Key": r"api/(?!part1)",
    "Memory": r"(?!chapters/0[1-7]_|api/part1)",
    "Query": r"chapters/16_",
    "Teacher": r"teaching",
    "Value": r"api/(?!part1)|chapters/10_",
}


@cache
def read_glossary(path: Path) -> dict[str, str]:
    """Terms and their definitions, in plain text: from the lines of the page's `glossary` directive."""
    block = re.search(r"^```\{glossary\}\n(.*?)^```$", path.read_text(encoding="utf-8"), flags=re.M | re.S).group(1)
    terms = {}
    for entry in re.split(r"\n\s*\n", block.strip()):
        term, _, definition = entry.partition("\n")
        terms[term.strip()] = plain(" ".join(definition.split()))
    return terms


def plain(text: str) -> str:
    """A definition without Markdown's signs, and without the link to a chapter at its end."""
    text = re.sub(r"\s*See \[[^\]]*\]\([^)]*\)\.", "", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    signs = {r"\,": "", r"\Phi": "Φ", r"\ln": "ln", r"^\top": "ᵀ", r"\max": "max", "$": "", "*": "", "`": ""}
    for sign, written in signs.items():
        text = text.replace(sign, written)
    return text


def anchor(term: str) -> str:
    """The stable anchor of a term on the glossary's page."""
    return "term-" + re.sub(r"[^a-z0-9]+", "-", term.lower().replace("–", "-")).strip("-")


def names(term: str) -> list[str]:
    """What a term is called: "Adam, AdamW" and "Intersection over union (IoU)" are two names each."""
    return [name.strip() for name in re.split(r",| \(|\)", term) if name.strip()]


def forms(name: str) -> list[str]:
    """A name in singular and plural."""
    if re.search(r"[^aius]s$", name):  # a plural
        return [name, name[:-1]]
    if re.search(r"[^aeiou]y$", name):
        return [name, f"{name[:-1]}ies"]
    return [name, f"{name}{'es' if re.search(r'(s|x|ch|sh)$', name) else 's'}"]


def pattern(form: str) -> str:
    """A form as a regular expression: any white space between words; mostly, a capital or not at the beginning."""
    first = re.escape(form[0])
    if not any(letter.isupper() for letter in form[1:]) and form not in CAPITAL:
        first = f"[{form[0].upper()}{form[0].lower()}]"
    return first + re.escape(form[1:]).replace(r"\ ", r"\s+")


@cache
def finder(path: Path) -> tuple[re.Pattern, dict[str, str]]:
    """An expression that finds any term, longer ones first; and the term of each form, in small letters."""
    owners = {form: term for term in read_glossary(path) for name in names(term) for form in forms(name)}
    ordered = sorted(owners, key=len, reverse=True)
    expression = re.compile(rf"(?<![\w-])(?:{'|'.join(pattern(form) for form in ordered)})(?![\w-])")
    return expression, {form.lower(): term for form, term in owners.items()}


def mentions(text: str, path: Path) -> list[tuple[int, int, str]]:
    """(start, end, term) of every mention in a text, but for those in another sense."""
    expression, owners = finder(path)
    places = []
    for match in expression.finditer(text):
        term = owners[" ".join(match.group(0).lower().split())]
        elsewhere = re.finditer(OTHER_SENSES.get(term, r"(?!)"), text.replace("\n", " "))
        if not any(other.start() <= match.start() and match.end() <= other.end() for other in elsewhere):
            places.append((match.start(), match.end(), term))
    return places


def link_terms(app: Sphinx, doctree: nodes.document) -> None:
    """Link the first mention of each term on a page."""
    env = app.env
    if env.docname in WITHOUT:
        return
    path = Path(app.srcdir) / f"{PAGE}.md"
    env.note_dependency(str(path))
    env.note_dependency(__file__)
    seen = {term for term, pages in OTHER_PAGES.items() if re.match(pages, env.docname)}
    for text in texts(doctree):
        places = []
        for start, end, term in mentions(text.astext(), path):
            if term not in seen:
                seen.add(term)
                places.append((start, end, link(KIND, term, text.astext()[start:end])))
        put_links(text, places)


def name_anchors(app: Sphinx, doctree: nodes.document) -> None:
    """Give the glossary's entries anchors that stay, whatever is added before them."""
    if app.env.docname != PAGE:
        return
    for term in doctree.findall(nodes.term):
        stable = anchor(term.astext())
        if stable not in term["ids"]:
            term["ids"].insert(0, stable)


def entry_of(env: BuildEnvironment, term: str) -> tuple[str, str]:
    """The anchor of a term, and its definition, which the link shows when pointed at."""
    return anchor(term), read_glossary(Path(env.srcdir) / f"{PAGE}.md")[term]


def setup(app: Sphinx) -> None:
    app.connect("doctree-read", link_terms, priority=700)  # after the citations
    app.connect("doctree-read", name_anchors)
    app.connect("missing-reference", on_missing(KIND, PAGE, entry_of))

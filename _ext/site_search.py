"""What the page of results searches: one entry a section, a term of the glossary, a question, or an object of the code.

Sphinx's own index knows pages, not sections, and takes in what drawings and code say. Here an entry is its address, its
title, its page's title, its kind and its prose; of a term also where it leads. _static/search.js ranks them.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

ASIDE = (nodes.section, nodes.raw, nodes.literal_block, nodes.math_block, nodes.image, addnodes.desc)
ASIDE += (nodes.comment, addnodes.glossary, nodes.meta)
SEE = re.compile(r" See [^.]+\.$")  # where a term leads is a link of its own
PLAIN = re.compile(r"[\w=+,. -]+")  # a formula that reads as it is written


def prose(node: nodes.Element, top: bool = True) -> Iterator[str]:
    """The words of a section without those of the sections in it, of code, outputs, formulas and drawings.

    A short formula is kept, another becomes an ellipsis. What a chapter asks of its reader is left out.
    """
    for child in node.children:
        if isinstance(child, ASIDE) or (top and isinstance(child, nodes.title)):
            continue
        if isinstance(child, nodes.paragraph) and child.astext().startswith("Before this"):
            continue
        if isinstance(child, nodes.bullet_list) and "chapters" in child["classes"]:
            continue  # the cards say what the chapters say
        if isinstance(child, nodes.math):
            yield child.astext() if PLAIN.fullmatch(child.astext()) else "…"
            continue
        if isinstance(child, nodes.container) and "cell" in child.get("classes", []):
            yield from (f" {caption.astext()} " for caption in child.findall(nodes.caption))
        elif isinstance(child, nodes.Text):
            yield child.astext()
        else:
            yield from prose(child, top=False)
            if isinstance(child, nodes.TextElement) and not isinstance(child, nodes.Inline):
                yield " "


def text(node: nodes.Element) -> str:
    return " ".join("".join(prose(node)).split())


def questions(doctree: nodes.document) -> Iterator[nodes.paragraph]:
    """Each gets an address of its own: its first words."""
    for paragraph in doctree.findall(nodes.paragraph):
        if paragraph.children and isinstance(paragraph[0], nodes.strong):
            paragraph["ids"] = ["-".join(nodes.make_id(paragraph[0].astext()).split("-")[:8])]
            yield paragraph


def entries(name: str, doctree: nodes.document) -> Iterator[list[str]]:
    page = next(doctree.findall(nodes.title), None)
    if page is None:
        return
    title = page.astext()
    code = name.startswith("api")
    for section in doctree.findall(nodes.section):
        heading, words = section[0].astext(), text(section)
        own = section.parent is doctree
        if name == "questions" and not own:
            continue
        yield [name, "" if own else section["ids"][0], heading, "" if own else title, "code" if code else "text", words]
    for item in doctree.findall(nodes.definition_list_item):
        for term in item.findall(nodes.term):
            if term["ids"] and isinstance(item.parent.parent, addnodes.glossary):
                see = [link["refuri"] for link in item.findall(nodes.reference) if link.get("internal")]
                words = SEE.sub("", text(item.children[-1]))
                yield [name, term["ids"][0], term.astext(), title, "term", words, *see]
    if name == "questions":
        for paragraph in questions(doctree):
            asked = paragraph[0].astext()
            yield [name, paragraph["ids"][0], asked, title, "question", paragraph.astext()[len(asked) :].strip()]
    for signature in doctree.findall(addnodes.desc_signature):
        if signature["ids"]:
            content = signature.parent.children[-1]
            yield [name, signature["ids"][0], signature["ids"][0], title, "code", text(content)]


def collect(app: Sphinx, doctree: nodes.document, name: str) -> None:
    known(app.env)[name] = list(entries(name, doctree))


def known(env: BuildEnvironment) -> dict[str, list[list[str]]]:
    if not hasattr(env, "searched"):
        env.searched = {}
    return env.searched


def purge(app: Sphinx, env: BuildEnvironment, name: str) -> None:
    known(env).pop(name, None)


def merge(app: Sphinx, env: BuildEnvironment, names: list[str], other: BuildEnvironment) -> None:
    known(env).update({name: known(other)[name] for name in names if name in known(other)})


def load(app: Sphinx, pagename: str, templatename: str, context: dict, doctree: object) -> None:
    """The entries are a script, as search.js itself: a page in a folder may fetch no data."""
    if pagename == "search":
        app.add_js_file("sections.js")


def write(app: Sphinx, error: Exception | None) -> None:
    if error is None and app.builder.format == "html":
        found = [entry for name in sorted(known(app.env)) for entry in known(app.env)[name]]
        script = f"const SECTIONS = {json.dumps(found, ensure_ascii=False, separators=(',', ':'))};\n"
        Path(app.outdir, "_static", "sections.js").write_text(script, encoding="utf-8")


def setup(app: Sphinx) -> None:
    app.connect("doctree-resolved", collect, priority=100)  # before drawings and links are put in
    app.connect("env-purge-doc", purge)
    app.connect("env-merge-info", merge)
    app.connect("html-page-context", load)
    app.connect("build-finished", write)

"""The first mention of each glossary term leads to its entry; words that only look like terms do not."""

import re
from pathlib import Path
from types import SimpleNamespace

import glossary_links as glossary
import pytest
from docutils import nodes
from docutils.utils import new_document
from sphinx.addnodes import pending_xref

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "glossary.md"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a head", ["Head"]),
        ("Heads are", ["Head"]),
        ("ahead of the headline, multi-head, headless", []),
        ("the class\ntoken’s row", ["Class token"]),
        ("attention and self-attention", ["Attention", "Self-attention"]),
        ("adam said; AdamW did", ["Adam, AdamW"]),
        ("a Transformer, a Vision Transformer", ["Transformer", "Vision Transformer (ViT)"]),
        ("Hugging Face's transformers", []),
        ("a singular value of a key", ["Key"]),
    ],
)
def test_terms_and_false_friends(text: str, found: list[str]) -> None:
    assert [term for _, _, term in glossary.mentions(text, PAGE)] == found


def page(*children: nodes.Node, docname: str = "chapters/01_attention") -> tuple[nodes.document, list[pending_xref]]:
    """A page of these, with its links."""
    document = new_document("page")
    document += [*children]
    app = SimpleNamespace(srcdir=str(ROOT), env=SimpleNamespace(docname=docname, note_dependency=lambda path: None))
    glossary.link_terms(app, document)
    return document, list(document.findall(pending_xref))


def test_only_the_first_mention_is_linked() -> None:
    document, links = page(nodes.paragraph("", "A key, two keys and a query."), nodes.paragraph("", "The query."))
    assert [(link["reftarget"], link.astext()) for link in links] == [("Key", "key"), ("Query", "query")]
    assert document.astext() == "A key, two keys and a query.\n\nThe query.", "the text is as it was"


@pytest.mark.parametrize("kind", [nodes.title, nodes.literal, nodes.math, nodes.reference, nodes.caption])
def test_headings_code_links_and_formulas_stay(kind: type) -> None:
    assert not page(nodes.paragraph("", "", kind("", "", nodes.Text("a key"))))[1]


def test_terms_are_in_order_with_one_entry_each_and_definitions_in_plain_text() -> None:
    found = glossary.read_glossary(PAGE)
    assert list(found) == sorted(found, key=lambda term: term.lower().replace("–", "-"))
    forms = [form for term in found for name in glossary.names(term) for form in glossary.forms(name)]
    assert len(set(forms)) == len(forms)
    assert len({glossary.anchor(term) for term in found}) == len(found)
    assert not [term for term, said in found.items() if not said or re.search(r"[\\$`*\[\]]", said)]

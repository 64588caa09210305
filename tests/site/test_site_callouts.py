"""Quotes with a label become boxes; other quotes do not."""

import pytest
import site_callouts
from docutils import nodes
from docutils.utils import new_document


def quote(*inline: nodes.Node) -> nodes.document:
    """A document that holds one block quote of one paragraph; MyST may begin it with an empty text."""
    document = new_document("chapter")
    document += nodes.block_quote("", nodes.paragraph("", "", nodes.Text(""), *inline))
    return document


def test_a_labelled_quote_becomes_a_callout() -> None:
    document = quote(
        nodes.strong("", "Note."), nodes.Text(" A mask is True where it may look at "), nodes.math("", "k")
    )
    site_callouts.make_callouts(None, document)
    (callout,) = document.children
    assert isinstance(callout, nodes.admonition)
    assert callout["classes"] == ["note"]
    assert [child.astext() for child in callout.children] == ["Note", "A mask is True where it may look at k"]


@pytest.mark.parametrize("label", ["Beware.", "Notes.", ""])
def test_other_quotes_stay_quotes(label: str) -> None:
    document = quote(nodes.strong("", label), nodes.Text(" Text."))
    site_callouts.make_callouts(None, document)
    assert isinstance(document.children[0], nodes.block_quote)

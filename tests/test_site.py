"""What the site makes of plain Markdown: callouts, equation tags, the repository's address."""

from pathlib import Path

import pytest
import vitbook_site as site
from docutils import nodes
from docutils.utils import new_document
from sphinx.errors import ExtensionError


def quote(*inline: nodes.Node) -> nodes.document:
    """A document that holds one block quote of one paragraph; MyST may begin it with an empty text."""
    document = new_document("chapter")
    document += nodes.block_quote("", nodes.paragraph("", "", nodes.Text(""), *inline))
    return document


def test_a_labelled_quote_becomes_a_callout() -> None:
    document = quote(
        nodes.strong("", "Note."), nodes.Text(" A mask is True where it may look at "), nodes.math("", "k")
    )
    site.make_callouts(None, document)
    (callout,) = document.children
    assert isinstance(callout, nodes.admonition)
    assert callout["classes"] == ["note"]
    assert [child.astext() for child in callout.children] == ["Note", "A mask is True where it may look at k"]


@pytest.mark.parametrize("label", ["Beware.", "Notes.", ""])
def test_other_quotes_stay_quotes(label: str) -> None:
    document = quote(nodes.strong("", label), nodes.Text(" Text."))
    site.make_callouts(None, document)
    assert isinstance(document.children[0], nodes.block_quote)


def equation(text: str) -> nodes.math_block:
    document = new_document("chapter")
    document += nodes.math_block(text, text, nowrap=False, number=None)
    site.free_equation_tags(None, document)
    return document.children[0]


def test_a_tagged_equation_is_not_wrapped() -> None:
    node = equation(r"\begin{aligned} a &= b \\ c &= d \end{aligned} \tag{1}")
    assert node["nowrap"] and node.astext() == r"\[\begin{aligned} a &= b \\ c &= d \end{aligned} \tag{1}\]"


def test_an_untagged_equation_is_left_to_sphinx() -> None:
    assert not equation(r"a = b \\ c = d")["nowrap"]


@pytest.mark.parametrize("text", ["", "[project]\nname = 'x'", "[project.urls]\nHomepage = 'x'", "not toml ["])
def test_a_missing_address_stops_the_build(tmp_path: Path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ExtensionError, match="Repository"):
        site.repository_url(tmp_path)

"""Tagged equations: MathJax accepts them, and links lead to them."""

import pytest
from docutils import nodes
from docutils.utils import new_document
from site_equations import AnchorEquations, free_equation_tags


def equation(text: str) -> nodes.math_block:
    document = new_document("chapter")
    document += nodes.math_block(text, text, nowrap=False, number=None)
    free_equation_tags(None, document)
    return document.children[0]


def test_a_tagged_equation_is_not_wrapped() -> None:
    node = equation(r"\begin{aligned} a &= b \\ c &= d \end{aligned} \tag{1}")
    assert node["nowrap"] and node.astext() == r"\[\begin{aligned} a &= b \\ c &= d \end{aligned} \tag{1}\]"


def test_an_untagged_equation_is_left_to_sphinx() -> None:
    assert not equation(r"a = b \\ c = d")["nowrap"]


@pytest.mark.parametrize("tag, anchor", [("1", "equation-1"), ("2b", "equation-2b"), ("A.3", "equation-a-3")])
def test_a_tag_is_an_anchor(tag: str, anchor: str) -> None:
    document = new_document("chapter")
    document.myst_slugs = {}
    document += [nodes.math_block("", "x = y"), nodes.math_block("", rf"a = b \tag{{{tag}}}")]
    AnchorEquations(document).apply()
    assert [node["ids"] for node in document.children] == [[], [anchor]]
    assert document.myst_slugs[anchor][1:] == (anchor, f"Equation {tag}")


def test_a_heading_keeps_its_anchor() -> None:
    document = new_document("chapter")
    document.myst_slugs = {"equation-1": (3, "equation-1", "Equation 1")}
    document += nodes.math_block("", r"a = b \tag{1}")
    AnchorEquations(document).apply()
    assert document.children[0]["ids"] == [] and document.myst_slugs["equation-1"][0] == 3

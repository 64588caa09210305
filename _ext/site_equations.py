r"""Equations with a number, written `\tag{1}` so that every reader of the notebook shows it."""

import re

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

TAG = re.compile(r"\\tag\{([^{}]+)\}")


def free_equation_tags(app: Sphinx, doctree: nodes.document) -> None:
    r"""Keep Sphinx from wrapping an equation that has a \\ into `split`, where MathJax forbids \tag."""
    for equation in doctree.findall(nodes.math_block):
        text = equation.astext()
        if r"\tag" in text and not equation.get("nowrap"):
            equation.children = [nodes.Text(rf"\[{text.strip()}\]")]
            equation["nowrap"] = True


class AnchorEquations(SphinxTransform):
    """Make `#equation-1` lead to the equation tagged 1, unless a heading "Equation 1" has that anchor already.

    Runs before MyST resolves links within a page; `myst_slugs` is its own table of anchors, for links from others too.
    """

    default_priority = 870

    def apply(self, **kwargs: object) -> None:
        slugs = getattr(self.document, "myst_slugs", None)
        if slugs is None:
            return
        for equation in self.document.findall(nodes.math_block):
            for number in TAG.findall(equation.astext()):
                anchor = f"equation-{nodes.make_id(f'n{number}')[1:]}"
                if anchor not in slugs and anchor not in self.document.ids:
                    equation["ids"].append(anchor)
                    self.document.ids[anchor] = equation
                    slugs[anchor] = (equation.line or 0, anchor, f"Equation {number}")


def setup(app: Sphinx) -> None:
    app.add_transform(AnchorEquations)
    app.connect("doctree-read", free_equation_tags)

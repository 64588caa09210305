"""Cells that draw a figure say so by a class.

Where a style sheet looks for the figure itself, it finds it only once a slow page has brought it, and what stood before
it moves.
"""

from docutils import nodes
from sphinx.application import Sphinx


def name_figures(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    for cell in doctree.findall(nodes.container):
        if "cell" in cell["classes"] and next(cell.findall(nodes.figure), None) is not None:
            cell["classes"].append("has-figure")


def setup(app: Sphinx) -> None:
    app.connect("doctree-resolved", name_figures)

"""Chapters as pages of nbconvert, whose links lead to pages: `jupyter nbconvert --to html --config` and this file.

nbconvert 7.17 leaves links at notebooks, and gives headings other anchors than the book and GitHub do.
"""

import re

from nbconvert.preprocessors import Preprocessor
from nbformat.v4 import new_markdown_cell

HEADING = re.compile(r"^#{1,3} +(.+?)(?: *#+)? *$", re.MULTILINE)
LINK = re.compile(r"(\]\((?:\d\d_\w+))\.ipynb(?=[)#])")


class LinksToPages(Preprocessor):
    """[attention](01_attention.ipynb#the-softmax) leads to 01_attention.html, where a heading has that anchor."""

    def preprocess(self, nb, resources):
        cells = []
        for cell in nb.cells:
            if cell.cell_type == "markdown":
                cell.source = LINK.sub(r"\1.html", HEADING.sub(_with_anchor, cell.source))
            elif name := cell.metadata.get("mystnb", {}).get("figure", {}).get("name"):
                cells.append(new_markdown_cell(f'<a id="{name}"></a>'))
            cells.append(cell)
        nb.cells = cells
        return nb, resources


def _with_anchor(heading: re.Match) -> str:
    """The heading after an anchor as GitHub makes it: its words in small letters, joined by hyphens."""
    anchor = re.sub(r"[^\w\- ]", "", heading[1].lower()).replace(" ", "-")
    return f'<a id="{anchor}"></a>\n\n{heading[0]}'


c = get_config()  # noqa: F821
c.HTMLExporter.preprocessors = [LinksToPages]

"""What notebooks store of the live figures, for Colab, JupyterLab and GitHub: a still and a link, without scripts."""

import json
from pathlib import Path

import pytest
from bs4 import BeautifulSoup

from vitbook_workshop.book_address import chapters_address
from vitbook_workshop.live import figures

CHAPTERS = Path(__file__).resolve().parents[3] / "chapters"

# What JupyterLab 4 keeps of a notebook that is not trusted, of what stills are made of (apputils/src/sanitizer.ts).
# Drawings in SVG go with all that is in them.
KEPT = {"div": set(), "p": set(), "span": set(), "a": {"href"}, "button": {"type", "disabled"}}
KEPT |= {"img": {"src", "alt", "width", "height"}}
KEPT_ON_ALL = {"class", "style"}


def stored(figure: str) -> str:
    """The HTML in the outputs of the figure's chapter."""
    cells = json.loads((CHAPTERS / f"{figures.FIGURES[figure][0]}.ipynb").read_text(encoding="utf-8"))["cells"]
    outputs = [output.get("data", {}) for cell in cells for output in cell.get("outputs", ())]
    (html,) = (found for data in outputs if f'data-figure="{figure}"' in (found := "".join(data.get("text/html", ()))))
    return html


@pytest.mark.parametrize("figure", figures.FIGURES)
def test_a_notebook_stores_a_still_in_words_and_a_link_to_where_it_is_live(figure):
    html = stored(figure)
    assert len(html) < 30_000
    left = BeautifulSoup(html, "html.parser")
    drawings = [drawing.extract() for drawing in left.find_all("svg")]
    assert len(drawings) + len(left.find_all("img")) == 1
    assert all(drawing["aria-label"] for drawing in drawings) and all(image["alt"] for image in left.find_all("img"))
    for tag in left.find_all(True):
        assert set(tag.attrs) - KEPT[tag.name] - KEPT_ON_ALL <= {"data-figure", "data-model"}, tag.name
    assert left.button["style"] == "visibility: hidden", "a button that does nothing there"
    assert left.a["href"] == f"{chapters_address()}{figures.FIGURES[figure][0]}.html"
    left.button.extract()
    sentences = left.get_text(" ", strip=True).removesuffix("Live on the book's site .")
    assert len(sentences) > 60 and sentences != left.get_text(" ", strip=True)

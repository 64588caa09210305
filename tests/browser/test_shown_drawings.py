"""Every drawing in a browser: its words on a phone, its colors on a light page and on a dark one."""

import pytest
from every_drawing import ALL

from vitbook_workshop import drawings
from vitbook_workshop.drawings.palette import PALETTE
from vitbook_workshop.drawings.svg import WIDTH

PHONE = 342  # pixels that a drawing gets on a screen 390 wide

# Of each text: its words, its size in pixels, and the corners of its box in the drawing's units.
TEXTS = """svg => [...svg.querySelectorAll('text')].map(text => {
  const box = text.getBBox(), parts = [text, ...text.querySelectorAll('tspan')];
  return [text.textContent, Math.min(...parts.map(e => parseFloat(getComputedStyle(e).fontSize))),
          box.x, box.y, box.x + box.width, box.y + box.height]})"""
FILL = "svg => getComputedStyle(svg.querySelector('rect')).fill"


@pytest.fixture(scope="module")
def page(chromium):
    with chromium.new_page() as page:
        yield page


@pytest.mark.parametrize("name", ALL)
def test_the_words_are_inside_apart_and_large_enough(name: str, page) -> None:
    drawing = ALL[name]()
    page.set_content(f'<div style="width:{PHONE}px">{drawing.svg()}</div>')
    texts = page.eval_on_selector("svg", TEXTS)
    assert page.eval_on_selector("svg", "svg => svg.getBoundingClientRect().width") == PHONE
    for n, (words, size, left, top, right, bottom) in enumerate(texts):
        assert left >= 0 and top >= 0 and right <= WIDTH and bottom <= drawing.height, words
        assert size * PHONE / WIDTH >= 11, words
        for other, _, x0, y0, x1, y1 in texts[:n]:  # boxes are higher than letters: 4 units may overlap
            assert min(right, x1) <= max(left, x0) or min(bottom, y1) - max(top, y0) <= 4, (words, other)


@pytest.mark.parametrize(("system", "page_theme"), [("light", "dark"), ("dark", "light"), ("dark", None)])
def test_the_page_decides_about_light_and_dark_and_else_the_system(system, page_theme, page) -> None:
    page.emulate_media(color_scheme=system)
    switch = f' data-theme="{page_theme}"' if page_theme else ""
    page.set_content(f"<html{switch}><body>{drawings.norms().svg()}</body></html>")
    paper = getattr(PALETTE["paper"], page_theme or system)
    assert page.eval_on_selector("svg", FILL) == f"rgb({', '.join(str(int(paper[i : i + 2], 16)) for i in (1, 3, 5))})"

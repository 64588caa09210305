"""Every drawing: what a notebook, a screen reader, and a browser on a phone get."""

import re
from xml.etree import ElementTree

import pytest

from vitbook_workshop import drawings
from vitbook_workshop.drawings.palette import COLORS
from vitbook_workshop.drawings.svg import WIDTH

pytest_plugins = ["browser"]

SVG = "{http://www.w3.org/2000/svg}"
STEPS = [name for name in drawings.__all__ if name.islower() and name != "vit"]
ALL = {name: getattr(drawings, name) for name in STEPS}
ALL |= {f"vit-{here}": lambda here=here: drawings.vit(here) for here in (None, *drawings.PLACES)}
PHONE = 342  # pixels that a drawing gets on a screen 390 wide

# Of each text: its words, its size in pixels, and the corners of its box in the drawing's units.
TEXTS = """svg => [...svg.querySelectorAll('text')].map(text => {
  const box = text.getBBox(), parts = [text, ...text.querySelectorAll('tspan')];
  return [text.textContent, Math.min(...parts.map(e => parseFloat(getComputedStyle(e).fontSize))),
          box.x, box.y, box.x + box.width, box.y + box.height]})"""
FILL = "svg => getComputedStyle(svg.querySelector('rect')).fill"


@pytest.mark.parametrize("name", ALL)
def test_a_drawing_is_an_image_with_words_for_it(name: str) -> None:
    bundle = ALL[name]()._repr_mimebundle_()
    assert bundle == ALL[name]()._repr_mimebundle_()
    root = ElementTree.fromstring(bundle["image/svg+xml"])
    assert root.tag == SVG + "svg" and root.get("role") == "img"
    title, alt = root.findtext(SVG + "title"), root.findtext(SVG + "desc")
    assert alt == root.get("aria-label") == bundle["text/plain"]
    assert 5 < len(title) < 80 < len(alt) < 700
    assert not re.search(r'\bid="', bundle["image/svg+xml"])  # several stand in one page


@pytest.mark.parametrize("name", ALL)
def test_the_words_are_inside_apart_and_large_enough(name: str, chromium) -> None:
    drawing = ALL[name]()
    page = chromium.new_page()
    page.set_content(f'<div style="width:{PHONE}px">{drawing.svg()}</div>')
    texts = page.eval_on_selector("svg", TEXTS)
    assert page.eval_on_selector("svg", "svg => svg.getBoundingClientRect().width") == PHONE
    page.close()
    for n, (words, size, left, top, right, bottom) in enumerate(texts):
        assert left >= 0 and top >= 0 and right <= WIDTH and bottom <= drawing.height, words
        assert size * PHONE / WIDTH >= 11, words
        for other, _, x0, y0, x1, y1 in texts[:n]:  # boxes are higher than letters: 4 units may overlap
            assert min(right, x1) <= max(left, x0) or min(bottom, y1) - max(top, y0) <= 4, (words, other)


@pytest.mark.parametrize(("system", "page_theme"), [("light", "dark"), ("dark", "light"), ("dark", None)])
def test_the_page_decides_about_light_and_dark_and_else_the_system(system, page_theme, chromium) -> None:
    page = chromium.new_page(color_scheme=system)
    switch = f' data-theme="{page_theme}"' if page_theme else ""
    page.set_content(f"<html{switch}><body>{drawings.norms().svg()}</body></html>")
    paper = getattr(COLORS["paper"], page_theme or system)
    assert page.eval_on_selector("svg", FILL) == f"rgb({', '.join(str(int(paper[i : i + 2], 16)) for i in (1, 3, 5))})"
    page.close()


@pytest.mark.door
def test_a_place_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match="here must be None or one of patches, .*, got 'patch'"):
        drawings.vit("patch")

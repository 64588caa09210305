"""A first visit has the book's type, and what it loads before its pictures is light."""

import gzip
import time
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, Route
from visits import MODES, Site

CHAPTER = "chapters/08_encoder.html"
FACES = ("section > p", "section > p em", "section > p code span", "figcaption span")
PICTURES = (".png", ".jpg", ".webp", ".svg")
MOST = 450_000  # bytes, gzipped where that helps: page, styles, scripts, fonts


def drawn_with(page: Page, selector: str) -> list[str]:
    """The names of the fonts that the first such element of the text is drawn with."""
    protocol = page.context.new_cdp_session(page)
    for domain in ("DOM", "CSS"):
        protocol.send(f"{domain}.enable")
    root = protocol.send("DOM.getDocument")["root"]["nodeId"]
    node = protocol.send("DOM.querySelector", {"nodeId": root, "selector": f"article {selector}"})["nodeId"]
    return [font["postScriptName"] for font in protocol.send("CSS.getPlatformFontsForNode", {"nodeId": node})["fonts"]]


@pytest.mark.parametrize("mode", MODES)
def test_a_slow_first_visit_ends_with_the_type_of_the_book(site: Site, mode: str) -> None:
    def late(route: Route) -> None:
        time.sleep(0.5)
        route.continue_()

    with site.browser.new_context(**MODES[mode]) as context:
        page = context.new_page()
        page.route("**/*.woff2", late)
        page.goto(site.base + CHAPTER)
        page.evaluate("document.fonts.ready")
        for selector in FACES:
            found = drawn_with(page, selector)
            assert any("Vitbook" in name for name in found), f"{selector}: {found}"


def test_a_chapter_is_light_before_its_pictures(site: Site) -> None:
    asked: set[str] = set()
    with site.visit(CHAPTER) as visit:
        visit.page.on("request", lambda request: asked.add(urlsplit(request.url).path.lstrip("/")))
        visit.page.reload(wait_until="networkidle")
    files = {path: (site.folder / path).read_bytes() for path in asked if not path.endswith(PICTURES)}
    sizes = {path: min(len(data), len(gzip.compress(data))) for path, data in files.items()}
    assert {"_static/fonts/serif-italic.woff2", CHAPTER} <= set(sizes)
    assert sum(sizes.values()) < MOST, sorted(sizes.items(), key=lambda item: -item[1])[:8]

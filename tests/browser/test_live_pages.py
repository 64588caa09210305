"""Pages with a live figure: nothing that is read moves, and paper has the figure as it stands, without controls."""

import pytest
from visits import Site, Visit

PAGES = ["intro.html", "chapters/10_training.html", "chapters/13_attention_maps.html"]

# What the browser counts against a page: each shift that does not follow a press or a key within half a second
SHIFTS = """
window.moved = 0;
new PerformanceObserver((list) => list.getEntries().forEach((shift) => moved += shift.hadRecentInput ? 0 : shift.value))
  .observe({ type: 'layout-shift', buffered: true });
"""
MOST = 0.02  # of 0.1, which web.dev calls good

# Frames and surfaces of some size on paper with nothing in them, live figures' included
EMPTY = """
() => {
  const within = (root) => [...root.querySelectorAll('*')].flatMap((one) =>
    one.shadowRoot ? [one, ...within(one.shadowRoot)] : [one]);
  return within(document.querySelector('main')).filter((one) => {
    const { width, height } = one.getBoundingClientRect();
    const { borderTopWidth, borderLeftWidth, backgroundColor } = getComputedStyle(one);
    const box = borderTopWidth !== '0px' && borderLeftWidth !== '0px' || !/, 0\\)$|transparent/.test(backgroundColor);
    const content = one.textContent.trim() || one.shadowRoot || one.closest('svg, mjx-container')
      || one.matches('img, canvas, hr, i') || one.querySelector('img, svg, canvas, i, slot');
    return box && !content && width > 20 && height > 20 && one.checkVisibility({ visibilityProperty: true });
  }).map((one) => one.outerHTML.slice(0, 120));
}
"""
FIGURE = ".vitbook-live .figure"


def start(visit: Visit) -> None:
    visit.page.locator(".live-start").click()
    visit.page.locator(f"{FIGURE} [data-first]").first.wait_for()


@pytest.mark.parametrize("mode", ["light", "phone"])
@pytest.mark.parametrize("path", PAGES)
def test_nothing_moves_while_the_page_loads_and_the_figure_starts(site: Site, path: str, mode: str) -> None:
    with site.visit("notation.html", mode) as visit:
        visit.page.add_init_script(SHIFTS)
        visit.go(site.base + path)
        visit.page.wait_for_load_state("networkidle")
        start(visit)
        if "training" in path:
            visit.page.locator("[name=train]").click()
            visit.page.locator(".progress", has_text="Epoch 1 of").wait_for()
            visit.page.locator("[name=stop]").click()
            visit.page.locator("[name=train]:enabled").wait_for()
        else:
            visit.page.locator("[name=shuffle]").select_option("pixels")
            visit.page.locator("[name=stays]").click()
        visit.page.wait_for_timeout(600)
        assert visit.page.evaluate("moved") < MOST


@pytest.mark.parametrize("place", ["10_training.html#equation-4", "10_training.html#train-one-in-the-page"])
def test_nothing_moves_where_a_link_leads_on_a_slow_machine(site: Site, place: str) -> None:
    with site.visit("notation.html") as visit:
        visit.page.add_init_script(SHIFTS)
        visit.page.context.new_cdp_session(visit.page).send("Emulation.setCPUThrottlingRate", dict(rate=4))
        visit.go(f"{site.base}chapters/{place}")
        visit.page.wait_for_load_state("networkidle")
        visit.page.wait_for_timeout(600)
        assert -1 < visit.page.locator("#" + place.partition("#")[2]).bounding_box()["y"] < 200
        assert visit.page.evaluate("moved") < MOST


@pytest.mark.parametrize("path", PAGES)
def test_paper_has_the_still_or_the_figure_as_it_stands_without_buttons_and_empty_boxes(site: Site, path: str) -> None:
    with site.visit(path) as visit:
        visit.page.emulate_media(media="print")
        still = visit.page.locator(".vitbook-live img")
        assert still.is_visible() and still.evaluate("(image) => image.complete && image.naturalWidth > 0")
        assert visit.page.locator(".live-start").is_hidden()
        assert visit.page.evaluate(EMPTY) == []
        visit.page.emulate_media(media="screen")
        start(visit)
        visit.page.emulate_media(media="print")
        assert visit.page.locator(f"{FIGURE} canvas").first.is_visible()
        assert (
            visit.page.locator(f"{FIGURE} :is(button:not(.heads *), select, input)").locator("visible=true").count()
            == 0
        )
        assert visit.page.evaluate(EMPTY) == []
        assert visit.page.pdf().startswith(b"%PDF")

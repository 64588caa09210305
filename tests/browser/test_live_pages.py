"""Pages with a live figure: nothing that is read moves, and paper has the figure as it stands, without controls."""

import pytest
from browser import WATCH
from playwright.sync_api import Locator, Route
from site_drawings import LIVE
from visits import Site, Visit, barriers

from vitbook_workshop.live.figures import FIGURES as IN_CHAPTERS

FIGURES = [
    ("intro.html", "ask"),
    *((f"chapters/{chapter}.html", figure) for figure, (chapter, _) in IN_CHAPTERS.items()),
    *((f"chapters/{chapter}.html", "inside") for chapter in LIVE),
]
LOW = ["query", "scale", "patches", "places", "shares", "paint"]  # lower than a screen may be
SCREENS = {"phone": dict(width=390, height=844), "light": dict(width=1280, height=900)}

# How far what is read moves. A browser forgives whatever follows a press within half a second, which is more on a fast
# machine. Here it is only the first shift after the press that starts a figure, which makes room for it.
SHIFTS = """
window.shifts = [];
window.pressed = Infinity;
window.observer = new PerformanceObserver((list) => shifts.push(...list.getEntries()));
observer.observe({ type: 'layout-shift', buffered: true });
addEventListener('click', ({ target }) => { if (target.matches('.live-start')) pressed = performance.now(); }, true);
"""
MOVED = """
async () => {
  const images = [...document.images].filter((image) => image.loading !== 'lazy');
  await Promise.all([document.fonts.ready, ...images.map((image) => image.decode().catch(() => {}))]);
  for (let frame = 0; frame < 2; frame++) await new Promise(requestAnimationFrame);
  await new Promise((done) => setTimeout(done)); // the last frame has been drawn
  shifts.push(...observer.takeRecords());
  const room = shifts.find(({ startTime }) => startTime > pressed);
  return shifts.filter((shift) => shift !== room).reduce((sum, { value }) => sum + value, 0);
}
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


def start(visit: Visit, figure: str) -> Locator:
    """The figure of this name, started."""
    host = visit.page.locator(f"[data-figure={figure}]").first
    host.locator(".live-start").click()
    host.locator(".figure:not([aria-busy=true])").wait_for()
    return host.locator(".figure")


def act(figure: Locator, name: str) -> None:
    """Do with a figure what it is for."""
    page, at = figure.page, figure.locator
    if name in ("train", "paint", "shares"):
        at(".progress").evaluate(WATCH, ["10 digits, epoch 1 of" if name == "shares" else "Epoch 1 of", "[name=stop]"])
        at("[name=train]").first.click()
        at("[name=train]:enabled").first.wait_for()
    elif name in ("steps", "scale", "patches"):
        page.keyboard.press("End")
        at("output", has_text={"steps": "40 of 40", "scale": "512", "patches": "64"}[name]).wait_for()
    elif name == "ask":
        at("[name=shuffle]").select_option("pixels")
        at("[name=stays]").click()
    elif name == "exam":
        at("[data-patch='3']").click()
        at("[name=key]").click()
        at("[name=occlusion]").click()
        at(".caption", has_text="Occlusion points at").wait_for()
    elif name == "inside":
        page.locator("[data-part=weights]").first.click()
        at(".part", has_text="weights").wait_for()
    elif name == "places":
        at("[role=gridcell]").last.click()
    else:
        at("[name=sure]").click()
    page.locator(f"[data-figure={name}] .figure:not([aria-busy=true])").first.wait_for()


def late(route: Route) -> None:
    """An image that comes when the words have been painted."""
    route.request.frame.wait_for_function("performance.getEntriesByType('paint').length")
    route.continue_()


@pytest.mark.parametrize("mode", ["light", "phone"])
@pytest.mark.parametrize(("path", "figure_name"), FIGURES)
def test_nothing_moves_while_the_page_loads_and_the_figure_starts(
    site: Site, path: str, figure_name: str, mode: str
) -> None:
    with site.visit("notation.html", mode) as visit:
        visit.page.add_init_script(SHIFTS)
        visit.page.route("**/_images/*", late)
        visit.go(site.base + path)
        assert visit.page.evaluate(MOVED) < MOST
        act(start(visit, figure_name), figure_name)
        assert visit.page.evaluate(MOVED) < MOST


PRESSED = """(host) => {
  host.scrollIntoView();
  host.querySelector('.live-start').click();
  return parseFloat(host.style.minHeight);
}"""


@pytest.mark.parametrize("mode", ["light", "phone"])
@pytest.mark.parametrize("name", LOW)
def test_a_press_makes_the_room_that_a_low_figure_needs(site: Site, name: str, mode: str) -> None:
    screen = SCREENS[mode] | dict(height=2500)
    with site.visit(f"chapters/{IN_CHAPTERS[name][0]}.html", mode, viewport=screen) as visit:
        host = visit.page.locator(f"[data-figure={name}]")
        host.locator(".live-start:enabled").wait_for()
        room = host.evaluate(PRESSED)
        host.locator(".figure:not([aria-busy=true])").wait_for()
        assert abs(host.bounding_box()["height"] - room) < 24


@pytest.mark.parametrize("mode", SCREENS)
@pytest.mark.parametrize("path", ["intro.html", "chapters/13_attention_maps.html"])
def test_photograph_map_and_answer_fit_on_one_screen(site: Site, path: str, mode: str) -> None:
    with site.visit(path, mode, viewport=SCREENS[mode]) as visit:
        figure = start(visit, "ask")
        header = visit.page.locator(".bd-header-article").bounding_box()["height"]
        for column in ("untouched", "changed"):
            if column == "changed":
                act(figure, "ask")
            boxes = [figure.locator(part).bounding_box() for part in (".board", f"[data-column={column}] .bars")]
            lowest = max(box["y"] + box["height"] for box in boxes)
            assert lowest - figure.bounding_box()["y"] < SCREENS[mode]["height"] - header


# What live regions say: a list for each, of the texts that a screen reader is handed
HEARD = """
(root) => {
  window.heard = [];
  new MutationObserver((changes) => {
    const regions = changes.map(({ target }) => (target.nodeType === 1 ? target : target.parentElement)
      ?.closest('[aria-live=polite], [role=status]:not([aria-live=off])'));
    for (const region of new Set(regions)) if (region?.textContent.trim()) heard.push(region.textContent);
  }).observe(root.getRootNode(), { childList: true, characterData: true, subtree: true });
}
"""


@pytest.mark.parametrize(
    ("name", "times"),
    dict(ask=1, train=1, paint=1, shares=1, steps=0, scale=0, exam=3, inside=1, query=1, places=1).items(),
)
def test_a_result_is_announced_once_and_not_at_every_step(site: Site, name: str, times: int) -> None:
    path = f"chapters/{IN_CHAPTERS.get(name, ['03_self_attention'])[0]}.html"
    with site.visit(path) as visit:
        figure = start(visit, name)
        visit.page.wait_for_timeout(100)
        figure.evaluate(HEARD)
        act(figure, name)
        if name == "inside":
            figure.locator(".map").focus()
            for _ in range(3):
                visit.page.keyboard.press("ArrowDown")
        visit.page.wait_for_timeout(100)
        heard = visit.page.evaluate("heard")
        assert len(heard) == times, heard


@pytest.mark.parametrize(
    ("path", "figure_name"), [(path, figure) for figure, path in dict(map(reversed, FIGURES)).items()]
)
def test_a_started_figure_has_names_roles_and_contrasts(site: Site, axe: str, path: str, figure_name: str) -> None:
    with site.visit(path) as visit:
        act(start(visit, figure_name), figure_name)
        visit.page.evaluate("scrollTo(0, 0)")  # the page's bar covers nothing there
        for mode in ("light", "dark"):
            visit.page.emulate_media(color_scheme=mode)
            visit.page.wait_for_function("(mode) => document.documentElement.dataset.theme === mode", arg=mode)
            assert barriers(visit, axe, f"[data-figure={figure_name}]") == []


@pytest.mark.parametrize("place", ["10_training.html#equation-4", "10_training.html#train-one-in-the-page"])
def test_nothing_moves_where_a_link_leads_on_a_slow_machine(site: Site, place: str) -> None:
    with site.visit("notation.html") as visit:
        visit.page.add_init_script(SHIFTS)
        visit.page.context.new_cdp_session(visit.page).send("Emulation.setCPUThrottlingRate", dict(rate=4))
        visit.go(f"{site.base}chapters/{place}")
        moved = visit.page.evaluate(MOVED)
        assert -1 < visit.page.locator("#" + place.partition("#")[2]).bounding_box()["y"] < 200
        assert moved < MOST


@pytest.mark.parametrize(("path", "figure_name"), FIGURES)
def test_paper_has_the_still_or_the_figure_as_it_stands_without_buttons_and_empty_boxes(
    site: Site, path: str, figure_name: str
) -> None:
    with site.visit(path) as visit:
        visit.page.emulate_media(media="print")
        still = visit.page.locator(f"[data-figure={figure_name}] :is(img, svg)").first
        assert still.is_visible()
        assert still.evaluate("(image) => image.tagName === 'svg' || (image.complete && image.naturalWidth > 0)")
        assert visit.page.locator(".live-start").locator("visible=true").count() == 0
        assert visit.page.evaluate(EMPTY) == []
        visit.page.emulate_media(media="screen")
        figure = start(visit, figure_name)
        visit.page.emulate_media(media="print")
        shown = still if figure_name == "inside" else figure.locator("canvas, svg, .bars i, [role=gridcell]")
        assert shown.locator("visible=true").count()
        assert figure.locator(":is(button:not(.heads *), select, input)").locator("visible=true").count() == 0
        assert visit.page.evaluate(EMPTY) == []
        assert visit.page.pdf().startswith(b"%PDF")

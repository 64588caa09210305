"""How soon pages appear and the landing page's figure answers: medians, printed. Slow: they need a machine at rest.

.venv/bin/python -m pytest -n 0 -m slow -s tests/browser/test_waiting.py
"""

import statistics

import pytest
from visits import Site, Visit

pytestmark = pytest.mark.slow
TIMES = 7
SETTLED = ".vitbook-live .figure[aria-busy=false] .sentence:not(:empty)"

# When a touch or press began, and of each what the browser says: how long until the next paint, to 8 ms, from 16 on
WATCH = """
window.paints = {};
addEventListener('pointerdown', (event) => { window.touched = event.timeStamp; }, true);
new PerformanceObserver((list) => list.getEntries().forEach(({ interactionId: id, duration }) => {
  if (id) window.paints[id] = Math.max(window.paints[id] ?? 0, duration);
})).observe({ type: 'event', durationThreshold: 16 });
"""
# Milliseconds from the last press to a paint from now
SINCE = """
() => new Promise((done) => requestAnimationFrame(() => {
  const { port1, port2 } = new MessageChannel(); // its message comes when the frame has been drawn
  port1.onmessage = () => done(performance.now() - window.touched);
  port2.postMessage('');
}))
"""


def median(name: str, milliseconds: list[float]) -> float:
    middle = statistics.median(milliseconds)
    print(f"\n{name}: {middle:.0f} ms ({min(milliseconds):.0f} to {max(milliseconds):.0f}, n = {len(milliseconds)})")
    return middle


def start(visit: Visit) -> float:
    """Milliseconds from the touch that starts the figure to its first answer."""
    visit.page.locator(".live-start").tap()
    visit.page.locator(SETTLED).wait_for()
    return visit.page.evaluate(SINCE)


@pytest.mark.parametrize("path", ["intro.html", "chapters/13_attention_maps.html"])
def test_a_page_appears(site: Site, path: str) -> None:
    taken = []
    for _ in range(TIMES):
        with site.visit(path) as visit:
            first = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
            taken.append(visit.page.wait_for_function(first).json_value())  # the entry comes after the paint
    assert median(f"{path}, first contentful paint", taken) < 1800  # what web.dev calls good


def test_the_landing_page_answers_within_a_second_of_the_first_touch(site: Site) -> None:
    taken = []
    for _ in range(TIMES):
        with site.visit("notation.html", "phone") as visit:
            visit.page.add_init_script(WATCH)
            visit.go(site.base + "intro.html")
            taken.append(start(visit))
    assert median("from the first touch to the answer", taken) < 1000


def test_a_switch_is_followed_by_a_paint_within_a_tenth_of_a_second(site: Site) -> None:
    with site.visit("notation.html", "phone") as visit:
        visit.page.add_init_script(WATCH)
        visit.go(site.base + "chapters/13_attention_maps.html")
        start(visit)
        visit.page.locator(".more summary").click()
        visit.page.locator("[name=predict]").uncheck()
        visit.page.wait_for_timeout(200)  # the browser's entry comes after its paint
        visit.page.evaluate("window.paints = {}")
        answered = []
        for _ in range(2 * TIMES):
            visit.page.locator("[name=positions]").tap()
            visit.page.locator(SETTLED).wait_for()
            answered.append(visit.page.evaluate(SINCE))
        visit.page.wait_for_timeout(200)
        painted = visit.page.evaluate("Object.values(window.paints)")
        painted += [16] * (2 * TIMES - len(painted))  # sooner than that
        median("from a switch to the whole answer", answered)
        assert median("from a switch to the next paint", painted) < 100

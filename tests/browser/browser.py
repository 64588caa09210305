"""A real browser for tests: Chromium without a window, by Playwright.

Keys, mouse and touch are the browser's own input, not events that a script makes up.
"""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
MAC = Path("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome")
PATIENCE = 60_000  # milliseconds


def find_chromium() -> str | None:
    """The program of a Chromium, or what the environment variable CHROMIUM names."""
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    return found or (str(MAC) if MAC.exists() else None)


class Browser:
    """One page of a browser, cut off from the network."""

    def __init__(self, chromium):
        self.context = chromium.new_context(has_touch=True, offline=True)
        self.context.set_default_timeout(PATIENCE)
        self.page = self.context.new_page()
        self.protocol = self.context.new_cdp_session(self.page)  # for what Playwright fixes when a page is made
        self.errors: list[str] = []  # what the page's scripts have thrown
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))

    # What a reader has: a screen, and a taste

    def screen(self, width: int = 1000, height: int = 900, phone: bool = False) -> None:
        size = dict(width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self.protocol.send("Emulation.setDeviceMetricsOverride", size)
        self.protocol.send("Emulation.setTouchEmulationEnabled", dict(enabled=phone))

    def prefer(self, scheme: str) -> None:
        """The system's colours: "light" or "dark"."""
        self.page.emulate_media(color_scheme=scheme)

    def scripts(self, run: bool) -> None:
        self.protocol.send("Emulation.setScriptExecutionDisabled", dict(value=not run))

    def before_each_page(self, source: str) -> None:
        """A script that runs in the pages opened from now on, before their own."""
        self.page.add_init_script(source)

    def open(self, path: Path) -> None:
        self.errors.clear()
        self.page.goto(path.as_uri())

    # What a reader does

    def mouse(self, x: float, y: float, click: bool = False) -> None:
        self.page.mouse.move(x, y)
        if click:
            self.page.mouse.click(x, y)

    def tap(self, x: float, y: float) -> None:
        self.page.touchscreen.tap(x, y)

    def draw(self, canvas, corners: list[tuple[float, float]]) -> None:
        """Straight lines by finger, from corner to corner, each a share of the canvas's width and height."""
        box = canvas.bounding_box()
        path = [
            (a + (c - a) * i / 8, b + (d - b) * i / 8)
            for (a, b), (c, d) in zip(corners, corners[1:], strict=False)
            for i in range(9)
        ]
        for i, (x, y) in enumerate(path):
            point = dict(x=box["x"] + x * box["width"], y=box["y"] + y * box["height"])
            kind = "touchMove" if i else "touchStart"
            self.protocol.send("Input.dispatchTouchEvent", dict(type=kind, touchPoints=[point]))
        self.protocol.send("Input.dispatchTouchEvent", dict(type="touchEnd", touchPoints=[]))

    def press(self, key: str, control: bool = False, shift: bool = False) -> None:
        self.page.keyboard.press("Control+" * control + "Shift+" * shift + key)

    # What a reader sees

    def value(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page. Raises playwright's Error where it throws."""
        return self.page.evaluate(expression)

    def until(self, expression: str) -> None:
        """Wait until an expression is true."""
        self.page.wait_for_function(expression)


@pytest.fixture(scope="module")
def chromium():
    """A browser; a test that wants one is skipped where there is none. It ends with the module: while it runs, so does
    an event loop, and other tests start their own."""
    program = find_chromium()
    if program is None:
        pytest.skip("no Chromium, Chrome or Edge on the path; CHROMIUM can name one")
    with pytest.importorskip("playwright.sync_api").sync_playwright() as playwright:
        camera = "--use-fake-device-for-media-stream"  # a moving pattern
        running = playwright.chromium.launch(executable_path=program, args=[camera])
        yield running
        running.close()


@pytest.fixture
def browser(chromium):
    browser = Browser(chromium)
    yield browser
    browser.context.close()


@pytest.fixture(scope="module")
def shared_browser(chromium):
    """One for all tests of a module: to open another takes a second."""
    browser = Browser(chromium)
    yield browser
    browser.context.close()

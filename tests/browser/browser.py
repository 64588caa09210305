"""A real browser for tests: Chromium without a window, by Playwright.

Keys, mouse and touch are the browser's own input, not events that a script makes up.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
MAC = Path("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome")
PATIENCE = 300_000  # milliseconds: a busy machine is not a broken page


def missing(what: str) -> NoReturn:
    """Skip a test, or fail it where CI_BROWSER=required says that this machine has all that the tests need."""
    (pytest.fail if os.environ.get("CI_BROWSER") == "required" else pytest.skip)(f"not run, for want of {what}")


def find_chromium() -> str | None:
    """The program of a Chromium, or what the environment variable CHROMIUM names."""
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    return found or (str(MAC) if MAC.exists() else None)


# Press a button of the figure as soon as the text of an element begins with certain words. The element keeps all its
# texts, each with the figure's table at that time: a test that looks from outside misses what passes between two looks.
WATCH = """(watched, [words, button]) => {
  const root = watched.getRootNode();
  const texts = [];
  let pressed = false;
  const look = () => {
    texts.push([watched.textContent, root.querySelector("tbody")?.innerText]);
    watched.dataset.said = JSON.stringify(texts);
    if (!pressed && watched.textContent.startsWith(words)) {
      pressed = true;
      root.querySelector(button).click();
    }
  };
  window.watching?.disconnect();
  window.watching = new MutationObserver(look);
  watching.observe(watched, { childList: true });
}"""


class Browser:
    """One page of a browser, cut off from the network."""

    def __init__(self, chromium):
        self.context = chromium.new_context(has_touch=True, offline=True)
        self.context.set_default_timeout(PATIENCE)
        self.page = self.context.new_page()
        self.protocol = self.context.new_cdp_session(self.page)  # for what Playwright fixes when a page is made
        self.errors: list[str] = []  # what the page's scripts have thrown
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))

    # What a reader has

    def screen(self, width: int = 1000, height: int = 900, phone: bool = False) -> None:
        size = dict(width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self.protocol.send("Emulation.setDeviceMetricsOverride", size)
        self.protocol.send("Emulation.setTouchEmulationEnabled", dict(enabled=phone))

    def scripts(self, run: bool) -> None:
        self.protocol.send("Emulation.setScriptExecutionDisabled", dict(value=not run))

    def before_each_page(self, source: str) -> None:
        """A script that runs in the pages opened from now on, before their own."""
        self.page.add_init_script(source)

    def open(self, path: Path) -> None:
        self.errors.clear()
        self.page.goto(path.as_uri())

    # What a reader does

    def tap(self, control, place: tuple[float, float] = (0.5, 0.5), heard: str = "click") -> None:
        """Touch a control at a place, each a share of its width and height, and wait until it has heard of it."""
        box = control.bounding_box()
        at = dict(x=place[0] * box["width"], y=place[1] * box["height"])
        self._until_heard(control, heard, lambda: control.tap(position=at))

    def draw(self, canvas, corners: list[tuple[float, float]]) -> None:
        """Straight lines by finger, from corner to corner, each a share of the canvas's width and height."""
        box = canvas.bounding_box()
        path = [
            (a + (c - a) * i / 8, b + (d - b) * i / 8)
            for (a, b), (c, d) in zip(corners, corners[1:], strict=False)
            for i in range(9)
        ]

        def touch() -> None:
            for i, (x, y) in enumerate(path):
                point = dict(x=box["x"] + x * box["width"], y=box["y"] + y * box["height"])
                kind = "touchMove" if i else "touchStart"
                self.protocol.send("Input.dispatchTouchEvent", dict(type=kind, touchPoints=[point]))
            self.protocol.send("Input.dispatchTouchEvent", dict(type="touchEnd", touchPoints=[]))

        self._until_heard(canvas, "lostpointercapture", touch)

    def _until_heard(self, control, event: str, touch: Callable[[], None]) -> None:
        """Of a touch, a browser tells the page some time after it."""
        control.evaluate(
            """(control, event) => {
                window.heard = new Promise((done) => control.addEventListener(event, () => done(), { once: true }));
            }""",
            event,
        )
        touch()
        self.value("heard")

    def press(self, key: str, control: bool = False, shift: bool = False) -> None:
        self.page.keyboard.press("Control+" * control + "Shift+" * shift + key)

    # What a reader sees

    def value(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page. Raises playwright's Error where it throws."""
        return self.page.evaluate(expression)

    def until(self, expression: str) -> None:
        """Wait until an expression is true."""
        self.page.wait_for_function(expression)

"""A real browser for tests: Chromium without a window, told what to do over its DevTools protocol.

Keys, mouse and touch are the browser's own input, not events that a script makes up.
"""

import asyncio
import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
MAC = Path("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome")
KEYS = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Home": 36, "End": 35, "Tab": 9, " ": 32}
PATIENCE = 60  # seconds


def find_chromium() -> str | None:
    """The program of a Chromium, or what the environment variable CHROMIUM names."""
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    return found or (str(MAC) if MAC.exists() else None)


class Browser:
    """One browser with one page."""

    def __init__(self, program: str, folder: Path):
        options = ["--headless=new", "--remote-debugging-port=0", f"--user-data-dir={folder}", "--no-first-run"]
        options += ["--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage", "--disable-extensions"]
        if sys.platform == "linux":
            options.append("--no-sandbox")  # containers and root have none, and the pages are our own
        self.process = subprocess.Popen(
            [program, *options, "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.loop = asyncio.new_event_loop()
        self.number = 0
        self.errors: list[str] = []  # what the pages' scripts have thrown
        self.session = None
        try:
            self.begin(folder)
        except BaseException:
            self.close()
            raise

    def begin(self, folder: Path) -> None:
        """Find the page, and cut it off from the network."""
        port, path = self.address(folder / "DevToolsActivePort")
        self.loop.run_until_complete(self.connect(f"ws://127.0.0.1:{port}{path}"))
        (target,) = (t for t in self.send("Target.getTargets")["targetInfos"] if t["type"] == "page")
        attached = self.send("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Accessibility", "Network"):
            self.send(f"{domain}.enable")
        self.send("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0)

    def address(self, file: Path) -> tuple[str, str]:
        """Port and path at which the browser listens."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if file.exists() and len(lines := file.read_text().splitlines()) == 2:
                return lines[0], lines[1]
            if self.process.poll() is not None:
                raise RuntimeError(f"the browser ended with {self.process.returncode}")
            time.sleep(0.05)
        raise TimeoutError("the browser does not listen")

    async def connect(self, address: str) -> None:
        self.socket = await websocket_connect(HTTPRequest(address, request_timeout=PATIENCE), max_message_size=2**26)

    async def exchange(self, message: dict) -> dict:
        """Send a message, and read until its answer; what scripts throw meanwhile is kept."""
        await self.socket.write_message(json.dumps(message))
        while True:
            text = await asyncio.wait_for(self.socket.read_message(), PATIENCE)
            if text is None:
                raise RuntimeError("the browser has hung up")
            answer = json.loads(text)
            if answer.get("method") == "Runtime.exceptionThrown":
                details = answer["params"]["exceptionDetails"]
                self.errors.append(details.get("exception", {}).get("description", details["text"]))
            if answer.get("id") == message["id"]:
                return answer

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE)
        self.loop.close()

    def send(self, method: str, **parameters) -> dict:
        """One command of the protocol, and its answer."""
        self.number += 1
        message = dict(id=self.number, method=method, params=parameters)
        if self.session:
            message["sessionId"] = self.session
        answer = self.loop.run_until_complete(self.exchange(message))
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    # What a reader has: a screen, and a taste

    def screen(self, width: int = 1000, height: int = 900, phone: bool = False) -> None:
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self.send("Emulation.setTouchEmulationEnabled", enabled=phone)

    def prefer(self, scheme: str) -> None:
        """The system's colours: "light" or "dark"."""
        self.send("Emulation.setEmulatedMedia", features=[dict(name="prefers-color-scheme", value=scheme)])

    def scripts(self, run: bool) -> None:
        self.send("Emulation.setScriptExecutionDisabled", value=not run)

    def open(self, path: Path) -> None:
        self.errors.clear()
        self.send("Page.navigate", url=path.as_uri())
        self.until("document.readyState === 'complete'")

    # What a reader does

    def mouse(self, x: float, y: float, click: bool = False) -> None:
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        if click:
            for kind in ("mousePressed", "mouseReleased"):
                self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def tap(self, x: float, y: float) -> None:
        self.send("Input.dispatchTouchEvent", type="touchStart", touchPoints=[dict(x=x, y=y)])
        self.send("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def press(self, key: str, control: bool = False, shift: bool = False) -> None:
        code = KEYS.get(key) or ord(key.upper())
        modifiers = 2 * control + 8 * shift
        name = dict(key=key, windowsVirtualKeyCode=code, modifiers=modifiers)
        text = {} if key in KEYS and key != " " else {"text": key}
        self.send("Input.dispatchKeyEvent", type="keyDown", **name, **text)
        self.send("Input.dispatchKeyEvent", type="keyUp", **name)

    # What a reader sees

    def value(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page. Raises RuntimeError where it throws."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"].get("description"))
        return answer["result"].get("value")

    def until(self, expression: str) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + PATIENCE
        while not self.value(expression):
            if time.monotonic() > end:
                raise TimeoutError(f"never true: {expression}")
            time.sleep(0.02)

    def accessible(self) -> list[dict]:
        """What assistive technology is told: role, name and properties of every node that it is told of."""
        nodes = self.send("Accessibility.getFullAXTree")["nodes"]
        return [
            dict(role=node["role"]["value"], name=node.get("name", {}).get("value", ""))
            | {p["name"]: p["value"].get("value") for p in node.get("properties", [])}
            for node in nodes
            if not node["ignored"]
        ]

    def picture(self, path: Path) -> None:
        """What the screen shows, as a PNG."""
        path.write_bytes(base64.b64decode(self.send("Page.captureScreenshot", captureBeyondViewport=True)["data"]))


@pytest.fixture(scope="session")
def browser():
    """A browser without network; a test that wants one is skipped where there is no Chromium."""
    program = find_chromium()
    if program is None:
        pytest.skip("no Chromium, Chrome or Edge on the path; CHROMIUM can name one")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        browser = Browser(program, Path(folder))
        try:
            yield browser
        finally:
            browser.close()

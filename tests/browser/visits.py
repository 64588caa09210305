"""Visits to a built site in light, in dark or on a phone, each by a browser that knows nothing of those before."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from browser import PATIENCE
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, Route

PHONE = dict(viewport=dict(width=360, height=740), has_touch=True, is_mobile=True)
MODES = {"light": dict(color_scheme="light"), "dark": dict(color_scheme="dark"), "phone": PHONE}
# WCAG 2.2 AA, and what axe-core's authors advise beyond it
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
REDIRECT = re.compile(r"""<meta[^>]+http-equiv=["']?refresh""", re.I)


def pages(folder: Path) -> list[str]:
    """Every page of a built site, by its path, without those that only send the reader on; none of one not built."""
    found = sorted(path for path in folder.rglob("*.html") if "_static" not in path.relative_to(folder).parts)
    return [
        path.relative_to(folder).as_posix() for path in found if not REDIRECT.search(path.read_text(encoding="utf-8"))
    ]


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


class Site:
    """A built site, served on this machine; what it asks of others is noted."""

    def __init__(self, browser: Browser, folder: Path):
        self.browser, self.folder = browser, folder

    def __enter__(self) -> "Site":
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(self.folder)))
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.base = f"http://127.0.0.1:{self.server.server_port}/"
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    @contextmanager
    def visit(self, name: str, mode: str = "light", **options) -> Iterator["Visit"]:
        """A page, loaded; options are those of Playwright's `new_context`."""
        settings = dict(viewport=dict(width=1280, height=900), reduced_motion="reduce") | MODES[mode] | options
        with self.browser.new_context(**settings) as context:
            context.set_default_timeout(PATIENCE)
            visit = Visit(context.new_page(), self.base)
            context.route(lambda address: not address.startswith(self.base), visit.answer_nothing)
            visit.go(self.base + name)
            yield visit


class Visit:
    """One page, and all that is wrong with it so far."""

    def __init__(self, page: Page, base: str):
        self.page, self.base = page, base
        self.complaints: list[str] = []
        page.on("console", self.listen)
        page.on("pageerror", lambda error: self.complaints.append(f"a script fails: {error}"))
        page.on("requestfailed", self.note)
        page.on("response", lambda got: got.status >= 400 and self.complaints.append(f"{got.url}: {got.status}"))

    def listen(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"console: {message.text}")

    def note(self, request: Request) -> None:
        if request.failure != "net::ERR_ABORTED":  # the reader has gone on to another page
            self.complaints.append(f"{request.url}: {request.failure}")

    def answer_nothing(self, route: Route) -> None:
        self.complaints.append(f"asks another server for {route.request.url}")
        route.abort()

    def go(self, address: str) -> None:
        self.page.goto(address)

    def run_axe(self, axe: str, options: dict, within: str = "html") -> list[dict]:
        """What axe-core finds wrong within the elements of a selector."""
        self.page.evaluate(axe)
        return self.page.evaluate("([within, options]) => axe.run(within, options)", [within, options])["violations"]


def barriers(visit: Visit, axe: str, within: str = "html") -> list[str]:
    """What axe-core finds, one line each."""
    return [
        f"{rule['id']}: {node['target']} {node['html'][:120]} {node['failureSummary']}"
        for rule in visit.run_axe(axe, {"runOnly": TAGS, "resultTypes": ["violations"]}, within)
        for node in rule["nodes"]
    ]

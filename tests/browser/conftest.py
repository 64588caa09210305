"""One browser for all tests of this folder. Those with `built_page` or `site` need a built site besides."""

from pathlib import Path

import npm
import pytest
import requests
from browser import Browser, find_chromium, missing
from playwright.sync_api import sync_playwright
from visits import Site, pages

INSTALL = ".venv/bin/playwright install --with-deps chromium gets one, or the variable CHROMIUM can name one"


def pytest_addoption(parser: pytest.Parser) -> None:
    built = Path(__file__).resolve().parents[2] / "_build" / "html"
    parser.addoption("--site", type=Path, default=built, help="the folder of the built site")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "built_page" in metafunc.fixturenames:
        metafunc.parametrize("built_page", pages(metafunc.config.getoption("--site")) or ["no page"])


@pytest.fixture(scope="session")
def folder(pytestconfig: pytest.Config) -> Path:
    """The built site."""
    folder = pytestconfig.getoption("--site")
    if not pages(folder):
        missing(f"a built site in {folder}: make book")
    return folder


@pytest.fixture(scope="session")
def chromium():
    with sync_playwright() as playwright:
        own = Path(playwright.chromium.executable_path)
        program = find_chromium() or (own if own.exists() else None)
        if program is None:
            missing(f"a Chromium: {INSTALL}")
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


@pytest.fixture(scope="session")
def site(chromium, folder):
    with Site(chromium, folder) as site:
        yield site


@pytest.fixture(scope="session")
def axe() -> str:
    """axe-core's script."""
    try:
        return (npm.unpacked(npm.AXE) / "axe.min.js").read_text(encoding="utf-8")
    except requests.RequestException as error:
        missing(f"{npm.AXE.name} from registry.npmjs.org: {error}")

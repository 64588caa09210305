"""Every test of this folder reads a built site, and those with a `name` read each of its pages."""

import os
from pathlib import Path

import npm
import pytest
import requests
from browser import find_chromium
from playwright.sync_api import sync_playwright
from visits import Site, pages

INSTALL = ".venv/bin/playwright install --with-deps chromium gets one, or the variable CHROMIUM can name one"


def pytest_addoption(parser: pytest.Parser) -> None:
    built = Path(__file__).resolve().parents[2] / "_build" / "html"
    parser.addoption("--site", type=Path, default=built, help="the folder of the built site")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "name" in metafunc.fixturenames:
        metafunc.parametrize("name", pages(metafunc.config.getoption("--site")))


@pytest.fixture(scope="session")
def folder(pytestconfig: pytest.Config) -> Path:
    return pytestconfig.getoption("--site")


@pytest.fixture(scope="session")
def chromium():
    """One browser for all tests. Without one, or without npm's packages, they are skipped, or fail where
    CI_BROWSER=required says that a browser belongs to this machine."""
    missing = pytest.fail if os.environ.get("CI_BROWSER") == "required" else pytest.skip
    with sync_playwright() as playwright:
        own = Path(playwright.chromium.executable_path)
        program = find_chromium() or (own if own.exists() else None)
        if program is None:
            missing(f"the pages were not opened, for want of a Chromium: {INSTALL}")
        try:
            npm.unpacked(npm.AXE)
        except requests.RequestException as error:
            missing(f"the pages were not opened, for want of {npm.AXE.name} from registry.npmjs.org: {error}")
        browser = playwright.chromium.launch(executable_path=program)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def site(chromium, folder):
    with Site(chromium, folder) as site:
        yield site

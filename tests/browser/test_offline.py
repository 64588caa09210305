"""The zip, unpacked, opened as a folder by a browser that is cut off from every network."""

import os
import zipfile
from pathlib import Path

import nbformat
import npm
import offline
import pytest
import requests
from visits import Visit

CHAPTER = "chapters/04_multihead.html"


@pytest.fixture(scope="module")
def made(folder: Path, tmp_path_factory) -> Path:
    try:
        npm.files(npm.MATHJAX)
    except requests.RequestException as error:
        pytest.skip(f"the offline book was not made, for want of {npm.MATHJAX.name}: {error}")
    return offline.write(folder, tmp_path_factory.mktemp("zip") / "book.zip")


@pytest.fixture(scope="module")
def root(made: Path) -> Path:
    with zipfile.ZipFile(made) as archive:
        archive.extractall(made.parent)
    return made.parent / offline.NAME


@pytest.fixture
def visit(chromium, root: Path):
    with chromium.new_context(offline=True, permissions=[]) as context:
        context.set_default_timeout(120_000)
        visit = Visit(context.new_page(), root.as_uri() + "/")
        context.route(lambda address: not address.startswith("file:"), visit.answer_nothing)
        yield visit
        assert visit.complaints == []


def test_the_same_site_makes_the_same_bytes(folder: Path, made: Path, tmp_path: Path) -> None:
    assert offline.write(folder, tmp_path / "again.zip").read_bytes() == made.read_bytes()


def test_it_holds_every_page_and_every_notebook(folder: Path, root: Path) -> None:
    for path in folder.rglob("*.html"):
        assert (root / path.relative_to(folder)).exists()
    notebooks = sorted(root.rglob("*.ipynb"))
    assert len(notebooks) == len(list(folder.rglob("*.ipynb"))) > 0
    nbformat.validate(nbformat.read(notebooks[0], as_version=4))


def test_formulas_are_set_in_their_own_fonts(visit: Visit) -> None:
    visit.go(f"{visit.base}{CHAPTER}")
    assert visit.page.locator("article mjx-container").count() == visit.page.locator("article .math").count() > 0
    assert visit.page.locator("mjx-merror, [data-mjx-error]").count() == 0
    loaded = (
        "document.fonts.ready.then((all) => [...all].filter((one) => one.status === 'loaded').map((f) => f.family))"
    )
    assert {"MJXTEX", "MJXTEX-I"} <= {family.strip('"') for family in visit.page.evaluate(loaded)}


def test_search_finds_a_page(visit: Visit) -> None:
    visit.go(f"{visit.base}search.html?q=patchify")
    found = visit.page.locator("#search-results li a")
    found.first.wait_for()
    assert any("06_patches" in one.get_attribute("href") for one in found.all())


def test_the_explorer_answers(visit: Visit) -> None:
    visit.go(f"{visit.base}chapters/13_attention_maps.html")
    explorer = visit.page.locator(".vitbook-explorer").first
    caption = explorer.locator("caption")
    before = caption.inner_text()
    explorer.locator("[role=gridcell][data-token='9']").click()
    assert caption.inner_text() != before


@pytest.mark.parametrize(
    "tag",
    [
        '<script src="https://example.org/mathjax@3/es5/tex-mml-chtml.js"></script>',
        '<script src="https://example.org/x.js"></script>',
        '<img alt="a" src="http://example.org/x.png">',
        '<link rel="stylesheet" href="https://example.org/x.css" />',
        '<link href="https://example.org/x.css" rel="stylesheet" />',
    ],
)
def test_a_page_that_asks_for_more_is_refused(tag: str) -> None:
    with pytest.raises(ValueError, match="expected a page that asks other servers only for MathJax 3.2.2, got"):
        offline.offline_page(f'<html data-content_root="../">{tag}')


@pytest.mark.parametrize("tag", ['<link href="a.css" rel="stylesheet">', '<link rel="canonical" href="https://a.org">'])
def test_its_own_styles_and_links_to_elsewhere_stay(tag: str) -> None:
    page = f'<html data-content_root="../">{tag}<a rel="stylesheet" href="https://example.org">'
    assert offline.offline_page(page) == page


def test_the_zip_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch) -> None:
    def full(*_) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "book.zip").write_bytes(b"before")
    monkeypatch.setattr(offline, "contents", lambda site: {"index.html": b"a page"})
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device"):
        offline.write(tmp_path, tmp_path / "book.zip")
    assert (tmp_path / "book.zip").read_bytes() == b"before" and len(list(tmp_path.iterdir())) == 1


def test_a_folder_without_a_site_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="make book builds it"):
        offline.write(tmp_path, tmp_path / "book.zip")
    assert not (tmp_path / "book.zip").exists()

"""The zip, unpacked, opened as a folder by a browser that is cut off from every network."""

import zipfile
from pathlib import Path

import offline
import pytest
from visits import Visit

CHAPTER = "chapters/04_multihead.html"


@pytest.fixture(scope="module")
def root(folder: Path, tmp_path_factory) -> Path:
    if "<mjx-container" not in (folder / CHAPTER).read_text(encoding="utf-8"):
        pytest.skip("the site was built without MathJax, for want of registry.npmjs.org")
    made = offline.write(folder, tmp_path_factory.mktemp("zip") / "book.zip")
    assert offline.write(folder, made.with_name("again.zip")).read_bytes() == made.read_bytes()
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


def test_it_holds_every_page_and_every_notebook(folder: Path, root: Path) -> None:
    for kind in ("*.html", "*.ipynb"):
        assert all((root / path.relative_to(folder)).exists() for path in folder.rglob(kind))


def test_formulas_are_drawn(visit: Visit) -> None:
    visit.go(f"{visit.base}{CHAPTER}")
    assert visit.page.locator("article mjx-container").count() == visit.page.locator("article .math").count() > 0
    assert visit.page.locator("mjx-merror, [data-mjx-error]").count() == 0


def test_search_and_live_model_answer(visit: Visit) -> None:
    visit.go(f"{visit.base}search.html?q=patchify")
    found = visit.page.locator("#search-results li a")
    found.first.wait_for()
    assert any("06_patches" in one.get_attribute("href") for one in found.all())
    visit.go(f"{visit.base}chapters/13_attention_maps.html")
    visit.page.locator(".live-start").click()
    answer = visit.page.locator(".sentence:not(:empty)")
    answer.wait_for()
    assert answer.inner_text().startswith("The model says ")

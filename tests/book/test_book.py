"""The book as a whole: contents, links, the install cell, the address, and the version."""

import importlib.metadata
import re
import runpy
import subprocess
import sys
from pathlib import Path

import notebook_lint as lint
import notebooks as notebook_tool
import pytest
import yaml
from replay import sanitized
from site_chapters import parts

import vitbook
from vitbook.runtime import about

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = lint.chapter_paths()
PAGES = sorted({*ROOT.glob("*.md"), ROOT / ".github" / "pull_request_template.md", ROOT / "vitbook/assets/README.md"})


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_contents_list_exactly_the_chapters_and_pages_that_there_are() -> None:
    toc = yaml.safe_load(text_of("_toc.yml"))
    listed = [entry["file"] for part in toc["parts"] for entry in part["chapters"]]
    assert [name for name in listed if name.startswith("chapters/")] == [f"chapters/{path.stem}" for path in CHAPTERS]
    assert not [page for page in listed if not page.startswith("chapters/") and not (ROOT / f"{page}.md").exists()]


def test_chapters_build_on_earlier_ones() -> None:
    chapters = [chapter for _, found in parts(ROOT) for chapter in found]
    assert all(number < chapter.number for chapter in chapters for number in chapter.before)
    assert not [chapter.name for chapter in chapters if chapter.number > 1 and not chapter.before]


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_stamp_is_clean(path: Path) -> None:
    fresh = notebook_tool.stamped_text(path)
    assert path.read_text(encoding="utf-8") == fresh, f"run: python tools/notebooks.py stamp chapters/{path.name}"


def test_columns_filled_up_by_a_measured_number_compare_as_equal() -> None:
    def printed(first: float, second: float) -> list[str]:
        return sanitized(f"ratio {about(first, 1, 20):<20} {about(second, 0, 1, '.0%'):>20} of all")

    assert printed(9, 0.04) == printed(12.5, 1)
    assert printed(9, 0.04) == ["ratio≈ (1 to 20)≈% (0% to 100%)of all"]


def test_the_readme_has_the_chapters_map_and_figure() -> None:
    assert text_of("README.md") == notebook_tool.readme_text(), "run: python tools/notebooks.py stamp"
    assert all(f"](chapters/{path.name})" in text_of("README.md") for path in CHAPTERS)
    shown = (ROOT / "_static" / "readme.png").read_bytes()
    assert shown == notebook_tool.readme_figure(), "run: python tools/notebooks.py stamp"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_of_pages_lead_somewhere(page: Path) -> None:
    links = [re.sub("^(colab|repository):", "", link) for link in lint.links(page.read_text(encoding="utf-8"))]
    files = [link.partition("#")[0] for link in links if not re.match(r"https?://|mailto:|#", link)]
    assert not [name for name in files if not (page.parent / name).exists()]


def test_the_readme_on_pypi_leads_to_the_same_places() -> None:
    """Each link and picture of README.md by its public address."""
    shown, address = runpy.run_path(str(ROOT / "setup.py"))["readme"](), notebook_tool.repository_url()
    here = lint.links(text_of("README.md"))
    assert all(re.match(r"https?://|#", link) for link in lint.links(shown)) and len(lint.links(shown)) == len(here)
    raw = address.replace("github.com", "raw.githubusercontent.com")
    for link, public in zip(here, lint.links(shown), strict=True):
        assert public in (link, f"{address}/blob/main/{link}", f"{raw}/main/{link}")
    assert f"]({raw}/main/_static/readme.png)" in shown


def test_sections_that_the_package_names_are_in_their_chapters() -> None:
    """Where a mistake, a question or a failure says to read."""
    paths = [path for kind in ("*.py", "*.toml") for path in (ROOT / "vitbook_workshop").rglob(kind)]
    sources = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    named = set(re.findall(r'"(\d\d_\w+)(?:\.ipynb)?#([\w-]+)"', sources))
    anchors = {path.stem: lint.page_anchors(path) for path in CHAPTERS}
    assert len(named) > 50 and not [place for place in named if place[1] not in anchors.get(place[0], ())]


def test_the_install_cell_installs_only_where_the_package_is_missing(monkeypatch) -> None:
    source, installs = notebook_tool.install_source("01_attention.ipynb"), []
    monkeypatch.setattr("subprocess.run", lambda command, check: installs.append(command))
    exec(source, {})
    assert installs == []
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    exec(source, {})
    packages = f"vitbook[book] @ git+{notebook_tool.repository_url()}"
    assert installs == [[sys.executable, "-m", "pip", "install", "-q", packages]]  # and upgrades nothing


def test_the_address_stands_in_one_place() -> None:
    """And in what is read where nothing can derive it; chapters get it with their stamp."""
    address = notebook_tool.repository_url().removeprefix("https://github.com/")
    hits = subprocess.run(["git", "grep", "-lF", address, "--", ":!chapters"], cwd=ROOT, capture_output=True, text=True)
    if hits.returncode > 1:
        pytest.skip("no git here to search the project's files")
    assert {*hits.stdout.split()} <= {"pyproject.toml", "README.md", "running.md", "CITATION.cff"}


def test_the_version_is_the_same_everywhere() -> None:
    version = vitbook.__version__
    assert importlib.metadata.version("vitbook") == version == yaml.safe_load(text_of("CITATION.cff"))["version"]
    log = text_of("CHANGELOG.md")
    assert f"## [{version}]" in log or (f"What will be {version}" in log and "## [Unreleased]" in log)

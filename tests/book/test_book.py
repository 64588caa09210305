"""The book as a whole: contents, address, versions, licenses, pins, and what the tools write."""

import re
import subprocess
import tomllib
from pathlib import Path

import notebook_lint as lint
import notebooks as notebook_tool
import pytest
import yaml
from site_address import pages_url
from site_chapters import parts

import vitbook

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = lint.chapter_paths()
PAGES = sorted({*ROOT.glob("*.md"), ROOT / ".github" / "pull_request_template.md", ROOT / "vitbook/assets/README.md"})
TEXT = {".bib", ".cff", ".css", ".ipynb", ".js", ".md", ".py", ".txt", ".yml"}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


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


# The address


def addresses(text: str) -> set[str]:
    """Addresses in a text whose last part is the repository's name: owner/name."""
    name = re.escape(PROJECT["urls"]["Repository"].rpartition("/")[2])
    return set(re.findall(rf"github(?:usercontent)?(?:\.com)?/([\w.-]+/{name})\b", text))


def test_the_address_stands_in_one_place() -> None:
    owner_and_name = notebook_tool.repository_url().removeprefix("https://github.com/")
    # The README and the citation are read where nothing can derive the address.
    exempt = {"pyproject.toml": "", "README.md": owner_and_name, "CITATION.cff": owner_and_name}
    try:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no git here to list the project's files")
    for name in filter(None, listed.split("\0")):
        path = ROOT / name
        if path.suffix not in TEXT or not path.exists():
            continue
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".ipynb":
            cells = [cell for cell in notebook_tool.read(path).cells if not notebook_tool.is_generated(cell)]
            text = "\n".join(cell.source for cell in cells)
        assert addresses(text) <= {exempt.get(name)}, f"{name}: derive the address from pyproject.toml"
    assert pages_url(notebook_tool.repository_url()) in text_of("README.md")


def test_another_address_is_found() -> None:
    assert addresses(f"see colab/github/someone/{notebook_tool.repository_url().rpartition('/')[2]}/blob")


# Versions, licenses, pins


def test_the_version_is_the_same_everywhere() -> None:
    version = PROJECT["version"]
    assert vitbook.__version__ == version == yaml.safe_load(text_of("CITATION.cff"))["version"]
    log = text_of("CHANGELOG.md")
    assert f"## [{version}]" in log or (f"What will be {version}" in log and "## [Unreleased]" in log)


def test_licenses_agree() -> None:
    assert PROJECT["license"] == "MIT" and text_of("LICENSE").startswith("MIT License\n")
    assert yaml.safe_load(text_of("CITATION.cff"))["license"] == ["MIT", "CC-BY-4.0"]
    assert "Creative Commons Attribution 4.0 International Public License" in text_of("LICENSE-TEXT")


def test_only_the_requirements_pin() -> None:
    lines = [line.split("#")[0].strip() for line in text_of("requirements.txt").splitlines()]
    assert not [line for line in filter(None, lines) if not re.fullmatch(r"[\w.-]+==[\w.!+-]+( ; .+)?", line)]
    bounds = [re.fullmatch(r"([\w.-]+)>=[\d.]+", requirement) for requirement in PROJECT["dependencies"]]
    assert all(bounds), "hosted notebooks bring their own versions: lower bounds, and nothing else"
    pinned = {line.partition("==")[0].lower() for line in lines}
    assert {bound[1].lower() for bound in bounds} <= pinned

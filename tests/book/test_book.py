"""The book as a whole: contents, address, pins, generated cells."""

import re
import subprocess
import tomllib
from pathlib import Path

import notebooks as notebook_tool
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = sorted((ROOT / "chapters").glob("*.ipynb"))
TEXT = {".bib", ".cfg", ".css", ".ipynb", ".js", ".md", ".py", ".toml", ".txt", ".yml", ".yaml", ""}


def contents() -> list[str]:
    """Every file that _toc.yml names, in order, without the root page."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    return [entry["file"] for part in toc["parts"] for entry in part["chapters"]]


def project_files() -> list[Path]:
    """The files of the project: what git tracks or would track, or, without git, what lies in its folders."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
            cwd=ROOT,
            capture_output=True,
            check=True,
        )
        paths = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        hidden = {"_build", ".venv", ".git", "__pycache__"}
        paths = [path for path in ROOT.rglob("*") if not hidden & set(path.relative_to(ROOT).parts)]
    return [path for path in paths if path.is_file()]


def addresses(text: str, repository: str) -> set[str]:
    """Addresses in a text whose last part is the repository's name: owner/name."""
    name = re.escape(repository.rpartition("/")[2])
    return set(re.findall(rf"github(?:usercontent)?(?:\.com)?/([\w.-]+/{name})\b", text))


def test_contents_list_exactly_the_chapters() -> None:
    listed = [entry for entry in contents() if entry.startswith("chapters/")]
    assert listed == [f"chapters/{path.stem}" for path in CHAPTERS], "_toc.yml and chapters/ differ"


def test_every_page_in_the_contents_exists() -> None:
    pages = [entry for entry in ["intro", *contents()] if not entry.startswith("chapters/")]
    missing = [page for page in pages if not (ROOT / f"{page}.md").exists()]
    assert not missing, f"_toc.yml names pages that are not there: {missing}"


def test_chapters_are_numbered_without_gaps() -> None:
    assert [int(path.stem[:2]) for path in CHAPTERS] == list(range(1, len(CHAPTERS) + 1))


def test_the_address_stands_in_one_place() -> None:
    owner_and_name = notebook_tool.repository_url().removeprefix("https://github.com/")
    found = {}
    for path in project_files():
        if path.suffix not in TEXT or path == ROOT / "pyproject.toml":
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        if path.suffix == ".ipynb":
            cells = [cell for cell in notebook_tool.read(path).cells if not notebook_tool.is_generated(cell)]
            text = "\n".join(cell.source for cell in cells)
        if named := addresses(text, owner_and_name):
            found[str(path.relative_to(ROOT))] = sorted(named)
    # The README is read where nothing can derive the address; there it must at least be the right one.
    readme = found.pop("README.md", [owner_and_name])
    assert readme == [owner_and_name], f"README.md names {readme}; pyproject.toml says {owner_and_name}"
    assert not found, f"derive the address from pyproject.toml instead of repeating it: {found}"


@pytest.mark.parametrize("text", ["https://github.com/a/demo.git", "colab/github/b/demo/blob", "github.com/c/demo"])
def test_addresses_are_found(text: str) -> None:
    assert len(addresses(text, "a/demo")) == 1


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_stamp_is_clean(path: Path) -> None:
    fresh = notebook_tool.stamped_text(path)
    assert path.read_text(encoding="utf-8") == fresh, f"run: python tools/notebooks.py stamp chapters/{path.name}"


def unpinned(requirements: str) -> list[str]:
    """Lines of a requirements file that are not name==version, with or without a marker."""
    lines = [line.split("#")[0].strip() for line in requirements.splitlines()]
    return [line for line in lines if line and not re.fullmatch(r"[\w.-]+==[\w.!+-]+( ; .+)?", line)]


def test_requirements_are_pinned() -> None:
    assert not unpinned((ROOT / "requirements.txt").read_text(encoding="utf-8"))


@pytest.mark.parametrize("line", ["numpy", "numpy>=2", "--extra-index-url https://example.org", "git+https://x.org/y"])
def test_unpinned_lines_are_found(line: str) -> None:
    assert unpinned(f"torch==2.13.0\n{line}\n") == [line]


def test_the_package_never_pins() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *(r for rs in project.get("optional-dependencies", {}).values() for r in rs)]
    capped = [requirement for requirement in wanted if re.search(r"==|~=|<", requirement)]
    assert not capped, f"hosted notebooks bring their own versions; lower bounds only: {capped}"


def test_every_dependency_is_in_the_requirements() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = {re.match(r"[\w.-]+", requirement)[0].lower() for requirement in project["dependencies"]}
    pinned = set(re.findall(r"^([\w.-]+)==", (ROOT / "requirements.txt").read_text(encoding="utf-8"), flags=re.M))
    assert names <= pinned, f"not in requirements.txt: {names - pinned}"

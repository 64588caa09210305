"""The site as it is built, without a browser: links, buttons, tags for sharing, weight. And each check can fail."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import built_site
import pytest
import yaml
from site_address import pages_url, repository_url
from site_chapters import parts

ROOT = Path(__file__).resolve().parent.parent
REPOSITORY = repository_url(ROOT)
BASE = pages_url(REPOSITORY)
BRANCH = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))["repository"]["branch"]

CHECKS: dict[str, Callable[[Path], list[str]]] = {
    "links": built_site.links_resolve,
    "files": built_site.files_exist,
    "buttons": lambda site: built_site.buttons(site, REPOSITORY, BRANCH),
    "neighbours": built_site.neighbours,
    "shared": lambda site: built_site.shared(site, BASE),
    "scripts": built_site.text_before_scripts,
    "pictures": built_site.pictures_keep_their_place,
    "figures": built_site.figures_are_numbered,
    "weight": built_site.light,
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The book, built anew."""
    folder = tmp_path_factory.mktemp("book")
    command = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()", "build", str(ROOT)]
    options = ["--path-output", str(folder), "-W", "-n", "--keep-going"]
    result = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, (result.stdout + result.stderr)[-3000:]
    return folder / "_build" / "html"


@pytest.mark.parametrize("name", CHECKS)
def test_the_built_site(site: Path, name: str) -> None:
    complaints = CHECKS[name](site)
    assert not complaints, "\n".join(complaints[:20])


def test_every_chapter_is_on_the_first_page_with_its_minutes(site: Path) -> None:
    text = (site / "intro.html").read_text(encoding="utf-8")
    rows = text.split('<p class="chapter-title">')[1:]
    chapters = [chapter for _, chapters in parts(ROOT) for chapter in chapters]
    assert len(rows) == len(chapters)
    for row, chapter in zip(rows, chapters, strict=True):
        assert f'href="{chapter.name}.html"' in row and f"{chapter.reading} min" in row
        assert all(f">{number}<" in row for number in chapter.before)
    colab = f"https://colab.research.google.com/github/{REPOSITORY.removeprefix('https://github.com/')}/blob/{BRANCH}"
    assert f'href="{colab}/chapters/01_attention.ipynb"' in text


# One site with a fault for each check: the page, old → new in it, and what the complaint says.
CHAPTER = "chapters/06_patches.html"
FAULTS = {
    "links": (
        "chapters/07_embedding.html",
        'href="06_patches.html"',
        'href="06_nowhere.html"',
        "06_nowhere.html: no such",
    ),
    "links to anchors": (CHAPTER, 'id="equation-1"', 'id="elsewhere"', "06_patches.html#equation-1: no such anchor"),
    "files": ("intro.html", "_images/cover.webp", "_images/lost.webp", "lost.webp"),
    "buttons": (CHAPTER, f"/blob/{BRANCH}/chapters/06", "/blob/other/chapters/06", "06_patches.html: no button"),
    "neighbours": (CHAPTER, 'rel="next" title', 'rel="then" title', "06_patches.html: next leads to []"),
    "shared": (CHAPTER, '"og:description"', '"og:else"', "06_patches.html: no og:description"),
    "scripts": (CHAPTER, '<script defer="defer"', "<script", "06_patches.html: ../_static"),
    "pictures": (CHAPTER, ' loading="lazy"', "", "picture 2 is lazy, or is not"),
    "figures": (CHAPTER, "Figure 6.2.", "Figure 6.3.", "06_patches.html: 5 figures, numbered"),
    "weight": ("intro.html", "</body>", '<script defer src="large.js"></script></body>', "intro.html: 1,"),
}


@pytest.fixture(scope="module")
def faulty(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faulty") / "html"
    shutil.copytree(site, folder, copy_function=os.link)
    for name, (page, old, new, _) in FAULTS.items():
        text = (folder / page).read_text(encoding="utf-8")
        assert old in text, f"{name}: {page} does not have {old}"
        (folder / page).unlink()  # a second name of the good page
        (folder / page).write_text(text.replace(old, new), encoding="utf-8")
    (folder / "large.js").write_bytes(os.urandom(built_site.MAX_WEIGHT))
    return folder


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found(faulty: Path, name: str) -> None:
    complaints = CHECKS[name.split()[0]](faulty)
    assert any(FAULTS[name][-1] in complaint for complaint in complaints), complaints[:20]


def test_every_check_can_fail() -> None:
    assert {name.split()[0] for name in FAULTS} == set(CHECKS)

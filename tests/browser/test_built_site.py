"""The site as it is built, read without a browser: links, buttons, tags for sharing. And each check can fail."""

import shutil
from collections.abc import Callable
from pathlib import Path

import built_site
import pytest
import yaml
from site_address import colab_url, pages_url, repository_url
from site_chapters import parts

ROOT = Path(__file__).resolve().parents[2]
REPOSITORY = repository_url(ROOT)
BASE = pages_url(REPOSITORY)
BRANCH = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))["repository"]["branch"]

CHECKS: dict[str, Callable[[Path], list[str]]] = {
    "links": built_site.links_resolve,
    "ids": built_site.ids_are_given_once,
    "buttons": lambda site: built_site.buttons(site, REPOSITORY, BRANCH),
    "neighbours": built_site.neighbours,
    "shared": lambda site: built_site.shared(site, BASE),
    "scripts": built_site.text_before_scripts,
    "pictures": built_site.pictures_keep_their_place,
    "words": built_site.pictures_have_words,
    "figures": built_site.figures_are_numbered,
    "licences": lambda site: built_site.licences(site, REPOSITORY, BRANCH),
}


@pytest.mark.parametrize("check", CHECKS)
def test_the_built_site(folder: Path, check: str) -> None:
    complaints = CHECKS[check](folder)
    assert not complaints, "\n".join(complaints[:20])


def test_every_chapter_is_on_the_first_page_with_its_minutes(folder: Path) -> None:
    text = (folder / "intro.html").read_text(encoding="utf-8")
    rows = text.split('<p class="chapter-title">')[1:]
    chapters = [chapter for _, chapters in parts(ROOT) for chapter in chapters]
    assert len(rows) == len(chapters)
    for row, chapter in zip(rows, chapters, strict=True):
        assert f'href="{chapter.name}.html"' in row and f"{chapter.reading} min" in row
        assert all(f">{number}<" in row for number in chapter.before)
    assert f'href="{colab_url(REPOSITORY, BRANCH, "chapters/01_attention.ipynb")}"' in text


def test_a_folder_without_pages_is_no_site(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="make book"):
        built_site.links_resolve(tmp_path)


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
    "links of pictures": ("intro.html", "_images/cover.webp", "_images/lost.webp", "lost.webp: no such file"),
    "links out of the site": ("notation.html", 'href="glossary.html"', 'href="../up.html"', "../up.html: no such file"),
    "links to nothing": (
        "references.html",
        "</article>",
        "<a>here</a></article>",
        "references.html: <a> names nothing",
    ),
    "ids": (CHAPTER, "</article>", '<p id="x"><p id="x"></article>', "06_patches.html: id x given 2 times"),
    "buttons": (CHAPTER, f"/blob/{BRANCH}/chapters/06", "/blob/other/chapters/06", "06_patches.html: no button"),
    "neighbours": (CHAPTER, 'rel="next" title', 'rel="then" title', "06_patches.html: next leads to []"),
    "shared": (CHAPTER, '"og:description"', '"og:else"', "06_patches.html: no og:description"),
    "scripts": (CHAPTER, '<script defer="defer"', "<script", "06_patches.html: ../_static"),
    "pictures": (CHAPTER, ' loading="lazy"', "", "picture 2 is lazy, or is not"),
    "figures": (CHAPTER, "Figure 6.2.", "Figure 6.3.", "06_patches.html: 5 figures, numbered"),
    "words": ("chapters/09_vit.html", '<img alt="Five', '<img alt="Bars" title="', "alt 'Bars'"),
    "licences": ("glossary.html", "/LICENSE-TEXT", "/LICENCE", "glossary.html: no link to"),
}


@pytest.fixture(scope="module")
def faulty(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("faulty") / "html"
    shutil.copytree(folder, copy)
    for name, (page, old, new, _) in FAULTS.items():
        text = (copy / page).read_text(encoding="utf-8")
        assert old in text, f"{name}: {page} does not have {old}"
        (copy / page).write_text(text.replace(old, new), encoding="utf-8")
    return copy


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(faulty: Path, fault: str) -> None:
    complaints = CHECKS[fault.split()[0]](faulty)
    assert any(FAULTS[fault][-1] in complaint for complaint in complaints), complaints[:20]


def test_every_check_can_fail() -> None:
    assert {name.split()[0] for name in FAULTS} == set(CHECKS)

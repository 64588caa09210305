"""What the site takes from the chapters' own text is there, and is refused where it is not."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from docutils import nodes
from docutils.utils import new_document
from site_chapters import NumberFigures, chapter_number, number_title, parts, read_chapter
from sphinx.errors import ExtensionError

ROOT = Path(__file__).resolve().parents[2]
TOP = (
    "# Patches: a picture\n\nHow does $P$ cut it?\n\n**Before this** you have met [a](03_a.ipynb#x), `b` and "
    "[c](01_c.ipynb). **Time** on a CPU: reading 25 minutes, running 2.\n**You will** cut."
)


def write(folder: Path, top: str, name: str = "chapters/06_patches") -> None:
    path = folder / f"{name}.ipynb"
    path.parent.mkdir(exist_ok=True)
    cells = [{"cell_type": "markdown", "source": [text]} for text in ("[badge](x)", top)]
    path.write_text(json.dumps({"cells": cells}), encoding="utf-8")


def test_the_top_of_a_chapter(tmp_path: Path) -> None:
    write(tmp_path, TOP)
    chapter = read_chapter(tmp_path, "chapters/06_patches")
    assert (chapter.number, chapter.title, chapter.question) == (6, "Patches: a picture", "How does $P$ cut it?")
    assert (chapter.before, chapter.reading, chapter.running) == ((1, 3), 25, 2)


@pytest.mark.parametrize("lost", ["# ", "How does $P$ cut it?\n\n", "**Before this**", "**Time**", "25", " running 2."])
def test_another_top_stops_the_build(tmp_path: Path, lost: str) -> None:
    write(tmp_path, TOP.replace(lost, "", 1))
    with pytest.raises(ExtensionError, match="06_patches.*Before this"):
        read_chapter(tmp_path, "chapters/06_patches")


def test_the_parts_of_a_book(tmp_path: Path) -> None:
    for name in ("chapters/01_a", "chapters/02_b"):
        write(tmp_path, TOP, name)
    files = [("Start", ["notation"]), ("Part I", ["chapters/01_a", "chapters/02_b"])]
    toc = [{"caption": caption, "chapters": [{"file": file} for file in names]} for caption, names in files]
    (tmp_path / "_toc.yml").write_text(yaml.safe_dump({"parts": toc}), encoding="utf-8")
    ((caption, chapters),) = parts(tmp_path)
    assert caption == "Part I" and [chapter.number for chapter in chapters] == [1, 2]


def test_chapters_build_on_earlier_ones_and_run_in_the_minute_that_the_first_page_names() -> None:
    chapters = [chapter for _, chapters in parts(ROOT) for chapter in chapters]
    assert [chapter.number for chapter in chapters] == list(range(1, len(chapters) + 1))
    for chapter in chapters:
        assert all(number < chapter.number for number in chapter.before), chapter
        assert bool(chapter.before) == (chapter.number > 1), f"{chapter.name} links to no chapter before it"
        assert chapter.running == 1, f"intro.md says that running takes a minute; {chapter.name} needs another sentence"


@pytest.mark.parametrize("name, number", [("chapters/06_patches", 6), ("chapters/19_x", 19), ("intro", None)])
def test_numbers_come_from_files(name: str, number: int | None) -> None:
    assert chapter_number(name) == number
    document = new_document("chapter")
    document += nodes.section("", nodes.title("", "Patches"), nodes.section("", nodes.title("", "Cutting")))
    number_title(SimpleNamespace(env=SimpleNamespace(docname=name)), document)
    titles = [title.astext() for title in document.findall(nodes.title)]
    assert titles == [f"{number}. Patches" if number else "Patches", "Cutting"]


def test_figures_are_numbered_by_chapter_and_can_be_linked_to() -> None:
    document = new_document("chapter")
    document.settings.env = SimpleNamespace(docname="chapters/06_patches")
    document.myst_slugs = {}
    for name in ("fig-grid", "fig-bag"):
        figure = nodes.figure("", nodes.image(), nodes.caption("", f"What is {name}?"), ids=[name], names=[name])
        document += [figure, nodes.figure("", nodes.image())]
    NumberFigures(document).apply()
    captions = [caption.astext() for caption in document.findall(nodes.caption)]
    assert captions == ["Figure 6.1. What is fig-grid?", "Figure 6.2. What is fig-bag?"]
    assert document.myst_slugs["fig-bag"][1:] == ("fig-bag", "Figure 6.2")


def test_a_page_that_is_no_chapter_keeps_its_captions() -> None:
    document = new_document("intro")
    document.settings.env = SimpleNamespace(docname="intro")
    document += nodes.figure("", nodes.image(), nodes.caption("", "What is this?"))
    NumberFigures(document).apply()
    assert document.astext().strip() == "What is this?"

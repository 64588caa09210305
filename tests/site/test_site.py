"""What the site adds to the chapters' plain Markdown, each part alone; tests/browser/ sees them together."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from accessible import repaired
from docutils import nodes
from docutils.utils import new_document
from site_address import pages_url
from site_callouts import make_callouts
from site_chapters import NumberFigures, number_title, parts, read_chapter, table
from site_equations import AnchorEquations
from site_questions import drawn, with_questions
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

from vitbook_workshop.course.quiz import Question, chapters, questions

TOP = (
    "# Patches: a sequence\n\nHow does $P$ cut it?\n\n**Before this** you have met [a](03_a.ipynb#x), `b` and "
    "[c](01_c.ipynb). **Time** on a CPU: reading 25 minutes, running 2.\n**You will** cut [it](07_b.ipynb)."
)
RECORD = {"cpu": "Some CPU", "date": "2026-03-05", "device": "cpu", "python": "3.12.1", "seconds": 17, "threads": 1}
RECORD |= {"torch": "2.9.0", "vitbook": "0.3.0"}


def page(*children: nodes.Node, name: str = "chapters/06_patches") -> nodes.document:
    document = new_document(name)
    document.settings.env = SimpleNamespace(docname=name)
    document.myst_slugs = {}
    document += list(children)
    return document


def write(root: Path, name: str, top: str = "", **metadata: object) -> None:
    cells = [{"cell_type": "markdown", "source": [text]} for text in ("[badge](x)", top)]
    cells.append({"cell_type": "code", "source": [], "outputs": []})
    (root / "chapters").mkdir(exist_ok=True)
    (root / f"{name}.ipynb").write_text(json.dumps({"cells": cells, "metadata": metadata}), encoding="utf-8")


def test_the_address_of_the_pages() -> None:
    assert pages_url("https://github.com/Owner/Name") == "https://owner.github.io/Name/"


@pytest.mark.parametrize(("label", "boxed"), [("Note.", True), ("Beware.", False), ("Notes.", False), ("", False)])
def test_a_labeled_quote_becomes_a_callout_and_others_stay(label: str, boxed: bool) -> None:
    text = nodes.paragraph("", "", nodes.Text(""), nodes.strong("", label), nodes.Text(" A mask"), nodes.math("", "k"))
    document = page(nodes.block_quote("", text))
    make_callouts(None, document)
    box = document.children[0]
    assert isinstance(box, nodes.admonition if boxed else nodes.block_quote)
    if boxed:
        assert box["classes"] == ["note"] and [child.astext() for child in box.children] == ["Note", "A maskk"]


def test_the_top_of_a_chapter(tmp_path: Path) -> None:
    write(tmp_path, "chapters/06_patches", TOP)
    chapter = read_chapter(tmp_path, "chapters/06_patches")
    assert (chapter.number, chapter.title, chapter.question) == (6, "Patches: a sequence", "How does $P$ cut it?")
    assert (chapter.before, chapter.reading, chapter.running) == ((1, 3), 25, 2)
    (tmp_path / "_toc.yml").write_text("parts: [{caption: Part I, chapters: [{file: a}, {file: chapters/06_patches}]}]")
    assert parts(tmp_path) == [("Part I", [chapter])]
    line = "| 6. [Patches: a sequence](chapters/06_patches.ipynb) | 1, 3 | 25 and 2 | cut [it](chapters/07_b.ipynb). |"
    assert table(tmp_path).splitlines()[2:] == [line]


@pytest.mark.parametrize("lost", ["# ", "How does $P$ cut it?\n\n", "**Before this**", "**Time**", "25", " running 2."])
def test_another_top_stops_the_build(tmp_path: Path, lost: str) -> None:
    write(tmp_path, "chapters/06_patches", TOP.replace(lost, "", 1))
    with pytest.raises(ExtensionError, match="06_patches.*Before this"):
        read_chapter(tmp_path, "chapters/06_patches")


def test_questions_stand_before_the_exercises_each_answer_folded_over_what_is_said_to_it() -> None:
    asked = questions("04_multihead", seed=0)
    cells = [{"cell_type": "markdown", "source": ["Above.\n\n", "## Exercises\n\n", "Below."]}]
    text = with_questions({"cells": cells}, asked)["cells"][0]["source"]
    assert text.startswith("Above.\n\n## Questions\n") and text.endswith("\n\n## Exercises\n\nBelow.")
    assert text.count("<details") == sum(len(one.answers) for one in asked) == 20
    assert '<a href="04_multihead.html#what-w-o-is-for">This chapter</a> has more' in text
    shown = drawn(2, Question("04_multihead", "Is `a < b`?", (("yes", ""), ("no", "a word"))))
    assert "<code>a &lt; b</code>" in shown and "\n\n" not in shown and shown.count('name="question-2"') == 2
    with pytest.raises(ExtensionError, match="Exercises"):
        with_questions({"cells": cells[:0]}, asked)


def test_every_chapter_with_questions_has_exercises() -> None:
    root = Path(__file__).resolve().parents[2]
    for chapter in chapters():
        notebook = json.loads((root / "chapters" / f"{chapter}.ipynb").read_text(encoding="utf-8"))
        with_questions(notebook, [])


@pytest.mark.parametrize(("name", "prefix"), [("chapters/06_patches", "6. "), ("intro", "")])
def test_titles_and_figures_of_chapters_have_numbers(name: str, prefix: str) -> None:
    figure = nodes.figure("", nodes.image(), nodes.caption("", "What?"), ids=["a"], names=["a"])
    document = page(nodes.section("", nodes.title("", "Patches"), figure), name=name)
    number_title(SimpleNamespace(env=SimpleNamespace(docname=name)), document)
    NumberFigures(document).apply()
    assert document.next_node(nodes.title).astext() == f"{prefix}Patches"
    assert document.next_node(nodes.caption).astext() == ("Figure 6.1. What?" if prefix else "What?")


@pytest.mark.parametrize(("tag", "anchor"), [("1", "equation-1"), ("2b", "equation-2b"), ("A.3", "equation-a-3")])
def test_a_tag_is_an_anchor_unless_a_heading_has_it(tag: str, anchor: str) -> None:
    for taken in (False, True):
        document = page(nodes.math_block("", "x = y"), nodes.math_block("", rf"a = b \tag{{{tag}}}"))
        document.myst_slugs = {anchor: (3, anchor, "A heading")} if taken else {}
        AnchorEquations(document).apply()
        assert [node["ids"] for node in document.children] == [[], [] if taken else [anchor]]
        assert document.myst_slugs[anchor][2] == ("A heading" if taken else f"Equation {tag}")


def test_formulas_are_drawn_when_the_site_is_built(tmp_path: Path) -> None:
    (tmp_path / "index.md").write_text("# A title\n\nIf $a < b$:\n\n$$\nx \\\\ y \\tag{3}\n$$\n")
    settings = dict(extensions=["myst_parser", "site_equations"], myst_enable_extensions=["dollarmath"])
    app = Sphinx(tmp_path, None, tmp_path / "out", tmp_path / "doctrees", "html", settings, status=None)
    app.build()
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    if "<svg" not in page:
        pytest.skip("formulas were not drawn, for want of registry.npmjs.org")
    assert re.search(r'<span class="math[^>]*><mjx-container .*?<mi>a</mi><mo>&lt;</mo><mi>b</mi>.*?</span>:', page)
    assert re.search(r'<div class="math[^>]*id="equation-3"><mjx-container [^>]*display="true"', page)
    assert page.count("<mjx-container") == page.count('class="math') == 2
    assert "mathjax@" not in page and "merror" not in page


@pytest.mark.parametrize(
    ("text", "kept"), [("by {0}, and", "{0},"), ("<p>So ({0}–{0}) is", "({0}–{0})"), ("<p>{0}.</p>", "{0}.")]
)
def test_what_stands_at_a_formula_stays_on_its_line(text: str, kept: str) -> None:
    formula = '<span class="math notranslate nohighlight"><mjx-container><svg></svg></mjx-container></span>'
    text, kept = text.format(formula), kept.format(formula)
    better = repaired(text)
    assert better == text.replace(kept, f'<span class="unbroken">{kept}</span>')
    assert repaired(better) == better

"""What the site adds to the chapters' plain Markdown, each part alone; tests/browser/ sees them together."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import tested
from docutils import nodes
from docutils.utils import new_document
from site_address import colab_url, pages_url, repository_url, set_addresses
from site_callouts import make_callouts
from site_chapters import NumberFigures, number_title, parts, read_chapter
from site_drawings import add_colors, inline_drawings
from site_equations import AnchorEquations, free_equation_tags
from site_execution import add_execution, executed_with, use_stored_outputs
from site_sharing import describe_entrance, plain_text
from sphinx.errors import ExtensionError

from vitbook import drawings
from vitbook.drawings.palette import COLORS

TOP = (
    "# Patches: a sequence\n\nHow does $P$ cut it?\n\n**Before this** you have met [a](03_a.ipynb#x), `b` and "
    "[c](01_c.ipynb). **Time** on a CPU: reading 25 minutes, running 2.\n**You will** cut."
)
RECORD = {"cpu": "Some CPU", "date": "2026-03-05", "device": "cpu", "python": "3.12.1", "seconds": 17, "threads": 1}
RECORD |= {"torch": "2.9.0", "vitbook": "0.3.0"}


def page(*children: nodes.Node, name: str = "chapters/06_patches") -> nodes.document:
    document = new_document(name)
    document.settings.env = SimpleNamespace(docname=name)
    document.myst_slugs = {}
    document += list(children)
    return document


def write(root: Path, name: str, top: str = "", outputs: tuple = (), **metadata: object) -> None:
    cells = [{"cell_type": "markdown", "source": [text]} for text in ("[badge](x)", top)]
    cells.append({"cell_type": "code", "source": [], "outputs": list(outputs)})
    (root / "chapters").mkdir(exist_ok=True)
    (root / f"{name}.ipynb").write_text(json.dumps({"cells": cells, "metadata": metadata}), encoding="utf-8")


# Addresses


@pytest.mark.parametrize("text", ["", "[project]\nname = 'x'", "[project.urls]\nHomepage = 'x'", "not toml ["])
def test_a_missing_address_stops_the_build(tmp_path: Path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ExtensionError, match="Repository"):
        repository_url(tmp_path)


def test_the_address_of_the_pages() -> None:
    assert pages_url("https://github.com/Owner/Name") == "https://owner.github.io/Name/"
    assert pages_url("https://github.com/Owner/owner.github.io") == "https://owner.github.io/"
    for other in ("https://example.org/a/b", "https://github.com/a", "https://github.com/a/b/c"):
        with pytest.raises(ExtensionError, match="OWNER/NAME, got " + other):
            pages_url(other)


def test_the_frame_is_told_the_addresses(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project.urls]\nRepository = 'https://github.com/a/b/'", encoding="utf-8")
    options = {"repository_branch": "trunk"}
    config = SimpleNamespace(html_theme_options=options, myst_url_schemes=["https"])
    set_addresses(SimpleNamespace(srcdir=tmp_path), config)
    assert options["repository_url"] == "https://github.com/a/b"
    assert config.html_baseurl == config.ogp_site_url == "https://a.github.io/b/"
    assert 'href="https://github.com/a/b/blob/trunk/LICENSE-TEXT"' in options["extra_footer"]
    assert config.myst_url_schemes["colab"]["url"] == colab_url("https://github.com/a/b", "trunk", "{{path}}")
    assert config.myst_url_schemes["repository"]["url"] == "https://github.com/a/b/blob/trunk/{{path}}"


# Callouts


@pytest.mark.parametrize(("label", "boxed"), [("Note.", True), ("Beware.", False), ("Notes.", False), ("", False)])
def test_a_labeled_quote_becomes_a_callout_and_others_stay(label: str, boxed: bool) -> None:
    text = nodes.paragraph("", "", nodes.Text(""), nodes.strong("", label), nodes.Text(" A mask"), nodes.math("", "k"))
    document = page(nodes.block_quote("", text))
    make_callouts(None, document)
    box = document.children[0]
    assert isinstance(box, nodes.admonition if boxed else nodes.block_quote)
    if boxed:
        assert box["classes"] == ["note"] and [child.astext() for child in box.children] == ["Note", "A maskk"]


# Chapters and figures


def test_the_top_of_a_chapter(tmp_path: Path) -> None:
    write(tmp_path, "chapters/06_patches", TOP)
    chapter = read_chapter(tmp_path, "chapters/06_patches")
    assert (chapter.number, chapter.title, chapter.question) == (6, "Patches: a sequence", "How does $P$ cut it?")
    assert (chapter.before, chapter.reading, chapter.running) == ((1, 3), 25, 2)
    (tmp_path / "_toc.yml").write_text("parts: [{caption: Part I, chapters: [{file: a}, {file: chapters/06_patches}]}]")
    assert parts(tmp_path) == [("Part I", [chapter])]


@pytest.mark.parametrize("lost", ["# ", "How does $P$ cut it?\n\n", "**Before this**", "**Time**", "25", " running 2."])
def test_another_top_stops_the_build(tmp_path: Path, lost: str) -> None:
    write(tmp_path, "chapters/06_patches", TOP.replace(lost, "", 1))
    with pytest.raises(ExtensionError, match="06_patches.*Before this"):
        read_chapter(tmp_path, "chapters/06_patches")


@pytest.mark.parametrize(("name", "prefix"), [("chapters/06_patches", "6. "), ("intro", "")])
def test_titles_and_figures_of_chapters_have_numbers(name: str, prefix: str) -> None:
    figures = [nodes.figure("", nodes.image(), nodes.caption("", "What?"), ids=[i], names=[i]) for i in ("a", "b")]
    document = page(nodes.section("", nodes.title("", "Patches"), *figures, nodes.figure("", nodes.image())), name=name)
    number_title(SimpleNamespace(env=SimpleNamespace(docname=name)), document)
    NumberFigures(document).apply()
    assert document.next_node(nodes.title).astext() == f"{prefix}Patches"
    captions = [caption.astext() for caption in document.findall(nodes.caption)]
    assert captions == (["Figure 6.1. What?", "Figure 6.2. What?"] if prefix else ["What?", "What?"])
    slugs = [slug[1:] for slug in document.myst_slugs.values()]
    assert slugs == ([("a", "Figure 6.1"), ("b", "Figure 6.2")] if prefix else [])


# Equations


@pytest.mark.parametrize(("tag", "anchor"), [("1", "equation-1"), ("2b", "equation-2b"), ("A.3", "equation-a-3")])
def test_a_tag_is_an_anchor_unless_a_heading_has_it(tag: str, anchor: str) -> None:
    for taken in (False, True):
        document = page(nodes.math_block("", "x = y"), nodes.math_block("", rf"a = b \tag{{{tag}}}"))
        document.myst_slugs = {anchor: (3, anchor, "A heading")} if taken else {}
        AnchorEquations(document).apply()
        assert [node["ids"] for node in document.children] == [[], [] if taken else [anchor]]
        assert document.myst_slugs[anchor][2] == ("A heading" if taken else f"Equation {tag}")


def test_only_a_tagged_equation_is_kept_from_being_wrapped() -> None:
    lines = r"\begin{aligned} a &= b \\ c &= d \end{aligned}"
    document = page(nodes.math_block("", lines + r" \tag{1}", nowrap=False), nodes.math_block("", lines, nowrap=False))
    free_equation_tags(None, document)
    assert [node["nowrap"] for node in document.children] == [True, False]
    assert document.children[0].astext() == rf"\[{lines} \tag{{1}}\]"


# Stored outputs


def test_only_chapters_without_outputs_are_executed(tmp_path: Path) -> None:
    write(tmp_path, "chapters/01_a", outputs=({"output_type": "stream"},))
    write(tmp_path, "chapters/02_b")
    config = SimpleNamespace(nb_execution_excludepatterns=["other"])
    use_stored_outputs(SimpleNamespace(srcdir=tmp_path), config)
    assert config.nb_execution_excludepatterns == ["other", "chapters/01_a.ipynb"]
    write(tmp_path, "chapters/02_b", outputs=({"output_type": "error", "ename": "KeyError", "evalue": "'x'"},))
    with pytest.raises(ExtensionError, match="02_b.ipynb holds an error: KeyError"):
        use_stored_outputs(SimpleNamespace(srcdir=tmp_path), config)


def test_an_executed_chapter_says_at_its_foot_with_what(tmp_path: Path) -> None:
    write(tmp_path, "chapters/01_a", vitbook={"executed": RECORD})
    env = SimpleNamespace(docname="chapters/01_a", doc2path=lambda name: str(tmp_path / f"{name}.ipynb"))
    document = page(nodes.section("", nodes.title("", "Title")))
    add_execution(SimpleNamespace(env=env), document)
    assert document.children[0].children[-1].astext() == (
        "The outputs are from March 5, 2026: Python 3.12.1, torch 2.9.0, vitbook 0.3.0, "
        "on Some CPU, one thread, in 17 seconds."
    )
    other = RECORD | {"device": "Some GPU", "threads": 4, "seconds": 1}
    assert executed_with(other).endswith("on Some GPU (Some CPU, 4 threads), in 1 second.")


# What is said about a page elsewhere


def test_descriptions_have_no_markup() -> None:
    assert plain_text(r"Why divide by $\sqrt d$, and by which $d$?") == "Why divide by √d, and by which d?"
    assert plain_text("What does *one* `block` do to [tokens](x.ipynb#y)?") == "What does one block do to tokens?"


def test_the_entrance_has_the_first_pages_tags(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("old", encoding="utf-8")
    tags = ['<meta property="og:title" content="T" />', '<meta name="twitter:card" content="summary" />']
    (tmp_path / "intro.html").write_text("\n".join([*tags, '<meta name="viewport" content="x" />']), encoding="utf-8")
    config = SimpleNamespace(root_doc="intro", html_title="A & B")
    describe_entrance(SimpleNamespace(outdir=tmp_path, config=config), None)
    text = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert all(tag in text for tag in tags) and "viewport" not in text
    assert 'content="0; url=intro.html"' in text and "<title>A &amp; B</title>" in text


def test_the_page_of_tests_shows_the_last_run(tmp_path: Path) -> None:
    app = SimpleNamespace(srcdir=tmp_path, env=SimpleNamespace(note_dependency=lambda path: None))
    source = [tested.PLACE]
    tested.fill_in(app, "tested", source)
    assert "without a test run" in source[0]
    cases = '<testcase classname="tests.cli.test_cli" time="2"/><testcase classname="tests.test_vit" time="3"/>'
    cases += '<testcase classname="tests.test_vit" time="0"><skipped/></testcase>'
    (tmp_path / "_build").mkdir()
    (tmp_path / "_build" / "tests.xml").write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    source = [tested.PLACE]
    tested.fill_in(app, "tested", source)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in source[0].splitlines()[2:]]
    assert rows == [["`tests/`, one file a module", "1", "1", "0", "3"], ["`tests/cli/`", "1", "0", "0", "2"]]


# Drawings


def test_a_drawing_stands_in_the_page_and_other_images_stay(tmp_path: Path) -> None:
    (tmp_path / "drawing.svg").write_text(drawings.vit().svg(), encoding="utf-8")
    (tmp_path / "other.svg").write_text("<svg/>")
    images = [nodes.image(uri=str(tmp_path / "drawing.svg")), nodes.image(uri="other.svg"), nodes.image(uri="no.png")]
    for builder in ("latex", "html"):
        document = page(*(image.deepcopy() for image in images))
        app = SimpleNamespace(srcdir=tmp_path, builder=SimpleNamespace(format=builder))
        inline_drawings(app, document, "intro")
        kinds = [type(node) for node in document.children]
        assert kinds == [nodes.raw if builder == "html" else nodes.image, nodes.image, nodes.image]
    assert document.children[0].astext().startswith("<svg ")


def test_a_page_has_the_books_colors_as_variables() -> None:
    context = {"metatags": "<meta>"}
    add_colors(None, "intro", "page.html", context, None)
    assert context["metatags"].startswith("<meta><style>html[data-theme=light]{")
    assert all(context["metatags"].count(f"--vit-{role}:") == 2 for role in COLORS)

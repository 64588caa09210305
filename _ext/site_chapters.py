"""What the site knows about the chapters from their own text: numbers, cards on the landing page, figures' names.

A chapter's number is that of its file, as everywhere else; its question, minutes and prerequisites stand at its top.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import yaml
from chapter_icons import icon
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.transforms import SphinxTransform
from sphinx.util.docutils import SphinxDirective

NAME = re.compile(r"chapters/(\d\d)_\w+")
TOP = re.compile(
    r"# (?P<title>[^\n]+)\n\n"
    r"(?P<question>[^\n]+)\n\n"
    r"\*\*Before this\*\* (?P<before>[^\n]+?) \*\*Time\*\* on a CPU: reading (?P<reading>\d+) minutes?, "
    r"running (?P<running>\d+)\."
    r"(\n\*\*You will\*\* (?P<gives>[^\n]+))?"
)
TABLE = "<!-- each chapter: what it needs, and what it gives -->"  # on the page for teachers


@dataclass(frozen=True)
class Chapter:
    """The top of a chapter."""

    name: str  # chapters/06_patches
    title: str
    question: str
    before: tuple[int, ...]  # the numbers of the chapters to have read, ascending
    reading: int  # minutes
    running: int  # minutes, on a CPU
    gives: str = ""  # what "you will" do in it, in Markdown

    @property
    def number(self) -> int:
        return chapter_number(self.name)


def chapter_number(docname: str) -> int | None:
    """6 of chapters/06_patches; None of a page that is not a chapter."""
    match = NAME.fullmatch(docname)
    return int(match[1]) if match else None


def read_chapter(root: Path, name: str) -> Chapter:
    """Take a chapter's top apart. Raises ExtensionError where it is not as all of them are."""
    cells = json.loads((root / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    texts = ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    top = next((text for text in texts if text.startswith("# ")), "")
    match = TOP.match(top)
    if match is None:
        raise ExtensionError(
            f"{name}: the first Markdown cell must be '# Title', the question, and a line '**Before this** … "
            f"**Time** on a CPU: reading N minutes, running M.', got {top[:200]!r}"
        )
    before = {int(number) for number in re.findall(r"\((\d\d)_\w+\.ipynb[#)]", match["before"])}
    minutes = int(match["reading"]), int(match["running"])
    return Chapter(name, match["title"], match["question"], tuple(sorted(before)), *minutes, match["gives"] or "")


def parts(root: Path) -> list[tuple[str, list[Chapter]]]:
    """The captions of _toc.yml that have chapters below them, with these."""
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    book = []
    for part in toc["parts"]:
        names = [entry["file"] for entry in part["chapters"] if NAME.fullmatch(entry["file"])]
        if names:
            book.append((part["caption"], [read_chapter(root, name) for name in names]))
    return book


def table(root: Path) -> str:
    """The chapters as a table in Markdown: what has to be read before, minutes, what is done."""
    lines = ["| Chapter | After | Minutes of reading and running | You will |", "|---|---|---|---|"]
    for chapter in (chapter for _, chapters in parts(root) for chapter in chapters):
        gives = re.sub(r"\]\((?=#)", f"]({chapter.name}.ipynb", chapter.gives)
        gives = re.sub(r"\]\((?=\d\d_)", "](chapters/", gives).replace("](../", "](")
        line = [f"{chapter.number}. [{chapter.title}]({chapter.name}.ipynb)", ", ".join(map(str, chapter.before))]
        lines.append(f"| {' | '.join([*line, f'{chapter.reading} and {chapter.running}', gives])} |")
    return "\n".join(lines)


def fill_in_table(app: Sphinx, docname: str, source: list[str]) -> None:
    if TABLE in source[0]:
        source[0] = source[0].replace(TABLE, table(Path(app.srcdir)))
        for _, chapters in parts(Path(app.srcdir)):
            for chapter in chapters:
                app.env.note_dependency(str(Path(app.srcdir, f"{chapter.name}.ipynb")))


class ChapterCards(SphinxDirective):
    """```{chapter-cards}``` shows parts and chapters: icon, number, title, question, minutes, prerequisites."""

    def run(self) -> list[nodes.Node]:
        root = Path(self.env.srcdir)
        self.env.note_dependency(str(root / "_toc.yml"))
        book = parts(root)
        names = {chapter.number: chapter.name for _, chapters in book for chapter in chapters}
        shown: list[nodes.Node] = []
        for caption, chapters in book:
            shown.append(nodes.rubric("", caption, classes=["part"]))
            shown.append(
                nodes.bullet_list("", *(self.card(chapter, names) for chapter in chapters), classes=["chapters"])
            )
        return shown

    def card(self, chapter: Chapter, names: dict[int, str]) -> nodes.list_item:
        """One chapter."""
        self.env.note_dependency(str(Path(self.env.srcdir, f"{chapter.name}.ipynb")))
        title = nodes.paragraph("", "", classes=["chapter-title"])
        title += [nodes.inline("", f"{chapter.number}", classes=["chapter-number"]), nodes.Text(" ")]
        title += self.link(chapter.name, chapter.title)
        minutes = nodes.paragraph("", "", nodes.Text(f"{chapter.reading} min"), classes=["chapter-minutes"])
        if chapter.before:
            minutes += nodes.Text(" · after ")
        for position, number in enumerate(chapter.before):
            if position:
                minutes += nodes.Text(", ")
            minutes += self.link(names[number], str(number))
        inline = self.parse_inline(chapter.question)[0]
        question = nodes.rubric("", "", *inline, classes=["chapter-question"])  # without links, as all of it is one
        return nodes.list_item("", nodes.raw("", icon(chapter.number), format="html"), title, question, minutes)

    def link(self, name: str, text: str) -> addnodes.pending_xref:
        options = dict(refdomain="std", reftype="doc", reftarget=f"/{name}", refexplicit=True, refwarn=True)
        return addnodes.pending_xref("", nodes.inline("", text), **options)


def number_title(app: Sphinx, doctree: nodes.document) -> None:
    """Put the chapter's number before its title: for its heading, the contents, the browser's tab and the search."""
    number = chapter_number(app.env.docname)
    title = doctree.next_node(nodes.title)
    if number is not None and title is not None:
        title.insert(0, nodes.Text(f"{number}. "))


class NumberFigures(SphinxTransform):
    """Number a chapter's figures, "Figure 6.2", and let pages link to one by its name: (06_patches.ipynb#fig-grid)."""

    default_priority = 870

    def apply(self, **kwargs: object) -> None:
        chapter = chapter_number(self.env.docname)
        if chapter is None:
            return
        slugs = getattr(self.document, "myst_slugs", {})
        figures = (node for node in self.document.findall(nodes.figure) if node.next_node(nodes.caption))
        for position, figure in enumerate(figures, start=1):
            label = f"Figure {chapter}.{position}"
            caption = figure.next_node(nodes.caption)
            caption.insert(0, [nodes.strong("", f"{label}.", classes=["figure-number"]), nodes.Text(" ")])
            for name in figure["names"]:
                slugs.setdefault(name, (figure.line or 0, figure["ids"][0], label))


def setup(app: Sphinx) -> None:
    app.add_directive("chapter-cards", ChapterCards)
    app.connect("source-read", fill_in_table)
    app.add_transform(NumberFigures)
    app.connect("doctree-read", number_title, priority=400)  # before Sphinx collects the titles, at 500

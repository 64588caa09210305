"""The rules of a chapter that protect its readers, each a function: chapter → complaints, which say what to do."""

import ast
import base64
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import notebooks as notebook_tool
from markdown_it import MarkdownIt
from nbformat import NotebookNode
from site_callouts import CALLOUTS

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = ROOT / "chapters"

MAX_CODE_WIDTH = 100  # characters that a laptop's screen shows beside the two sidebars
MIN_ALT = 30
ALLOWED_HTML = {"br", "details", "sub", "summary", "sup"}
IMAGES = ("image/png", "image/jpeg", "image/svg+xml", "image/gif")


@dataclass(frozen=True)
class Chapter:
    """A notebook and the place of its file, which links are relative to."""

    path: Path
    notebook: NotebookNode

    @property
    def cells(self) -> list[NotebookNode]:
        return self.notebook.cells

    def code(self) -> Iterator[tuple[int, NotebookNode]]:
        """Code cells that hold something, with their index."""
        return ((i, c) for i, c in enumerate(self.cells) if c.cell_type == "code" and c.source.strip())

    def markdown(self) -> Iterator[tuple[int, NotebookNode]]:
        """Markdown cells with their index, without the generated badge."""
        return (
            (i, c) for i, c in enumerate(self.cells) if c.cell_type == "markdown" and not notebook_tool.is_generated(c)
        )


def chapter_paths() -> list[Path]:
    return sorted(CHAPTERS.glob("*.ipynb"))


@cache
def load(path: Path) -> Chapter:
    return Chapter(path, notebook_tool.read(path))


# Markdown: text, math and code are told apart before a rule looks at them.


def without_fences(source: str) -> str:
    return re.sub(r"^ {0,3}(```+|~~~+)[^\n]*\n.*?^ {0,3}\1[`~]*[ \t]*$", "", source, flags=re.M | re.S)


def without_code(source: str) -> str:
    """Markdown without fenced blocks and inline code."""
    return re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "", without_fences(source), flags=re.S)


def without_math(source: str, instead: str = "") -> str:
    """Markdown without $$…$$ and $…$."""
    source = re.sub(r"\$\$.+?\$\$", instead, source, flags=re.S)
    return re.sub(r"(?<![\\$])\$(?!\s)[^$\n]+?(?:\n[^$\n]+?)?(?<![\s\\])\$(?![\d$])", instead, source)


def plain(source: str) -> str:
    return without_math(without_code(source))


def links(source: str) -> list[str]:
    """Targets of all links and images in a Markdown text."""
    tokens = [token for block in MarkdownIt().parse(source) for token in block.children or []]
    return [str(target) for token in tokens if (target := token.attrs.get("href") or token.attrs.get("src"))]


def page_anchors(path: Path) -> set[str]:
    """The anchors of a chapter's headings, as GitHub and MyST make them, up to level 3 (_config.yml)."""
    found: set[str] = set()
    for _, cell in load(path).markdown():
        tokens = MarkdownIt().parse(cell.source)
        for opening, inline in zip(tokens, tokens[1:], strict=False):
            if opening.type == "heading_open" and opening.tag <= "h3":
                parts = MarkdownIt().parseInline(without_math(inline.content))[0].children or []
                title = "".join(part.content for part in parts if part.type in ("text", "code_inline"))
                found.add(re.sub(r"[^\w\- ]", "", title.lower().replace(" ", "-")))
    return found


# The rules.

SITE_ONLY = {  # what only MyST understands, and where it would stand
    "a directive": (without_math, r"^ {0,3}(```+|~~~+)\s*\{"),
    "a ::: block": (without_math, r"^\s*:::"),
    "a target; link to headings instead": (without_math, r"^\s*\([\w-]+\)=\s*$"),
    "a comment": (without_math, r"^\s*%\s"),
    "a role": (lambda source: without_math(without_fences(source)), r"\{[\w:.-]+\}`"),
    "math outside $…$ and $$…$$": (plain, r"\\\(|\\\[|\\begin\{"),
    "a footnote, which Colab does not show": (plain, r"\[\^[^\]]+\]"),
    "an HTML comment": (plain, r"<!--"),
}


def plain_markdown(chapter: Chapter) -> list[str]:
    """Nothing in the prose that only the site's renderer understands."""
    complaints = []
    for index, cell in chapter.markdown():
        found = [what for what, (part, sign) in SITE_ONLY.items() if re.search(sign, part(cell.source), flags=re.M)]
        found += ["$$ without its pair"] * (without_code(cell.source).count("$$") % 2)
        tags = {tag.lower() for tag in re.findall(r"</?([A-Za-z][A-Za-z0-9]*)[^<>]*>", plain(cell.source))}
        found += [f"HTML <{tag}>; allowed are {sorted(ALLOWED_HTML)}" for tag in tags - ALLOWED_HTML - {"https"}]
        labels = re.findall(r"^> \*\*([^*\n]+?)\.\*\*", cell.source, flags=re.M)
        found += [f"callout {label!r}; allowed are {sorted(CALLOUTS)}" for label in labels if label not in CALLOUTS]
        complaints += [f"cell {index}: {what}" for what in found]
    return complaints


RAW = {  # what a reader sees of markup that is not closed, or not CommonMark
    "bold that is not closed": r"\*\*|(?<!\w)__|__(?!\w)",
    "code that is not closed": r"`",
    "math that is not closed": r"\$",
    "a link that is none": r"\]\(|\]\[",
    "a tag that is none": r"</?[A-Za-z]",
    "a role, a directive or a substitution": r"\{[\w:.-]+\}|\{\{|\}\}|:::",
    "a block break, an option or a list that is none": r"^\s*(\+\+\+|:[\w-]+:|\[[ xX]\] )|^: ",
}


def nothing_raw(chapter: Chapter) -> list[str]:
    """Rendered as CommonMark with tables, as Colab, GitHub and JupyterLab do, no cell shows any of its markup."""
    complaints = []
    for index, cell in chapter.markdown():
        source = without_math(cell.source.replace("\\$", "USD"), "x")
        for block in MarkdownIt("commonmark").enable("table").parse(source):
            texts = "\n".join(token.content for token in block.children or [] if token.type == "text")
            for what, sign in RAW.items():
                if re.search(sign, block.content if sign.startswith("^") and texts else texts, flags=re.M):
                    complaints.append(f"cell {index}: readers see {what}: {texts[:60]!r}")
            if block.children and "[](" in without_code(block.content):
                complaints.append(f"cell {index}: a link without text, which only the site can fill")
    return complaints


def details_blocks(chapter: Chapter) -> list[str]:
    """A <details> is closed in its cell and has blank lines around its Markdown, or the site shows it raw."""
    complaints = []
    for index, cell in chapter.markdown():
        text = without_code(cell.source)
        if any(text.count(f"<{tag}") != text.count(f"</{tag}>") for tag in ("details", "summary")):
            complaints.append(f"cell {index}: <details> or <summary> is not closed in this cell")
        if re.search(r"</summary>[ \t]*\n?[ \t]*\S|\S[^\n]*\n?[ \t]*</details>", text):
            complaints.append(f"cell {index}: leave a blank line after </summary> and before </details>")
    return complaints


def executed_in_order(chapter: Chapter) -> list[str]:
    """Run once from top to bottom, without errors, warnings or widgets."""
    counts = [cell.execution_count for _, cell in chapter.code()]
    complaints = [] if counts == list(range(1, len(counts) + 1)) else [f"executed as {counts}: run `make notebooks`"]
    for index, cell in chapter.code():
        for output in cell.outputs:
            if output.output_type == "error" or output.get("name") == "stderr":
                complaints.append(f"cell {index}: stored {output.get('ename', 'output on stderr')}")
            if any("widget" in mime for mime in output.get("data", {})):
                complaints.append(f"cell {index}: a widget, which nobody sees without a kernel")
    return complaints


def output_texts(cell: NotebookNode) -> Iterator[str]:
    """Every text that a reader sees below a cell, but for the package's source, which may well name devices."""
    for output in cell.get("outputs", []):
        if output.output_type == "stream":
            yield output.text
        data = output.get("data", {})
        if "text/markdown" in data:
            yield without_code(data["text/markdown"])
        elif not any(mime in data for mime in IMAGES):  # beside an image the text is not seen
            texts = (str(text) for mime, text in data.items() if mime.startswith("text/"))
            yield from (re.sub(r"[A-Za-z0-9+/]{200,}", "", text) for text in texts)  # without packed numbers


UNPORTABLE = {
    "an object's address; print what matters": r"0x[0-9a-fA-F]{6,}",
    "an object's repr; call plt.show()": r"<(Figure|Axes|matplotlib)|<AxesSubplot|<\w+(\.\w+)+ (object )?at ",
    "a device; outputs are the same on CPU and GPU": r"\bcuda\b|\bcpu\b|\bmps\b",
    "an absolute path": r"(?<![\w.:/])/(home|root|tmp|usr|opt|mnt|work|content|Users|var)/|\b[A-Z]:\\",
    "terminal colors": r"\x1b\[",
}


def portable_outputs(chapter: Chapter) -> list[str]:
    """No output that differs between machines or runs."""
    return [
        f"cell {index}: output shows {what}: {match.group(0)!r}"
        for index, cell in chapter.code()
        for text in output_texts(cell)
        for what, sign in UNPORTABLE.items()
        if (match := re.search(sign, text))
    ]


def code_fits(chapter: Chapter) -> list[str]:
    """No line of code, in a cell or a solution, has its end beyond the frame."""
    blocks = [(i, cell.source) for i, cell in chapter.code() if not notebook_tool.is_generated(cell)]
    for index, cell in chapter.markdown():
        blocks += [(index, token.content) for token in MarkdownIt().parse(cell.source) if token.type == "fence"]
    return [
        f"cell {index}: a line of {len(line)} characters, over {MAX_CODE_WIDTH}: {line.strip()}"
        for index, source in blocks
        for line in source.splitlines()
        if len(line) > MAX_CODE_WIDTH
    ]


def approximate_asserted(chapter: Chapter) -> list[str]:
    """A number after ≈, which no comparison of outputs sees, has its bounds asserted in the cell that prints it."""
    return [
        f"cell {index}: prints ≈ without `about` or an assertion"
        for index, cell in chapter.code()
        if any("≈" in text for text in output_texts(cell)) and not re.search(r"\babout\(|\bassert", cell.source)
    ]


def images_described(chapter: Chapter) -> list[str]:
    """Every image has a caption, an anchor and a text for those who cannot see it, in the cell's metadata.

    A drawing brings its own text and may stand without a caption, as "you are here" does.
    """
    complaints, names = [], []
    for index, cell in chapter.code():
        if not any(mime in output.get("data", {}) for output in cell.outputs for mime in IMAGES):
            continue
        options = cell.metadata.get("mystnb", {})
        if "vit-drawing" in cell.outputs[0].get("data", {}).get("image/svg+xml", "") and "figure" not in options:
            continue
        figure, alt = options.get("figure", {}), options.get("image", {}).get("alt", "")
        if sum("data" in output for output in cell.outputs) > 1:
            complaints.append(f"cell {index}: one figure a cell, and nothing else displayed beside it")
        if not figure.get("caption", "").strip():
            complaints.append(f"cell {index}: no caption (metadata mystnb.figure.caption)")
        if not re.fullmatch(r"fig-[a-z0-9-]+", figure.get("name", "")) or figure["name"] in names:
            complaints.append(f"cell {index}: mystnb.figure.name must be fig-some-words, and no other figure's")
        if len(alt) < MIN_ALT or alt.strip() == figure.get("caption", "").strip():
            complaints.append(f"cell {index}: mystnb.image.alt must say in {MIN_ALT} characters or more what is seen")
        names.append(figure.get("name"))
    return complaints


def links_resolve(chapter: Chapter) -> list[str]:
    """Relative links lead to files of the book; that their anchors are there, the build says."""
    return [
        f"cell {index}: {link} leads to no file of the book"
        for index, cell in chapter.markdown()
        for link in links(cell.source)
        if not re.match(r"https?://|mailto:|#", link)
        and not (ROOT in (path := (chapter.path.parent / link.partition("#")[0]).resolve()).parents and path.exists())
    ]


def plain_python(chapter: Chapter) -> list[str]:
    """No magics: scripts and other kinds of notebooks are made of the chapters."""
    complaints = []
    for index, cell in chapter.code():
        try:
            ast.parse(cell.source)
        except SyntaxError as error:
            complaints.append(f"cell {index}: {error}")
    return complaints


def plots_know_their_pictures(chapter: Chapter) -> list[str]:
    """Stored by tools/notebooks.py, a plot says where its pictures stand, for its twin on dark pages."""
    outputs = ((index, output.get("data", {})) for index, cell in chapter.code() for output in cell.outputs)
    pngs = ((index, data["image/png"]) for index, data in outputs if "image/png" in data)
    return [f"cell {index}: run `make notebooks`" for index, png in pngs if b"Pictures" not in base64.b64decode(png)]


def html_well_formed(chapter: Chapter) -> list[str]:
    """An EPUB takes no page whose tags are not closed."""
    complaints = []
    for index, cell in chapter.code():
        for html in ("".join(output.get("data", {}).get("text/html", "")) for output in cell.outputs):
            try:
                ElementTree.fromstring(f"<div>{html}</div>")
            except ElementTree.ParseError as error:
                complaints.append(f"cell {index}: {error}")
    return complaints


RULES = (plain_markdown, nothing_raw, details_blocks, executed_in_order, portable_outputs, approximate_asserted)
RULES += (code_fits, images_described, links_resolve, plain_python, plots_know_their_pictures, html_well_formed)

"""The rules of a chapter, each a small function: notebook → list of complaints, empty where all is well.

A complaint says where and what to do. The rules are parametrised over the chapters in test_notebooks_lint.py, which
also feeds each of them a broken notebook that it has to reject.
"""

import ast
import inspect
import json
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

import notebooks as notebook_tool
from markdown_it import MarkdownIt
from nbformat import NotebookNode
from site_callouts import CALLOUTS

import vitbook

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = ROOT / "chapters"

MAX_BYTES = 1_000_000
MAX_CELLS = 54
MAX_WORDS = 3300
MAX_CODE_LINES = 30
MAX_CODE_WIDTH = 100  # characters that a laptop's screen shows beside the two sidebars
MIN_ALT = 30
MIN_EXERCISES = 3
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


# Markdown, read as what it is: text, math and code are told apart before a rule looks at them.


def without_code(source: str) -> str:
    """Markdown without fenced blocks and inline code."""
    source = re.sub(r"^ {0,3}(```+|~~~+)[^\n]*\n.*?^ {0,3}\1[`~]*[ \t]*$", "", source, flags=re.M | re.S)
    return re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "", source, flags=re.S)


def without_math(source: str, instead: str = "") -> str:
    """Markdown without $$…$$ and $…$."""
    source = re.sub(r"\$\$.+?\$\$", instead, source, flags=re.S)
    return re.sub(r"(?<![\\$])\$(?!\s)[^$\n]+?(?:\n[^$\n]+?)?(?<![\s\\])\$(?![\d$])", instead, source)


def plain(source: str) -> str:
    return without_math(without_code(source))


def headings(source: str) -> list[tuple[int, str]]:
    """(level, text) of every heading in a Markdown text."""
    tokens = MarkdownIt().parse(source)
    return [
        (int(opening.tag[1]), inline.content)
        for opening, inline in zip(tokens, tokens[1:], strict=False)
        if opening.type == "heading_open"
    ]


def slugs(sources: list[str]) -> set[str]:
    """The anchors of a page, made from its headings as GitHub and MyST make them."""
    found: set[str] = set()
    for source in sources:
        for level, text in headings(source):
            if level > 3:  # _config.yml: myst_heading_anchors
                continue
            inline = MarkdownIt().parseInline(without_math(text))[0].children or []
            title = "".join(token.content for token in inline if token.type in ("text", "code_inline"))
            slug = unique = re.sub(r"[^\w一-鿿\- ]", "", title.lower().replace(" ", "-"))
            repeat = 0
            while unique in found:
                repeat += 1
                unique = f"{slug}-{repeat}"
            found.add(unique)
    return found


def links(source: str) -> list[str]:
    """Targets of all links and images in a Markdown text."""
    found = []
    for block in MarkdownIt().parse(source):
        for token in block.children or []:
            target = token.attrs.get("href") or token.attrs.get("src")
            if target:
                found.append(str(target))
    return found


# The rules.


def generated_cells(chapter: Chapter) -> list[str]:
    """Cells 0 and 2 are the badge and the install cell, exactly as the tool writes them."""
    fresh = notebook_tool.nbformat.from_dict(json.loads(json.dumps(chapter.notebook)))
    try:
        notebook_tool.stamp(fresh, chapter.path.name)
    except ValueError as error:
        return [str(error)]
    expected = [(c.source, c.metadata.get("tags")) for c in fresh.cells]
    actual = [(c.source, c.metadata.get("tags")) for c in chapter.cells]
    return [] if actual == expected else ["badge or install cell is missing or old: run `make notebooks`"]


def plain_markdown(chapter: Chapter) -> list[str]:
    """Nothing in the prose that only one renderer understands."""
    forbidden = {
        r"^ {0,3}(```+|~~~+)\s*\{": "a MyST directive in a fence",
        r"^\s*:::": "a ::: block",
        r"^\s*\([\w-]+\)=\s*$": "a MyST target; link to headings instead",
        r"^\s*%\s": "a MyST comment",
    }
    in_text = {
        r"\{[\w:.-]+\}`": "a MyST role",
        r"\\\(|\\\[|\\begin\{": "math outside $…$ and $$…$$",
        r"\[\^[^\]]+\]": "a footnote, which Colab does not show",
        r"<!--": "an HTML comment",
    }
    complaints = []
    for index, cell in chapter.markdown():
        for pattern, what in forbidden.items():
            if re.search(pattern, without_math(cell.source), flags=re.M):
                complaints.append(f"cell {index}: {what}")
        # A role is the name in braces and then its text as inline code, so it has to be sought before code is removed.
        roles = without_math(re.sub(r"^ {0,3}```.*?^ {0,3}```", "", cell.source, flags=re.M | re.S))
        for pattern, what in in_text.items():
            text = roles if "role" in what else plain(cell.source)
            if re.search(pattern, text, flags=re.M):
                complaints.append(f"cell {index}: {what}")
        if without_code(cell.source).count("$$") % 2 or re.search(r"(?<!\\)\$\$\s*\$\$", without_code(cell.source)):
            complaints.append(f"cell {index}: $$ is not paired")
        for tag in re.findall(r"</?([A-Za-z][A-Za-z0-9]*)[^<>]*>", plain(cell.source)):
            if tag.lower() not in ALLOWED_HTML and not re.match(r"https?$|mailto$", tag):
                complaints.append(f"cell {index}: HTML tag <{tag}>; allowed are {sorted(ALLOWED_HTML)}")
        for label in re.findall(r"(?:\A|\n[ \t]*\n|\n)(?<!>)> \*\*([^*\n]+?)\.\*\*", cell.source):
            if label not in CALLOUTS:
                complaints.append(f"cell {index}: callout {label!r} is not one of {sorted(CALLOUTS)}")
    return complaints


def nothing_raw(chapter: Chapter) -> list[str]:
    """Rendered as CommonMark with tables, as Colab, GitHub and JupyterLab do, no cell shows any of its markup."""
    markup = {
        r"\*\*|(?<!\w)__|__(?!\w)": "bold that is not closed",
        r"`": "code that is not closed",
        r"\]\(|\]\[": "a link that is none",
        r"\{\{|\}\}": "a substitution",
        r":::": "a ::: block",
        r"\{[\w:.-]+\}": "a role or a directive",
        r"^\s*(\+\+\+|:[\w-]+:)": "a block break or a directive's option",
        r"^\s*\[[ xX]\] ": "a task list",
        r"^: ": "a definition list",
        r"\$": "math that is not closed",
        r"</?[A-Za-z]": "a tag that is none",
        r"&[a-z]+;|&#\d+;": "a character's name",
    }
    complaints = []
    for index, cell in chapter.markdown():
        source = without_math(cell.source.replace("\\$", "USD"), "x")
        for block in MarkdownIt("commonmark").enable("table").parse(source):
            texts = [token.content for token in block.children or [] if token.type == "text"]
            for pattern, what in markup.items():
                seen = [block.content] if pattern.startswith("^") and texts else texts
                if any(re.search(pattern, text, flags=re.M) for text in seen):
                    complaints.append(f"cell {index}: readers see {what}: {' '.join(texts)[:60]!r}")
            if block.children and "[](" in without_code(block.content):
                complaints.append(f"cell {index}: a link without text, which only the site can fill")
    return complaints


def asks_for_a_gpu(chapter: Chapter) -> list[str]:
    """Colab is asked for a GPU by the chapters that `stamp` says, which then use one, and by no others."""
    wanted = notebook_tool.GPU_METADATA if chapter.path.stem in notebook_tool.GPU_CHAPTERS else {}
    found = {
        key: chapter.notebook.metadata[key] for key in ("accelerator", "colab") if key in chapter.notebook.metadata
    }
    if found != wanted:
        return [f"metadata asks for {found or 'no GPU'}, stamp says {wanted or 'none'}: run tools/notebooks.py stamp"]
    if wanted and not any("device = device()" in cell.source for _, cell in chapter.code()):
        return ["asks Colab for a GPU, but never calls vitbook.runtime.device"]
    return []


def details_blocks(chapter: Chapter) -> list[str]:
    """A <details> is closed in its cell and has blank lines around its Markdown, or the site shows it raw."""
    complaints = []
    for index, cell in chapter.markdown():
        text = without_code(cell.source)
        if text.count("<details") != text.count("</details>") or text.count("<summary") != text.count("</summary>"):
            complaints.append(f"cell {index}: <details> or <summary> is not closed in this cell")
        if re.search(r"</summary>[ \t]*\n?[ \t]*\S", text):
            complaints.append(f"cell {index}: leave a blank line after </summary>")
        if re.search(r"\S[^\n]*\n[ \t]*</details>", text) or re.search(r"[^\n\s][ \t]*</details>", text):
            complaints.append(f"cell {index}: leave a blank line before </details>")
    return complaints


def executed_in_order(chapter: Chapter) -> list[str]:
    """Run once from top to bottom, without errors, warnings on stderr or widgets."""
    complaints = []
    counts = [cell.execution_count for _, cell in chapter.code()]
    if counts != list(range(1, len(counts) + 1)):
        complaints.append(f"execution counts are {counts}: run `make notebooks`")
    for index, cell in chapter.code():
        for output in cell.outputs:
            if output.output_type == "error":
                complaints.append(f"cell {index}: stored error {output.ename}: {output.evalue}")
            if output.output_type == "stream" and output.name == "stderr":
                complaints.append(f"cell {index}: output on stderr: {output.text[:80]!r}")
            if any("widget" in mime for mime in output.get("data", {})):
                complaints.append(f"cell {index}: a widget, which nobody sees without a kernel")
    return complaints


def shows_something(source: str) -> bool:
    """Whether a cell must have output: it calls print, show or display, or ends in a value.

    A call at the end may return None, and print inside an `if` or a function may not run, so neither counts.
    """
    try:
        body = ast.parse(re.sub(r"^(\s*)[%!].*$", r"\1pass", source, flags=re.M)).body
    except SyntaxError:
        return False
    if not body:
        return False
    last = body[-1]
    if isinstance(last, ast.Expr):
        value = last.value
        if not isinstance(value, ast.Call) and not (isinstance(value, ast.Constant) and value.value in (None, ...)):
            return True
    for statement in body:
        call = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(call, ast.Call):
            name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            if name in ("display", "print", "show", "show_source"):
                return True
    return False


def outputs_present(chapter: Chapter) -> list[str]:
    """What a cell shows is stored; and whether it shows something does not hang on a semicolon."""
    missing = [
        f"cell {index}: prints or shows something, but no output is stored: run `make notebooks`"
        for index, cell in chapter.code()
        if shows_something(cell.source) and not cell.outputs
    ]
    # Without a history, as under nbval, IPython does not see the semicolon and shows the value.
    return missing + [
        f"cell {index}: write `_ = …` instead of ending in a semicolon"
        for index, cell in chapter.code()
        if cell.source.rstrip().endswith(";")
    ]


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


def portable_outputs(chapter: Chapter) -> list[str]:
    """No output that differs between machines or runs, or that only matplotlib's author can read."""
    patterns = {
        r"0x[0-9a-fA-F]{6,}": "an object's address; print what matters",
        r"<(Figure|Axes|matplotlib)|<AxesSubplot|<\w+(\.\w+)+ (object )?at ": "an object's repr; call plt.show()",
        r"\bcuda\b|\bcpu\b|\bmps\b": "a device name; outputs are the same on CPU and GPU",
        r"(?<![\w.:/])/(home|root|tmp|usr|opt|mnt|work|content|Users|var)/|\b[A-Z]:\\": "an absolute path",
        r"\x1b\[": "terminal colours",
    }
    return [
        f"cell {index}: output shows {what}: {match.group(0)!r}"
        for index, cell in chapter.code()
        for text in output_texts(cell)
        for pattern, what in patterns.items()
        if (match := re.search(pattern, text))
    ]


def size(chapter: Chapter) -> list[str]:
    """A chapter that can be read in one sitting and opened on a phone."""
    complaints = []
    if chapter.path.exists() and chapter.path.stat().st_size > MAX_BYTES:
        complaints.append(f"file has {chapter.path.stat().st_size} bytes, over {MAX_BYTES}: lower the dpi of a figure")
    if len(chapter.cells) > MAX_CELLS:
        complaints.append(f"{len(chapter.cells)} cells, over {MAX_CELLS}")
    words = sum(len(plain(cell.source).split()) for _, cell in chapter.markdown())
    if words > MAX_WORDS:
        complaints.append(f"{words} words of prose, over {MAX_WORDS}")
    for index, cell in chapter.code():
        lines = len(cell.source.splitlines())
        if lines > MAX_CODE_LINES:
            complaints.append(f"cell {index}: {lines} lines of code, over {MAX_CODE_LINES}: split it")
    return complaints


def code_fits(chapter: Chapter) -> list[str]:
    """No line of code, in a cell or a solution, has its end beyond the frame."""
    blocks = [(i, cell.source) for i, cell in chapter.code() if not notebook_tool.is_generated(cell)]
    for index, cell in chapter.markdown():
        tokens = MarkdownIt().parse(cell.source)
        blocks += [(index, token.content) for token in tokens if token.type == "fence"]
    return [
        f"cell {index}: a line of {len(line)} characters, over {MAX_CODE_WIDTH}: {line.strip()}"
        for index, source in blocks
        for line in source.splitlines()
        if len(line) > MAX_CODE_WIDTH
    ]


def images_described(chapter: Chapter) -> list[str]:
    """Every image has a caption, an anchor and a text for those who cannot see it, in the cell's metadata."""
    complaints = []
    names: list[str] = []
    for index, cell in chapter.code():
        images = [o for o in cell.outputs if any(mime in o.get("data", {}) for mime in IMAGES)]
        options = cell.metadata.get("mystnb", {})
        figure, image = options.get("figure", {}), options.get("image", {})
        if not images:
            if figure or image:
                complaints.append(f"cell {index}: metadata of a figure, but no image")
            continue
        displayed = [o for o in cell.outputs if "data" in o]
        if len(displayed) > 1:
            complaints.append(f"cell {index}: one figure per cell, and nothing else displayed beside it")
        caption, alt, name = figure.get("caption", ""), image.get("alt", ""), figure.get("name", "")
        if not caption.strip():
            complaints.append(f"cell {index}: no caption (metadata mystnb.figure.caption)")
        if not re.fullmatch(r"fig-[a-z0-9-]+", name):
            complaints.append(f"cell {index}: figure name {name!r} is not of the form fig-some-words")
        if len(alt) < MIN_ALT:
            complaints.append(f"cell {index}: alt text of {len(alt)} characters, under {MIN_ALT} (mystnb.image.alt)")
        if alt and alt.strip() == caption.strip():
            complaints.append(f"cell {index}: alt text repeats the caption; say what is seen")
        names.append(name)
    complaints += [f"figure name {name!r} is used twice" for name in sorted({n for n in names if names.count(n) > 1})]
    for index, cell in chapter.markdown():
        if re.search(r"!\[\s*\]\(", without_code(cell.source)):
            complaints.append(f"cell {index}: image without alt text")
    return complaints


@cache
def page_anchors(path: Path) -> frozenset[str]:
    """Anchors that a link into a page may name."""
    if path.suffix == ".ipynb":
        chapter = load(path)
        figures = {c.metadata.get("mystnb", {}).get("figure", {}).get("name", "") for c in chapter.cells}
        return frozenset(slugs([cell.source for _, cell in chapter.markdown()]) | figures)
    text = path.read_text(encoding="utf-8")
    return frozenset(slugs([text]) | set(re.findall(r"^\(([\w:-]+)\)=\s*$", text, flags=re.M)))


def links_resolve(chapter: Chapter) -> list[str]:
    """Relative links lead to a chapter or a page of the book that is there, and to a heading that is there."""
    complaints = []
    own = slugs([cell.source for _, cell in chapter.markdown()])
    for index, cell in chapter.markdown():
        for link in links(cell.source):
            if re.match(r"https?://|mailto:", link):
                continue
            target, _, anchor = link.partition("#")
            path = (chapter.path.parent / target).resolve() if target else chapter.path
            if target and not path.exists():
                complaints.append(f"cell {index}: {link} leads nowhere: no file {target}")
            elif target and ROOT not in path.parents:
                complaints.append(f"cell {index}: {link} leads out of the book")
            elif anchor and path.suffix in (".ipynb", ".md"):
                known = own if path == chapter.path else page_anchors(path)
                if anchor not in known:
                    complaints.append(f"cell {index}: {link}: no such heading; there are {sorted(known)}")
    return complaints


def sections(chapter: Chapter) -> Iterator[tuple[int, str, list[str], int]]:
    """(level, heading, texts below it, code cells below it) for every heading, up to the next heading of any level."""
    current: tuple[int, str] = (0, "")
    texts: list[str] = []
    code = 0
    for cell in chapter.cells:
        if cell.cell_type == "code":
            code += 1
            continue
        for part in re.split(r"^(?=#{1,6} )", cell.source, flags=re.M):
            found = headings(part)
            if found:
                yield *current, texts, code
                current, texts, code = found[0], [], 0
            texts.append(part)
    yield *current, texts, code


def exercises(chapter: Chapter) -> list[str]:
    """Three or more exercises: heading, stub, check, hidden solution."""
    complaints = []
    found = [part for part in sections(chapter) if part[0] == 3 and part[1].startswith("Exercise")]
    if len(found) < MIN_EXERCISES:
        complaints.append(f"{len(found)} exercises; write at least {MIN_EXERCISES}, each under `### Exercise …`")
    for _, heading, texts, code in found:
        solutions = re.findall(r"<details>\s*<summary>[^<]*Solution[^<]*</summary>", "\n".join(texts))
        if code < 2:
            complaints.append(f"{heading!r}: an exercise has a stub cell and a check cell")
        if len(solutions) != 1:
            complaints.append(f"{heading!r}: an exercise has one <details> whose <summary> says Solution")
    return complaints


def frame(chapter: Chapter) -> list[str]:
    """What every chapter has: one title, prerequisites and minutes at the top, exercises and reading at the end."""
    complaints = []
    found = [heading for _, cell in chapter.markdown() for heading in headings(cell.source)]
    if [level for level, _ in found].count(1) != 1:
        complaints.append("one heading of level 1, the title")
    for before, after in zip(found, found[1:], strict=False):
        if after[0] > before[0] + 1:
            complaints.append(f"heading {after[1]!r} skips a level after {before[1]!r}")
    for section in ("Exercises", "Further reading"):
        if (2, section) not in found:
            complaints.append(f"no section '## {section}'")
    top = "\n".join(cell.source for cell in chapter.cells[1:5] if cell.cell_type == "markdown")
    for pattern in (r"\*\*Before this\*\*", r"\*\*Time\*\*"):
        if not re.search(pattern, top):
            complaints.append(f"the top of the chapter states {pattern} (prerequisites; minutes on a CPU)")
    if not re.search(r"minute", top):
        complaints.append("the top of the chapter states its time in minutes")
    return complaints


@cache
def public_names() -> frozenset[str]:
    """Functions and classes that the package defines, but for the modules behind the exercises, which none teaches."""
    names = set()
    behind = {f"vitbook.{name}" for name in ("checker", "diagnosis", "exercises", "progress", "properties")}
    for module in pkgutil.iter_modules(vitbook.__path__, "vitbook."):
        if module.name in behind:
            continue
        members = vars(import_module(module.name)).items()
        names |= {
            name
            for name, value in members
            if (inspect.isfunction(value) or inspect.isclass(value))
            and value.__module__ == module.name
            and not name.startswith("_")
        }
    return frozenset(names)


def no_redefinition(chapter: Chapter) -> list[str]:
    """A chapter imports what the package defines; its own functions have other names."""
    complaints = []
    for index, cell in chapter.code():
        try:
            tree = ast.parse(re.sub(r"^(\s*)[%!].*$", r"\1pass", cell.source, flags=re.M))
        except SyntaxError as error:
            complaints.append(f"cell {index}: not Python: {error}")
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in public_names():
                complaints.append(f"cell {index}: defines {node.name}, which vitbook has: import it or rename this one")
    return complaints


RULES = (
    generated_cells,
    plain_markdown,
    nothing_raw,
    asks_for_a_gpu,
    details_blocks,
    executed_in_order,
    outputs_present,
    portable_outputs,
    size,
    code_fits,
    images_described,
    links_resolve,
    exercises,
    frame,
    no_redefinition,
)

"""The reference: a page for each part of the book, made of the packages' modules when the site is built.

`sphinx.ext.autodoc` reads the modules. What it lacks: docstrings here are prose with `code` in it, as in Markdown, and
an ordinary comment explains a constant or a field (`read_comments`).
"""

import ast
import importlib
import inspect
import json
import re
import sys
import typing
from functools import cache
from pathlib import Path
from types import ModuleType

import sphinx.ext.autodoc
import sphinx.pycode.parser
from site_address import repository_url
from site_chapters import Chapter, parts
from sphinx.application import Sphinx
from sphinx.config import Config

PACKAGES = ("vitbook", "vitbook_workshop")
OWN = re.compile(r"vitbook(_workshop)?\.")  # how the full name of anything in them begins
LONGEST_VALUE = 80  # characters of a constant's value that are shown; longer ones are a click away
INDEX = "<!-- the modules -->"  # where api.md wants its table


# The modules, and the chapters that teach them


def modules(root: Path) -> dict[str, str]:
    """What stands at the top of the packages and is public, and in which: `attention`, `pretrained`, `faults`, …"""
    found = {}
    for package in PACKAGES:
        folder = root / package
        paths = [*folder.glob("[!_]*.py"), *(path.parent for path in folder.glob("[!_]*/__init__.py"))]
        found |= dict.fromkeys(sorted(path.stem for path in paths), package)
    return found


def files(root: Path, name: str) -> dict[str, Path]:
    """The file of a module, or those of a folder and of its folders, by their full names."""
    package = modules(root)[name]
    folder = root / package / name
    if not folder.is_dir():
        return {f"{package}.{name}": folder.with_suffix(".py")}
    folders = [path.parent for path in folder.rglob("__init__.py")]
    paths = [path for inside in folders for path in (inside / "__init__.py", *inside.glob("[!_]*.py"))]
    names = {".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}
    return dict(sorted(names.items()))


def imported(notebook: Path) -> tuple[set[str], set[str]]:
    """The modules that a chapter imports from, and those among them whose source it shows."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    tree = list(ast.walk(ast.parse(re.sub(r"^(\s*)[%!].*$", r"\1pass", code, flags=re.M))))
    homes = {}
    for node in tree:
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in PACKAGES:
            for alias in node.names:
                homes[alias.asname or alias.name] = f"{node.module}.{alias.name}".split(".")[1]
    shows = [node for node in tree if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "show_source"]
    shown = {homes.get(ast.unparse(argument).partition(".")[0]) for call in shows for argument in call.args}
    return set(homes.values()), shown - {None}


# the command, figures, and records of what was run
NO_LESSONS = ("commands", "drawings", "live", "recorded", "training_runs")


@cache
def taught(root: Path) -> dict[str, Chapter | None]:
    """The chapter of each module: that of its name, or the first to show its source, or else to import it.

    None of a module that no chapter imports, or most of them, and of `NO_LESSONS`.
    """
    chapters = [chapter for _, part in parts(root) for chapter in part if chapter.number]  # 0 only shows
    uses = {chapter: imported(root / f"{chapter.name}.ipynb") for chapter in chapters}
    homes: dict[str, Chapter | None] = {}
    for name in modules(root):
        users = [chapter for chapter in chapters if name in uses[chapter][0] and name not in NO_LESSONS]
        named = [chapter for chapter in chapters if chapter.name.endswith(f"_{name}")]
        shown = [chapter for chapter in users if name in uses[chapter][1]]
        homes[name] = next(iter([*named, *shown, *users]), None) if 2 * len(users) <= len(chapters) or named else None
    return homes


def pages(root: Path) -> dict[str, tuple[str, list[str]]]:
    """Title and modules of each page, by its name, in the order of the book."""
    homes = taught(root)
    contents = {}
    for caption, chapters in parts(root):
        if names := [name for chapter in chapters for name in sorted(homes) if homes[name] == chapter]:
            contents[f"part{len(contents) + 1}"] = caption, names
    serving = sorted(name for name in homes if homes[name] is None)
    contents["serving"] = "What serves chapters and readers", serving
    return {page: content for page, content in contents.items() if content[1]}


def write_pages(app: Sphinx, config: Config) -> None:
    """Write the pages of api/, which the table of contents then finds, and remove those of earlier builds."""
    root = Path(app.srcdir)
    (root / "api").mkdir(exist_ok=True)
    wanted = {root / "api" / f"{page}.md": content for page, content in pages(root).items()}
    for path in set((root / "api").glob("*.md")) - set(wanted):
        path.unlink()
    for path, (title, names) in wanted.items():
        text = f"# {title}\n"
        for full in (full for name in names for full in files(root, name)):
            text += f"\n## `{full}`\n\n```{{eval-rst}}\n.. automodule:: {full}\n```\n"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def fill_index(app: Sphinx, docname: str, source: list[str]) -> None:
    """Put the table of all modules into api.md."""
    if docname == "api":
        packages = modules(Path(app.srcdir))
        lines = ["| Page | Module | What it holds |", "|---|---|---|"]
        for page, (title, names) in pages(Path(app.srcdir)).items():
            for position, name in enumerate(names):
                full = f"{packages[name]}.{name}"
                module = importlib.import_module(full)
                link = "" if position else f"[{title}](api/{page}.md)"
                summary = (module.__doc__ or "").split("\n\n")[0].replace("\n", " ")
                lines.append(f"| {link} | {{py:mod}}`{name} <{full}>` | {summary} |")
        source[0] = source[0].replace(INDEX, "\n".join(lines))


# Docstrings and comments → reStructuredText


def to_rst(text: str, home: ModuleType, arguments: set[str]) -> list[str]:
    """A docstring's prose, its code with links, and "mask: which keys count" as a list, where `mask` is an argument.

    So are lines that each have a name and, two spaces on, what it is.
    """
    begins = re.compile(rf"\*{{0,2}}({'|'.join(map(re.escape, arguments)) or '(?!)'}): ")
    lines: list[str] = []
    for paragraph in filter(None, re.split(r"\n\s*\n", inspect.cleandoc(text))):
        if all(line.startswith("    ") for line in paragraph.splitlines()):
            lines += ["::", "", *paragraph.splitlines(), ""]
            continue
        if all(rows := [re.fullmatch(r"(\S+) {2,}(.+)", line) for line in paragraph.splitlines()]):
            lines += [line for row in rows for line in (f"- ``{row[1]}``: {inline(row[2], home)}", "")]
            continue
        pieces: list[list[str]] = [[]]
        for line in paragraph.splitlines():
            if begins.match(line):
                pieces.append([])
            pieces[-1].append(line.strip())
        for piece in filter(None, pieces):
            joined = " ".join(piece)
            match = begins.match(joined)
            mark = f"- ``{match[1]}``: " if match else ""
            lines += [mark + inline(joined[match.end() if match else 0 :], home), ""]
    return lines


def inline(text: str, home: ModuleType) -> str:
    """One paragraph: signs stand for themselves, `code` is code, and a link where it names something of the package."""
    pieces = re.split(r"`([^`]+)`", text)
    plain = [re.sub(r"([\\*_|`:.])", r"\\\1", piece) for piece in pieces[::2]]
    codes = [f"\\ {linked(code, home)}\\ " for code in pieces[1::2]] + [""]
    words = "".join(a + b for a, b in zip(plain, codes, strict=True)).strip()
    return re.sub(r"^(?=[^\\\w]|\w+\\?[.)])", r"\\", words)


def linked(code: str, home: ModuleType) -> str:
    full = full_name(code.removesuffix("()"), home)
    return f":py:obj:`{code} <{full}>`" if full else f"``{code}``"


def full_name(name: str, home: ModuleType) -> str:
    """The full name of what a module knows by `name`, if it is the package's own; else ""."""
    try:
        package = name.partition(".")[0] if OWN.match(name) else ""
        value: object = sys.modules[package] if package else home
        for part in name.removeprefix(f"{package}.").split("."):
            value = vars(value)[part]
    except (KeyError, TypeError):
        return ""
    inside = getattr(value, "__module__", "") or ""
    if isinstance(value, ModuleType):
        return value.__name__ if OWN.match(value.__name__) else ""
    public = not re.search(r"(^|\.)_", f"{inside}.{getattr(value, '__qualname__', '_')}")
    return f"{inside}.{value.__qualname__}" if public and OWN.match(inside) else ""


def prepare(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Turn what autodoc read into reStructuredText, and say below a module who teaches it."""
    parts_of_name = name.split(".")
    while ".".join(parts_of_name) not in sys.modules:
        parts_of_name.pop()
    home = sys.modules[".".join(parts_of_name)]
    try:
        arguments = set(inspect.signature(obj).parameters) if callable(obj) else set()
    except (TypeError, ValueError):
        arguments = set()
    lines[:] = to_rst("\n".join(lines), home, arguments)
    chapter = taught(Path(app.srcdir)).get(OWN.sub("", name).split(".")[0]) if what == "module" else None
    if chapter:
        lines += [f"Chapter :doc:`/{chapter.name}`.", ""]


def short_names(
    app: Sphinx, what: str, name: str, obj: object, options: object, given: str | None, returns: str | None
) -> tuple[str, str | None] | None:
    """Shorten the types of a signature with a default that is no Python; the domain shortens the others."""
    try:
        ast.parse(f"def f{given or '()'}: ...")
    except SyntaxError:
        return re.sub(r"~(\w+\.)*", "", given), returns
    return None


def skip(app: Sphinx, what: str, name: str, obj: object, skipped: bool, options: object) -> bool | None:
    """What has no words of its own is left out, but for `forward`: its class says what it does."""
    return {"forward": False, "extra_repr": True}.get(name)


def read_comments() -> None:
    """Let autodoc read ordinary comments outside functions, where it asks for "#:", and show values of one line."""
    picker = sphinx.pycode.parser.VariableCommentPicker
    qualified, described = picker.get_qualname_for, sphinx.ext.autodoc.object_description

    def short_value(value: object) -> str:
        if len(text := described(value)) > LONGEST_VALUE:
            raise ValueError  # autodoc then shows none
        return text

    sphinx.pycode.parser.comment_re = re.compile(r"^\s*#:? ?((?!noqa).*)\r?\n?$")
    picker.get_qualname_for = lambda self, name: None if self.current_function else qualified(self, name)
    sphinx.ext.autodoc.object_description = short_value


# Links to the source


def source_address(base: str, root: Path, domain: str, info: dict[str, str]) -> str | None:
    """Where something is defined, on GitHub, with its lines; for `sphinx.ext.linkcode`."""
    try:
        value: object = sys.modules[info["module"]]
        for part in info["fullname"].split("."):
            value = getattr(value, part)
        value = inspect.unwrap(getattr(value, "fget", value))
        path = Path(inspect.getsourcefile(value)).relative_to(root)
        if path.parts[0] not in PACKAGES:
            return None
        lines, first = inspect.getsourcelines(value)
    except (KeyError, AttributeError, TypeError, ValueError, OSError):
        return None
    return f"{base}/{path.as_posix()}#L{first}-L{first + len(lines) - 1}"


def configure(app: Sphinx, config: Config) -> None:
    root = Path(app.srcdir).resolve()
    branch = config.html_theme_options.get("repository_branch") or "main"
    config.linkcode_resolve = lambda *given: source_address(f"{repository_url(root)}/blob/{branch}", root, *given)


def setup(app: Sphinx) -> None:
    typing.GENERATING_DOCUMENTATION = PACKAGES[0]  # jaxtyping then writes its types as they stand in the source
    read_comments()
    app.setup_extension("sphinx.ext.autodoc")
    app.setup_extension("sphinx.ext.linkcode")
    app.connect("config-inited", configure, priority=100)
    app.connect("config-inited", write_pages, priority=100)  # before the table of contents is read
    app.connect("source-read", fill_index)
    app.connect("autodoc-process-docstring", prepare)
    app.connect("autodoc-process-signature", short_names)
    app.connect("autodoc-skip-member", skip)

"""The pages of the reference: what every module of the package offers, from its docstrings and comments.

A page of `api/` names its modules in an `api-modules` directive, and `api.md` lists them all with `api-index`. The
entries are those of Sphinx's own Python domain, their addresses on GitHub those of `sphinx.ext.linkcode`. Nothing is
imported: signatures, values and comments stand as they stand in the files (see `package_source`). Docstrings are prose
in Markdown; lines in them such as "mask: boolean, …", of an argument or field, become a list.
"""

import builtins
import re
from functools import partial
from pathlib import Path

import package_source
from docutils import nodes
from docutils.statemachine import StringList
from package_source import PACKAGE, Module, Symbol, chapters_of, proven, read_package, title_of
from site_address import repository_url
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective

LONGEST_VALUE = 90  # characters of a constant's value that are shown; longer ones are a click away
MANY = 4  # chapters that are named one by one


def modules_on(root: Path) -> dict[str, list[str]]:
    """The modules on each page of the reference, by the page's name, from the pages themselves."""
    found = {}
    for path in sorted((root / "api").glob("*.md")):
        blocks = re.findall(r"^```\{api-modules\}\n(.*?)^```$", path.read_text(encoding="utf-8"), flags=re.M | re.S)
        found[path.stem] = [name for block in blocks for name in block.split()]
    return found


# Docstrings → Markdown


def escape(text: str) -> str:
    """Prose in which Markdown's signs stand for themselves."""
    text = re.sub(r"([\\*$<\[\]{}|])", r"\\\1", text)
    text = re.sub(r"(?<!\w)_|_(?!\w)", r"\\_", text)
    return re.sub(r"^(\d+)([.)])|^([-+#>=:~])", r"\1\\\2\3", text)


def inline(text: str, module: Module, root: Path) -> str:
    """One paragraph of a docstring as Markdown: code stays code, and links to what it names in the package."""
    parts = re.split(r"(`[^`]+`)", " ".join(text.split()))
    return "".join(code(part[1:-1], module, root) if i % 2 else escape(part) for i, part in enumerate(parts))


def sentence(text: str) -> str:
    """A comment with a capital and a full stop; but a symbol stays as it is: h is heads, and H is height."""
    return f"{capital(text.rstrip(';'))}{'' if text[-1:] in '.!?' else '.'}"


def capital(text: str) -> str:
    symbol = re.match(r"[^\W\da](?![a-z])", text)
    return text if symbol else text[:1].upper() + text[1:]


def listed(items: list[str]) -> str:
    """a; a and b; a, b and c."""
    return " and ".join(part for part in (", ".join(items[:-1]), *items[-1:]) if part)


def code(text: str, module: Module, root: Path) -> str:
    """Code in a docstring, with a link if it names something of the package."""
    target = full_name(text.removesuffix("()"), module, root)
    return f"{{py:obj}}`{text} <{target}>`" if target else f"`{text}`"


def full_name(name: str, module: Module, root: Path) -> str:
    """The full name of what a module calls by this name, if it is public in the package; else ""."""
    package = read_package(root)
    if module.find(name):
        return f"{PACKAGE}.{module.name}.{name}"
    first, _, rest = name.partition(".")
    full = f"{module.imports.get(first, first)}.{rest}".rstrip(".")
    if not full.startswith(f"{PACKAGE}."):
        return ""
    _, home, *inside = full.split(".")
    if home not in package or inside and not package[home].find(".".join(inside)):
        return ""
    return full


def paragraphs(doc: str, names: set[str]) -> list[str | list[tuple[str, str]]]:
    """A docstring's paragraphs; those that explain arguments are lists of (name, explanation).

    An explanation begins with "name: ", at the beginning of a line or after a semicolon, the name being one of `names`.
    Where its second line is indented, it ends with the indented lines.
    """
    found: list[str | list[tuple[str, str]]] = []
    start = re.compile(rf"(?:\*{{0,2}})({'|'.join(map(re.escape, sorted(names)))}): ") if names else None
    for block in re.split(r"\n\s*\n|(?<=[.)])\s+(?=Raises )", doc.strip()):
        text: list[str] = []
        hanging = False
        for line in block.splitlines():
            begins = start and start.match(line)
            if text and (begins or hanging and not line.startswith(" ")):
                found.append(" ".join(text))
                text = []
            hanging = bool(text) and line.startswith(" ") or (hanging and not begins)
            text.append(line.strip())
        found.append(" ".join(text))
    merged: list[str | list[tuple[str, str]]] = []
    for text in found:
        if not (start and start.match(text)):
            merged.append(text)
            continue
        pieces = re.split(rf"(?:^|[;.] )\*{{0,2}}({'|'.join(map(re.escape, sorted(names)))}): ", text)[1:]
        items = [(name, said.strip()) for name, said in zip(pieces[::2], pieces[1::2], strict=True)]
        if merged and isinstance(merged[-1], list):
            merged[-1] += items
        else:
            merged.append(items)
    return merged


def markdown(doc: str, names: set[str], module: Module, root: Path) -> list[str]:
    """A docstring in lines of Markdown."""
    lines: list[str] = []
    for part in paragraphs(doc, names):
        if isinstance(part, str):
            text = inline(part, module, root)
            lines += [re.sub(r"^(Raises|Returns|Differs:|Cause:|Symptom:)", r"**\1**", text), ""]
            continue
        for name, said in part:
            lines += [f"`{name}`", f": {sentence(inline(said, module, root))}", ""]
    return lines


# Symbols → directives of the Python domain


def fenced(name: str, argument: str, options: dict[str, str], body: list[str], depth: int) -> list[str]:
    """A directive in MyST; depth: how many more may be nested in it."""
    fence = "`" * (3 + depth)
    return [f"{fence}{{{name}}} {argument}", *(f":{k}: {v}".rstrip() for k, v in options.items()), "", *body, fence, ""]


def entry(symbol: Symbol, module: Module, root: Path) -> list[str]:
    """The lines of MyST that describe a symbol, its fields and its members."""
    options = {}
    if symbol.modifier:
        options[symbol.modifier] = ""
    if symbol.kind in ("property", "data") and symbol.signature:
        options["type"] = symbol.signature
    if symbol.kind == "data" and len(symbol.value) <= LONGEST_VALUE and "\n" not in symbol.value:
        options |= {"value": symbol.value} if symbol.value else {}
    body = [f"Another name for `{symbol.value}`.", ""] if symbol.kind == "type" else []
    doc = symbol.doc
    if symbol.kind in ("data", "type") and doc:  # a comment, which begins and ends as comments do
        doc = sentence(doc)
    body += markdown(doc, set(symbol.arguments), module, root)
    bases = [code(base, module, root) for base in symbol.bases if full_name(base, module, root)]
    if bases:
        body += [f"A kind of {listed(bases)}.", ""]
    if symbol.fields:
        body += ["| Field | Meaning |", "|---|---|"]
        for field in symbol.fields:
            default = f" = {field.default}" if field.default else ""
            written = f"{field.name}: {field.annotation}{default}".replace("|", r"\|")
            said = inline(field.comment, module, root)
            body.append(f"| `{written}` | {capital(said)} |")
        body.append("")
    for member in symbol.members:
        body += entry(member, module, root)
    called = symbol.kind in ("function", "method", "class", "exception")
    argument = symbol.name + (symbol.signature if called and not symbol.fields else "")
    return fenced(f"py:{symbol.kind}", argument, options, body, depth=1 if "." not in symbol.name else 0)


def described(symbol: Symbol) -> bool:
    """Whether there is anything to read about a symbol but its name."""
    return bool(symbol.doc or symbol.value)


class ModulesDirective(SphinxDirective):
    """```{api-modules}: a section for each of the modules that its content names."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        root = Path(self.env.srcdir)
        return [self.section(read_package(root)[name], root) for name in self.content if name]

    def section(self, module: Module, root: Path) -> nodes.section:
        for path in (__file__, package_source.__file__, root / PACKAGE / f"{module.name}.py"):
            self.env.note_dependency(str(path))
        full = f"{PACKAGE}.{module.name}"
        section = nodes.section(
            "", nodes.title("", "", nodes.literal("", full)), ids=[f"{PACKAGE}-{module.name}"], names=[full]
        )
        self.set_source_info(section)
        lines = [f"```{{py:module}} {full}", "```", "", *markdown(module.doc, set(), module, root)]
        lines += [self.where(module.name, root), ""]
        plain = [symbol for symbol in module.symbols if not described(symbol)]
        for symbol in module.symbols:
            if symbol not in plain:
                lines += entry(symbol, module, root)
        if plain:
            body = [line for symbol in plain for line in entry(symbol, module, root)]
            lines += fenced("dropdown", f"{len(plain)} more, which their names describe", {}, body, depth=2)
        self.state.nested_parse(StringList(lines, source=""), self.content_offset, section)
        return section

    def where(self, name: str, root: Path) -> str:
        """The chapters that teach the module, its tests and its source, as links."""
        teach, use = (found[name] for found in chapters_of(root))
        links = [f"[{title_of(path)}](/chapters/{path.name})" for path in teach or use]
        said = "Taught in" if teach else "Used in"
        chapters = f"{said} {listed(links)}." if 0 < len(links) <= MANY else ""
        if len(links) > MANY:
            chapters = f"Used in {len(links)} chapters."
        base = self.config.api_source
        tests = listed([f"[tests/{path.name}]({base}/tests/{path.name})" for path in proven(root)[name][:MANY]])
        source = f"Source: [{PACKAGE}/{name}.py]({base}/{PACKAGE}/{name}.py)."
        return f"{chapters} Tested by {tests}. {source}".strip()


class IndexDirective(SphinxDirective):
    """```{api-index}: every module on every page of the reference, and the first sentence about it."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        root = Path(self.env.srcdir)
        pages = modules_on(root)
        rows = []
        for page in self.content:
            for i, name in enumerate(pages[page]):
                self.env.note_dependency(str(root / PACKAGE / f"{name}.py"))
                module = read_package(root)[name]
                summary = inline(module.doc.split("\n\n")[0], module, root)
                link = "" if i else f"[](/api/{page}.md)"
                rows.append(f"| {link} | {{py:mod}}`{name} <{PACKAGE}.{name}>` | {summary} |")
            self.env.note_dependency(str(root / "api" / f"{page}.md"))
        self.env.note_dependency(__file__)
        lines = ["| Page | Module | What it holds |", "|---|---|---|", *rows]
        container = nodes.container()
        self.state.nested_parse(StringList(lines, source=""), self.content_offset, container)
        return container.children


# Links


def source_address(base: str, root: Path, domain: str, info: dict[str, str]) -> str | None:
    """Where a symbol is defined, on GitHub, with its lines; for `sphinx.ext.linkcode`."""
    if domain != "py" or not info["module"].startswith(f"{PACKAGE}."):
        return None
    name = info["module"].split(".")[1]
    symbol = read_package(root)[name].find(info["fullname"])
    return f"{base}/{PACKAGE}/{name}.py#L{symbol.line}-L{symbol.end}" if symbol else None


def foreign_type(app: Sphinx, env: BuildEnvironment, node: pending_xref, contnode: nodes.Element) -> nodes.Node | None:
    """What a name in a signature means in its own module: a link into the package, or plain text if it is from outside.

    A name that is neither built in nor imported nor defined by the module stays a warning.
    """
    module = read_package(Path(app.srcdir)).get((node.get("py:module") or "").removeprefix(f"{PACKAGE}."))
    if node.get("refdomain") != "py" or module is None:
        return None
    target = node["reftarget"]
    full = full_name(target, module, Path(app.srcdir))
    if full and full != target:
        domain = env.get_domain("py")
        return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", full, node, contnode)
    first = target.partition(".")[0]
    return contnode if first in module.imports or hasattr(builtins, first) else None


def configure(app: Sphinx, config: Config) -> None:
    """Take the addresses from where they are kept, and set how entries look."""
    root = Path(app.srcdir)
    branch = config.html_theme_options.get("repository_branch") or "main"
    config.api_source = f"{repository_url(root)}/blob/{branch}"
    config.linkcode_resolve = partial(source_address, config.api_source, root)
    config.add_module_names = False
    config.python_maximum_signature_line_length = 72
    config.toc_object_entries_show_parents = "hide"


def setup(app: Sphinx) -> dict[str, bool | str]:
    app.setup_extension("sphinx.ext.linkcode")
    app.add_config_value("api_source", "", "env")
    app.add_directive("api-modules", ModulesDirective)
    app.add_directive("api-index", IndexDirective)
    app.connect("config-inited", configure)
    app.connect("missing-reference", foreign_type)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}

"""What the package's files say of themselves, read with `ast` and without importing anything.

A module's public symbols are what its file defines without a leading underscore: functions, classes with their methods
and fields, constants, aliases of types. What it only imports is not among them.
"""

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PACKAGE = "vitbook"
FROM_TORCH = {"extra_repr"}  # overridden for torch's sake, and called by nobody
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Field:
    """A field of a dataclass, as it is written."""

    name: str
    annotation: str
    default: str  # "" where there is none
    comment: str


@dataclass(frozen=True)
class Symbol:
    """Something public in a module."""

    name: str  # within the module; a method's begins with its class
    kind: str  # function, class, exception, method, property, data or type
    line: int  # where its definition begins, after any decorators; from 1
    end: int  # the last line of it
    doc: str  # docstring; of a constant, its comment; else what a decorator that registers it is told
    signature: str = ""  # "(q: Tensor) -> Tensor"; of a property, constant or alias, its type
    value: str = ""  # of a constant or alias, as written
    bases: tuple[str, ...] = ()
    fields: tuple[Field, ...] = ()  # of a dataclass
    members: tuple["Symbol", ...] = ()  # of a class
    arguments: tuple[str, ...] = ()  # names of arguments, or of fields
    modifier: str = ""  # classmethod or staticmethod


@dataclass(frozen=True)
class Module:
    """One file of the package."""

    name: str  # without the package's
    doc: str
    symbols: tuple[Symbol, ...]
    imports: dict[str, str]  # names that it imports: full names

    def find(self, name: str) -> Symbol | None:
        """A symbol by its name within the module, such as "ViTConfig" or "VisionTransformer.features"."""
        everything = [member for symbol in self.symbols for member in (symbol, *symbol.members)]
        return next((symbol for symbol in everything if symbol.name == name), None)


def read_module(path: Path) -> Module:
    """A module from its file."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    lines = text.splitlines()
    symbols = [symbol for node in tree.body for symbol in public(node, lines)]
    return Module(path.stem, ast.get_docstring(tree) or "", tuple(symbols), imports(tree))


@cache
def read_package(root: Path) -> dict[str, Module]:
    """Every module of the package but those that begin with an underscore, by name."""
    return {path.stem: read_module(path) for path in sorted((root / PACKAGE).glob("[!_]*.py"))}


def imports(tree: ast.Module) -> dict[str, str]:
    """Names that the file's imports bind, anywhere in it, and what they stand for."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {(alias.asname or alias.name).split(".")[0]: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return found


def public(node: ast.stmt, lines: list[str]) -> Iterator[Symbol]:
    """The public symbols that a statement of a module defines."""
    if isinstance(node, Function) and not node.name.startswith("_"):
        yield function(node, "function")
    elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
        yield a_class(node, lines)
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = [name for target in targets for name in (target.elts if isinstance(target, ast.Tuple) else [target])]
        alone = len(names) == 1
        for name in names:
            if isinstance(name, ast.Name) and not name.id.startswith("_"):
                alias = not name.id.isupper() and name.id[0].isupper() and "_" not in name.id
                yield Symbol(
                    name.id,
                    "type" if alias else "data",
                    node.lineno,
                    node.end_lineno,
                    comment(node, lines) or comment_above(node, lines),
                    ast.unparse(node.annotation) if isinstance(node, ast.AnnAssign) else "",
                    written(node.value, lines) if alone else "",
                )


def function(node: Function, kind: str, owner: str = "") -> Symbol:
    """A function or a method."""
    decorators = {ast.unparse(decorator).split(".")[-1] for decorator in node.decorator_list}
    modifier = next((word for word in ("classmethod", "staticmethod") if word in decorators), "")
    bound = owner and modifier != "staticmethod"  # the first argument is self or cls
    arguments = without_first(node.args) if bound else node.args
    returns = ast.unparse(node.returns) if node.returns else ""
    is_property = decorators & {"property", "cached_property"}
    names = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    names += [extra for extra in (arguments.vararg, arguments.kwarg) if extra]
    return Symbol(
        f"{owner}.{node.name}" if owner else node.name,
        "property" if is_property else kind,
        node.lineno,
        node.end_lineno,
        ast.get_docstring(node) or registered(node),
        returns if is_property else f"({ast.unparse(arguments)})" + (f" -> {returns}" if returns else ""),
        arguments=tuple(argument.arg for argument in names),
        modifier=modifier,
    )


def without_first(arguments: ast.arguments) -> ast.arguments:
    """A method's arguments as its callers see them."""
    parts = {name: getattr(arguments, name) for name in arguments._fields}
    first = "posonlyargs" if arguments.posonlyargs else "args"
    return ast.arguments(**parts | {first: parts[first][1:]})


def a_class(node: ast.ClassDef, lines: list[str]) -> Symbol:
    """A class, its fields if it is a dataclass, its constructor, its public methods and properties."""
    methods = [child for child in node.body if isinstance(child, Function)]
    constructor = next((method for method in methods if method.name == "__init__"), None)
    members = [function(method, "method", node.name) for method in methods if not method.name.startswith("_")]
    bases = tuple(ast.unparse(base) for base in node.bases)
    is_dataclass = any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)
    fields = tuple(dataclass_fields(node, lines)) if is_dataclass else ()
    made = function(constructor, "method", node.name) if constructor else None
    doc = ast.get_docstring(node) or registered(node)
    if made and made.doc:
        doc = f"{doc}\n\n{made.doc}"
    return Symbol(
        node.name,
        "exception" if {"Exception", "ValueError", "RuntimeError"} & set(bases) else "class",
        node.lineno,
        node.end_lineno,
        doc,
        made.signature if made else "",
        bases=bases,
        fields=fields,
        members=tuple(member for member in members if member.name.split(".")[1] not in FROM_TORCH),
        arguments=made.arguments if made else tuple(field.name for field in fields),
    )


def dataclass_fields(node: ast.ClassDef, lines: list[str]) -> Iterator[Field]:
    """The public fields of a dataclass, with the comments behind them."""
    for child in node.body:
        if isinstance(child, ast.AnnAssign) and not child.target.id.startswith("_"):
            default = written(child.value, lines)
            made = re.fullmatch(r"field\(default_factory=(\w+)\)", default)
            default = f"{made.group(1)}()" if made else default
            words = comment(child, lines) or comment_above(child, lines)
            yield Field(child.target.id, ast.unparse(child.annotation), default, words)


def written(node: ast.expr | None, lines: list[str]) -> str:
    """An expression as it stands in the file, numbers and quotes included."""
    return (node and ast.get_source_segment("\n".join(lines), node)) or ""


def comment(node: ast.stmt, lines: list[str]) -> str:
    """The comment behind a statement, on its last line; or, of one with brackets, behind its opening line."""
    behind = lines[node.end_lineno - 1].encode()[node.end_col_offset :].decode().strip()
    opening = re.search(r"[(\[{]  # (.*)$", lines[node.lineno - 1]) if node.end_lineno > node.lineno else None
    return (opening.group(1) if opening else behind.removeprefix("#").strip()).removeprefix("noqa: F401").strip()


def comment_above(node: ast.stmt, lines: list[str]) -> str:
    """The comment that ends on the line before a statement."""
    first = node.lineno - 1
    while first and lines[first - 1].strip().startswith("# "):
        first -= 1
    return " ".join(line.strip()[2:] for line in lines[first : node.lineno - 1])


def registered(node: Function | ast.ClassDef) -> str:
    """What a decorator is told of what it registers: the words that it is called with, one paragraph each."""
    words = []
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call):
            words += [decorator_word("", value) for value in decorator.args]
            words += [decorator_word(keyword.arg, keyword.value) for keyword in decorator.keywords]
    return "\n\n".join(word for word in words if word)


def decorator_word(name: str, value: ast.expr) -> str:
    """One argument of a decorator as a paragraph; nothing for what is no sentence, such as the address of a section."""
    if name == "instead_of":
        return f"Instead of `{ast.unparse(value)}`."
    if not isinstance(value, ast.Constant) or not isinstance(value.value, str) or " " not in value.value:
        return ""
    return f"{name.capitalize()}: {value.value}" if name else value.value


# Who teaches a module, and who proves it


def code_of(notebook: Path) -> str:
    """A notebook's code cells, without magic commands."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    return re.sub(r"^(\s*)[%!].*$", r"\1pass", code, flags=re.M)


@cache
def chapters_of(root: Path) -> tuple[dict[str, list[Path]], dict[str, list[Path]]]:
    """For each module the chapters that teach it, being called after it or showing its source; and all that use it."""
    teach: dict[str, list[Path]] = {name: [] for name in read_package(root)}
    use: dict[str, list[Path]] = {name: [] for name in teach}
    for path in sorted((root / "chapters").glob("*.ipynb")):
        tree = ast.parse(code_of(path))
        known = imports(tree)
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        shows = [call for call in calls if getattr(call.func, "id", "") == "show_source"]
        shown = [known.get(ast.unparse(argument).split(".")[0], "") for call in shows for argument in call.args]
        for name in teach:
            if path.stem.partition("_")[2] == name or any(of_module(full, name) for full in shown):
                teach[name].append(path)
            if any(of_module(full, name) for full in known.values()):
                use[name].append(path)
    return teach, use


def of_module(full: str, name: str) -> bool:
    """Whether a full name is that of a module of the package, or lies in it."""
    return f"{full}.".startswith(f"{PACKAGE}.{name}.")


def title_of(notebook: Path) -> str:
    """A chapter's number and title, up to a colon."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    return re.search(r"^# ([^:\n?]*)", text, flags=re.M).group(1).strip()


@cache
def proven(root: Path) -> dict[str, list[Path]]:
    """For each module its tests: the files called after it, or, where there are none, those that import it."""
    names = set(read_package(root))
    files = sorted((root / "tests").glob("test_*.py"))
    imported = {path: set(imports(ast.parse(path.read_text(encoding="utf-8"))).values()) for path in files}
    found: dict[str, list[Path]] = {name: [] for name in names}
    for path in files:
        stem = path.stem.removeprefix("test_")
        owners = [name for name in names if stem == name or stem.startswith(f"{name}_")]
        if owners:
            found[max(owners, key=len)].append(path)
    for name in names:
        importing = [path for path in files if any(of_module(full, name) for full in imported[path])]
        found[name] = found[name] or importing
    return found

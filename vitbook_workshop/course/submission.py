"""One student's notebooks, judged in a process of their own: only the answers are run, and the statements they need.

This is no sandbox: the code is the student's. What it can be kept from is said in `isolate`.
"""

import ast
import ctypes
import json
import os
import re
import runpy
import symtable
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

from vitbook_workshop.exercises.grader.progress import checked

# What Python tells of before it changes files: audit events that begin with one path or two.
_CHANGES = {
    f"os.{name}" for name in ("chmod", "chown", "link", "mkdir", "remove", "rename", "rmdir", "symlink", "truncate")
}
_CHANGES |= {"shutil.copyfile", "shutil.move", "shutil.rmtree"}


def judge_all(
    tell: Callable, folder: str, notebooks: dict[str, str], asked: dict[str, list[str]], numbers: dict, file: str
) -> None:
    """Tell the judgement of each exercise. notebooks: name → path; asked: name → exercises; numbers: by exercise.

    file: the student's my_vit.py or "", asked for a component where the notebook has none. A path may be "", too.
    """
    tell(network="off" if isolate(Path(folder)) else "on")
    from vitbook_workshop.exercises import exercise_of
    from vitbook_workshop.exercises.grader.judging import judge
    from vitbook_workshop.exercises.my_vit.components import COMPONENTS

    written_in = definitions(Path(file).read_text(encoding="utf-8", errors="replace")) if file else {}
    judged: dict[str, dict] = {}
    for name, path in notebooks.items():
        cells = code_of(json.loads(Path(path).read_text(encoding="utf-8"))) if path else []
        for exercise in asked[name]:
            tell(doing=exercise)
            try:
                attempt, written = attempt_at(exercise, cells)
                wanted = exercise_of(exercise, **numbers.get(exercise, {}))
                found = judge(wanted, attempt)
                component = next((one for one, known in COMPONENTS.items() if known is wanted), "")
                if found.state == "not attempted" and component in written_in:
                    found, written = judge(wanted, _values(file).get(component)), written_in[component]
                judged[exercise] = dict(state=found.state, mistakes=found.mistakes, said=str(found), written=written)
            except BaseException as error:  # whatever a student's code raises, exit() among them
                said = f"not yet: the cells before it stop with {type(error).__name__}: {error}"
                judged[exercise] = dict(state="wrong", mistakes=[], said=" ".join(said.split())[:300], written="")
            tell(judged=judged)


def definitions(code: str) -> dict[str, str]:
    """The functions and classes in the code of a file, by their names."""
    return {one.name: ast.unparse(one) for one in _statements(code) if isinstance(one, ast.FunctionDef | ast.ClassDef)}


@cache
def _values(file: str) -> dict[str, object]:
    return runpy.run_path(file)


def code_of(notebook: dict) -> list[str]:
    """The code cells of a notebook."""
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def attempt_at(exercise: str, cells: list[str]) -> tuple[object, str]:
    """The value that a notebook hands to `check`, and the code that made it; None where it checks no such exercise.

    Run are the statements that the value depends on, found backwards by the names that they bind.
    """
    place = next((i for i, cell in reversed(list(enumerate(cells))) if exercise in checked(cell)), None)
    if place is None:
        return None, ""
    before = [statement for cell in cells[: place + 1] for statement in _statements(cell)]
    position, call = next(
        (position, node)
        for position, statement in reversed(list(enumerate(before)))
        for node in ast.walk(statement)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "check" and node.args[0].value == exercise
    )
    given = call.args[1] if len(call.args) > 1 else next(part.value for part in call.keywords if part.arg == "attempt")
    kept = _needed(before[:position], set().union(*_names(given)[:2]))
    names: dict = {"__name__": "__main__"}
    for statement in kept:
        exec(compile(ast.fix_missing_locations(ast.Module([statement], [])), "answer", "exec"), names)
    value = eval(compile(ast.fix_missing_locations(ast.Expression(given)), "answer", "eval"), names)
    own = [ast.unparse(statement) for statement in kept if not isinstance(statement, ast.Import | ast.ImportFrom)]
    return value, "\n".join(own)


@cache
def _statements(cell: str) -> list[ast.stmt]:
    """Of a cell without the lines that only notebooks know; none where it is no Python."""
    try:
        return ast.parse(re.sub(r"^(\s*)[%!].*$", r"\1pass", cell, flags=re.M)).body
    except (SyntaxError, ValueError, RecursionError):
        return []


def _needed(statements: list[ast.stmt], names: set[str]) -> list[ast.stmt]:
    """The statements that names depend on, found backwards. What a function reads may be bound below it, too."""
    imported = set().union(*(_names(one)[2] for one in statements if isinstance(one, ast.Import | ast.ImportFrom)))
    while True:
        needed, in_functions, kept = set(names), set(), []
        for statement in reversed(statements):
            read, read_inside, bound = _names(statement)
            if (bound | _changed(statement) - imported) & needed:
                if not isinstance(statement, ast.AugAssign | ast.For | ast.While | ast.If | ast.With | ast.Try):
                    needed -= bound
                needed |= read | read_inside
                in_functions |= read_inside
                kept.append(statement)
        if in_functions <= names:
            return kept[::-1]
        names = names | in_functions


@cache
def _names(node: ast.AST) -> tuple[set[str], set[str], set[str]]:
    """What a statement or an expression reads of the module around it, what functions in it do, and what it binds."""
    top = symtable.symtable(ast.unparse(node), "answer", "exec")
    bound = {name.get_name() for name in top.get_symbols() if name.is_assigned() or name.is_imported()}
    read, inside, scopes = {name.get_name() for name in top.get_symbols() if name.is_referenced()}, set(), [top]
    while scopes := [child for scope in scopes for child in scope.get_children()]:
        symbols = [name for scope in scopes for name in scope.get_symbols()]
        inside |= {name.get_name() for name in symbols if name.is_referenced() and name.is_global()}
    return read, inside, bound


@cache
def _changed(statement: ast.stmt) -> set[str]:
    """The names whose values a statement changes in place: `x[0] = 1`, `x.bias += 1`, `x.append(1)`."""
    parts = [part for part in ast.walk(statement) if isinstance(part, ast.Subscript | ast.Attribute)]
    places = [part.value for part in parts if isinstance(part.ctx, ast.Store)]
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        places += [part.value for part in [statement.value.func] if isinstance(part, ast.Attribute)]
    found = set()
    for place in places:
        while isinstance(place, ast.Subscript | ast.Attribute):
            place = place.value
        if isinstance(place, ast.Name):
            found.add(place.id)
    return found


def isolate(folder: Path) -> bool:
    """Change files in this folder alone, and reach no network where the system lets a process give that up (Linux).

    Returns whether the network is off. Code that means harm gets around the first.
    """
    os.chdir(folder)
    allowed = (f"{folder.resolve()}{os.sep}", os.devnull)

    def refuse(event: str, arguments: tuple) -> None:
        if event == "open":
            path, mode, flags = arguments
            writes = (mode and set("wxa+") & set(mode)) or (flags or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            paths = (path,) if writes else ()
        else:
            paths = arguments[:2] if event in _CHANGES else ()
        for path in paths:
            where = os.path.realpath(os.fsdecode(path)) if isinstance(path, str | bytes) else ""
            if where and not where.startswith(allowed) and "__pycache__" not in where:
                raise PermissionError(f"it writes outside its folder: {where}")

    sys.addaudithook(refuse)
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    user, network = 0x10000000, 0x40000000
    return libc.unshare(user | network) == 0

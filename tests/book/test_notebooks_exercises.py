"""In every chapter: the stub is not attempted yet, as the page says, and the solution that stands below it is right."""

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import notebook_lint as lint
import notebooks as notebook_tool
import pytest

from vitbook_workshop.exercises import EXERCISES
from vitbook_workshop.exercises.grader.judging import NOT_ATTEMPTED, RIGHT
from vitbook_workshop.exercises.grader.progress import checked, progress

SOLUTION = re.compile(r"<summary>[^<]*Solution[^<]*</summary>(.*?)</details>", re.S)
PYTHON = re.compile(r"^```python\n(.*?)^```", re.S | re.M)


@dataclass(frozen=True)
class Printed:
    """An exercise as a chapter has it."""

    name: str
    chapter: Path
    stub: str
    check: str
    output: str  # as stored
    solution: str


def exercises_of(path: Path) -> list[Printed]:
    """Every check cell of a chapter, with the stub before it and the solution after it."""
    cells = lint.load(path).cells
    printed = []
    for i, cell in enumerate(cells):
        if cell.cell_type != "code" or not (names := checked(cell.source)):
            continue
        stub = next(c.source for c in reversed(cells[:i]) if c.cell_type == "code")
        below = "\n".join(c.source for c in cells[i + 1 : i + 3] if c.cell_type == "markdown")
        solution = "".join(block for text in SOLUTION.findall(below)[:1] for block in PYTHON.findall(text))
        output = "".join(part.get("text", "") for part in cell.outputs)
        printed.append(Printed(names[0], path, stub, cell.source, output, solution))
    return printed


PRINTED = [exercise for path in lint.chapter_paths() for exercise in exercises_of(path)]
every_exercise = pytest.mark.parametrize("exercise", PRINTED, ids=lambda exercise: exercise.name)


@cache
def definitions(path: Path) -> list[ast.stmt]:
    """What a chapter imports, defines and sets to plain numbers: all of it that a solution may rely on."""
    kept = []
    for _, cell in lint.load(path).code():
        if notebook_tool.is_generated(cell):
            continue
        for statement in ast.parse(cell.source).body:
            literal = isinstance(statement, ast.Assign) and all(
                isinstance(node, ast.Constant | ast.Tuple | ast.Name | ast.Load) for node in ast.walk(statement.value)
            )
            if literal or isinstance(statement, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef):
                kept.append(statement)
    return kept


def answer(exercise: Printed, attempt: str, capsys) -> str:
    """What the check cell prints after `attempt` has been run in the cell before it."""
    names: dict = {}
    for statement in definitions(exercise.chapter):
        try:
            exec(compile(ast.Module([statement], []), exercise.chapter.name, "exec"), names)
        except (NameError, TypeError):  # it depends on what only running the chapter makes
            continue
    exec(compile(attempt, f"{exercise.name} in {exercise.chapter.name}", "exec"), names)
    exec(compile(exercise.check, exercise.chapter.name, "exec"), names)
    return capsys.readouterr().out


def test_every_exercise_is_in_its_chapter_and_nothing_is_attempted_there():
    states = [progress(path) for path in lint.chapter_paths()]
    assert [
        (path.stem[3:], name) for path, names in zip(lint.chapter_paths(), states, strict=True) for name in names
    ] == [(name.partition(".")[0], name) for name in EXERCISES]
    assert {state for names in states for state in names.values()} == {"not attempted"}


@every_exercise
def test_the_stub_is_not_attempted_yet_as_the_page_says(exercise, capsys):
    assert answer(exercise, exercise.stub, capsys) == exercise.output == f"{exercise.name}: {NOT_ATTEMPTED}\n"


@every_exercise
def test_the_solution_is_right(exercise, capsys):
    assert exercise.solution, "write the solution as a ```python block inside its <details>"
    assert answer(exercise, exercise.solution, capsys) == f"{exercise.name}: {RIGHT}\n"

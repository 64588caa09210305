"""What a student gets: chapters without solutions, with one's own numbers, and a broken model to repair.

And what the teacher keeps for oneself: the same with the answers.
"""

import json
import re
from collections.abc import Collection
from copy import deepcopy
from itertools import product
from pathlib import Path

from vitbook._common.files import write_whole
from vitbook_workshop.course.roster import Course, Student
from vitbook_workshop.exercises import EXERCISES, two_faults
from vitbook_workshop.exercises.grader.progress import checked

BROKEN = "two_faults.ipynb"
_SOLUTION = re.compile(r"<details>\s*<summary>[^<]*Solution[^<]*</summary>.*?</details>\s*", re.S)
_SHOWN = re.compile(r"show_source\(([\w.]+)[,)]")
_ELSEWHERE = re.compile(r"^```python\n(\w+) = ([A-Za-z]\w*)\n```", re.M)  # a solution that another cell holds


def chapters_of(book: Path, asked: str) -> dict[str, dict]:
    """The chapters with these numbers, "1-9" or "1,3,5", by their names. Raises ValueError where one is not there."""
    there = {int(path.stem[:2]): path for path in sorted((book / "chapters").glob("[0-9][0-9]_*.ipynb"))}
    if not there:
        raise ValueError(f"{book.resolve()} must be a clone of this book, with chapters/")
    return {
        there[number].stem: json.loads(there[number].read_text(encoding="utf-8")) for number in numbers_of(asked, there)
    }


def numbers_of(asked: str, there: Collection[int]) -> list[int]:
    """Of "1-9" or "1,3,5", ascending. Raises ValueError for anything else, and for numbers that are not there."""
    try:
        ranges = [[int(end) for end in part.split("-")] for part in asked.split(",")]
        numbers = {number for ends in ranges for number in range(ends[0], ends[-1] + 1)}
    except ValueError:
        raise ValueError(f"chapters must be numbers such as 1-9 or 1,3,5, got {asked}") from None
    if not numbers or numbers - set(there):
        raise ValueError(f"chapters must be among {min(there)} to {max(there)}, got {asked}")
    return sorted(numbers)


def write_all(course: Course, folder: Path, chapters: dict[str, dict]) -> None:
    """Into students/SLUG the notebooks of each, into solutions/SLUG the same with answers. chapters: by their names."""
    for student, (place, answers) in product(course.students, (("students", False), ("solutions", True))):
        for name, chapter in chapters.items():
            _write(folder / place / student.slug / f"{name}.ipynb", of_a_student(chapter, course, student, answers))
        _write(folder / place / student.slug / BROKEN, broken(course, student, answers))


def _write(path: Path, notebook: dict) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, (json.dumps(notebook, indent=1, ensure_ascii=False) + "\n").encode())


def of_a_student(chapter: dict, course: Course, student: Student, answers: bool = False) -> dict:
    """A chapter with a student's numbers; without answers, also without solutions and the code that would be one."""
    notebook = deepcopy(chapter)
    notebook["metadata"]["vitbook"] = {"course": course.identity, "student": student.slug}
    references = _references(notebook)
    folded = "\n".join(found for cell in notebook["cells"] for found in _SOLUTION.findall("".join(cell["source"])))
    elsewhere = {} if answers else {theirs: asked for asked, theirs in _ELSEWHERE.findall(folded)}
    kept = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        for theirs, asked in elsewhere.items():
            text = _without(text, theirs, asked, cell["cell_type"])
        if cell["cell_type"] == "code":
            names = checked(text)
            if names:
                cell["outputs"], cell["execution_count"] = [], None
                cell["metadata"]["nbgrader"] = _graded(names[0])
                text = _asked(text, student.numbers.get(names[0], {}))
            elif not answers and references & set(_SHOWN.findall(text)):
                continue
        else:
            text = _question(text, student) if answers else _SOLUTION.sub("", _question(text, student))
        if text.strip():
            kept.append(cell | {"source": text.splitlines(keepends=True)})
    if answers:
        kept = [part for cell in kept for part in (cell, *_answer(cell, student))]
    notebook["cells"] = [cell | {"id": f"cell-{number}"} for number, cell in enumerate(kept)]
    return notebook


def _without(text: str, theirs: str, asked: str, kind: str) -> str:
    """A cell without a solution that is called `theirs`: what uses it takes the student's own, called `asked`."""
    if kind == "code":
        defined = re.search(rf"^(class|def) {theirs}\b", text, re.M)
        return "" if defined else re.sub(rf"\b{theirs}\b(.*#.*)?", asked, text)
    return "\n\n".join(part for part in text.split("\n\n") if theirs not in part or "```" in part)


def _references(notebook: dict) -> set[str]:
    """The functions that this chapter's exercises ask for, by the names under which it shows their source."""
    asked = [
        name for cell in notebook["cells"] if cell["cell_type"] == "code" for name in checked("".join(cell["source"]))
    ]
    named = [getattr(EXERCISES[name].reference, "__name__", "") for name in asked] + [
        name.split(".")[1] for name in asked
    ]
    return {name for name in named if name}


def _graded(name: str) -> dict:
    """What nbgrader has to know of a check cell: it is run, and right if it raises nothing."""
    kind = {"grade": True, "locked": True, "solution": False, "task": False, "cell_type": "code", "schema_version": 3}
    return kind | {"grade_id": name.replace(".", "-"), "points": 1}


def _asked(text: str, numbers: dict[str, float]) -> str:
    """The check cell, told the student's numbers."""
    more = "".join(f", {name}={value}" for name, value in numbers.items())
    return re.sub(r"\)\s*$", f"{more})", text) if numbers else text


def _question(text: str, student: Student) -> str:
    for name, numbers in student.numbers.items():
        personal = EXERCISES[name].personal
        text = text.replace(personal.prompt(**personal.own), personal.prompt(**numbers))
    return text


def _answer(cell: dict, student: Student) -> list[dict]:
    """Behind a check cell with the student's own numbers: what is right for these."""
    names = checked("".join(cell["source"])) if cell["cell_type"] == "code" else []
    if not names or names[0] not in student.numbers:
        return []
    right = EXERCISES[names[0]].personal.make(**student.numbers[names[0]]).reference
    return [
        _markdown(f"With this student's numbers the answer is {right:.10g}; the solution below has the chapter's own.")
    ]


def broken(course: Course, student: Student, answers: bool = False) -> dict:
    """The notebook with a student's broken model."""
    text = [
        "# Repair a Vision Transformer",
        "This model runs, and it learns. Two things in it are wrong. Find both, as in chapter 19, and correct them in "
        "the cell. Names and sizes of parameters stay as they are: weights of the right model are loaded by name.",
    ]
    cells = [_markdown("\n\n".join(text)), _code(two_faults.source(*student.faults))]
    checks = _code('from vitbook_workshop.exercises import check\n\ncheck("two_faults.repaired", ViT)')
    cells += [checks | {"metadata": {"nbgrader": _graded("two_faults.repaired")}}]
    if answers:
        cells += [_markdown(f"The two: {' and '.join(student.faults)}."), _code(two_faults.source())]
    cells = [cell | {"id": f"cell-{number}"} for number, cell in enumerate(cells)]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "vitbook": {"course": course.identity, "student": student.slug}}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def _markdown(text: str) -> dict:
    return {"cell_type": "markdown", "metadata": {}, "source": text.splitlines(keepends=True)}


def _code(text: str) -> dict:
    return {
        "cell_type": "code",
        "metadata": {},
        "execution_count": None,
        "outputs": [],
        "source": text.splitlines(keepends=True),
    }

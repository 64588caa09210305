"""A class made by script: the notebooks of a course, with answers that are right, wrong, or meant to do harm."""

import json
import re
from pathlib import Path

from vitbook_workshop.course.course_key import Student
from vitbook_workshop.exercises import exercise_of, two_faults
from vitbook_workshop.exercises.progress import checked

ROOT = Path(__file__).resolve().parents[3]
SOLUTION = re.compile(r"<summary>[^<]*Solution[^<]*</summary>(.*?)</details>", re.S)
PYTHON = re.compile(r"^```python\n(.*?)^```", re.S | re.M)


def solutions(chapter: str) -> dict[str, str]:
    """The solution of each exercise, as the chapter has it."""
    cells = json.loads((ROOT / "chapters" / chapter).read_text(encoding="utf-8"))["cells"]
    found = {}
    for i, cell in enumerate(cells):
        names = checked("".join(cell["source"])) if cell["cell_type"] == "code" else []
        below = "\n".join("".join(c["source"]) for c in cells[i + 1 : i + 3] if c["cell_type"] == "markdown")
        for name in names:
            found[name] = "".join(block for text in SOLUTION.findall(below)[:1] for block in PYTHON.findall(text))
    return found


def answer(path: Path, answers: dict[str, str]) -> None:
    """Write the code of each exercise into the cell before its check cell."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for before, cell in zip(code, code[1:], strict=False):
        for name in checked("".join(cell["source"])):
            if name in answers:
                before["source"] = answers[name].splitlines(keepends=True)
    path.write_text(json.dumps(notebook), encoding="utf-8")


def answer_rightly(folder: Path, student: Student) -> None:
    """Every exercise, with the student's own numbers."""
    for path in folder.glob("*.ipynb"):
        if path.name == "two_faults.ipynb":
            answer(path, {"two_faults.repaired": two_faults.source()})
            continue
        right = solutions(path.name)
        for name, numbers in student.numbers.items():
            if name in right:
                target = right[name].partition(" = ")[0]
                right[name] = f"{target} = {exercise_of(name, **numbers).reference!r}"
        answer(path, right)

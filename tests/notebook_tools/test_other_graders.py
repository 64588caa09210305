"""nbgrader, Otter and nbmake judge a student's notebook as the book does: nothing done fails, a right one passes."""

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "workshop" / "course"))
from made_class import answer, answer_rightly  # noqa: E402

from vitbook_workshop.course import roster, student_notebooks  # noqa: E402
from vitbook_workshop.exercises.grader.progress import checked  # noqa: E402

WAYS = ("nothing", "wrong", "right")
TURNED = "def my_weights(scores):\n    return scores.softmax(dim=-2)"
NAME = "01_attention.ipynb"


@pytest.fixture(scope="module")
def handed_in(tmp_path_factory):
    """A folder for each of `WAYS` with chapter 1: what it imports, the answers, and their checks."""
    folder = tmp_path_factory.mktemp("class")
    chapters = student_notebooks.chapters_of(ROOT, "1")
    course = roster.draw([(way, way) for way in WAYS], tuple(chapters), seed=3)
    student_notebooks.write_all(course, folder, chapters)
    for student in course.students:
        path = folder / "students" / student.slug / NAME
        if student.slug != "nothing":
            answer_rightly(path.parent, student)
        if student.slug == "wrong":
            answer(path, {"attention.weights": TURNED})
        notebook = json.loads(path.read_text(encoding="utf-8"))
        code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        asks = {i for i, cell in enumerate(code) if checked("".join(cell["source"]))}
        brings = next(i for i, cell in enumerate(code) if "import check" in "".join(cell["source"]))
        notebook["cells"] = [cell for i, cell in enumerate(code) if i == brings or {i, i + 1} & asks]
        path.write_text(json.dumps(notebook), encoding="utf-8")
    return folder / "students"


def told(*command: str | Path, folder: Path, **environment: str) -> str:
    """What a command of this environment prints."""
    around = os.environ | {"PYTHONPATH": str(ROOT), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        list(map(str, command)), cwd=folder, env=around | environment, capture_output=True, text=True, timeout=550
    )
    return re.sub(r"\x1b\[[\d;]*m", "", done.stdout + done.stderr)


@pytest.mark.parametrize("way", WAYS)
def test_nbgrader_validate(handed_in, way):
    said = told("nbgrader", "validate", NAME, folder=handed_in / way, VITBOOK_STRICT="1")
    assert ("Success! Your notebook passes all the tests" in said) == (way == "right"), said
    assert said.count("NotRightError: ") == {"nothing": 5, "wrong": 1, "right": 0}[way], said
    assert ("softmax over the queries" in said) == (way == "wrong")


@pytest.mark.parametrize("way", WAYS)
def test_nbmake_where_the_checks_are_strict(handed_in, tmp_path, way):
    text = (handed_in / way / NAME).read_text(encoding="utf-8")
    (tmp_path / NAME).write_text(re.sub(r'(check\(\\".*?)\)"', r'\1, strict=True)"', text), encoding="utf-8")
    said = told(sys.executable, "-m", "pytest", "--nbmake", NAME, "-p", "no:cacheprovider", folder=tmp_path)
    assert ("1 passed" in said, "1 failed" in said) == (way == "right", way != "right"), said
    assert ("NotRightError" in said) == (way != "right")


@pytest.mark.parametrize("way", WAYS)
def test_otter_check_with_the_test_file_of_the_page(handed_in, tmp_path, way):
    page = (ROOT / "teaching.md").read_text(encoding="utf-8")
    (code,) = (block for block in re.findall(r"```python\n(.*?)```", page, re.S) if "otter" in block)
    (tmp_path / "weights.py").write_text(code)
    said = told("otter", "check", "-t", tmp_path, handed_in / way / NAME, folder=tmp_path)
    assert ("All tests passed!" in said) == (way == "right"), said
    assert ("not attempted yet" in said, "softmax over the queries" in said) == (way == "nothing", way == "wrong")


def test_nbgrader_from_a_released_notebook_to_grades(handed_in, tmp_path):
    """Everybody has the same notebook, as nbgrader puts its own check cells in the place of a student's."""
    source = tmp_path / "source" / "week1"
    source.mkdir(parents=True)
    shutil.copy(handed_in / "nothing" / NAME, source)
    numbers = json.loads((handed_in / "nothing" / NAME).read_text(encoding="utf-8"))
    told("nbgrader", "generate_assignment", "week1", "--create", folder=tmp_path)
    released = tmp_path / "release" / "week1" / NAME
    assert released.is_file() and numbers["nbformat"] == 4
    for way in WAYS:
        place = tmp_path / "submitted" / way / "week1"
        place.mkdir(parents=True)
        shutil.copy(released, place)
        if way != "nothing":
            answer(place / NAME, {"attention.weights": TURNED if way == "wrong" else TURNED.replace("-2", "-1")})
    told("nbgrader", "autograde", "week1", "--create", folder=tmp_path, VITBOOK_STRICT="1")
    told("nbgrader", "export", "--to", "grades.csv", folder=tmp_path)
    with (tmp_path / "grades.csv").open() as file:
        scores = {row["student_id"]: (float(row["raw_score"]), float(row["max_score"])) for row in csv.DictReader(file)}
    assert scores == {"nothing": (0, 5), "wrong": (0, 5), "right": (1, 5)}

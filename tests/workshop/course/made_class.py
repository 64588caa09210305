"""A class made by script: the notebooks of a course, with answers that are right, wrong, or meant to do harm."""

import json
import re
import shutil
from pathlib import Path

from vitbook_workshop.course.grades import MOST, Graded, exercises_of
from vitbook_workshop.course.roster import Course, Student
from vitbook_workshop.exercises import exercise_of, two_faults
from vitbook_workshop.exercises.grader.progress import checked

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
            code = "".join(block for text in SOLUTION.findall(below)[:1] for block in PYTHON.findall(text))
            named = re.fullmatch(r"\w+ = (\w+)\n", code)  # what another cell of the chapter holds
            if named and not named[1].isdigit():
                code = (
                    next(text for text in map("".join, (c["source"] for c in cells)) if f"class {named[1]}" in text)
                    + f"\n{code}"
                )
            found[name] = code
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


def answer_wrongly(folder: Path, student: Student, turn: int) -> dict[str, tuple[str, ...]]:
    """Every exercise by one of its known mistakes, another at each turn. Returns which."""
    made: dict[str, tuple[str, ...]] = {}
    for path in folder.glob("*.ipynb"):
        wrong: dict[str, str] = {}
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        for cell in (cell for cell in cells if cell["cell_type"] == "code"):
            text = "".join(cell["source"])
            for name in checked(text):
                known = exercise_of(name, **student.numbers.get(name, {})).mistakes
                if not known:
                    continue
                number = turn % len(known)
                made[name] = tuple(getattr(one, "__name__", one) for one in list(known)[number])
                target, value = re.search(r"check\([^,]+, (\w+)", text)[1], list(known.values())[number]
                wrong[name] = f"{target} = {value!r}"
                if callable(value):
                    wrong[name] = (
                        "from vitbook_workshop.exercises import exercise_of\n"
                        f"{target} = list(exercise_of({name!r}).mistakes.values())[{number}]"
                    )
        if path.name == "two_faults.ipynb":
            fault = list(two_faults.FAULTS)[turn % len(two_faults.FAULTS)]
            made["two_faults.repaired"], wrong["two_faults.repaired"] = (fault,), two_faults.source(fault)
        answer(path, wrong)
    return made


# What does harm in the first exercise of a chapter, and what is said of it.
HARM = {
    "exit": ("exit()", "SystemExit"),
    "ends Python": ("import os; os._exit(0)", "Python itself stopped"),
    "hangs": ("while True: pass", "stopped after"),
    "takes all memory": ("x = [bytes(10**9) for _ in range(100)]", "MemoryError"),
    "prints without end": ("while True: print('x' * 10**6)", "printed more than"),
    "writes elsewhere": ("open('/tmp/vitbook-outside', 'w').write('x')", "writes outside its folder"),
    "reaches for the network": ("import socket; socket.create_connection(('1.1.1.1', 80), 5)", "unreachable"),
    "recurses": ("f = lambda: f()\n    f()", "RecursionError"),
}


def answer_with_harm(folder: Path, student: Student, harm: str) -> None:
    """All rightly but for the first function of the first chapter."""
    answer_rightly(folder, student)
    code = f"def my_weights(scores):\n    {HARM[harm][0]}\n    return scores.softmax(dim=-1)"
    answer(folder / "01_attention.ipynb", {"attention.weights": code})


def claim(folder: Path) -> None:
    """Nothing done, and outputs stored that say otherwise."""
    for path in folder.glob("*.ipynb"):
        notebook = json.loads(path.read_text(encoding="utf-8"))
        for cell in (cell for cell in notebook["cells"] if cell["cell_type"] == "code"):
            said = "".join(f"{name}: right.\n" for name in checked("".join(cell["source"])))
            cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": said}]
        path.write_text(json.dumps(notebook), encoding="utf-8")


PARTS = ("right", "wrong", "wrong", "claims", "right", "wrong", "right", "wrong", "absent", *HARM, "no notebooks")
Played = dict[str, tuple[str, dict[str, tuple[str, ...]]]]


def hand_in_class(folder: Path, course: Course, place: Path) -> Played:
    """Submissions of a class of any size. Returns which of `PARTS` each plays, and the mistakes of who is wrong."""
    shutil.copytree(folder / "students", place)
    played: Played = {}
    for number, student in enumerate(course.students):
        own, part = place / student.slug, PARTS[number % len(PARTS)]
        made = answer_wrongly(own, student, turn=number) if part == "wrong" else {}
        played[student.slug] = part, made
        if part == "right":
            answer_rightly(own, student)
        elif part == "claims":
            claim(own)
        elif part == "absent":
            shutil.rmtree(own)
        elif part in HARM:
            answer_with_harm(own, student, part)
        elif part == "no notebooks":
            for path, content in zip(sorted(own.iterdir()), (b"no JSON", b" " * (MOST + 1), b"{}"), strict=False):
                path.write_bytes(content)
    return played


def surprises(course: Course, played: Played, graded: list[Graded]) -> list[str]:
    """What was not graded as it should be, a line each."""
    of, found = [name for names in exercises_of(course).values() for name in names], []
    for one in graded:
        part, made = played[one.slug]
        states = {name: one.judged.get(name, {}).get("state", "not handed in") for name in of}
        whole = dict(dict.fromkeys(("claims", "no notebooks"), "not attempted"), absent="not handed in")
        expected = dict.fromkeys(of, whole.get(part, "right"))
        if part == "no notebooks":
            lost = sorted(exercises_of(course))[:3]
            expected |= {name: "not handed in" for notebook in lost for name in exercises_of(course)[notebook]}
        if part == "wrong":
            expected = {name: "wrong" if name in made else "not attempted" for name in of}
            for name in made:
                if made[name] not in map(tuple, one.judged[name]["mistakes"]):
                    found.append(f"{one.slug}, {name}: {made[name]}, got {one.judged[name]['mistakes']}")
        elif part in HARM:
            expected["attention.weights"] = "wrong"
            said = " ".join([one.judged["attention.weights"]["said"], *one.remarks]).split()
            if HARM[part][1] not in " ".join(said):
                found.append(f"{one.slug}, {part}: {' '.join(said)}")
        found += [f"{one.slug}, {part}, {n}: {states[n]}, not {expected[n]}" for n in of if states[n] != expected[n]]
    return found

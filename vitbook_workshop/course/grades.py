"""A class's submissions, each in a process of its own, and what came of them; a command that was stopped goes on."""

import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from vitbook._common.files import write_whole
from vitbook_workshop import limited_process
from vitbook_workshop.course.roster import Course, Student
from vitbook_workshop.course.student_notebooks import BROKEN
from vitbook_workshop.course.submission import code_of, definitions
from vitbook_workshop.exercises import EXERCISES, two_faults
from vitbook_workshop.exercises.grader.judging import NOT_ATTEMPTED

MOST = 20_000_000  # bytes of a notebook
REPAIR = "two_faults.repaired"
OWN = "my_vit.py"  # what `vitbook exercises start` begins
MADE_FOR = "was made for "
LIMITS = limited_process.Limits(seconds=300, step=40, printed=1_000_000, memory=4_000_000_000)


@dataclass(frozen=True)
class Graded:
    """One student. judged: by exercise its state, the mistakes, what is said, the code written; remarks: one a line."""

    slug: str
    judged: dict[str, dict] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    network: str = "on"

    def count(self, state: str) -> int:
        return sum(one["state"] == state for one in self.judged.values())


def exercises_of(course: Course) -> dict[str, list[str]]:
    """The exercises of each notebook, by its name."""
    found = {
        f"{chapter}.ipynb": [name for name in EXERCISES if name.partition(".")[0] == chapter[3:]]
        for chapter in course.chapters
    }
    return found | {BROKEN: [REPAIR]}


def grade(
    course: Course,
    folder: Path,
    submissions: Path,
    workers: int = 2,
    limits: limited_process.Limits = LIMITS,
    say: Callable[[str], object] = print,
) -> list[Graded]:
    """Every student's notebooks in submissions/SLUG, at any depth. What is known already is read from folder/graded."""

    def one(student: Student) -> Graded:
        kept = folder / "graded" / f"{student.slug}.json"
        mark = _mark(course, submissions / student.slug)
        if kept.is_file() and (known := json.loads(kept.read_text(encoding="utf-8")))["mark"] == mark:
            return Graded(student.slug, known["judged"], tuple(known["remarks"]), known["network"])
        graded = grade_one(course, student, submissions / student.slug, limits)
        kept.parent.mkdir(exist_ok=True)
        write_whole(kept, (json.dumps({"mark": mark} | asdict(graded), ensure_ascii=False) + "\n").encode())
        say(f"{student.slug}: {graded.count('right')} right of {sum(map(len, exercises_of(course).values()))}")
        return graded

    known = {student.slug for student in course.students}
    for place in sorted(submissions.iterdir()):
        if place.is_dir() and place.name not in known:
            say(f"{place.name}: is nobody in this class, and was left out")
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(one, course.students))


def _mark(course: Course, place: Path) -> str:
    """Changes with the course and with what was handed in."""
    found = hashlib.sha256(course.identity.encode())
    for path in sorted([*place.rglob("*.ipynb"), *place.rglob(OWN)]):
        found.update(path.name.encode() + hashlib.sha256(path.read_bytes()[: MOST + 1]).digest())
    return found.hexdigest()


def grade_one(course: Course, student: Student, place: Path, limits: limited_process.Limits = LIMITS) -> Graded:
    """What came of one student. Whatever the notebooks are, nothing is raised."""
    if not place.is_dir():
        return Graded(student.slug, remarks=("handed nothing in",))
    asked, remarks, notebooks = exercises_of(course), [], {}
    file = next((path for path in sorted(place.rglob(OWN)) if _ordinary(path)), None)
    for name in asked:
        paths = sorted(place.rglob(name))
        problem = _problem(paths, course, student)
        if file and not paths:
            notebooks[name] = ""
        elif problem:
            remarks.append(f"{name}: {problem}")
        else:
            notebooks[name] = paths[0]
    judged: dict[str, dict] = {}
    left, network = {name: list(asked[name]) for name in notebooks}, "on"
    end = time.monotonic() + limits.seconds
    while any(left.values()):
        seconds = round(end - time.monotonic())
        if seconds <= 0:
            remarks.append(f"{sum(map(len, left.values()))} exercises were not judged: {limits.seconds:g} s were over")
            break
        with tempfile.TemporaryDirectory(prefix="vitbook-") as copy:
            copied = {name: path and shutil.copy(path, copy) for name, path in notebooks.items() if left[name]}
            own = shutil.copy(file, copy) if file else ""
            work = dict(folder=copy, notebooks=copied, asked=left, numbers=student.numbers, file=own)
            outcome = limited_process.run(
                "vitbook_workshop.course.submission:judge_all", work, replace(limits, seconds=seconds)
            )
        judged |= outcome.facts.get("judged", {})
        network = outcome.facts.get("network", network)
        at = outcome.facts.get("doing")
        if outcome.ended:
            remarks.append(f"{at or 'before the first exercise'}: {outcome.ended}")
            if at:
                judged.setdefault(at, dict(state="wrong", mistakes=[], said=f"not yet: {outcome.ended}", written=""))
        left = {name: [one for one in names if one not in judged] for name, names in left.items()}
        if not outcome.ended or not at:
            break
    repaired = judged.get(REPAIR, {})
    if repaired.get("written") == "\n".join(definitions(two_faults.source(*student.faults)).values()):
        repaired |= dict(state="not attempted", mistakes=[], said=NOT_ATTEMPTED, written="")
    order = [one for names in asked.values() for one in names]
    return Graded(student.slug, {one: judged[one] for one in order if one in judged}, tuple(remarks), network)


def _ordinary(path: Path) -> bool:
    return path.is_file() and not path.is_symlink() and path.stat().st_size <= MOST


def _problem(paths: list[Path], course: Course, student: Student) -> str:
    """Why a notebook is not judged, if it is not."""
    if not paths:
        return "not handed in"
    if len(paths) > 1:
        return f"handed in {len(paths)} times; leave one"
    path = paths[0]
    if not path.is_file() or path.is_symlink():
        return "must be a file"
    if not _ordinary(path):
        return f"has {path.stat().st_size / 1e6:,.0f} MB; the most that is read is {MOST / 1e6:.0f}"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        ours = document["metadata"].get("vitbook", {})
        cells = code_of(document)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return "is no Jupyter notebook of format 4"
    if ours.get("course") != course.identity:
        return "is of another course"
    if ours.get("student") != student.slug:
        other = next((one.slug for one in course.students if one.slug == ours.get("student")), "nobody in this class")
        return f"{MADE_FOR}{other}"
    return "" if cells else "holds no code"

"""Grade a class made by script in all exercises of chapters 1 to 9, and say how long it took: a line for RESULTS.md.

    python benchmarks/grade_a_class.py                  60 students by two processes at a time
    python benchmarks/grade_a_class.py --students 18    each part once

Raises AssertionError where somebody is not graded as it should be.
"""

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

from benchmark import machine
from torch import device

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "workshop" / "course"))

from made_class import hand_in_class, surprises  # noqa: E402

from vitbook_workshop.course import grades, report, roster, student_notebooks  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--students", type=int, default=60)
    parser.add_argument("--chapters", default="1-9")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder, chapters = Path(place), student_notebooks.chapters_of(ROOT, given.chapters)
        names = [(f"student-{number}", f"Student {number}") for number in range(1, given.students + 1)]
        course = roster.draw(names, tuple(chapters), seed=1)
        student_notebooks.write_all(course, folder, chapters)
        played = hand_in_class(folder, course, folder / "handed_in")
        began, cpu = time.perf_counter(), _cpu_seconds()
        graded = grades.grade(course, folder, folder / "handed_in", given.workers)
        seconds, cpu = time.perf_counter() - began, _cpu_seconds() - cpu
        report.write_html(folder / "report.html", course, graded)
    found = surprises(course, played, graded)
    assert not found, "\n".join(found)
    exercises = sum(map(len, grades.exercises_of(course).values()))
    print(machine(device("cpu")))
    print(f"| {given.students} | {exercises} | {given.workers} | {seconds:.0f} | {cpu:.0f} |")


def _cpu_seconds() -> float:
    """Of this process and of all that it has waited for."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


if __name__ == "__main__":
    main()

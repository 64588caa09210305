"""Marks: of a stranger's method, run in a process of its own, and of the book's methods, which are recorded."""

import json
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from vitbook.recorded import rows_of
from vitbook_workshop import limited_process

EXAMINE = "vitbook_workshop.exam.marks_in_child:examine_here"
TASKS = ("find", "compare", "count", "watermark")
CAVEAT = "measured on the exam's models, not on this one"
BESIDE = ("by chance", "rollout", "occlusion, gray")  # a stranger's marks are printed beside theirs, same models


def examine(target: str, scenes: int, timeout: float, progress: Callable[[str], object] | None = None) -> dict:
    """A report of a method: its marks in each sitting, with 95 % intervals over scenes, and notes.

    target: "mymethod.py:explain" or "package.module:explain", a function (model, image (3, 24, 24), class) → map
    (rows, columns). Raises ValueError, in one line, where it cannot be marked; OSError where there is no file.
    """
    place, _, name = target.rpartition(":")
    if not (place and name):
        raise ValueError(f"expected mymethod.py:explain or package.module:explain, got {target!r}")
    if place.endswith(".py"):
        limited_process.ordinary_file(Path(place))
    came = limited_process.run(
        EXAMINE, dict(target=target, scenes=scenes), limited_process.Limits(timeout, printed=2**50), progress
    )
    if came.ended or "error" in came.facts:
        at = came.facts.get("doing", "starting Python")
        more = "; --timeout gives it more" if came.late else ""
        raise ValueError(came.facts.get("error", f"{target}: {came.ended}, at: {at}{more}"))
    marks: dict[str, dict[str, Any]] = {task: came.facts[task] for task in TASKS}
    notes = [
        f"{task}: its map is the same everywhere in {one['constant']:.0%} of the scenes, which is graded as guessing"
        for task, one in marks.items()
        if one["constant"]
    ]
    return {"method": target, "marks": marks, "notes": notes}


def recorded_marks(arm: str, shipped: bool = False) -> dict[str, float]:
    """The mean mark of one of the book's methods in each sitting: over five models of each, or of the shipped one."""
    rows = [row for row in rows_of("exam") if row["arm"] == arm and not (shipped and row["seed"])]
    return {task: statistics.mean(row["precision"][0] for row in rows if row["task"] == task) for task in TASKS}


def report_lines(report: dict) -> Iterator[str]:
    """A report in words."""
    yield f"{'precision at k, of 1':<28}" + "".join(f"{task:>20}" for task in TASKS)
    shown = [
        f"{mean:.2f} ({low:.2f}–{high:.2f})" for mean, low, high in (report["marks"][t]["precision"] for t in TASKS)
    ]
    yield f"{report['method'][-27:]:<28}" + "".join(f"{mark:>20}" for mark in shown)
    for arm in BESIDE:
        yield f"{arm:<28}" + "".join(f"{mark:>13.2f}{'':<7}" for mark in recorded_marks(arm, shipped=True).values())
    yield from report["notes"]
    n = report["marks"]["find"]["n"]
    yield f"{n} scenes of each, 95 % intervals over scenes; measured on the exam's models, not on yours"


def as_json(report: dict) -> str:
    return json.dumps(
        report | {"beside": {arm: recorded_marks(arm, shipped=True) for arm in BESIDE}}, indent=2, ensure_ascii=False
    )

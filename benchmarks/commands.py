"""How long the project's own commands take: its tests, its chapters, its build."""

import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def seconds_of_tests(junit: Path) -> tuple[dict[str, float], dict[str, float]]:
    """(seconds of each chapter, seconds of each test) from a file that `pytest --junitxml` wrote, the slowest first.

    A chapter's seconds are the sum over its cells, as pytest's plugin nbval runs them.
    """
    chapters: dict[str, float] = {}
    tests: dict[str, float] = {}
    for case in ElementTree.parse(junit).iter("testcase"):
        place = f"{case.get('classname', '')}::{case.get('name', '')}"
        chapter = re.search(r"(\d\d_\w+)\.ipynb", f"{place} {case.get('file', '')}")
        found, name = (chapters, chapter.group(1)) if chapter else (tests, place)
        found[name] = found.get(name, 0.0) + float(case.get("time", 0))
    return slowest_first(chapters), slowest_first(tests)


def slowest_first(times: dict[str, float]) -> dict[str, float]:
    return dict(sorted(times.items(), key=lambda item: -item[1]))


def build_seconds() -> float:
    """Seconds in which the site is built, into a folder that is thrown away."""
    with tempfile.TemporaryDirectory() as place:
        command = [Path(sys.executable).parent / "jupyter-book", "build", ROOT, "--path-output", place, "-W", "-n"]
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return time.perf_counter() - start

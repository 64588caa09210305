"""How long the project's own commands take: the tests and chapters as `make test` recorded them last, and the build."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
RECORDS = ROOT / "_build"
NAMED = 5  # of the slowest


def measure_commands(records: Path = RECORDS) -> dict[str, dict]:
    """For each command, in Markdown: its seconds, how many processes shared it, and its slowest parts with theirs."""
    found = {}
    for name in ("tests", "chapters"):
        if (records / f"{name}.xml").exists():
            found[f"`make test`, {name}"] = recorded(records / f"{name}.xml")
    return found | {"`make book`": {"seconds": build_seconds(), "at_once": 1, "slowest": {}}}


def recorded(record: Path) -> dict:
    """What pytest's --junitxml wrote of a run; a chapter's seconds are the sum over its cells."""
    suite = ElementTree.parse(record).find("testsuite")
    parts: dict[str, float] = {}
    for case in suite.iter("testcase"):
        place = case.get("classname")
        name = place.split(".")[1] if place.startswith("chapters.") else f"{place}.{case.get('name')}"
        parts[name] = parts.get(name, 0.0) + float(case.get("time"))
    slowest = sorted(parts.items(), key=lambda part: -part[1])[:NAMED]
    seconds = float(suite.get("time"))
    return {"seconds": seconds, "at_once": max(1, round(sum(parts.values()) / seconds)), "slowest": dict(slowest)}


def build_seconds() -> float:
    """Seconds in which the site is built, into a folder that is thrown away."""
    with tempfile.TemporaryDirectory() as place:
        command = [Path(sys.executable).parent / "jupyter-book", "build", ROOT, "--path-output", place, "-W", "-n"]
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return time.perf_counter() - start

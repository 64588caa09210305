"""How long the project's own commands take: the tests and chapters as `make test` recorded them last, and the build."""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECORDS = ROOT / ".ledger"
NAMED = 5  # of the slowest


def measure_commands(records: Path = RECORDS) -> dict[str, dict]:
    """For each command, in Markdown: its seconds, how many processes shared it, and its slowest parts with theirs."""
    found = {}
    for name in ("tests", "chapters"):
        if (records / f"{name}.json").exists():
            found[f"`make test`, {name}"] = recorded(records / f"{name}.json")
    return found | {"`make book`": {"seconds": build_seconds(), "at_once": 1, "slowest": {}}}


def recorded(record: Path) -> dict:
    """What tools/recorder.py wrote of a run of pytest; a chapter's seconds are the sum over its cells."""
    run = json.loads(record.read_text(encoding="utf-8"))
    parts: dict[str, float] = {}
    for case, result in run["tests"].items():
        place, _, test = case.partition("::")
        name = Path(place).stem if place.endswith(".ipynb") else test
        parts[name] = parts.get(name, 0.0) + result["seconds"]
    slowest = sorted(parts.items(), key=lambda part: -part[1])[:NAMED]
    return {"seconds": run["seconds"], "at_once": run["workers"], "slowest": dict(slowest)}


def build_seconds() -> float:
    """Seconds in which the site is built, into a folder that is thrown away."""
    with tempfile.TemporaryDirectory() as place:
        command = [Path(sys.executable).parent / "jupyter-book", "build", ROOT, "--path-output", place, "-W", "-n"]
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return time.perf_counter() - start

"""A chapter's cells, run again in this process, and what they print beside what its notebook has stored."""

import configparser
import difflib
import json
import os
import re
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = 8  # of lines that differ


def recorded_seconds(notebook: Path) -> float:
    """How long the chapter took when its outputs were stored."""
    metadata = json.loads(notebook.read_text(encoding="utf-8"))["metadata"]
    return metadata.get("vitbook", {}).get("executed", {}).get("seconds", 0)


def replay(notebook: Path, report: Path) -> None:
    """Run one chapter's cells one after the other, in this process; write what came of it after each cell."""
    from harness import write
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output
    from traitlets.config import Config

    os.chdir(notebook.parent)
    shell = InteractiveShell.instance(config=Config(HistoryManager={"enabled": False}))
    shown, began = [], time.monotonic()

    def show(value: object) -> None:
        if value is not None and not shell.displayhook.quiet():
            shown.append(shell.display_formatter.format(value)[0].get("text/plain", ""))

    shell.display_trap.hook, shell.showtraceback = show, lambda *_, **__: None
    cells = [c for c in json.loads(notebook.read_text(encoding="utf-8"))["cells"] if c["cell_type"] == "code"]
    found = {"cells": len(cells), "run": 0, "lines": 0, "equal": 0, "different": [], "error": "unfinished"}
    for number, cell in enumerate(cells):
        shown.clear()
        with capture_output() as printed:
            result = shell.run_cell("".join(cell["source"]), store_history=True)
        if (error := result.error_before_exec or result.error_in_exec) is not None:
            found["error"] = f"code cell {number}: {type(error).__name__}: {error}"[:2000]
            break
        found["run"] += 1
        if "nbval-ignore-output" not in cell["metadata"].get("tags", ()):
            compare(stored_lines(cell), sanitized(printed.stdout, *shown), found)
        write(report, found | {"seconds": time.monotonic() - began})
    else:
        found["error"] = None
    write(report, found | {"seconds": time.monotonic() - began})


def stored_lines(cell: dict) -> list[str]:
    """What a cell printed and what its last line was, as the notebook has them."""
    streams = ["".join(o["text"]) for o in cell["outputs"] if o.get("name") == "stdout"]
    values = ["".join(o["data"]["text/plain"]) for o in cell["outputs"] if o["output_type"] == "execute_result"]
    return sanitized("".join(streams), *values)


def sanitized(*texts: str) -> list[str]:
    """Lines in which whatever tests/book/approximate.cfg names is left out, as the book's own comparison does."""
    rules = configparser.RawConfigParser()
    rules.read(ROOT / "tests" / "book" / "approximate.cfg", encoding="utf-8")
    lines = [line.rstrip() for text in texts for line in text.splitlines()]
    for rule in map(rules.__getitem__, rules.sections()):
        lines = [re.sub(rule["regex"], rule["replace"], line) for line in lines]
    return lines


def compare(stored: list[str], now: list[str], found: dict) -> None:
    """Count the stored lines and those that came again, and keep the first few that did not."""
    matcher = difflib.SequenceMatcher(None, stored, now, autojunk=False)
    found["lines"] += max(len(stored), len(now))
    found["equal"] += sum(block.size for block in matcher.get_matching_blocks())
    changes = [code for code in matcher.get_opcodes() if code[0] != "equal"]
    pairs = [{"stored": stored[a:b][:3], "now": now[c:d][:3]} for _, a, b, c, d in changes]
    found["different"] += pairs[: max(0, EXAMPLES - len(found["different"]))]

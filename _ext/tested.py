"""The numbers on the page "How this book is tested", from what the last `make test` wrote into _build/.

pytest's own --junitxml is the record; no Sphinx extension turns one into a page.
"""

from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

from sphinx.application import Sphinx

PAGE = "tested"
PLACE = "<!-- the last run -->"  # where tested.md wants the table
RECORDS = {"tests.xml": "tests", "chapters.xml": "cells of the chapters"}


def rows(record: Path, name: str) -> list[str]:
    """A row for each folder of tests: how many passed, were skipped and failed, and their seconds."""
    groups: dict[str, list[ElementTree.Element]] = defaultdict(list)
    for case in ElementTree.parse(record).iter("testcase"):
        place = case.get("classname", "").split(".")
        folder = f"`tests/{place[1]}/`" if place[0] == "tests" and len(place) > 2 else ""
        groups[folder or (f"`{name}/`, one file a module" if name == "tests" else name)].append(case)
    lines = []
    for group, cases in sorted(groups.items()):
        skipped = sum(case.find("skipped") is not None for case in cases)
        failed = sum(case.find("failure") is not None or case.find("error") is not None for case in cases)
        seconds = sum(float(case.get("time", 0)) for case in cases)
        lines.append(f"| {group} | {len(cases) - skipped - failed:,} | {skipped} | {failed} | {seconds:.0f} |")
    return lines


def fill_in(app: Sphinx, docname: str, source: list[str]) -> None:
    """Put the table into the page, or say that this build has none."""
    if docname != PAGE:
        return
    records = {Path(app.srcdir, "_build", file): name for file, name in RECORDS.items()}
    lines = [row for record, name in records.items() if record.exists() for row in rows(record, name)]
    head = ["| What | Passed | Skipped | Failed | Seconds |", "|---|---|---|---|---|"]
    nothing = ["This copy of the site was built without a test run; `make test` before `make book` adds its numbers."]
    source[0] = source[0].replace(PLACE, "\n".join(head + lines if lines else nothing))
    for record in records:
        app.env.note_dependency(str(record))


def setup(app: Sphinx) -> None:
    app.connect("source-read", fill_in)

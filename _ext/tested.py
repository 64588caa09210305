"""The numbers on the page "How this book is tested", from records: nobody types them.

The last run comes from what `make test` wrote into _build/; pytest's own --junitxml is the record, and no Sphinx
extension turns one into a page. What loads comes from the table that `make peers` holds, and what `vitbook diagnose`
found among models written blind from its record.
"""

import json
import re
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

from sphinx.application import Sphinx

PAGE = "tested"
# Where tested.md wants the tables
LAST_RUN, EVERY_VIT, BLIND = "<!-- the last run -->", "<!-- every vit -->", "<!-- written blind -->"
RECORDS = {"tests.xml": "tests", "chapters.xml": "cells of the chapters"}
LOADABLE, DIAGNOSIS = "tests/vitbook/pretrained/every_vit.json", "vitbook/assets/runs/diagnosis.json"
WITHOUT_HEAD = "equal, without the head, as the notes say"
PINS = ("requirements.txt", "benchmarks/requirements.txt")


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


def last_run(root: Path) -> list[str]:
    """The table of the last `make test`, or that this build has none."""
    records = {root / "_build" / file: name for file, name in RECORDS.items()}
    lines = [row for record, name in records.items() if record.exists() for row in rows(record, name)]
    head = ["| What | Passed | Skipped | Failed | Seconds |", "|---|---|---|---|---|"]
    nothing = ["This copy of the site was built without a test run; `make test` before `make book` adds its numbers."]
    return head + lines if lines else nothing


def every_vit(root: Path) -> list[str]:
    """How many models of each library load and how many are refused, and below it which, folded away."""
    pins = dict(re.findall(r"(?m)^([\w-]+)==(\S+)", "\n".join((root / file).read_text() for file in PINS)))
    table = ["| Library | Equal | Equal, without its head | Refused |", "|---|---|---|---|"]
    lists = ["<details>", "<summary>All names</summary>", ""]
    for library, outcomes in json.loads((root / LOADABLE).read_text(encoding="utf-8")).items():
        counts = {"equal": 0, WITHOUT_HEAD: 0, "refused": 0}
        for outcome, names in sorted(outcomes.items(), key=lambda pair: (pair[0] not in counts, pair[0])):
            counts[outcome if outcome in counts else "refused"] += len(names.split())
            told = outcome if outcome in counts else f"refused, “{outcome}”"
            lists.append(f"- {library}, {told}: {', '.join(f'`{name}`' for name in names.split())}")
        table.append(f"| {library} {pins[library]} | {' | '.join(map(str, counts.values()))} |")
    return [*table, "", *lists, "", "</details>"]


def blind(root: Path) -> list[str]:
    """What was found in each set of models written blind."""
    record = json.loads((root / DIAGNOSIS).read_text(encoding="utf-8"))
    table = ["| Set | Wrong models | Found | Named rightly | Right models | Accused | Not examined |"]
    table += ["|---|---|---|---|---|---|---|"]
    for name in ("first", "second"):
        found = record[f"{name}_blind"]
        right, wrong = found["right"], found["wrong"]
        numbers = [wrong["models"], wrong["found"], wrong["named_rightly"], right["models"], len(right["alarms"])]
        table.append(f"| {name} | {' | '.join(map(str, [*numbers, found['not_examined']]))} |")
    return table


def fill_in(app: Sphinx, docname: str, source: list[str]) -> None:
    """Put the tables into the page."""
    if docname != PAGE:
        return
    root = Path(app.srcdir)
    for place, table in ((LAST_RUN, last_run), (EVERY_VIT, every_vit), (BLIND, blind)):
        source[0] = source[0].replace(place, "\n".join(table(root)))
    for file in (*(f"_build/{name}" for name in RECORDS), LOADABLE, DIAGNOSIS, *PINS):
        app.env.note_dependency(str(root / file))


def setup(app: Sphinx) -> None:
    app.connect("source-read", fill_in)

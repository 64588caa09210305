"""The page "How this book is tested", from the records that the tests leave.

    python tools/ledger.py write           the records in .ledger → ledger.json → tested.md
    python tools/ledger.py page            ledger.json → tested.md
    python tools/ledger.py check           does the page know every chapter and every equation?
    python tools/ledger.py note NAME …     run a command that is no pytest, and record that it passed

`make test` and the other suites write the records (tools/recorder.py); nothing on the page is typed by hand.
"""

import argparse
import ast
import json
import re
import runpy
import subprocess
import sys
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import recorder

ROOT = Path(__file__).resolve().parent.parent
AGAIN = "run: make test, then make ledger"
SYSTEMS = ("Linux", "macOS", "Windows")


# What there is to be tested


def equations(notebook: Path) -> dict[str, tuple[str, str]]:
    """Each tagged equation of a chapter: tag → (heading of its section, that heading's anchor)."""
    found, heading = {}, ""
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "markdown":
            for title, tag in re.findall(r"^#+ (.*)$|\\tag\{(\w+)\}", "".join(cell["source"]), flags=re.M):
                heading = title or heading
                if tag:
                    found[tag] = heading, re.sub(r"[^\w\- ]", "", heading.lower().replace(" ", "-"))
    return found


def chapters(root: Path) -> list[Path]:
    return sorted((root / "chapters").glob("*.ipynb"))


def map_of(readme: str) -> dict[str, tuple[str, list[str], list[str]]]:
    """README's map: chapter → (its name there, modules, test files)."""
    found = {}
    for row in re.findall(r"^\|.*\(chapters/.*\|$", readme, flags=re.M):
        stem, modules = re.search(r"\(chapters/(\w+)\.ipynb\)", row)[1], re.findall(r"`(\w+)`", row)
        name = re.sub(r"[|\s]+", " ", row[: row.index("](")].replace("[", "")).strip()
        found[stem] = name, [f"vitbook/{m}.py" for m in modules], [f"tests/test_{m}.py" for m in modules]
    return found


def suites(makefile: str) -> dict[str, tuple[str, str]]:
    """Every record that a target of the Makefile writes: its name → (command, what the help says of it)."""
    found, target, told = {}, "", ""
    for line in makefile.splitlines():
        if heading := re.match(r"([\w-]+):[^#=]*(?:## (.*))?$", line):
            target, told = heading[1], (heading[2] or "").split(":")[0]
        for name in re.findall(r"\$\(RECORD\) (\S+)|ledger\.py note (\S+)", line):
            found["".join(name).replace("$@", target)] = f"make {target}", told
    return found


# From records to a ledger


def merge(tests: Iterable[dict]) -> dict:
    """Several cases as one: how many passed and were skipped, their seconds, per dtype the largest difference."""
    total = {"passed": 0, "skipped": 0, "seconds": 0.0, "measured": {}}
    for test in tests:
        total[test["outcome"]] += 1
        total["seconds"] += test["seconds"]
        for dtype, other in test.get("measured", {}).items():
            if dtype not in total["measured"] or other["difference"] > total["measured"][dtype]["difference"]:
                total["measured"][dtype] = {key: other[key] for key in ("difference", "allowed")}
    return total


def named(tests: dict[str, dict], name: str) -> list[dict]:
    """The cases of a test of proofs.py: file::function or file::function[case]."""
    function, _, case = name.partition("[")
    return [
        test
        for node, test in tests.items()
        if node.partition("[")[0] == f"tests/{function}" and (case.rstrip("]") in node.partition("[")[2])
    ]


def tested_by(name: str, modules: list[str], files: list[str], root: Path) -> set[str]:
    """What a test of proofs.py is about: the modules of the chapter that its file is named after, else those it uses.

    modules, files: a chapter's modules and the test files named after them.
    """
    file, _, function = name.partition("[")[0].partition("::")
    if f"tests/{file}" in files:
        return set(modules)
    tree = ast.parse((root / "tests" / file).read_text(encoding="utf-8"))
    homes = {
        alias.asname or alias.name: f"{node.module.replace('.', '/')}.py"
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("vitbook.")
        for alias in node.names
    }
    there = {getattr(node, "name", ""): node for node in ast.walk(tree)}
    used, found = [function.rpartition("::")[2]], set()
    while used:  # and what it calls in its own file
        body = there.pop(used.pop(), None)
        names = {node.id for node in ast.walk(body) if isinstance(node, ast.Name)} if body else set()
        found |= {homes[name] for name in names & homes.keys()}
        used += names & there.keys()
    return found


def in_file(tests: dict[str, dict], file: str) -> list[dict]:
    return [test for node, test in tests.items() if node.partition("::")[0] == file]


def gather(records: dict[str, dict], root: Path, proofs: dict) -> dict:
    """All that the page says, as JSON."""
    tests, cells = (records.get(name, {}).get("tests", {}) for name in ("tests", "chapters"))
    places = map_of((root / "README.md").read_text(encoding="utf-8"))
    known = suites((root / "Makefile").read_text(encoding="utf-8"))
    ledger: dict = {"runs": [], "not_run": [], "equations": [], "chapters": [], "files": {}, "skipped": []}
    for name, (command, told) in known.items():
        if name not in records:
            ledger["not_run"].append({"command": command, "told": told})
            continue
        record = {key: value for key, value in records[name].items() if key not in ("args", "tests")}
        cases = records[name].get("tests", {}).values()
        kinds = {kind: merge(c for c in cases if c.get(kind)) for kind in ("hypothesis", "browser", "compared")}
        ledger["runs"].append(record | {"name": name, "command": command, "all": merge(cases)} | kinds)
    for path in chapters(root):
        _, modules, files = places.get(path.stem, ("", [], []))
        run = in_file(cells, f"chapters/{path.name}")
        about = {"chapter": path.stem}
        for tag in equations(path):
            by = proofs.get(path.stem, {}).get(tag, [])
            cases = merge(case for test in by for case in named(tests, test))
            about_what = sorted(set().union(*(tested_by(test, modules, files, root) for test in by)))
            ledger["equations"].append(about | {"tag": tag, "tests": by, "modules": about_what} | cases)
        more = {"cells": len(run), "compared": sum(cell.get("compared", False) for cell in run)}
        more["cell_seconds"] = sum(cell["seconds"] for cell in run)
        cases = merge(case for file in files for case in in_file(tests, file))
        ledger["chapters"].append(about | {"modules": modules, "tests": files} | cases | more)
    for file in sorted({node.partition("::")[0] for node in tests}):
        ledger["files"][file] = merge(in_file(tests, file))
    reasons: dict[str, dict] = {}
    cases = [case for name in known for case in records.get(name, {}).get("tests", {}).items()]
    passed = {node for node, test in cases if test["outcome"] == "passed"}
    ran = {node.partition("::")[0] for node, _ in cases}
    files = {f"tests/{path.name}" for path in (root / "tests").glob("test_*.py")}
    ledger["not_run"] += [{"command": file, "told": "none of its cases"} for file in sorted(files - ran)]
    for node, test in cases:
        if test["outcome"] == "skipped" and node not in passed:
            entry = reasons.setdefault(test["reason"], {"cases": 0, "files": []})
            entry["cases"] += 1
            entry["files"] = sorted({*entry["files"], node.partition("::")[0]})
    ledger["skipped"] = [{"reason": reason} | entry for reason, entry in sorted(reasons.items())]
    return ledger


def gaps(records: dict[str, dict], root: Path, proofs: dict) -> list[str]:
    """Why these records are not a whole run of `make test`."""
    missing = [name for name in ("tests", "chapters") if name not in records]
    if missing:
        return [f"no record of {' and '.join(missing)} in {recorder.FOLDER}; run: make test"]
    tests = records["tests"]["tests"]
    found = [] if records["tests"]["args"] == ["tests"] else ["the record is not of all tests; run: make test"]
    ran = {node.partition("::")[0] for node in records["chapters"]["tests"]}
    found += [
        f"{f} is not in the record; run: make test" for p in chapters(root) if (f := f"chapters/{p.name}") not in ran
    ]
    for chapter, tags in proofs.items():
        for tag, names in tags.items():
            found += [
                f"chapter {chapter}, equation {tag}: {name} of tests/proofs.py has not passed in the record"
                for name in names
                if not merge(named(tests, name))["passed"]
            ]
    return found


def stale(ledger: dict, root: Path) -> list[str]:
    """Chapters and equations that are there and not on the page, or the other way round."""
    there = {f"chapter {path.stem}" for path in chapters(root)}
    there |= {f"equation {tag} of chapter {path.stem}" for path in chapters(root) for tag in equations(path)}
    told = {f"chapter {one['chapter']}" for one in ledger["chapters"] if one["cells"]}
    told |= {f"equation {one['tag']} of chapter {one['chapter']}" for one in ledger["equations"] if one["passed"]}
    differing = {"does not know": there - told, "still tells of": told - there}
    return [f"tested.md {what} {', '.join(sorted(some))}; {AGAIN}" for what, some in differing.items() if some]


# From the ledger to the page


def seconds(value: float) -> str:
    """With a space at which no line is broken."""
    if value >= 120:
        return f"{value / 60:.0f}\N{NO-BREAK SPACE}min"
    shown = f"{value:.0f}" if value >= 10 else f"{value:.1f}" if value >= 0.1 else "<\N{NO-BREAK SPACE}0.1"
    return f"{shown}\N{NO-BREAK SPACE}s"


def difference(one: dict) -> str:
    """The largest difference in each of the two usual precisions and where much was allowed, and what was."""
    shown = []
    for kind in ("float64", "float32", "wide"):
        if kind in one["measured"]:
            found = one["measured"][kind]
            value = f"{found['difference']:.1e}" if found["difference"] else "0"
            shown.append(f"{value} of {found['allowed']:.1e} ({kind})")
    return "<br>".join(shown) or ("no tolerance" if one["passed"] else "—")


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def equation_rows(some: list[dict], sections: dict) -> list[list[str]]:
    rows = []
    for one in some:
        name, (section, anchor) = number(one), sections.get((one["chapter"], one["tag"]), ("—", ""))
        link = f"[{name}](chapters/{one['chapter']}.ipynb#{anchor})" if anchor else name
        ran = [str(one["passed"]), difference(one), seconds(one["seconds"])] if one["passed"] else ["not run", "—", "—"]
        rows.append([link, section, *ran])
    return rows


def number(equation: dict) -> str:
    return f"{int(equation['chapter'][:2])}, ({equation['tag']})"


def commit_of(run: dict) -> str:
    return (f"`{run['commit']}`" if run["commit"] else "unknown") + (" and changes since" if run["changed"] else "")


def machine_of(run: dict) -> str:
    kind = run["machine"]
    gpu = f"GPU {kind['gpu']}" if kind["gpu"] else "no GPU"
    where = ", in Colab" if kind["colab"] else ""
    versions = f"Python {kind['python']}, torch {kind['torch']}"
    return f"{kind['cpu']}, {kind['cores']} cores, {gpu}; {kind['system']}{where}; {versions}"


def run_rows(runs: list[dict]) -> list[list[str]]:
    """One row a run, and one for each kind of test in it that readers may look for."""
    kinds = {
        "hypothesis": "of these, property-based: inputs invented by Hypothesis",
        "browser": "of these, in a browser without network",
        "compared": "of these, with outputs that are compared with the stored ones",
    }
    rows = []
    for run in runs:
        cases, what = run["all"], "cells of the chapters" if run["name"] == "chapters" else "cases"
        ran = f"{cases['passed']} {what}" if cases["passed"] else "passed"
        skipped = str(cases["skipped"] or "—")
        times = seconds(run["seconds"]) + (f", {run['workers']} at once" if run.get("workers", 1) > 1 else "")
        rows.append([f"`{run['command']}`", ran, skipped, times, run["date"][:10], commit_of(run)])
        for kind, told in kinds.items():
            if run[kind]["passed"]:
                part = run[kind]
                rows.append(
                    ["", f"{part['passed']} {told}", str(part["skipped"] or "—"), seconds(part["seconds"]), "", ""]
                )
    return rows


def not_run(ledger: dict) -> list[str]:
    """What no record covers."""
    machines = [run["machine"] for run in ledger["runs"]]
    found = [f"`{one['command']}`: {one['told']}." for one in ledger["not_run"]]
    if not any(kind["gpu"] for kind in machines):
        found.append("Anything on a GPU: all of the above ran on a CPU.")
    if other := [system for system in SYSTEMS if not any(kind["system"].startswith(system) for kind in machines)]:
        found.append(f"Anything on {' or '.join(other)}.")
    if not any(kind["colab"] for kind in machines):
        found.append("Colab itself.")
    found.append("Versions of Python and torch other than those named above.")
    # The tests bring small copies of every format (small_sets.py, foreign.py, local_mirror.py) and need no network.
    found.append(
        "Public downloads: the tests serve data sets and weights made by themselves, from a mirror of their own."
    )
    for one in ledger["skipped"]:
        files = ", ".join(f"`{file}`" for file in one["files"])
        found.append(f"{one['cases']} skipped: {one['reason']} ({files}).")
    return found


def render(ledger: dict, root: Path) -> str:
    """The page, as Markdown. Names and links are those of the chapters as they are now."""
    sections = {(path.stem, tag): at for path in chapters(root) for tag, at in equations(path).items()}
    places = map_of((root / "README.md").read_text(encoding="utf-8"))
    names = {path.stem: places[path.stem][0] for path in chapters(root) if path.stem in places}
    paper = [e for e in ledger["equations"] if sections.get((e["chapter"], e["tag"]), "-")[0].startswith("Equation")]
    others = [one for one in ledger["equations"] if one not in paper]
    header = ["Chapter, equation", "Section", "Cases", "Largest difference", "Time"]
    machines: dict[str, list[str]] = {}
    for run in ledger["runs"]:
        machines.setdefault(machine_of(run), []).append(run["name"])
    modules = {one["chapter"]: [f"`{module}`" for module in one["modules"]] for one in ledger["chapters"]}
    chapter_rows = [
        [
            f"[{name}](chapters/{one['chapter']}.ipynb)" if (name := names.get(one["chapter"])) else one["chapter"],
            ", ".join(modules[one["chapter"]]).replace("vitbook/", ""),
            f"{one['passed']}, {seconds(one['seconds'])}" if one["passed"] else "not run",
            f"{one['cells']} run, {one['compared']} compared, {seconds(one['cell_seconds'])}"
            if one["cells"]
            else "not run",
            difference(one),
        ]
        for one in ledger["chapters"]
    ]
    proofs = [
        f"- {number(one)}: {', '.join(f'`{test}`' for test in one['tests'])}, of "
        + (", ".join(f"`{module}`" for module in one["modules"]) or "what PyTorch has for it")
        for one in ledger["equations"]
    ]
    files = [
        [f"`{file}`", str(one["passed"]), str(one["skipped"] or "—"), difference(one), seconds(one["seconds"])]
        for file, one in ledger["files"].items()
    ]
    return "\n\n".join(
        [
            "# How this book is tested",
            "A program writes this page from what the tests themselves recorded; every number on it is measured. "
            "`make test` runs the tests and leaves the record, `make ledger` turns it into this page.",
            table(["Command", "Passed", "Skipped", "Time", "Date", "Commit"], run_rows(ledger["runs"])),
            "On what:",
            "\n".join(f"- {kind} ({', '.join(names)})." for kind, names in machines.items()),
            "## Equation by equation",
            "Each numbered equation of the book, how many cases prove it, and the largest difference that they found "
            "between its two sides, or between the book's code and somebody else's, *of* what was allowed there. "
            "*Wide* are comparisons that allow more than a thousandth: means over random numbers, for instance. "
            "*No tolerance*: integers were compared, or something that is so or is not. The time is that of the cases, "
            "one after another.",
            "### The four of the paper",
            table(header, equation_rows(paper, sections)),
            "### The others",
            table(header, equation_rows(others, sections)),
            "<details>\n<summary>Which tests these are, and of which module</summary>",
            "\n".join(proofs),
            "</details>",
            "## Chapter by chapter",
            "A chapter is tested twice: the module that it teaches by tests of its own, and the chapter itself by "
            "running all its code cells anew and comparing what they print with what is stored.",
            table(["Chapter", "Modules", "Cases", "Cells", "Largest difference in the tests"], chapter_rows),
            "<details>\n<summary>Every test file</summary>",
            table(["File", "Passed", "Skipped", "Largest difference", "Time"], files),
            "</details>",
            "## What was not run",
            "\n".join(f"- {what}" for what in not_run(ledger)) + "\n",
        ]
    )


# Commands


def read_records(root: Path) -> dict[str, dict]:
    paths = sorted((root / recorder.FOLDER).glob("*.json"))
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in paths}


def read_ledger(root: Path) -> dict:
    try:
        return json.loads((root / "ledger.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SystemExit(f"no ledger.json yet; {AGAIN}") from None


def complain(found: list[str]) -> None:
    if found:
        raise SystemExit("\n".join(found))


def run_write(options: argparse.Namespace) -> None:
    proofs = runpy.run_path(str(ROOT / "tests" / "proofs.py"))["PROOFS"]
    records = read_records(ROOT)
    complain(gaps(records, ROOT, proofs))
    ledger = json.dumps(gather(records, ROOT, proofs), ensure_ascii=False, indent=1) + "\n"
    (ROOT / "ledger.json").write_text(ledger, encoding="utf-8", newline="\n")
    run_page(options)


def run_page(options: argparse.Namespace) -> None:
    (ROOT / "tested.md").write_text(render(read_ledger(ROOT), ROOT), encoding="utf-8", newline="\n")


def run_check(options: argparse.Namespace) -> None:
    complain(stale(read_ledger(ROOT), ROOT))


def run_note(options: argparse.Namespace) -> None:
    started, clock = datetime.now(UTC), time.monotonic()
    if code := subprocess.run(options.command).returncode:
        raise SystemExit(code)
    recorder.write(ROOT, options.name, started, time.monotonic() - clock)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True, metavar="write | page | check | note")
    for name, command in (("write", run_write), ("page", run_page), ("check", run_check), ("note", run_note)):
        commands.add_parser(name).set_defaults(run=command)
    note = commands.choices["note"]
    note.add_argument("name")
    note.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    options.run(options)


if __name__ == "__main__":
    sys.exit(main())

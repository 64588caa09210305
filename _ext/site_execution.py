"""What is said at a chapter's foot about the execution whose outputs it shows: the build itself executes nothing."""

import datetime
import json
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx


def executed_with(record: dict) -> str:
    """One sentence about an execution, from what `tools/notebooks.py execute` has recorded of it.

    Keys: date (ISO), seconds, python, device, cpu, threads; and, where the chapter imports them, torch and vitbook.
    """
    day = datetime.date.fromisoformat(record["date"])
    versions = [f"Python {record['python']}"]
    versions += [f"{name} {record[name]}" for name in ("torch", "vitbook") if name in record]
    threads = "one thread" if record["threads"] == 1 else f"{record['threads']} threads"
    place = f"{record['cpu']}, {threads}"
    place = place if record["device"] == "cpu" else f"{record['device']} ({place})"
    seconds = f"{record['seconds']} second{'s' * (record['seconds'] != 1)}"
    return f"The outputs are from {day:%B} {day.day}, {day.year}: {', '.join(versions)}, on {place}, in {seconds}."


def add_execution(app: Sphinx, doctree: nodes.document) -> None:
    """Put that sentence at the foot of a chapter that has been executed with a record."""
    path = Path(app.env.doc2path(app.env.docname))
    metadata = json.loads(path.read_text(encoding="utf-8"))["metadata"] if path.suffix == ".ipynb" else {}
    if record := metadata.get("vitbook", {}).get("executed"):
        end = doctree.children[-1] if isinstance(doctree.children[-1], nodes.section) else doctree
        end += nodes.paragraph("", executed_with(record), classes=["executed-with"])


def setup(app: Sphinx) -> None:
    app.connect("doctree-read", add_execution)

"""What is said at a chapter's foot about the execution whose outputs it shows: the build itself executes nothing."""

import datetime
import json
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config


def execute_nothing(app: Sphinx, config: Config) -> None:
    """Show the chapters as they are stored: tools/notebooks.py executes them."""
    config.nb_execution_mode = "off"


def executed_with(record: dict) -> str:
    """One sentence about an execution, from what `tools/notebooks.py execute` has recorded of it.

    Keys: date (ISO), seconds, python, device, cpu, threads; and, where the chapter imports them, torch and vitbook.
    """
    day = datetime.date.fromisoformat(record["date"])
    versions = [f"Python {record['python']}"]
    versions += [f"{name} {record[name]}" for name in ("torch", "vitbook") if name in record]
    threads = "one thread" if record["threads"] == 1 else f"{record['threads']} threads"
    place = f"{record['cpu']}, {threads}"
    if record["device"] != "cpu":
        place = f"{record['device']} ({place})"
    seconds = f"{record['seconds']} second{'s' * (record['seconds'] != 1)}"
    return f"The outputs are from {day:%B} {day.day}, {day.year}: {', '.join(versions)}, on {place}, in {seconds}."


def add_execution(app: Sphinx, doctree: nodes.document) -> None:
    """Put that sentence at the foot of a chapter that has been executed with a record."""
    path = Path(app.env.doc2path(app.env.docname))
    if path.suffix != ".ipynb":
        return
    record = json.loads(path.read_text(encoding="utf-8"))["metadata"].get("vitbook", {}).get("executed")
    if record:
        end = doctree.children[-1] if isinstance(doctree.children[-1], nodes.section) else doctree
        end += nodes.paragraph("", executed_with(record), classes=["executed-with"])


def setup(app: Sphinx) -> None:
    app.connect("config-inited", execute_nothing, priority=100)  # before MyST-NB reads it
    app.connect("doctree-read", add_execution)

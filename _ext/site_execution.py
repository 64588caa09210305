"""Which chapters the build executes, and what is said at a chapter's foot about the execution that it shows."""

import datetime
import json
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.errors import ExtensionError


def stored_outputs(path: Path) -> list[dict]:
    """All outputs in a notebook's file."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    return [output for cell in notebook["cells"] for output in cell.get("outputs", [])]


def use_stored_outputs(app: Sphinx, config: Config) -> None:
    """Execute only the chapters without any stored output, and stop at a stored error.

    MyST-NB's own "auto" would execute every chapter, since it asks for an output of every single cell.
    """
    root = Path(app.srcdir)
    stored = []
    for path in sorted(root.glob("chapters/*.ipynb")):
        outputs = stored_outputs(path)
        for output in outputs:
            if output["output_type"] == "error":
                raise ExtensionError(f"{path.relative_to(root)} holds an error: {output['ename']}: {output['evalue']}")
        if outputs:
            stored.append(path.relative_to(root).as_posix())
    config.nb_execution_excludepatterns = [*config.nb_execution_excludepatterns, *stored]


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
    app.connect("config-inited", use_stored_outputs)
    app.connect("doctree-read", add_execution)

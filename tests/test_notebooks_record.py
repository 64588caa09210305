"""What an execution ran with is recorded, and the record stays as long as the outputs are those of that execution."""

import datetime
import platform
from pathlib import Path

import notebooks as notebook_tool
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

OLD = {"cpu": "A", "date": "2025-01-02", "device": "cpu", "python": "3.11.1", "seconds": 5, "threads": 1}
OLD |= {"torch": "2.5.0", "vitbook": "0.1.0"}
NEW = OLD | {"cpu": "B", "date": "2026-03-04", "device": "Some GPU", "seconds": 9, "threads": 2, "python": "3.12.1"}


def executed(output: str = "1\n", record: dict | None = None) -> NotebookNode:
    """A notebook as it comes out of an execution; `record` is the one that its file had before."""
    code = new_code_cell("print(1)", execution_count=1, outputs=[new_output("stream", name="stdout", text=output)])
    metadata = {"vitbook": {"executed": dict(record)}} if record else {}
    return new_notebook(cells=[new_markdown_cell("# Title"), code], metadata=metadata)


def stored(output: str = "1\n", record: dict | None = OLD) -> str:
    notebook = executed(output, record)
    notebook_tool.normalise(notebook)
    return notebook_tool.to_text(notebook)


def test_elsewhere_and_later_with_the_same_outputs_nothing_changes() -> None:
    assert notebook_tool.recorded(executed(record=OLD), NEW, stored()) == stored()


@pytest.mark.parametrize(
    "notebook, record",
    [
        (executed("2\n", OLD), NEW),  # another output
        (executed(record=OLD), NEW | {"torch": "2.6.0"}),
        (executed(record=OLD), NEW | {"vitbook": "0.2.0"}),
    ],
    ids=["output", "torch", "vitbook"],
)
def test_with_another_output_or_version_the_record_is_new(notebook: NotebookNode, record: dict) -> None:
    output = notebook.cells[1].outputs[0].text
    assert notebook_tool.recorded(notebook, record, stored()) == stored(output, record)


def test_a_chapter_without_a_record_gets_one() -> None:
    assert notebook_tool.recorded(executed(), NEW, stored(record=None)) == stored(record=NEW)


def sample(folder: Path) -> Path:
    """A chapter that has not been executed."""
    path = folder / "01_sample.ipynb"
    notebook = new_notebook(cells=[new_markdown_cell("# Title"), new_code_cell("json = print('no torch')")])
    notebook_tool.write(path, notebook_tool.to_text(notebook))
    return path


def test_a_warning_of_the_machine_is_no_part_of_the_record(tmp_path: Path, monkeypatch) -> None:
    """As torch gives one where a GPU's driver is too old."""
    warning = "import sys; print('too old', file=sys.stderr)\n"
    monkeypatch.setattr(notebook_tool, "RECORD_SOURCE", warning + notebook_tool.RECORD_SOURCE)
    path = sample(tmp_path)
    assert notebook_tool.execute(path) is None
    assert notebook_tool.read(path).metadata["vitbook"]["executed"]["device"] == "cpu"


def test_an_execution_records_what_it_ran_with_and_a_second_one_keeps_it(tmp_path: Path) -> None:
    path = sample(tmp_path)
    assert notebook_tool.execute(path) is None
    first = notebook_tool.read(path)
    record = first.metadata["vitbook"]["executed"]
    assert record["python"] == platform.python_version() and record["cpu"] and record["device"] == "cpu"
    assert datetime.date.fromisoformat(record["date"]) and record["seconds"] >= 1
    assert "torch" not in record  # the chapter does not import it
    assert first.cells[-1].source == "json = print('no torch')"  # what asks for the record is not stored

    first.metadata["vitbook"]["executed"]["date"] = "2025-01-02"
    notebook_tool.write(path, notebook_tool.to_text(first))
    before = path.stat().st_mtime_ns
    assert notebook_tool.execute(path) is None
    assert path.stat().st_mtime_ns == before
    assert notebook_tool.stamped_text(path) == path.read_text(encoding="utf-8")

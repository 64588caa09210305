"""A reader who changes a cell runs it again: every cell of every chapter can be run twice in a row and says the same.

What nbval does not compare is not compared here: the number after ≈, whose bounds the cell asserts, and the output of
cells with the tag nbval-ignore-output, which measure time or hold a live figure. Those, too, must run without an error.
"""

import configparser
import copy
import re
import uuid
from pathlib import Path

import nbformat
import notebook_lint as lint
import notebooks as notebook_tool
import pytest
from jupyter_client import AsyncKernelManager
from nbclient import NotebookClient

APPROXIMATE = configparser.ConfigParser(interpolation=None)
APPROXIMATE.read(Path(__file__).with_name("approximate.cfg"), encoding="utf-8")
IGNORED = "nbval-ignore-output"

pytestmark = pytest.mark.slow


def run_twice(cells: list[nbformat.NotebookNode], folder: Path, settings: Path) -> list[nbformat.NotebookNode]:
    """Each cell twice in a row, all in one kernel, errors kept as outputs. As many cells again as there are."""
    twice = [copy.deepcopy(cell) for cell in cells for _ in range(2)]
    for cell in twice:
        cell.update(id=uuid.uuid4().hex[:8], outputs=[], execution_count=None)
    NotebookClient(
        nbformat.v4.new_notebook(cells=twice),
        km=AsyncKernelManager(kernel_spec_manager=notebook_tool.OnePython()),
        timeout=notebook_tool.CELL_TIMEOUT,
        allow_errors=True,
        coalesce_streams=True,
        resources={"metadata": {"path": str(folder)}},
    ).execute(env=notebook_tool.kernel_environment(str(settings)), cleanup_kc=True)  # a kernel given stays, else
    return twice


def said(cell: nbformat.NotebookNode) -> str:
    """What a cell printed and showed as text, with its error, without what varies from run to run."""
    parts = []
    for output in cell.outputs:
        if output.output_type == "error":
            parts.append(f"{output.ename}: {output.evalue}")
        elif IGNORED not in cell.metadata.get("tags", ()):
            parts.append(output.get("text") or output.data.get("text/markdown") or output.data.get("text/plain", ""))
    text = "".join(parts)
    for section in APPROXIMATE.values():
        if "regex" in section:
            text = re.sub(section["regex"], section["replace"], text)
    return text


def complaints(cells: list[nbformat.NotebookNode], folder: Path, settings: Path) -> list[str]:
    """The cells that fail, or whose second run says something else than the first."""
    ran = run_twice(cells, folder, settings)
    found = []
    for first, second in zip(ran[::2], ran[1::2], strict=True):
        failed = any(output.output_type == "error" for cell in (first, second) for output in cell.outputs)
        if failed or said(first) != said(second):
            line = first.source.partition("\n")[0]
            found.append(f"{line!r}\n    first:  {said(first)!r}\n    second: {said(second)!r}")
    return found


@pytest.mark.parametrize("path", lint.chapter_paths(), ids=lambda path: path.stem)
def test_chapter(path: Path, tmp_path: Path) -> None:
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    found = complaints(cells, path.parent, tmp_path)
    assert not found, "\n  ".join([path.name, *found])


def test_a_cell_that_changes_what_it_reads_is_found(tmp_path: Path) -> None:
    """What a chapter's cell may do, and three that may not."""
    sources = (
        "import random\nrandom.seed(0)\nvalues = [3, 1, 2]",
        "print(sorted(values), '≈', random.random())",
        "random.seed(1)\nprint(random.random())",
        "print(random.random())",  # new numbers
        "values = values[1]\nprint(values)",  # fails
        "count = globals().get('count', 0) + 1\nprint(count)",  # counts
    )
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    found = complaints(cells, tmp_path, tmp_path)
    assert len(found) == 3
    assert "TypeError" in found[1]

"""Every chapter keeps every rule of notebook_lint.py, and executing one changes only what it has to."""

from collections.abc import Callable
from pathlib import Path

import notebook_lint as lint
import notebooks as notebook_tool
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

each_rule = pytest.mark.parametrize("rule", lint.RULES, ids=lambda rule: rule.__name__)


@each_rule
@pytest.mark.parametrize("path", lint.chapter_paths(), ids=lambda path: path.stem)
def test_chapter(path: Path, rule: Callable[[lint.Chapter], list[str]]) -> None:
    complaints = rule(lint.load(path))
    assert not complaints, f"{path.name}\n  " + "\n  ".join(complaints)


def test_executing_twice_gives_the_same_bytes(tmp_path: Path, monkeypatch) -> None:
    cells = [new_markdown_cell("# Title"), new_code_cell("print(1)\nprint({'a', 'b', 'c'})"), new_code_cell("1 + 1")]
    path = tmp_path / "01_sample.ipynb"
    notebook_tool.write(path, notebook_tool.to_text(new_notebook(cells=cells)))
    assert notebook_tool.execute(path) is None
    first = path.read_bytes()
    assert notebook_tool.execute(path) is None
    assert path.read_bytes() == first
    assert b'"execution_count": 3' in first
    assert notebook_tool.stamped_text(path).encode() == first


def test_a_failing_cell_leaves_the_file_alone(tmp_path: Path) -> None:
    cells = [new_markdown_cell("# Title"), new_code_cell("raise ValueError('expected 2, got 3')")]
    path = tmp_path / "01_sample.ipynb"
    notebook_tool.write(path, notebook_tool.to_text(new_notebook(cells=cells)))
    before = path.read_bytes()
    failure = notebook_tool.execute(path)
    assert failure is not None and "expected 2, got 3" in failure and path.name in failure
    assert path.read_bytes() == before

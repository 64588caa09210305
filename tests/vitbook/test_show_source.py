"""What a chapter shows is what the package runs."""

import inspect
import textwrap

import pytest

from vitbook import show_source
from vitbook.attention import attention
from vitbook.multihead import ListOfHeads


@pytest.fixture
def shown(monkeypatch) -> list[str]:
    cells: list[str] = []
    monkeypatch.setattr(show_source, "display", lambda markdown: cells.append(markdown.data))
    return cells


@pytest.mark.parametrize(("obj", "file"), [(attention, "attention"), (ListOfHeads.from_fused, "multihead")])
def test_the_source_is_shown_as_it_stands(shown, obj, file):
    show_source.show_source(obj)
    lines = shown[0].splitlines()
    assert (lines[0], lines[1], lines[-1]) == ("```python", f"# vitbook/{file}.py", "```")
    assert "\n".join(lines[2:-1]) == textwrap.dedent(inspect.getsource(obj)).rstrip() and "```" not in lines[2:-1]

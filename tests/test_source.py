"""What a chapter shows is what the package runs."""

import inspect
import textwrap

import pytest

from vitbook import source
from vitbook.attention import attention
from vitbook.multihead import ListOfHeads, MultiHeadSelfAttention


@pytest.fixture
def shown(monkeypatch) -> list[str]:
    cells: list[str] = []
    monkeypatch.setattr(source, "display", lambda markdown: cells.append(markdown.data))
    return cells


@pytest.mark.parametrize(
    ("obj", "file"),
    [
        (attention, "attention"),
        (MultiHeadSelfAttention, "multihead"),
        (MultiHeadSelfAttention.attend, "multihead"),
        (ListOfHeads.from_fused, "multihead"),
    ],
    ids=["function", "class", "method", "class method"],
)
def test_the_source_is_shown_as_it_stands(shown, obj, file):
    source.show_source(obj)
    lines = shown[0].splitlines()
    assert (lines[0], lines[1], lines[-1]) == ("```python", f"# vitbook/{file}.py", "```")
    assert "\n".join(lines[2:-1]) == textwrap.dedent(inspect.getsource(obj)).rstrip()


def test_several_objects_are_shown_in_order(shown):
    source.show_source(attention, ListOfHeads)
    assert ["def attention(" in shown[0], "class ListOfHeads(" in shown[1], len(shown)] == [True, True, 2]


def test_the_fence_is_closed_where_it_should_be(shown):
    source.show_source(MultiHeadSelfAttention)
    assert shown[0].count("```") == 2

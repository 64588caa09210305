"""What a notebook says of its exercises is read from it, whatever state it is in, and nothing is run."""

import json

import pytest

from vitbook_workshop.exercises.grader.progress import progress


def code(source: str | list[str], *texts: str | list[str]) -> dict:
    return dict(cell_type="code", source=source, outputs=[dict(output_type="stream", text=text) for text in texts])


def read(tmp_path, *cells: dict) -> dict[str, str]:
    path = tmp_path / "mine.ipynb"
    path.write_text(json.dumps(dict(cells=cells, nbformat=4)), encoding="utf-8")
    return progress(path)


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (["a.b: right.\n"], "solved"),
        (["a.b: not attempted yet.\n"], "not attempted"),
        (["a.b: not yet. It looks like “no scale”.\n", "  expected 1, got 2\n"], "not yet"),
        (["a.b: not yet.\n", "a.b: right.\n"], "solved"),
        (["a.b: right.\n", "a.b: not yet.\n"], "not yet"),
        (["a.bc: right.\n"], "not run"),
        ([], "not run"),
    ],
)
def test_the_last_answer_counts(tmp_path, said, status):
    assert read(tmp_path, code('check("a.b", mine)', *said)) == {"a.b": status}


def test_only_check_cells_count(tmp_path):
    cells = [
        dict(cell_type="markdown", source='check("a.b", mine)'),
        code('print("check")', "a.b: right.\n"),
        code('%time check("a.b", mine)', "a.b: right.\n"),
        code("check(name, mine)", "a.b: right.\n"),
    ]
    assert read(tmp_path, *cells) == {}


@pytest.mark.parametrize("text", ["[]", "not JSON", '{"cells": [{"cell_type": "code"}]}'])
def test_what_is_no_notebook_is_refused(tmp_path, text):
    path = tmp_path / "other.ipynb"
    path.write_text(text)
    with pytest.raises(ValueError, match="other.ipynb is no Jupyter notebook"):
        progress(path)

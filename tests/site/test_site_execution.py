"""Stored outputs are shown as they are, and with what they were made stands below them."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from docutils import nodes
from docutils.utils import new_document
from site_execution import add_execution, executed_with, use_stored_outputs
from sphinx.errors import ExtensionError

RECORD = {
    "cpu": "Some CPU",
    "date": "2026-03-05",
    "device": "cpu",
    "python": "3.12.1",
    "seconds": 17,
    "threads": 1,
    "torch": "2.9.0",
    "vitbook": "0.3.0",
}


def write(path: Path, outputs: list[dict], **metadata: object) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"cells": [{"outputs": outputs}], "metadata": metadata}), encoding="utf-8")


def test_only_chapters_without_outputs_are_executed(tmp_path: Path) -> None:
    write(tmp_path / "chapters" / "01_a.ipynb", [{"output_type": "stream"}])
    write(tmp_path / "chapters" / "02_b.ipynb", [])
    config = SimpleNamespace(nb_execution_excludepatterns=["other"])
    use_stored_outputs(SimpleNamespace(srcdir=tmp_path), config)
    assert config.nb_execution_excludepatterns == ["other", "chapters/01_a.ipynb"]


def test_a_stored_error_stops_the_build(tmp_path: Path) -> None:
    write(tmp_path / "chapters" / "01_a.ipynb", [{"output_type": "error", "ename": "KeyError", "evalue": "'x'"}])
    with pytest.raises(ExtensionError, match="01_a.ipynb holds an error: KeyError"):
        use_stored_outputs(SimpleNamespace(srcdir=tmp_path), SimpleNamespace(nb_execution_excludepatterns=[]))


def test_what_a_record_says() -> None:
    assert executed_with(RECORD) == (
        "The outputs are from March 5, 2026: Python 3.12.1, torch 2.9.0, vitbook 0.3.0, "
        "on Some CPU, one thread, in 17 seconds."
    )
    other = RECORD | {"device": "Some GPU", "threads": 4, "seconds": 1}
    del other["vitbook"]
    assert executed_with(other).endswith("torch 2.9.0, on Some GPU (Some CPU, 4 threads), in 1 second.")


@pytest.mark.parametrize("name, shown", [("a.ipynb", True), ("b.ipynb", False), ("c.md", False)])
def test_it_stands_at_the_foot_of_a_chapter_that_has_one(tmp_path: Path, name: str, shown: bool) -> None:
    write(tmp_path / "a.ipynb", [], vitbook={"executed": RECORD})
    write(tmp_path / "b.ipynb", [])
    environment = SimpleNamespace(docname=name, doc2path=lambda docname: str(tmp_path / docname))
    document = new_document("chapter")
    document += nodes.section("", nodes.title("", "Title"), nodes.section("", nodes.title("", "Reading")))
    add_execution(SimpleNamespace(env=environment), document)
    last = document.children[0].children[-1]
    assert (last.get("classes") == ["executed-with"]) == shown
    assert ("Some CPU" in document.astext()) == shown

"""The reference follows the modules that there are, and docstrings become what autodoc can read."""

import re
from pathlib import Path

import api_reference as api
from docutils.core import publish_doctree

import vitbook.engine  # noqa: F401
import vitbook.vit

ROOT = Path(__file__).resolve().parents[2]


def test_every_module_is_on_one_page_and_parts_have_those_of_their_chapters() -> None:
    pages = api.pages(ROOT)
    assert sorted(name for _, names in pages.values() for name in names) == sorted(api.modules(ROOT))
    assert pages["part1"][1][0] == "attention" and {"patches", "encoder", "vit"} <= set(pages["part2"][1])
    assert "plotting" in pages["serving"][1]
    assert api.taught(ROOT)["multihead"].number == 4 and api.taught(ROOT)["costs"].number == 20


def test_arguments_become_a_list() -> None:
    text = "What it does.\n\nmask: boolean\nclip: gradients longer than this\n    are shortened.\n\nother: no argument."
    tree = publish_doctree("\n".join(api.to_rst(text, vitbook.vit, {"mask", "clip"})))
    items = [re.sub(r"\s+", " ", item.astext()) for item in tree.findall(lambda node: node.tagname == "list_item")]
    assert items == ["mask: boolean", "clip: gradients longer than this are shortened."]
    assert tree.children[-1].astext() == "other: no argument."


def test_names_in_columns_become_a_list() -> None:
    tree = publish_doctree(
        "\n".join(api.to_rst("Files.\n\nhub.py    any model\nsaving.py  to a file", vitbook.vit, set()))
    )
    items = [item.astext() for item in tree.findall(lambda node: node.tagname == "list_item")]
    assert items == ["hub.py: any model", "saving.py: to a file"]

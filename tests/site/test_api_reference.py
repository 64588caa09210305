"""The reference follows the modules that there are, and docstrings become what autodoc can read."""

import re
import sys
from pathlib import Path

import api_reference as api
import pytest
from docutils.core import publish_doctree

import vitbook.engine  # noqa: F401
import vitbook.vit

ROOT = Path(__file__).resolve().parents[2]


def test_every_module_is_on_one_page_and_parts_have_those_of_their_chapters() -> None:
    pages = api.pages(ROOT)
    assert sorted(name for _, names in pages.values() for name in names) == api.modules(ROOT)
    assert pages["part1"][1][0] == "attention" and {"patches", "encoder", "vit"} <= set(pages["part2"][1])
    assert "plotting" in pages["serving"][1]
    assert api.taught(ROOT)["multihead"].number == 4 and api.taught(ROOT)["costs"].number == 20


def test_a_folder_is_listed_with_its_files_and_private_ones_are_not() -> None:
    files = api.files(ROOT, "pretrained")
    assert list(files)[0] == "vitbook.pretrained" and "vitbook.pretrained.layouts" in files
    assert all(path.exists() for path in files.values()) and "_support" not in api.modules(ROOT)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("f(*x) < 2 [a] |b|", "f(*x) < 2 [a] |b|"),
        ("x_p and _y_", "x_p and _y_"),
        ("`a_*b` * 2", "a_*b * 2"),
        ("1. first", "1. first"),
        ("- no list", "- no list"),
        ("`Tensor`s end::", "Tensors end::"),
    ],
)
def test_prose_stays_prose(text: str, written: str) -> None:
    tree = publish_doctree("\n".join(api.to_rst(text, vitbook.vit, set())), settings_overrides={"report_level": 1})
    assert [child.tagname for child in tree.children] == ["paragraph"] and tree.astext() == written


def test_arguments_become_a_list() -> None:
    text = "What it does.\n\nmask: boolean\nclip: gradients longer than this\n    are shortened.\n\nother: no argument."
    tree = publish_doctree("\n".join(api.to_rst(text, vitbook.vit, {"mask", "clip"})))
    items = [re.sub(r"\s+", " ", item.astext()) for item in tree.findall(lambda node: node.tagname == "list_item")]
    assert items == ["mask: boolean", "clip: gradients longer than this are shortened."]
    assert tree.children[-1].astext() == "other: no argument."


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("TrainConfig", "vitbook.engine.TrainConfig"),
        ("vitbook.vit.create_vit", "vitbook.vit.create_vit"),
        ("Tensor", ""),
        ("nonsense", ""),
        ("vitbook.vit.nonsense", ""),
    ],
)
def test_names_mean_what_they_mean_in_their_module(name: str, full: str) -> None:
    assert api.full_name(name, sys.modules["vitbook.engine"]) == full


def test_source_links_point_to_the_definition() -> None:
    for name in ("create_vit", "VisionTransformer", "VisionTransformer.forward"):
        address = api.source_address("base", ROOT, "py", {"module": "vitbook.vit", "fullname": name})
        first = int(re.fullmatch(r"base/vitbook/vit\.py#L(\d+)-L\d+", address)[1])
        line = (ROOT / "vitbook" / "vit.py").read_text(encoding="utf-8").splitlines()[first - 1]
        assert re.search(rf"(def|class) {name.rpartition('.')[2]}\b|@", line)
    for info in ({"module": "torch.nn", "fullname": "Linear"}, {"module": "vitbook.vit", "fullname": "missing"}):
        assert api.source_address("base", ROOT, "py", info) is None

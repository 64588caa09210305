"""The reference is complete, its docstrings say shapes, and its links point to where things are defined."""

import ast
import re
from pathlib import Path

import api_reference as api
import pytest
import yaml
from package_source import Module, Symbol, read_package
from test_imports import ABOVE, BESIDE, ORDER

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = read_package(ROOT)
SHAPE = re.compile(r"\((?:\.\.\.|[A-Zb](?:_\w+)?,|[^()]*,[^()]*)\)|same (?:as|arguments|tensors)|any shape", re.I)

# Behind the exercises, and what is registered with its own words: their names say it.
CATALOGUES = {"checker", "diagnosis", "exercises", "mistakes", "properties", "watching"}
# What looks at tensors of any shape.
CHECKS = {"checks"}
# The chapters show these as they are; the docstrings of their classes speak for them.
TOLD_BY_THEIR_CLASS = {
    "DistilledEmbedding.prefix_tokens",
    "DistilledVisionTransformer.initialise",
    "LearnedPositions.resize",
    "Row.read",
    "Row.write",
}


def everything() -> list[tuple[Module, Symbol]]:
    """Every public symbol of every public module, members of classes included."""
    return [
        (module, member)
        for module in PACKAGE.values()
        for symbol in module.symbols
        for member in (symbol, *symbol.members)
    ]


def test_the_pages_hold_every_module_in_the_order_of_the_book() -> None:
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    entries = [entry for part in toc["parts"] for entry in part["chapters"]]
    sections = next(entry["sections"] for entry in entries if entry["file"] == "api")
    pages = api.modules_on(ROOT)
    assert [section["file"] for section in sections] == [f"api/{page}" for page in index_pages()]
    assert set(pages) == set(index_pages())
    found = [name for page in index_pages() for name in pages[page]]
    expected = [name for name in ORDER + BESIDE + ABOVE if not name.startswith("_")]
    assert found == expected, "give a new module its line on a page of api/, in the order of tests/test_imports.py"


def index_pages() -> list[str]:
    """The pages that api.md lists."""
    text = (ROOT / "api.md").read_text(encoding="utf-8")
    return re.search(r"^```\{api-index\}\n(.*?)^```$", text, flags=re.M | re.S).group(1).split()


@pytest.mark.parametrize("name", sorted(PACKAGE))
def test_every_symbol_has_an_entry(name: str) -> None:
    module = PACKAGE[name]
    text = "\n".join(line for symbol in module.symbols for line in api.entry(symbol, module, ROOT))
    for symbol in (member for top in module.symbols for member in (top, *top.members)):
        assert re.search(rf"^`+\{{py:{symbol.kind}\}} {re.escape(symbol.name)}\b", text, flags=re.M), symbol.name


def test_every_function_and_class_has_a_docstring() -> None:
    bare = [
        f"{module.name}.{symbol.name}"
        for module, symbol in everything()
        if module.name not in CATALOGUES
        and symbol.kind not in ("data", "type")
        and not symbol.doc
        and symbol.name not in TOLD_BY_THEIR_CLASS
        and not symbol.name.endswith(".forward")  # its class says what it does
    ]
    assert not bare


def test_every_argument_and_result_has_a_type() -> None:
    """But for the variants of mistakes, which chapter 19 shows as they would be written in a hurry."""
    bare = []
    for path in sorted((ROOT / "vitbook").glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
        members = [node for top in (tree, *classes) for node in top.body if isinstance(node, ast.FunctionDef)]
        for function in members:
            given = function.args
            every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
            untyped = [one.arg for one in every if one and not one.annotation and one.arg not in ("self", "cls")]
            untyped += [] if function.returns else ["its result"]
            if path.stem != "mistakes" and not function.name.startswith("__") and untyped:
                bare.append(f"{path.stem}.{function.name}: {', '.join(untyped)}")
    assert not bare


def test_what_takes_or_gives_tensors_says_their_shapes() -> None:
    silent = []
    for module, symbol in everything():
        if module.name in CATALOGUES | CHECKS or symbol.kind in ("data", "type", "class"):
            continue
        if symbol.name in TOLD_BY_THEIR_CLASS:
            continue
        # Tensors by name, as in a checkpoint, have any shape; so have those of functions passed in.
        plain = re.sub(r"(?:dict|Mapping|Callable|Iterable|list)\[[^\]]*(?:\[[^\]]*\])*[^\]]*\]", "", symbol.signature)
        doc = symbol.doc
        if symbol.name.endswith(".forward"):
            doc += module.find(symbol.name.partition(".")[0]).doc
        if re.search(r"\bTensor\b", plain) and not SHAPE.search(doc):
            silent.append(f"{module.name}.{symbol.name}")
    assert not silent, f"say the shapes, such as (B, T, D) → (B, T, D): {silent}"


def test_source_links_point_to_the_definition() -> None:
    for module, symbol in everything():
        info = {"module": f"vitbook.{module.name}", "fullname": symbol.name}
        address = api.source_address("https://example.org/blob/main", ROOT, "py", info)
        path, first, last = re.fullmatch(r"https://example\.org/blob/main/(.*)#L(\d+)-L(\d+)", address).groups()
        line = (ROOT / path).read_text(encoding="utf-8").splitlines()[int(first) - 1]
        name = re.escape(symbol.name.rpartition(".")[2])
        assert re.match(rf"\s*(?:(?:async )?def |class )?(?:\w+, )*{name}\b", line), (symbol.name, line)
        assert int(first) <= int(last)


@pytest.mark.parametrize(
    "info",
    [
        {"module": "torch.nn", "fullname": "Linear"},
        {"module": "vitbook.vit", "fullname": "missing"},
        {"module": "vitbook.vit", "fullname": ""},
    ],
)
def test_what_is_not_ours_has_no_source_link(info: dict[str, str]) -> None:
    assert api.source_address("base", ROOT, "py", info) is None


def test_fields_are_a_table_with_default_and_comment() -> None:
    lines = api.entry(PACKAGE["vit"].find("ViTConfig"), PACKAGE["vit"], ROOT)
    assert "| `patch_size: int = 16` | P, in pixels |" in lines
    rows = [line for line in lines if line.startswith("| `")]
    assert len(rows) == len(PACKAGE["vit"].find("ViTConfig").fields) > 10


def test_arguments_become_a_list() -> None:
    lines = [
        "What it does. Raises ValueError for nonsense.",
        "",
        "mask: boolean; clip: gradients longer than this",
        "    are shortened.",
        "Not an argument.",
        "other: no argument of it.",
    ]
    parts = api.paragraphs("\n".join(lines), {"mask", "clip"})
    assert parts[:2] == ["What it does.", "Raises ValueError for nonsense."]
    assert parts[2] == [("mask", "boolean"), ("clip", "gradients longer than this are shortened.")]
    assert parts[3].startswith("Not an argument.")


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("f(*x) < 2 [a]", r"f(\*x) \< 2 \[a\]"),
        ("x_p and _y_", r"x_p and \_y\_"),
        ("`a_*b` * 2", r"`a_*b` \* 2"),
        ("1. first", r"1\. first"),
        ("- no list", r"\- no list"),
    ],
)
def test_prose_stays_prose(text: str, written: str) -> None:
    assert api.inline(text, PACKAGE["attention"], ROOT) == written


@pytest.mark.parametrize(
    ("comment", "written"),
    [
        ("a class of it", "A class of it."),
        ("h, which must divide D", "h, which must divide D."),
        ("d_v, the width", "d_v, the width."),
        ("gradients are shortened;", "Gradients are shortened."),
        ("Why?", "Why?"),
    ],
)
def test_comments_become_sentences_and_symbols_stay(comment: str, written: str) -> None:
    assert api.sentence(comment) == written


def test_lists_are_read_aloud() -> None:
    assert [api.listed(list(items)) for items in ("", "a", "ab", "abc")] == ["", "a", "a and b", "a, b and c"]


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("TrainConfig", "vitbook.engine.TrainConfig"),
        ("Dataset", "vitbook.data.Dataset"),
        ("vitbook.embedding.POSITIONS", "vitbook.embedding.POSITIONS"),
        ("Tensor", ""),
        ("nonsense", ""),
        ("vitbook.embedding.nonsense", ""),
    ],
)
def test_names_mean_what_they_mean_in_their_module(name: str, full: str) -> None:
    assert api.full_name(name, PACKAGE["engine"], ROOT) == full

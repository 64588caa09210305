"""The package's files are read as they stand: symbols, lines, comments, and who teaches and tests them."""

import importlib
import inspect
from pathlib import Path

import package_source as source
import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = '''"""A module."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from vitbook._support.names import unknown

Pair = tuple[Tensor, Tensor]  # two of them
# how far
# one goes
REACH = 3e-3
LOW, HIGH = 0, 1  # the ends
_HIDDEN = 2


def register(symptom):
    return lambda wrong: wrong


@dataclass(frozen=True)
class Config:
    """Settings."""

    dim: int = 768  # D, the width
    names: list[str] = field(default_factory=list)

    @property
    def half(self) -> int:
        """D/2."""
        return self.dim // 2

    @classmethod
    def small(cls, dim: int = 2) -> "Config":
        """A small one."""

    def _inner(self): ...


@register(symptom="It is slow.")
def slow(x: Tensor, *, times: int = 1_000) -> Tensor:
    return x
'''


@pytest.fixture
def module(tmp_path: Path) -> source.Module:
    path = tmp_path / "toy.py"
    path.write_text(TEXT, encoding="utf-8")
    return source.read_module(path)


def test_symbols_and_their_kinds(module: source.Module) -> None:
    found = {symbol.name: symbol.kind for symbol in module.symbols}
    assert found == {
        "Pair": "type",
        "REACH": "data",
        "LOW": "data",
        "HIGH": "data",
        "register": "function",
        "Config": "class",
        "slow": "function",
    }


def test_lines_are_those_of_the_definitions(module: source.Module) -> None:
    lines = TEXT.splitlines()
    for symbol in (*module.symbols, *module.find("Config").members):
        assert symbol.name.rpartition(".")[2] in lines[symbol.line - 1], symbol.name
        assert symbol.line <= symbol.end <= len(lines)
    assert lines[module.find("slow").line - 1].startswith("def slow"), "not the decorator above it"


def test_values_and_comments_are_as_written(module: source.Module) -> None:
    assert (module.find("REACH").value, module.find("REACH").doc) == ("3e-3", "how far one goes")
    assert module.find("Pair").doc == "two of them"
    assert module.find("LOW").doc == module.find("HIGH").doc == "the ends"


def test_fields_of_a_dataclass(module: source.Module) -> None:
    dim, names = module.find("Config").fields
    assert dim == source.Field("dim", "int", "768", "D, the width")
    assert (names.default, names.comment) == ("list()", "")


def test_signatures(module: source.Module) -> None:
    assert module.find("Config.half").kind == "property" and module.find("Config.half").signature == "int"
    small = module.find("Config.small")
    assert (small.modifier, small.arguments) == ("classmethod", ("dim",))
    assert module.find("slow").arguments == ("x", "times")
    assert module.find("Config._inner") is None


def test_a_registered_symbol_says_what_it_was_registered_with(module: source.Module) -> None:
    assert module.find("slow").doc == "Symptom: It is slow."


def test_imports_give_full_names(module: source.Module) -> None:
    assert module.imports["unknown"] == "vitbook._support.names.unknown" and module.imports["Tensor"] == "torch.Tensor"


@pytest.mark.parametrize("name", ["attention", "vit", "training", "embedding"])
def test_the_reading_agrees_with_python(name: str) -> None:
    """Same public functions and classes, same lines, same arguments as the imported module has."""
    module = source.read_package(ROOT)[name]
    live = importlib.import_module(f"vitbook.{name}")
    own = {
        key: value
        for key, value in vars(live).items()
        if (inspect.isfunction(value) or inspect.isclass(value))
        and value.__module__ == live.__name__
        and not key.startswith("_")
    }
    read = {symbol.name: symbol for symbol in module.symbols if symbol.kind in ("function", "class", "exception")}
    assert set(read) == set(own)
    for key, value in own.items():
        lines, first = inspect.getsourcelines(value)
        assert first <= read[key].line <= read[key].end == first + len(lines) - 1, key
        if inspect.isfunction(value):
            assert tuple(inspect.signature(value).parameters) == read[key].arguments


def test_who_teaches_and_who_tests() -> None:
    teach, use = source.chapters_of(ROOT)
    assert [path.stem for path in teach["attention"]] == ["01_attention", "02_scale", "20_speed"]
    assert set(teach["vit"]) <= set(use["vit"])
    assert not teach["names"]
    tests = source.proven(ROOT)
    assert [path.name for path in tests["attention"]] == ["test_attention.py"], "that of attention_maps is another's"
    assert all(tests.values()), "every module has a test"

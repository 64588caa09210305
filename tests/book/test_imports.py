"""The order of the modules is the order of the book: each imports only from those before it."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "vitbook"

# A reader who has read the chapter of a module knows every module that it imports.
ORDER = [
    "attention",
    "self_attention",
    "multihead",
    "transformer",
    "patches",
    "embedding",
    "encoder",
    "vit",
    "cnn",
    "attention_maps",
    "explorer",
    "layouts",
    "pretrained",
    "features",
    "distillation",
    "heads",
    "costs",
    "properties",
    "mistakes",
    "checker",
    "diagnosis",
    "exercises",
    "progress",
]
# Save one: among the public files of chapter 15 are DeiT's, whose model chapter 17 explains.
AHEAD = {"pretrained": {"distillation"}}
# Beside the model: these know nothing of it.
BESIDE = ["checks", "typed", "names", "pictures", "archives", "download", "sources", "data", "preprocessing"]
BESIDE += ["published", "weight_files", "augment", "checkpoint", "training", "engine", "plotting", "runtime", "source"]
BESIDE += ["watching"]
# The command line may call everything, each of these those before it, and nothing else calls them.
ABOVE = ["explanation", "runs", "cli", "__main__"]

MODULES = sorted(path.stem for path in PACKAGE.glob("*.py") if path.stem != "__init__")


def imported(source: str) -> tuple[set[str], set[str]]:
    """(modules of vitbook, top-level packages from elsewhere) that a module's source imports, anywhere in it."""
    own: set[str] = set()
    foreign: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and (node.level or node.module == "vitbook"):
            names = (
                [f"vitbook.{node.module}"] if node.level and node.module else [f"vitbook.{a.name}" for a in node.names]
            )
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            continue
        for name in names:
            package, _, rest = name.partition(".")
            if package == "vitbook":
                own.add(rest.split(".")[0])
            else:
                foreign.add(package)
    return own - {""}, foreign


def allowed(module: str) -> set[str]:
    """The modules of vitbook that a module may import."""
    if module in ORDER:
        return set(ORDER[: ORDER.index(module)]) | set(BESIDE) | AHEAD.get(module, set())
    if module in BESIDE:
        return set(BESIDE) - {module}
    return set(ORDER) | set(BESIDE) | set(ABOVE[: ABOVE.index(module)])


def complaints(module: str, source: str) -> list[str]:
    """What is wrong with a module's imports."""
    own, foreign = imported(source)
    found = [
        f"{module} may not import {name}: see the order in tests/test_imports.py" for name in own - allowed(module)
    ]
    if module != "plotting" and "matplotlib" in foreign:
        found.append(f"{module} imports matplotlib; only plotting does")
    return found


def test_every_module_has_its_place() -> None:
    unknown = set(MODULES) - set(ORDER) - set(BESIDE) - set(ABOVE)
    assert not unknown, f"give these a place in the order of the book: {sorted(unknown)}"


@pytest.mark.parametrize("module", MODULES)
def test_imports_follow_the_book(module: str) -> None:
    assert complaints(module, (PACKAGE / f"{module}.py").read_text(encoding="utf-8")) == []


def test_the_package_itself_imports_no_module_of_its_own() -> None:
    own, _ = imported((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    assert own <= {"__version__"}, "import vitbook stays instant; a chapter names the module it uses"


def test_the_mistakes_stay_with_the_exercises() -> None:
    """Nothing that a model needs imports them."""
    sources = {module: (PACKAGE / f"{module}.py").read_text(encoding="utf-8") for module in MODULES}
    users = {module for module, source in sources.items() if "mistakes" in imported(source)[0]}
    assert users == {"checker", "diagnosis", "exercises"}


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("attention", "from vitbook.multihead import split_heads"),
        ("attention", "from vitbook import vit"),
        ("patches", "from .vit import create_vit"),
        ("encoder", "import vitbook.heads"),
        ("encoder", "def f():\n    from vitbook.vit import create_vit"),
        ("training", "from vitbook.vit import VisionTransformer"),
        ("attention", "import matplotlib.pyplot as plt"),
        ("vit", "from vitbook import cli"),
        ("engine", "from vitbook.runs import Run"),
        ("runs", "from vitbook.cli import main"),
    ],
)
def test_wrong_imports_are_found(module: str, source: str) -> None:
    assert complaints(module, source)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("multihead", "from vitbook.attention import attention"),
        ("plotting", "import matplotlib.pyplot as plt"),
        ("cli", "from vitbook.vit import create_vit"),
        ("cli", "from vitbook.runs import Run"),
    ],
)
def test_right_imports_pass(module: str, source: str) -> None:
    assert complaints(module, source) == []

"""The model's modules import only from those that a reader of their chapter knows, and no module in a circle."""

import ast
import json
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import api_reference as api
import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = {full: path for name in api.modules(ROOT) for full, path in api.files(ROOT, name).items()}
HOMES = {name: chapter.number if chapter else 0 for name, chapter in api.taught(ROOT).items()}

KNOWN = {"positions"}  # chapter 5 already needs them


def imported(source: str, anywhere: bool = True) -> set[str]:
    """Full names that a module imports, those of the package with what is taken from them."""
    found = set()
    tree = ast.parse(source)
    for node in ast.walk(tree) if anywhere else tree.body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def complaints(module: str, source: str) -> list[str]:
    """What is wrong with the imports of a module, by its name at the top of the package."""
    names = imported(source)
    own = {name.split(".")[1] for name in names if name.startswith("vitbook.")} & set(HOMES) - {module}
    above = {name for name in names if name.startswith("vitbook_workshop")}
    found = []
    if 0 < HOMES[module] <= HOMES["vit"]:
        later = {name for name in own - KNOWN if HOMES[name] > HOMES[module]}
        found += [f"{module} imports {name}, of chapter {HOMES[name]}" for name in later]
    if api.modules(ROOT)[module] == "vitbook":
        found += [f"{module} imports {name} of the workshop" for name in above]
    elif module != "commands":
        found += [f"{module} imports {name} of the command" for name in above if ".commands" in name]
    if module != "plotting" and any(name.startswith("matplotlib") for name in names):
        found.append(f"{module} imports matplotlib; only plotting does")
    return found


@pytest.mark.parametrize("full", FILES)
def test_imports_follow_the_book(full: str) -> None:
    assert complaints(full.split(".")[1], FILES[full].read_text(encoding="utf-8")) == []


def test_no_module_imports_itself_by_way_of_others() -> None:
    graph = {}
    for full, path in FILES.items():
        names = imported(path.read_text(encoding="utf-8"), anywhere=False)
        homes = {name if name in FILES else name.rpartition(".")[0] for name in names}
        graph[full] = homes & set(FILES) - {full}
    TopologicalSorter(graph).prepare()  # raises CycleError


def chapters_code() -> str:
    """What the cells of all chapters run."""
    notebooks = [json.loads(path.read_text(encoding="utf-8")) for path in ROOT.glob("chapters/*.ipynb")]
    cells = [cell for notebook in notebooks for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return "\n".join("".join(cell["source"]) for cell in cells)


def test_each_module_of_the_small_package_is_reached_from_a_chapter() -> None:
    """Directly, or through another module of it: what the workshop alone needs belongs there."""
    places = {path.relative_to(ROOT).with_suffix(""): path for path in (ROOT / "vitbook").rglob("*.py")}
    sources = {".".join(place.parts).removesuffix(".__init__"): path.read_text() for place, path in places.items()}
    reached: set[str] = set()
    queue = list(imported(chapters_code()))
    while queue:
        name = queue.pop()
        if name in sources and name not in reached:
            reached.add(name)
            queue += imported(sources[name])
        if "." in name:
            queue.append(name.rpartition(".")[0])  # the module that something is imported from, and its package
    assert sources.keys() - reached == set()


PHOTOGRAPH = ROOT / "vitbook" / "assets" / "album" / "cat_yarn.jpg"
# No engine for the bare loop, no compiler for a diagnosis
USE = f"""
import vitbook.training
from vitbook_workshop.commands import main
assert main(["predict", {str(PHOTOGRAPH)!r}, "--weights", "vitbook:cifar10"]) == 0
from vitbook.pretrained import load_pretrained
load_pretrained("vitbook:mae")
from vitbook.vit import create_vit
from vitbook_workshop.faults.diagnosis import examine
examine(create_vit("vit_digits"))"""
DIAGNOSE = """
from vitbook_workshop.commands import main
assert main(["diagnose", "vit_digits"]) == 0"""
LATER = {"torch._dynamo", "sympy", "ignite", "tensorboard", "IPython", "matplotlib", "sklearn", "scipy", "torchinfo"}
LATER |= {"requests", "pooch", "onnx"}


@pytest.mark.parametrize(
    ("code", "late"),
    [
        (USE, LATER),
        (DIAGNOSE, {"torch"}),
        ("import vitbook_workshop.exercises.my_vit.check", {"torch"}),
    ],
)
def test_what_takes_seconds_is_not_imported_before_it_is_needed(code: str, late: set[str]) -> None:
    code = f"import sys\n{code}\nprint(*{late} & set(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "\n")

"""A new chapter touches the six places that CONTRIBUTING.md names, and everything else follows."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

ROOT = Path(__file__).resolve().parents[2]

MODULE = '''"""The mean of a sequence's tokens: attention that looks everywhere alike."""

from torch import Tensor


def average(x: Tensor) -> Tensor:
    """Give every token the mean of all. (B, T, D) → (B, T, D).

    Nobody et al. 2099, Eq. 1.
    """
    return x.mean(dim=-2, keepdim=True).expand_as(x)
'''

TEST = """import torch

from vitbook.averaging import average


def test_it_is_attention_without_preferences():
    x = torch.randn(2, 5, 3)
    torch.testing.assert_close(average(x), torch.full((5, 5), 1 / 5) @ x)
"""

EXERCISES = '''"""The exercises on averaging."""

from vitbook_workshop.exercises.grader.judging import Exercise

CHAPTER = "99_averaging"

weight = Exercise(0.2, "five weights, all alike, sum to 1.", level="easy")
'''

REFERENCE = """
@misc{nobody2099,
  author = {Nobody, A. and One, B. and Two, C. and Three, D.},
  title = {Averaging Is All You Need},
  year = {2099},
  url = {https://example.org/averaging},
}
"""

SOLUTION = "<details>\n<summary>Solution</summary>\n\n```python\nweight = 1 / 5\n```\n\n</details>"
CELLS = [
    new_markdown_cell(
        "# Averaging: attention without preferences\n\nWhat is left of attention without queries and keys?\n\n"
        "**Before this** comes [Attention](01_attention.ipynb). **Time** on a CPU: reading 5 minutes, running 1."
    ),
    new_code_cell(
        "import torch\n\nfrom vitbook.averaging import average\nfrom vitbook_workshop.exercises import check"
    ),
    new_code_cell("average(torch.arange(6.0).view(1, 3, 2))"),
    new_markdown_cell("As in Nobody et al. 2099.\n\n## Exercises\n\n### Exercise 1\n\nHow much is a weight of five?"),
    new_code_cell("weight = None"),
    new_code_cell('check("averaging.weight", weight)'),
    new_markdown_cell(SOLUTION),
    new_markdown_cell("## Further reading\n\n- [Attention](01_attention.ipynb)."),
]


@pytest.fixture(scope="module")
def book(tmp_path_factory) -> Path:
    """A copy of the book with a chapter 99, executed and built."""
    copy = tmp_path_factory.mktemp("copy") / "book"
    ignored = shutil.ignore_patterns(".git", ".venv*", "_build", "__pycache__", "*cache*", "runs", "benchmarks")
    shutil.copytree(ROOT, copy, ignore=ignored)
    shutil.copytree(ROOT / "benchmarks", copy / "benchmarks", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "vitbook/assets/runs", copy / "vitbook/assets/runs", dirs_exist_ok=True)
    (copy / "vitbook" / "averaging.py").write_text(MODULE, encoding="utf-8")
    (copy / "tests" / "vitbook" / "test_averaging.py").write_text(TEST, encoding="utf-8")
    (copy / "vitbook_workshop" / "exercises" / "averaging.py").write_text(EXERCISES, encoding="utf-8")
    nbformat.write(new_notebook(cells=CELLS), copy / "chapters" / "99_averaging.ipynb")
    toc = (copy / "_toc.yml").read_text(encoding="utf-8")
    last = [line for line in toc.splitlines() if "chapters/" in line][-1]
    new = last[: last.index("chapters/")] + "chapters/99_averaging"
    (copy / "_toc.yml").write_text(toc.replace(last, f"{last}\n{new}"), encoding="utf-8")
    with (copy / "references.bib").open("a", encoding="utf-8") as file:
        file.write(REFERENCE)
    run(copy, "tools/notebooks.py", "execute", "chapters/99_averaging.ipynb")
    run(copy, "-c", "from jupyter_book.cli.main import main; main()", "build", ".", "-W", "-n", "--keep-going")
    return copy


def run(folder: Path, *command: str) -> None:
    """Run Python there, with the package of that folder."""
    environment = os.environ | {"PYTHONPATH": str(folder)}
    done = subprocess.run([sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"


@pytest.mark.slow
def test_a_new_chapter_is_where_readers_look(book: Path) -> None:
    site = book / "_build" / "html"
    seen = {
        "README.md": ["](chapters/99_averaging.ipynb)", "`averaging`"],
        "chapters/99_averaging.ipynb": ["colab-badge.svg", "subprocess.run", "not attempted yet", "[2., 3.]"],
    }
    for name, words in seen.items():
        text = (book / name).read_text(encoding="utf-8")
        assert [word for word in words if word not in text] == [], name
    shown = {
        "intro.html": 'href="chapters/99_averaging.html"',
        "chapters/99_averaging.html": "99. Averaging",
        max((site / "api").glob("part?.html")).relative_to(site): 'id="vitbook.averaging.average"',  # of the last part
        "references.html": "example.org/averaging",
        "sitemap.xml": "chapters/99_averaging.html",
    }
    assert [name for name, words in shown.items() if words not in (site / name).read_text(encoding="utf-8")] == []


@pytest.mark.slow
def test_its_tests_exercises_and_outputs_pass(book: Path) -> None:
    tests = [
        "tests/vitbook/test_averaging.py",
        "tests/book/test_notebooks_exercises.py",
        "tests/book/test_notebooks_lint.py",
    ]
    run(book, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "averaging", *tests)
    compared = ["--nbval", "--nbval-current-env", "--nbval-sanitize-with", "tests/book/approximate.cfg"]
    run(book, "-m", "pytest", "-q", *compared, "chapters/99_averaging.ipynb")

"""The page "How this book is tested" says what was recorded, and what is recorded is what was measured."""

import ast
import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import ledger
import numpy as np
import pytest
import recorder
import torch
from proofs import PROOFS

ROOT = Path(__file__).resolve().parent.parent
NAMED = sorted({name for tags in PROOFS.values() for names in tags.values() for name in names})


# The book


def test_every_numbered_equation_of_every_chapter_has_tests():
    there = {path.stem: set(ledger.equations(path)) for path in ledger.chapters(ROOT) if ledger.equations(path)}
    assert there == {chapter: set(tags) for chapter, tags in PROOFS.items()}, "tests/proofs.py and the chapters differ"
    assert all(names for tags in PROOFS.values() for names in tags.values())


@pytest.mark.parametrize("name", NAMED)
def test_every_test_that_is_named_exists(name):
    file, function = name.split("::")
    source = (ROOT / "tests" / file).read_text(encoding="utf-8")
    function, _, case = function.partition("[")
    tree = ast.parse(source)
    assigned = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    assert function in assigned | {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    known = {getattr(node, "id", getattr(node, "attr", getattr(node, "name", ""))) for node in ast.walk(tree)}
    assert not case or case.rstrip("]") in known


def test_the_map_in_the_readme_has_every_chapter_with_files_that_exist():
    places = ledger.map_of((ROOT / "README.md").read_text(encoding="utf-8"))
    assert set(places) == {path.stem for path in ledger.chapters(ROOT)}
    assert all((ROOT / file).exists() for _, *files in places.values() for some in files for file in some)


def test_make_test_records_tests_and_chapters():
    assert {"tests", "chapters"} <= set(ledger.suites((ROOT / "Makefile").read_text(encoding="utf-8")))


def test_the_page_says_what_the_ledger_holds():
    page = (ROOT / "tested.md").read_text(encoding="utf-8")
    again = "tested.md and ledger.json differ; run: python tools/ledger.py page"
    assert page == ledger.render(ledger.read_ledger(ROOT), ROOT), again


# Recording


@pytest.fixture
def recording(monkeypatch):
    """A recorder whose changes to torch and pytest end with the test."""
    scalar = type(pytest.approx(1.0))
    monkeypatch.setattr(torch.testing, "assert_close", torch.testing.assert_close)
    monkeypatch.setattr(scalar, "__eq__", scalar.__eq__)
    return recorder.Recorder(
        SimpleNamespace(option=SimpleNamespace(ledger="some", keyword=""), rootpath=ROOT, args=["a"])
    )


def test_the_largest_difference_and_what_was_allowed_there(recording):
    torch.testing.assert_close(torch.tensor([1.0, 8.0]), torch.tensor([1.0, 8.001]), rtol=5e-4, atol=1e-4)
    torch.testing.assert_close([torch.ones(2)], [torch.ones(2)])
    assert set(recording.measured) == {"float32"}
    found = recording.measured["float32"]
    assert found["comparisons"] == 2
    assert abs(found["difference"] - 1e-3) < 1e-6 and abs(found["allowed"] - 4.1005e-3) < 1e-6


def test_each_precision_is_kept_by_itself_with_torchs_own_tolerances(recording):
    torch.testing.assert_close({"a": 2.0}, {"a": 2.0 + 1e-8})
    torch.testing.assert_close(torch.ones(3).double(), torch.ones(3).double() - 2e-9)
    torch.testing.assert_close(torch.tensor([1, 2]), torch.tensor([1, 2]))
    inf = torch.tensor([torch.inf, 1.0])
    torch.testing.assert_close(inf, inf.clone())
    measured = recording.measured
    assert set(measured) == {"float64", "int64", "float32"}
    assert abs(measured["float64"]["difference"] - 1e-8) < 1e-15
    assert abs(measured["float64"]["allowed"] - 3e-7) < 1e-14
    assert measured["int64"] == measured["float32"] | {"allowed": 0.0}
    assert measured["float32"]["difference"] == 0


def test_approx_is_measured_and_what_allows_much_stands_apart(recording):
    assert 1.001 == pytest.approx(1, abs=0.5)
    assert [3.0, 2.0] == pytest.approx([3.0, 2.0 + 1e-9])
    assert recording.measured["wide"]["difference"] == 1.001 - 1
    assert recording.measured["wide"]["allowed"] == 0.5
    assert abs(recording.measured["float64"]["difference"] - 1e-9) < 1e-15


def test_what_does_not_agree_is_not_measured(recording):
    with pytest.raises(AssertionError):
        torch.testing.assert_close(torch.ones(1), torch.zeros(1))
    assert not 1.0 == pytest.approx(2.0)
    assert recording.measured == {}


def report(node: str, outcome: str, seconds: float = 1.0, **more) -> SimpleNamespace:
    facts = dict(nodeid=node, duration=seconds, user_properties=[], skipped=outcome == "skipped")
    return SimpleNamespace(**facts | dict(failed=outcome == "failed") | more)


def test_the_phases_of_a_test_are_one_case(recording, tmp_path):
    recording.config.rootpath = tmp_path
    for seconds in (2.0, 0.5):
        recording.pytest_runtest_logreport(report("tests/test_a.py::test", "passed", seconds))
    recording.pytest_sessionfinish(None, 0)
    tests = ledger.read_records(tmp_path)["some"]["tests"]
    assert tests == {"tests/test_a.py::test": {"outcome": "passed", "seconds": 2.5}}


@pytest.mark.parametrize("why", ["failure", "selection", "worker", "nothing"])
def test_what_did_not_pass_whole_leaves_the_older_record(recording, tmp_path, why):
    recording.config.rootpath = tmp_path
    if why != "nothing":
        recording.pytest_runtest_logreport(report("tests/test_a.py::test", "passed"))
    recording.config.option.keyword = "name" if why == "selection" else ""
    if why == "worker":
        recording.config.workerinput = {}
    recording.pytest_sessionfinish(None, int(why == "failure"))
    assert not ledger.read_records(tmp_path)


def test_several_processes_make_one_record(tmp_path):
    (tmp_path / "test_some.py").write_text(
        "import pytest, torch\n"
        "@pytest.mark.parametrize('gap', [1e-9, 2e-9])\n"
        "def test_close(gap):\n"
        "    torch.testing.assert_close(torch.tensor(1.0).double() + gap, torch.tensor(1.0).double())\n"
        "def test_skipped():\n"
        "    pytest.skip('no such thing here')\n",
        encoding="utf-8",
    )
    (tmp_path / "test_file.py").write_text("import pytest\npytest.importorskip('no_such_module')\n", encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]", encoding="utf-8")
    command = "-m pytest -q -p recorder --ledger some -n 2".split()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "tools"), str(ROOT)])}
    done = subprocess.run([sys.executable, *command], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads((tmp_path / ".ledger" / "some.json").read_text(encoding="utf-8"))
    tests = {node.rpartition("/")[2]: test for node, test in record["tests"].items()}
    assert record["workers"] == 2 and set(record["machine"]) >= {"cpu", "cores", "gpu", "system", "python", "torch"}
    differences = [
        tests[f"test_some.py::test_close[{gap}]"]["measured"]["float64"]["difference"] for gap in (1e-9, 2e-9)
    ]
    assert differences == pytest.approx([1e-9, 2e-9], rel=1e-6)
    assert tests["test_some.py::test_skipped"]["reason"] == "no such thing here"
    assert tests["test_file.py"]["outcome"] == "skipped" and "no_such_module" in tests["test_file.py"]["reason"]


def test_numbers_of_numpy_are_kept_as_plain_ones():
    measured = {}
    recorder.keep(measured, "float64", np.float64(1e-9), np.float32(1e-6), np.float64(1.0))
    assert [type(measured["float64"][key]) for key in ("difference", "allowed")] == [float, float]


# From records to the page

PROOF = {"01_sums": {"7": ["test_sums.py::test_sum[small]"]}}
README = """
| Chapter | Module | Tests |
|---|---|---|
| 1 | [Sums](chapters/01_sums.ipynb) | What is a sum? | [Colab](https://x.org/01_sums.ipynb) | `sums` |
"""
MAKEFILE = """
test: x  ## Test: all
	pytest $(RECORD) tests tests
	pytest $(RECORD) chapters --nbval
slow: x  ## Kill processes: 100 times
	pytest $(RECORD) $@ -m slow tests
colab:  ## Play Colab
	python tools/ledger.py note $@ play
"""


@pytest.fixture
def book(tmp_path) -> Path:
    """A book of one chapter with one numbered equation."""
    for folder in ("chapters", "tests"):
        (tmp_path / folder).mkdir()
    cells = [{"cell_type": "markdown", "source": ["# Sums\n", "## Of two, by hand\n", "$$a + b \\tag{7}$$"]}]
    (tmp_path / "chapters" / "01_sums.ipynb").write_text(json.dumps({"cells": cells}), encoding="utf-8")
    (tmp_path / "tests" / "test_sums.py").write_text("", encoding="utf-8")
    (tmp_path / "README.md").write_text(README, encoding="utf-8")
    (tmp_path / "Makefile").write_text(MAKEFILE, encoding="utf-8")
    return tmp_path


def records() -> dict:
    kind = dict(cpu="A chip", cores=3, gpu="", system="Linux (x86_64)", python="3.11.7", torch="2.13.0", colab="")
    about = dict(date="2026-11-21T10:00+00:00", commit="abc", changed=False, seconds=130.0, machine=kind, workers=2)
    close = {"float64": {"difference": 2e-15, "allowed": 1e-9, "comparisons": 4}}
    closer = {"float64": {"difference": 1e-15, "allowed": 1e-9, "comparisons": 9}}
    tests = {
        "tests/test_sums.py::test_sum[small-a]": {"outcome": "passed", "seconds": 11.0, "measured": close},
        "tests/test_sums.py::test_sum[small-b]": {"outcome": "passed", "seconds": 12.0, "measured": closer},
        "tests/test_sums.py::test_sum[large]": {"outcome": "passed", "seconds": 14.0, "hypothesis": True},
        "tests/test_sums.py::test_other": {"outcome": "skipped", "seconds": 0.0, "reason": "no abacus"},
    }
    cells = {
        "chapters/01_sums.ipynb::Cell 0": {"outcome": "passed", "seconds": 21.0, "compared": True},
        "chapters/01_sums.ipynb::Cell 1": {"outcome": "passed", "seconds": 22.0},
    }
    return {"tests": about | {"tests": tests, "args": ["tests"]}, "chapters": about | {"tests": cells}}


def page(book: Path, some: dict) -> str:
    made = json.loads(json.dumps(ledger.gather(some, book, PROOF)))
    return ledger.render(made, book).replace("\N{NO-BREAK SPACE}", " ")


def test_the_page_has_the_numbers_of_the_record(book):
    lines = page(book, records()).splitlines()
    link = "[1, (7)](chapters/01_sums.ipynb#of-two-by-hand)"
    assert f"| {link} | Of two, by hand | 2 | 2.0e-15 of 1.0e-09 (float64) | 23 s |" in lines
    assert "- 1, (7): `test_sums.py::test_sum[small]`, of `vitbook/sums.py`" in lines
    chapter = "[1 Sums](chapters/01_sums.ipynb) | `sums.py` | 3, 37 s | 2 run, 1 compared, 43 s"
    assert f"| {chapter} | 2.0e-15 of 1.0e-09 (float64) |" in lines
    assert "| `make test` | 3 cases | 1 | 2 min, 2 at once | 2026-11-21 | `abc` |" in lines
    assert any(line.startswith("|  | 1 of these, property-based") for line in lines)
    assert "- A chip, 3 cores, no GPU; Linux (x86_64); Python 3.11.7, torch 2.13.0 (tests, chapters)." in lines


def test_a_proof_is_credited_to_the_code_that_it_uses(book):
    source = (
        "from vitbook.products import times\n\ndef helper():\n    times()\n\n"
        "def test_used():\n    helper()\n\ndef test_unused():\n    pass\n"
    )
    (book / "tests" / "test_equations.py").write_text(source, encoding="utf-8")
    sums = ["vitbook/sums.py"], ["tests/test_sums.py"]
    assert ledger.tested_by("test_sums.py::test_sum[small]", *sums, book) == {"vitbook/sums.py"}
    assert ledger.tested_by("test_equations.py::test_used[1]", *sums, book) == {"vitbook/products.py"}
    assert ledger.tested_by("test_equations.py::test_unused", *sums, book) == set()


def test_what_one_command_skips_and_another_runs_is_not_said_to_be_skipped(book):
    some = records()
    node = "tests/test_sums.py::test_other"
    other = some["tests"] | {"tests": {node: {"outcome": "passed", "seconds": 1.0}}}
    assert "no abacus" not in page(book, some | {"slow": other})


def test_the_page_says_what_was_not_run(book):
    some = records()
    text = page(book, some)
    for what in ("`make slow`: Kill processes.", "`make colab`: Play Colab.", "Anything on a GPU", "macOS or Windows"):
        assert what in text
    assert "- 1 skipped: no abacus (`tests/test_sums.py`)." in text.splitlines()
    elsewhere = some["tests"]["machine"] | {"gpu": "A card", "system": "macOS (arm64)", "colab": "1"}
    text = page(book, some | {"slow": some["tests"] | {"machine": elsewhere}})
    assert "Anything on a GPU" not in text and "Anything on Windows." in text and "Colab itself" not in text
    assert "GPU A card" in text and "`make slow`: " not in text


def test_what_has_no_record_is_not_said_to_have_run(book):
    text = page(book, {"tests": records()["tests"] | {"tests": {}}})
    assert "| Of two, by hand | not run | — | — |" in text
    assert "| `sums.py` | not run | not run | — |" in text


def test_a_whole_record_has_no_gaps_and_a_part_names_what_is_missing(book):
    assert ledger.gaps(records(), book, PROOF) == []
    assert ledger.gaps({}, book, PROOF) == ["no record of tests and chapters in .ledger; run: make test"]
    some = records()
    del (
        some["chapters"]["tests"]["chapters/01_sums.ipynb::Cell 0"],
        some["chapters"]["tests"]["chapters/01_sums.ipynb::Cell 1"],
    )
    assert ledger.gaps(some, book, PROOF) == ["chapters/01_sums.ipynb is not in the record; run: make test"]
    some = records()
    for case in ("small-a", "small-b"):
        del some["tests"]["tests"][f"tests/test_sums.py::test_sum[{case}]"]
    (complaint,) = ledger.gaps(some, book, PROOF)
    assert "chapter 01_sums, equation 7: test_sums.py::test_sum[small]" in complaint
    some = records()
    some["tests"]["args"] = ["tests/test_sums.py"]
    assert ledger.gaps(some, book, PROOF) == ["the record is not of all tests; run: make test"]
    (book / "tests" / "test_new.py").write_text("", encoding="utf-8")
    assert ledger.gaps(records(), book, PROOF) == []
    assert "- `tests/test_new.py`: none of its cases." in page(book, records())


def test_a_page_is_stale_when_the_book_has_other_chapters_or_equations_and_not_when_code_changes(book):
    made = ledger.gather(records(), book, PROOF)
    (book / "tests" / "test_sums.py").write_text("def test_new(): pass", encoding="utf-8")
    assert ledger.stale(made, book) == []
    path = book / "chapters" / "01_sums.ipynb"
    path.write_text(path.read_text(encoding="utf-8").replace("{7}", "{8}"), encoding="utf-8")
    assert ledger.stale(made, book) == [
        "tested.md does not know equation 8 of chapter 01_sums; run: make test, then make ledger",
        "tested.md still tells of equation 7 of chapter 01_sums; run: make test, then make ledger",
    ]
    path.rename(path.with_name("02_more.ipynb"))
    assert "does not know chapter 02_more, equation 8" in ledger.stale(made, book)[0]
    assert "chapters/01_sums" not in ledger.render(made, book), "no link to what is gone"


def test_a_command_that_is_no_pytest_is_noted_when_it_passes(book, monkeypatch):
    monkeypatch.setattr(ledger, "ROOT", book)
    with pytest.raises(SystemExit, match="3"):
        ledger.main(["note", "colab", sys.executable, "-c", "raise SystemExit(3)"])
    assert not ledger.read_records(book)
    ledger.main(["note", "colab", sys.executable, "-c", "pass"])
    assert "`make colab` | passed | — |" in page(book, records() | ledger.read_records(book))


def test_the_date_is_that_of_the_start(tmp_path):
    path = recorder.write(tmp_path, "some", datetime(2026, 1, 2, 3, 4, tzinfo=UTC), 5.0)
    assert json.loads(path.read_text(encoding="utf-8"))["date"] == "2026-01-02T03:04+00:00"

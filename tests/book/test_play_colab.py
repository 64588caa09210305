"""Playing Colab: what the install cell may do, what is fetched from where, and that a failure is found."""

import re
import sys
from pathlib import Path

import notebooks as notebook_tool
import play_colab as tool
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

ROOT = Path(__file__).resolve().parents[2]


def silent():
    return new_code_cell("pass")


BEFORE = {"torch": "2.9.0", "numpy": "2.0.2"}
GOOD = BEFORE | {"vitbook": "0.1.0", "tyro": "1.0.0"}


def test_a_good_install_is_not_complained_of() -> None:
    assert tool.complaints(BEFORE, GOOD, silent()) == []


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (BEFORE, GOOD | {"torch": "2.13.0"}, "torch 2.9.0 has become 2.13.0"),
        (BEFORE, GOOD | {"numpy": "2.4.0"}, "numpy 2.0.2 has become 2.4.0"),
        (BEFORE, {"torch": "2.9.0", "vitbook": "0.1.0"}, "numpy 2.0.2 has become None"),
        (BEFORE, BEFORE, "has not installed vitbook"),
        (GOOD, GOOD, "was there before"),
    ],
)
def test_a_bad_install_is_complained_of(before: dict, after: dict, words: str) -> None:
    (complaint,) = tool.complaints(before, after, silent())
    assert words in complaint


def test_an_install_cell_is_silent_where_the_package_is() -> None:
    talks = new_code_cell("pass", outputs=[new_output("stream", text="Installing")])
    (complaint,) = tool.complaints(BEFORE, GOOD, talks)
    assert "not silent" in complaint


def test_the_install_cell_installs_only_where_the_package_is_missing(monkeypatch) -> None:
    """The cell as Python: `%pip` stands for a call that is counted."""
    source = re.sub(r"^( *)%pip (.*)$", r"\1installs.append('\2')", notebook_tool.install_source(), flags=re.M)
    installs: list[str] = []
    exec(source, {"installs": installs})
    assert installs == []
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    exec(source, {"installs": installs})
    assert installs == [f"install -q git+{notebook_tool.repository_url()}"]  # and upgrades nothing


def test_git_fetches_the_working_tree_from_the_public_address(tmp_path: Path, monkeypatch) -> None:
    root = tmp_path / "book"
    root.mkdir()
    (root / "tracked.txt").write_text("new")
    (root / "ignored.txt").write_text("")
    (root / ".gitignore").write_text("ignored.txt\n")
    tool.run("git", "init", "--quiet", cwd=root)
    monkeypatch.setattr(tool, "ROOT", root)
    cache = tmp_path / "cache"
    cache.mkdir()
    tool.publish(cache)
    tool.publish(cache)  # a second time replaces the first
    kept = tool.surroundings(tmp_path, cache)
    tool.run("git", "clone", "--quiet", notebook_tool.repository_url(), tmp_path / "clone", env=kept)
    assert {path.name for path in (tmp_path / "clone").iterdir()} == {".git", ".gitignore", "tracked.txt"}


def test_an_environment_of_its_own_sees_the_base_and_installs_beside_it(tmp_path: Path) -> None:
    base = tmp_path / "base-packages"
    (base / "there").mkdir(parents=True)
    (base / "there" / "__init__.py").write_text("")
    python = tool.own_environment(Path(sys.executable), {"paths": [str(base)]}, tmp_path / "env")
    ask = "import there, sys; from importlib.util import find_spec; print(sys.prefix, find_spec('vitbook'))"
    prefix, vitbook = tool.run(python, "-I", "-c", ask).split()
    assert Path(prefix).resolve() == (tmp_path / "env").resolve() and vitbook == "None"


def test_a_failing_cell_is_told_of(tmp_path: Path) -> None:
    """A whole play in this very environment, where the package is there: the chapter fails in its last cell."""
    cells = [new_markdown_cell("# Title"), new_code_cell("x = 1"), new_code_cell("raise ValueError('got 3')")]
    notebook = new_notebook(cells=cells)
    notebook_tool.stamp(notebook, "01_sample.ipynb")
    path = tmp_path / "01_sample.ipynb"
    notebook_tool.write(path, notebook_tool.to_text(notebook))
    base = Path(sys.executable)
    seconds, (complaint,) = tool.play(path, base, tool.packages(base) | {"versions": {}}, tmp_path)
    assert "got 3" in complaint and seconds > 0

"""The tool that executes chapters elsewhere sees what differs, and says in which cell and in which surroundings."""

import random
from pathlib import Path

import elsewhere
import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

PLAIN = dict(threads=1, locale="C", zone="UTC", hash_seed=1, folder="own", network=True, gpu=False, writable=True)


def notebook(folder: Path, *cells: tuple[str, str]) -> Path:
    """A chapter of such cells: what they run, and what they are said to print."""
    made = [
        new_code_cell(code, execution_count=count, outputs=[new_output("stream", name="stdout", text=text)])
        for count, (code, text) in enumerate(cells, start=1)
    ]
    metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(new_notebook(cells=made, metadata=metadata), folder / "01_small.ipynb")
    return folder / "01_small.ipynb"


def test_the_same_seed_draws_the_same_surroundings():
    choices = {name: [value, "other"] for name, value in PLAIN.items()}
    one, other = ([elsewhere.draw(random.Random(seed), choices) for _ in range(1)] for seed in (3, 3))
    assert one == other
    dice = random.Random(0)
    drawn = [elsewhere.draw(dice, choices) for _ in range(40)]
    assert all({getattr(place, name) for place in drawn} == set(values) for name, values in choices.items())


def test_there_is_always_something_to_draw_from(tmp_path):
    choices = elsewhere.at_hand(elsewhere.locales_in(tmp_path))
    assert choices.keys() == PLAIN.keys() and all(choices.values())
    assert choices["locale"][0] == "C" and set(choices["locale"]) <= set(elsewhere.LOCALES)


def test_where_a_process_cannot_be_set_out_it_is_not(monkeypatch):
    """As by root in a container without the right to it."""

    def forbidden(**_):
        raise PermissionError(1, "unshare: Operation not permitted")

    monkeypatch.setattr(elsewhere, "set_out", forbidden)
    assert not elsewhere.can_set_out.__wrapped__()
    monkeypatch.setattr(elsewhere, "can_set_out", lambda: False)
    assert elsewhere.at_hand(["C"])["writable"] == [True]


def test_surroundings_become_variables(tmp_path, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "mine")
    place = PLAIN | dict(threads=4, zone="Asia/Kathmandu", network=False)
    variables = elsewhere.environment(elsewhere.Surroundings(**place), tmp_path)
    assert (variables["OMP_NUM_THREADS"], variables["TZ"], variables["LC_ALL"]) == ("4", "Asia/Kathmandu", "C")
    assert (variables["HOME"], variables["CUDA_VISIBLE_DEVICES"]) == (str(tmp_path), "")
    assert variables["https_proxy"] == "http://127.0.0.1:9" and "MPLBACKEND" not in variables


def test_chapters_go_by_number_name_or_path():
    every = elsewhere.wanted([])
    assert len(every) > 10
    assert elsewhere.wanted([every[3].stem[:2], str(every[0])]) == [every[3], every[0]]
    with pytest.raises(ValueError, match="no chapter 99: there are 01_"):
        elsewhere.wanted(["99"])


def test_when_the_time_is_over_no_other_chapter_is_begun(tmp_path, monkeypatch, capsys):
    executed = []
    monkeypatch.setattr(elsewhere, "execute", lambda chapter, place: executed.append(chapter) or ["In cell 1"])
    chapters = [tmp_path / f"{number}.ipynb" for number in range(4)]
    choices = {name: [value] for name, value in PLAIN.items()}
    assert elsewhere.run(chapters, 2, random.Random(0), choices) == 1
    assert sorted(executed) == sorted(2 * chapters) and "8 of 8 executions differ" in capsys.readouterr().out
    executed.clear()
    assert elsewhere.run(chapters, 2, random.Random(0), choices, end=0) == 1
    said = capsys.readouterr().out
    assert len(executed) == 1 and "7 executions were left away" in said and "1 of 1 executions differ" in said


@pytest.mark.slow
def test_a_cell_that_differs_is_named(tmp_path):
    same, other = ("print(6 * 7)", "42\n"), ("import os; print(os.environ['TZ'])", "UTC\n")
    path = notebook(tmp_path, same, other)
    assert elsewhere.execute(path, elsewhere.Surroundings(**PLAIN)) == []
    (found,) = elsewhere.execute(path, elsewhere.Surroundings(**PLAIN | dict(zone="Asia/Kathmandu")))
    assert found.splitlines()[0].endswith("Cell 1") and "Asia/Kathmandu" in found and "UTC" in found


@pytest.mark.slow
@pytest.mark.skipif(not elsewhere.can_set_out(), reason="only root on Linux can cut a process off")
def test_a_chapter_can_be_cut_off_from_the_network_and_from_its_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(elsewhere, "ROOT", tmp_path)
    cut_off = elsewhere.Surroundings(**PLAIN | dict(network=False, writable=False, folder="other", threads=2))
    code = f"""import os, socket
try:
    socket.create_connection(("192.0.2.1", 80), timeout=5)
except OSError as error:
    print(error.strerror)
try:
    open({str(tmp_path / "new")!r}, "w")
except OSError as error:
    print(error.strerror)
print(os.listdir())"""
    said = "Network is unreachable\nRead-only file system\n['01_small.ipynb']\n"
    assert elsewhere.execute(notebook(tmp_path, (code, said)), cut_off) == []

"""Whatever code does in a process of its own, the parent gets its word, its time and its machine back."""

import os
import sys
import time
from pathlib import Path

import pytest

from vitbook_workshop.limited_process import Limits, Outcome, ordinary_file, run

posix = pytest.mark.skipif(os.name != "posix", reason="sessions and forks are of POSIX")
linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what else was started, and limits memory")
MINUTE = Limits(60)  # far less than what sleeps, and far more than what is over at once


def ran(work: str, limits: Limits = MINUTE, doing=None, **asked) -> Outcome:
    return run(f"in_limited_process:{work}", asked, limits, doing)


def gone(pid: int) -> bool:
    """Whether a process has ended, or is about to: SIGKILL cannot be ignored, but the system takes its time."""
    for _ in range(500):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.01)
    return False


def test_what_a_function_tells_and_prints_is_heard():
    steps = []
    outcome = ran("greets", name="you", doing=steps.append)
    assert not outcome.ended and not outcome.late and steps == ["greeting"]
    assert outcome.facts == dict(doing="greeting", greeting="hello you", path=sys.path[0], input="")
    assert (outcome.printed, outcome.last) == ("hello\nto you\nö", "ö")


def test_the_import_path_is_that_of_this_process_without_the_folder_at_hand(monkeypatch, tmp_path):
    (tmp_path / "json.py").write_text("raise Exception")
    (tmp_path / "vitbook_workshop").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    assert ran("greets", name="you").facts["greeting"] == "hello you"


@pytest.mark.parametrize("status", [0, 3])
def test_the_end_of_python_is_no_return(status):
    outcome = ran("ends_python", status=status)
    assert outcome.ended == f"Python itself stopped, with exit status {status}" and outcome.last == "last words"


def test_an_error_that_nobody_expected_is_its_last_words():
    assert ran("fails").last == "ImportError: no torch"


@linux
@pytest.mark.parametrize("options", [{}, {"start_new_session": True}], ids=["in its session", "in another session"])
def test_nothing_that_was_started_holds_the_parent_or_stays(options):
    outcome = ran("leaves_others", **options)
    assert not outcome.ended and gone(outcome.facts["pid"])


@linux
def test_a_daemon_is_found():
    outcome = ran("leaves_a_daemon")
    assert not outcome.ended and gone(outcome.facts["pid"])


@linux
def test_children_of_children_end_too():
    outcome = ran("forks", times=4)
    assert not outcome.ended and len(outcome.facts["pids"]) == 16 and all(map(gone, outcome.facts["pids"]))


@posix
@pytest.mark.parametrize("descriptor", [1, 2])
def test_what_is_printed_without_end_is_cut(descriptor):
    outcome = ran("prints", Limits(60, printed=100_000), descriptor=descriptor)
    assert outcome.ended == "stopped: it printed more than 100,000 bytes" and not outcome.late
    assert outcome.printed.startswith("first\nxxx") and len(outcome.printed) == len(outcome.last) == 2000


@posix
def test_what_others_print_without_end_is_cut():
    assert ran("starts_one_that_prints").ended == "stopped: it printed more than 10,000,000 bytes"


@linux
@pytest.mark.parametrize("line", [True, False], ids=["lines", "one line"])
def test_what_is_told_without_end_is_cut(line):
    assert ran("tells", Limits(60, told=100_000), line=line).ended == "stopped: it told more than 100,000 bytes"


@linux
def test_nonsense_is_no_fact():
    outcome = ran("tells_nonsense")
    assert not outcome.ended and outcome.facts == dict(doing=["list"], right=True)


def test_a_step_has_a_limit_and_says_where_it_stood():
    outcome = ran("sleeps", Limits(60, step=0.5))
    assert outcome.late and outcome.ended == "stopped after 0.5 s" and outcome.facts["doing"].startswith("sleeping as ")
    assert 'in_limited_process.py", line' in outcome.where and "in sleeps" in outcome.where


@posix
@pytest.mark.slow
def test_no_way_out_of_a_limit_from_inside():
    outcome = ran("escapes", Limits(60, step=0.5))
    assert outcome.late and outcome.ended == "stopped after 0.5 s" and outcome.facts["refused"] == "setsid"


@pytest.mark.slow
def test_each_step_has_the_time_of_a_step_and_all_have_the_time_of_all():
    assert not ran("goes_on", Limits(60, step=10), steps=3).ended
    assert ran("goes_on", Limits(1.5, step=10), steps=300).ended == "stopped after 1.5 s"


@linux
@pytest.mark.parametrize(("memory", "refused"), [(None, {}), (500_000_000, {"refused": True})])
def test_memory_has_a_limit(memory, refused):
    assert ran("allocates", Limits(60, memory=memory), size=1_000_000_000).facts == refused


@linux
def test_ctrl_c_goes_through_and_ends_the_process():
    """In the middle of a step: what is called then stands for the signal."""
    pids = []

    def interrupted(step: str) -> None:
        pids.append(int(step.removeprefix("sleeping as ")))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ran("sleeps", doing=interrupted)
    assert gone(*pids)


@pytest.mark.door
def test_only_an_ordinary_file_comes_in(tmp_path):
    (tmp_path / "file").write_text("x")
    assert ordinary_file(tmp_path / "file") == tmp_path / "file"
    with pytest.raises(ValueError, match="must be a file, got a folder"):
        ordinary_file(tmp_path)
    with pytest.raises(FileNotFoundError):
        ordinary_file(tmp_path / "none")
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        for path in (tmp_path / "pipe", Path("/dev/zero")):
            with pytest.raises(ValueError, match=f"{path} must be a file, got a pipe or a device"):
                ordinary_file(path)

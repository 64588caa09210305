"""The reader's own file, through the command: started, checked, named what is wrong, and what is next."""

import errno
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from command import VITBOOK

from vitbook._common import files
from vitbook_workshop.commands import main
from vitbook_workshop.exercises.my_vit import check
from vitbook_workshop.limited_process import Outcome

SOLUTIONS = Path(__file__).parent / "my_vit"
BUILT_IN = (SOLUTIONS / "built_in.py").read_text(encoding="utf-8")
ATTEND = "    return scores.softmax(-1) @ v\n"


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Runs `vitbook exercises …` in an empty folder: the exit status, and all that it prints."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str]:
        status = main(["exercises", *arguments])
        printed = capsys.readouterr()
        assert "\x1b" not in printed.out + printed.err and "Traceback" not in printed.out + printed.err
        return status, printed.out + printed.err

    return run


@pytest.fixture
def in_this_process(monkeypatch):
    """The file runs here, which takes no seconds for torch; all else is as it is with a process of its own."""

    def run(work, asked, limits, doing=None) -> Outcome:
        outcome = Outcome()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "path", list(sys.path))
            patch.setattr(sys, "stdin", io.StringIO())
            patch.setitem(sys.modules, "my_vit", None)
            function = getattr(check, work.partition(":")[2])
            function(lambda **facts: outcome.facts.update(json.loads(json.dumps(facts))), **asked)
        return outcome

    monkeypatch.setattr(check.limited_process, "run", run)


def test_stubs_are_written_once_and_all_are_to_do(command, in_this_process, tmp_path):
    assert command("start", "my_vit.py")[0] == 0
    written = (tmp_path / "my_vit.py").read_text(encoding="utf-8")
    assert 100 <= written.count("\n") <= 140
    (tmp_path / "my_vit.py").write_text(written + "# mine", encoding="utf-8")
    status, printed = command("start", "my_vit.py")
    assert status == 1 and "my_vit.py exists already and was left as it is" in printed
    assert (tmp_path / "my_vit.py").read_text(encoding="utf-8") == written + "# mine"

    status, printed = command("check", "my_vit.py")
    assert status == 1 and printed.count(" to do\n") == 10 and "[----------] 0 of 10" in printed
    assert "Next: attend, my_vit.py, line" in printed
    status, printed = command("next", "my_vit.py")
    assert status == 1 and "attend(scores, v)\nChapter 1. Softmax" in printed


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_leaves_nothing_and_the_next_start_goes_well(command, tmp_path, monkeypatch, call):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(files, "os", SimpleNamespace(**{**vars(os), call: full}))
        assert command("start", "mine.py") == (1, "vitbook: No space left on device: mine.py\n")
    assert not list(tmp_path.iterdir())
    assert command("start", "mine.py")[0] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["mine.py"]


def test_a_file_of_which_a_part_is_written_leaves_nothing(command, tmp_path):
    resource = pytest.importorskip("resource", reason="Windows does not limit the size of files")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        said = command("start", "mine.py")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert said == (1, "vitbook: File too large: mine.py\n") and not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("style", ["loops", "built_in"])
def test_a_finished_model_loads_the_weights_and_names_photographs(command, style):
    shutil.copy(SOLUTIONS / f"{style}.py", "mine.py")
    shutil.copy(check.KINGFISHER.with_name("horse_nokota.jpg"), "my photograph.jpg")
    status, printed = command("check", "mine.py", "my photograph.jpg")
    assert status == 0 and printed.count(" right\n") == 10 and "[##########] 10 of 10" in printed
    assert float(re.findall(r"your logits differ by (\S+) from", printed)[0]) < 1e-4
    assert "in bird_kingfisher.jpg: bird" in printed and "in my photograph.jpg: horse" in printed


def test_what_is_no_photograph_is_said_and_the_status_is_1(command, in_this_process):
    Path("mine.py").write_text(BUILT_IN, encoding="utf-8")
    status, printed = command("check", "mine.py", "mine.py")
    assert status == 1 and "mine.py cannot be read as an image" in printed


FAULTS = {
    "a syntax error": (ATTEND, "    return scores.softmax(-1 @ v\n", "line 9: return scores.softmax(-1 @ v\n  Syn"),
    "an exception at import": (ATTEND, f"{ATTEND}\nfirst = [][0]\n", "line 11: first = [][0]\n  IndexError: list"),
    "a print": (ATTEND, f"    print('look', v.shape)\n{ATTEND}", "Your code printed: look torch.Size([2, 3, 5, 6]) …"),
    "a missing function": ("def project(", "def projects(", "not yet: the file has no function project(x, qkv)."),
    "another signature": ("def forward(self, x)", "def forward(self)", "should take (self, x), and takes (self)."),
    "no class": ("class Encoder(nn.Module)", "class Encoder", "not yet: expected a class Encoder(nn.Module)."),
    "exit": (ATTEND, "    exit()\n", "your code ends Python itself; take out exit().\n  mine.py, line 9: exit()"),
    "exit at import": (ATTEND, f"{ATTEND}\nexit()\n", "take out exit() or sys.exit().\n  mine.py, line 11: exit()"),
    "a mistake": (ATTEND, "    return scores.softmax(-2) @ v\n", "not yet.\n  It looks like “softmax over"),
}
ENDS = {
    "a loop without an end": (
        "    import subprocess, sys, time\n"
        "    subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(70)'])\n"
        "    while True:\n        time.sleep(1)\n",
        "attend: stopped after 3 s. Is there a loop without an end?\n  mine.py, line 12: time.sleep(1)",
    ),
    "Python killed": (
        "    import os; os._exit(3)\n",
        "attend: Python itself stopped, with exit status 3.",
    ),
    "no end of writing": (
        "    import os\n    while True:\n        os.write(2, b'abc\\n')\n",
        "attend: stopped: it printed more than 1,000,000 bytes. The last that was printed: abc\n",
    ),
    "no end of printing": (
        "    while True:\n        print('abc')\n",
        "attend: stopped: it printed more than 1,000,000 bytes. The last that was printed: abc\n",
    ),
    "no end of warnings": (
        "    import sys\n    while True:\n        print('abc', file=sys.stderr)\n",
        "attend: stopped: it printed more than 1,000,000 bytes. The last that was printed: abc\n",
    ),
    "no end of memory": (
        "    bytes(2**34)\n",
        "Your code stops with an error:\n  mine.py, line 9: bytes(2**34)\n  MemoryError",
    ),
    "no limit": (
        "    import faulthandler, signal, threading, time\n"
        "    faulthandler.cancel_dump_traceback_later()\n    signal.alarm(0)\n"
        "    threading.Thread(target=time.sleep, args=(70,)).start()\n"
        "    while True:\n        time.sleep(1)\n",
        "attend: stopped after 3 s. Is there a loop without an end?\n",
    ),
    "a few forks": (
        "    import os, time\n    for _ in range(4):\n        os.fork()\n    time.sleep(70)\n",
        "attend: stopped after 3 s. Is there a loop without an end?",
    ),
}


def checked_with(command, right: str, instead: str) -> tuple[int, str]:
    assert right in BUILT_IN
    Path("mine.py").write_text(BUILT_IN.replace(right, instead), encoding="utf-8")
    return command("check", "mine.py")


@pytest.mark.parametrize(("right", "instead", "expected"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_said_plainly_at_the_readers_line(command, in_this_process, right, instead, expected):
    status, printed = checked_with(command, right, instead)
    assert expected in printed and status == (0 if instead.startswith("    print") else 1)


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="alarms, forks and limits of memory are of POSIX")
@pytest.mark.parametrize(
    ("instead", "expected"),
    [pytest.param(*fault, id=name) for name, fault in ENDS.items()],
)
def test_a_file_that_takes_all_it_can_get_is_ended_and_that_is_said(command, monkeypatch, instead, expected):
    """In processes of their own; all kinds in short are in test_limited_process.py."""
    monkeypatch.setattr(check, "LIMITS", replace(check.LIMITS, step=3))
    start = time.monotonic()
    status, printed = checked_with(command, ATTEND, instead)
    assert expected in printed and status == 1
    assert time.monotonic() - start < 60


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (
            Outcome({"doing": "MLP"}, "Python itself stopped, with exit status 3", last="abc" * 30),
            f"MLP: Python itself stopped, with exit status 3. The last that was printed: {'abc' * 20}\n",
        ),
        (Outcome({}, "stopped after 600 s", late=True), "before your file: stopped after 600 s. Is there a loop"),
        (Outcome({"error": "a", "states": 3, "other": 4}, "stopped"), "\na\n"),
    ],
)
def test_an_end_is_said_with_what_was_done_then(command, monkeypatch, outcome, said):
    monkeypatch.setattr(check.limited_process, "run", lambda *_: outcome)
    status, printed = checked_with(command, ATTEND, ATTEND)
    assert status == 1 and "0 of 10" in printed and said in printed


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no pipes among its files")
def test_what_is_no_file_does_not_come_in(command, tmp_path):
    os.mkfifo("pipe.py")
    Path("mine.py").write_text(BUILT_IN, encoding="utf-8")
    for arguments in (["check", "pipe.py"], ["next", "pipe.py"], ["check", "mine.py", "pipe.py"]):
        assert command(*arguments) == (1, "vitbook: pipe.py must be a file, got a pipe or a device\n")
    assert command("check", str(tmp_path)) == (1, f"vitbook: {tmp_path} must be a file, got a folder\n")
    assert command("check", "none.py") == (1, "vitbook: No such file or directory: none.py\n")
    status, printed = command("start", "pipe.py")
    assert status == 1 and "pipe.py exists already" in printed


def test_every_save_is_checked_until_ctrl_c(command, in_this_process, monkeypatch):
    saves = iter([BUILT_IN.replace("softmax(-1)", "softmax(0)")])

    def sleep(seconds: float) -> None:
        """What happens while the command waits: first the reader saves the file, then presses Ctrl-C."""
        text = next(saves, None)
        if text is None:
            raise KeyboardInterrupt
        Path("mine.py").write_text(text, encoding="utf-8")

    command("start", "mine.py")
    monkeypatch.setattr(check.time, "sleep", sleep)
    status, printed = command("check", "mine.py", "--watch")
    assert status == 1 and printed.count("Watching mine.py; Ctrl-C ends.") == 2
    assert printed.index("0 of 10") < printed.index("9 of 10")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="sends Ctrl-C to one process")
def test_watching_checks_at_every_save_until_ctrl_c(tmp_path):
    file = tmp_path / "my vit.py"
    check.run("start", file)
    command = [VITBOOK, "exercises", "check", str(file), "--watch"]
    hears_ctrl_c = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # also where these tests run in the background
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=hears_ctrl_c
    ) as process:

        def up_to(words: str) -> str:
            seen = ""
            while words not in seen:
                seen += process.stdout.readline()
            return seen

        try:
            assert "0 of 10" in up_to("Ctrl-C ends.")
            time.sleep(0.05)
            file.write_text(BUILT_IN.replace("softmax(-1)", "softmax(0)"), encoding="utf-8")
            assert "9 of 10" in up_to("Ctrl-C ends.")
            process.send_signal(signal.SIGINT)
            assert process.stdout.read().strip() == "" and process.wait(30) == 1
        finally:
            process.kill()

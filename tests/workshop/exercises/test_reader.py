"""The reader's own file, through the command: started, checked, named what is wrong, and what is next."""

import re
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from command import VITBOOK

from vitbook_workshop.commands import main
from vitbook_workshop.exercises import reader

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


def test_stubs_are_written_once_and_all_are_to_do(command, tmp_path):
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


@pytest.mark.parametrize("style", ["loops", "built_in"])
def test_a_finished_model_loads_the_weights_and_names_photographs(command, style):
    shutil.copy(SOLUTIONS / f"{style}.py", "mine.py")
    shutil.copy(reader.KINGFISHER.with_name("horse_nokota.jpg"), "my photograph.jpg")
    status, printed = command("check", "mine.py", "my photograph.jpg")
    assert status == 0 and printed.count(" right\n") == 10 and "[##########] 10 of 10" in printed
    assert float(re.findall(r"your logits differ by (\S+) from", printed)[0]) < 1e-4
    assert "in bird_kingfisher.jpg: bird" in printed and "in my photograph.jpg: horse" in printed


def test_what_is_no_photograph_is_said_and_the_status_is_1(command):
    Path("mine.py").write_text(BUILT_IN, encoding="utf-8")
    status, printed = command("check", "mine.py", "mine.py")
    assert status == 1 and "mine.py cannot be read as an image" in printed


FAULTS = {
    "a syntax error": (ATTEND, "    return scores.softmax(-1 @ v\n", "line 9: return scores.softmax(-1 @ v\n  Syn"),
    "an exception at import": (ATTEND, f"{ATTEND}\nfirst = [][0]\n", "line 11: first = [][0]\n  IndexError: list"),
    "a loop without an end": (ATTEND, "    while True:\n        pass\n", "after 5 s. Is there a loop without an end?"),
    "a print": (ATTEND, f"    print('look', v.shape)\n{ATTEND}", "Your code printed: look torch.Size([2, 3, 5, 6]) …"),
    "a missing function": ("def project(", "def projects(", "not yet: the file has no function project(x, qkv)."),
    "another signature": ("def forward(self, x)", "def forward(self)", "should take (self, x), and takes (self)."),
    "no class": ("class Encoder(nn.Module)", "class Encoder", "not yet: expected a class Encoder(nn.Module)."),
    "exit": (ATTEND, "    exit()\n", "your code ends Python itself; take out exit().\n  mine.py, line 9: exit()"),
    "Python killed": (ATTEND, "    import os; os._exit(3)\n", "attend: Python itself stopped, with exit status 3."),
    "a mistake": (ATTEND, "    return scores.softmax(-2) @ v\n", "not yet.\n  It looks like “softmax over"),
}


@pytest.mark.parametrize(("right", "instead", "expected"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_said_plainly_at_the_readers_line(command, monkeypatch, right, instead, expected):
    if "while" in instead:
        monkeypatch.setattr(reader, "LIMIT", 5)
    assert right in BUILT_IN
    Path("mine.py").write_text(BUILT_IN.replace(right, instead), encoding="utf-8")
    status, printed = command("check", "mine.py")
    assert expected in printed and status == (0 if instead.startswith("    print") else 1)


@pytest.mark.skipif(sys.platform == "win32", reason="sends Ctrl-C to one process")
def test_watching_checks_at_every_save_until_ctrl_c(tmp_path):
    file = tmp_path / "my vit.py"
    reader.run("start", file)
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

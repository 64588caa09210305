"""Whatever stops a training, and wherever: it goes on, and ends as one that was never stopped; no disk is littered.

`make reliability` runs those that are marked slow as well: every call that changes a file, and many more kills.
"""

import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from vitbook._support.files import write_whole
from vitbook.checkpoint import load_checkpoint, save_checkpoint
from vitbook.cli import main

HERE = Path(__file__).parent
SMALL = "--dim 12 --depth 1 --num-heads 3 --mlp-dim 20 --patch-size 4 --epochs 3 --affine 0 --no-progress".split()
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
posix = pytest.mark.skipif(os.name != "posix", reason="SIGKILL and forks are of POSIX")


# Stopped at a call


@posix
@pytest.mark.parametrize(
    ("tasks", "at_least"),
    [
        (["kill:write:1", "kill:os.re:3", "fail:5:9", "chain:0:1"], 25),
        pytest.param(["kill:1:1"], 70, marks=pytest.mark.slow),
        pytest.param(["fail:1:1"], 70, marks=pytest.mark.slow),
        pytest.param(["chain:1:40"], 60, marks=pytest.mark.slow),
    ],
    ids=["some", "every-kill", "every-failure", "chains"],
)
def test_a_training_stopped_at_any_call_goes_on_to_the_same_bytes(tmp_path, tasks, at_least):
    """Weights, facts and log of every epoch; and no file is left that the training itself would not have left."""
    command = [sys.executable, str(HERE / "killed.py"), str(tmp_path), *tasks]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, env=os.environ | ONE_THREAD)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["wrong"] == []
    assert found["stops"] >= at_least
    kinds = {call.split()[0] for call in found["calls"]}
    assert kinds == {"os.mkdir", "open", "write", "fsync", "os.rename", "os.remove"}
    removed = {call.split()[1].partition("-")[0] for call in found["calls"] if call.startswith("os.remove")}
    assert removed == {"best", "last"}, "both checkpoints have been replaced"


# Killed at a time


def without_times(line: str) -> dict:
    return {name: v for name, v in json.loads(line).items() if name not in ("pictures_per_second", "seconds")}


@posix
@pytest.mark.slow
def test_the_command_killed_at_random_times_ends_with_the_same_weights_and_log(tmp_path):
    """As from a terminal; it is told to go on each time, with the run.json that it has written."""
    options = [*SMALL, *"--epochs 150 --checkpoint-steps 7 --dropout 0.1 --ema 0.9 --affine 1".split()]
    moments = random.Random(3)

    def train(folder: Path, seconds: float | None = None) -> int:
        """The exit code; seconds: from the first checkpoint on, after which it is killed."""
        config = ["--config", str(folder / "run.json"), "--no-progress"] if (folder / "run.json").exists() else options
        command = [sys.executable, "-m", "vitbook", "train", *config, "--folder", str(folder), "--resume"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=os.environ | ONE_THREAD)
        last = folder / "last.json"
        before = last.stat().st_mtime_ns if last.exists() else None
        while seconds and process.poll() is None and (not last.exists() or last.stat().st_mtime_ns == before):
            time.sleep(0.01)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    assert train(tmp_path / "whole") == 0
    length = json.loads((tmp_path / "whole" / "last.json").read_text())["seconds"]
    kills = sum(train(tmp_path / "killed", moments.uniform(0, 0.1) * length) == -signal.SIGKILL for _ in range(8))
    assert kills >= 3
    assert train(tmp_path / "killed") == 0
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for name in ("last", "best"):
        facts, again = (json.loads((folder / f"{name}.json").read_text()) for folder in (whole, killed))
        assert again["sha256"] == facts["sha256"]
    log, again = ((folder / "log.jsonl").read_text().splitlines() for folder in (whole, killed))
    assert list(map(without_times, again)) == list(map(without_times, log))
    named = [sorted(path.name for path in folder.iterdir()) for folder in (whole, killed)]
    assert named[0] == named[1]


# A disk that is full, or may not be written to


def mounted(arguments: list[str]) -> bool:
    """Whether a disk could be mounted: by root, on Linux."""
    try:
        return sys.platform == "linux" and not subprocess.run(["mount", *arguments], capture_output=True).returncode
    except OSError:
        return False


@pytest.fixture
def disk(tmp_path):
    """A folder, and what makes it a disk of so many kilobytes."""
    place = tmp_path / "disk"
    place.mkdir()
    made = []

    def resize(kilobytes: int) -> Path:
        options = f"size={kilobytes}k" + ",remount" * bool(made)
        if not mounted(["-t", "tmpfs", "-o", options, "tmpfs", str(place)]):
            pytest.skip("only root on Linux can mount a small disk")
        made.append(place)
        return place

    yield resize
    if made:
        subprocess.run(["umount", str(place)], check=True)


@pytest.fixture
def locked(tmp_path):
    """What makes a folder one that may not be written to, whoever tries."""
    made = []

    def lock(folder: Path) -> None:
        if not mounted(["--bind", str(folder), str(folder)]):
            pytest.skip("only root on Linux can mount a folder")
        made.append(folder)
        assert mounted(["-o", "remount,ro,bind", str(folder)])

    yield lock
    for folder in made:
        subprocess.run(["umount", str(folder)], check=True)


def one_line(said) -> str:
    """What a command said of an error."""
    assert said.err.startswith("vitbook: ") and said.err.count("\n") == 1, said.err
    return said.err


def checkpoints(folder: Path) -> dict[str, int]:
    """The steps of the checkpoints in a folder, all of which can be read; and no part of a file lies beside them."""
    assert not list(folder.rglob("*.part"))
    return {path.stem: load_checkpoint(path)[1]["step"] for path in folder.glob("*st.json")}


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> dict[str, str]:
    """The SHA-256 of what a training with room enough leaves."""
    folder = tmp_path_factory.mktemp("whole")
    assert main(["train", "--folder", str(folder), *SMALL]) == 0
    return {name: load_sha(folder, name) for name in ("last", "best")}


def load_sha(folder: Path, name: str) -> str:
    return json.loads((folder / f"{name}.json").read_text())["sha256"]


@pytest.mark.parametrize("kilobytes", [4, 28, 60, *(pytest.param(k, marks=pytest.mark.slow) for k in range(8, 104, 4))])
def test_a_full_disk_is_said_in_a_line_and_with_more_room_training_goes_on(disk, kilobytes, whole, capfd):
    place = disk(kilobytes)
    options = ["train", "--folder", str(place / "run"), *SMALL]
    capfd.readouterr()
    code = main(options)
    said = capfd.readouterr()
    if code or kilobytes <= 60:
        assert code == 1
        message = one_line(said)
        assert "No space left on device" in message and str(place / "run") in message
        steps = checkpoints(place / "run") if (place / "run").exists() else {}
        assert set(steps.values()) <= {20, 40, 60}
    disk(10_000)
    assert main([*options, "--resume"]) == 0
    assert {name: load_sha(place / "run", name) for name in whole} == whole
    checkpoints(place / "run")


def test_a_folder_that_may_not_be_written_to_is_said_in_a_line_and_can_be_read(tmp_path, locked, capsys):
    folder = tmp_path / "run"
    assert main(["train", "--folder", str(folder), *SMALL, "--epochs", "1"]) == 0
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    locked(folder)
    capsys.readouterr()
    for options in (["--resume"], ["--folder", str(folder / "deeper")]):
        assert main(["train", "--folder", str(folder), *SMALL, "--epochs", "1", *options]) == 1
        message = one_line(capsys.readouterr())
        assert "Read-only file system" in message and str(folder) in message
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before
    assert main(["evaluate", str(folder)]) == 0


def test_a_file_where_a_folder_should_be_is_said_in_a_line(tmp_path, capsys):
    (tmp_path / "file").write_bytes(b"mine")
    for folder in (tmp_path / "file", tmp_path / "file" / "run"):
        assert main(["train", "--folder", str(folder), *SMALL]) == 1
        assert str(tmp_path / "file") in one_line(capsys.readouterr())
    assert (tmp_path / "file").read_bytes() == b"mine"


@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
def test_what_cannot_be_written_whole_names_its_file_and_leaves_no_part(tmp_path, monkeypatch, call):
    path = tmp_path / "page.html"
    path.write_bytes(b"before")

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        if call != "write":
            patch.setattr(os, call, full)
        elif os.path.exists("/dev/full"):
            patch.setattr(Path, "open", lambda *_: open("/dev/full", "wb"))
        else:
            pytest.skip("no device that is always full")
        with pytest.raises(OSError) as caught:
            write_whole(path, b"after")
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(path))
    assert path.read_bytes() == b"before" and list(tmp_path.iterdir()) == [path]


def test_checkpoints_whose_names_begin_alike_leave_each_other_alone(tmp_path):
    for name in ("best-of-all", "best", "best-of-all", "best"):
        save_checkpoint(tmp_path, name, {"a": torch.rand(3)}, {})
    assert all(load_checkpoint(tmp_path / f"{name}.json") for name in ("best", "best-of-all"))
    assert len(list(tmp_path.iterdir())) == 4


# A GPU that is full


def test_a_full_gpu_is_no_fault_of_the_checkpoints_or_the_scores(tmp_path, monkeypatch, capsys):
    def full(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory")

    options = ["train", "--folder", str(tmp_path), *SMALL, "--epochs", "1"]
    assert main(options) == 0
    capsys.readouterr()
    with monkeypatch.context() as patch:
        patch.setattr(torch.nn.Module, "load_state_dict", full)
        assert main([*options, "--resume"]) == 1
    assert one_line(capsys.readouterr()) == "vitbook: CUDA out of memory\n"
    assert main([*options, "--resume"]) == 0

"""Whatever stops a training run, and wherever: resumed, it ends as one that was never stopped; no disk is littered.

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

from vitbook._support.files import alone_in, write_whole
from vitbook.checkpoint import load_checkpoint
from vitbook.cli import main

KILLED = Path(__file__).parent / "support" / "killed.py"
SMALL = "--dim 12 --depth 1 --num-heads 3 --mlp-dim 20 --patch-size 4 --epochs 3 --affine 0 --no-progress".split()
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
posix = pytest.mark.skipif(os.name != "posix", reason="SIGKILL and forks are of POSIX")


def vitbook(*arguments, **settings) -> subprocess.Popen:
    command = [sys.executable, "-m", "vitbook", *map(str, arguments)]
    return subprocess.Popen(command, env=os.environ | ONE_THREAD, text=True, **settings)


# Stopped at a call


@posix
@pytest.mark.parametrize(
    ("tasks", "at_least"),
    [
        (["kill:write:2", "kill:os.re:4", "fail:5:12", "chain:0:1"], 18),
        pytest.param(["kill:1:1"], 70, marks=pytest.mark.slow),
        pytest.param(["fail:1:1"], 70, marks=pytest.mark.slow),
        pytest.param(["chain:1:40"], 60, marks=pytest.mark.slow),
    ],
    ids=["some", "every-kill", "every-failure", "chains"],
)
def test_a_run_stopped_at_any_call_resumes_to_the_same_bytes(tmp_path, tasks, at_least):
    """Weights, facts and log of every epoch; and no file is left that the run itself would not have left."""
    command = [sys.executable, str(KILLED), str(tmp_path), *tasks]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, env=os.environ | ONE_THREAD)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["wrong"] == []
    assert result["stops"] >= at_least
    kinds = {call.split()[0] for call in result["calls"]}
    assert kinds == {"os.mkdir", "open", "write", "fsync", "os.rename", "os.remove"}
    removed = {call.split()[1].partition("-")[0] for call in result["calls"] if call.startswith("os.remove")}
    assert removed == {"best", "last", ".lock"}, "both checkpoints have been replaced"


# Killed at a time


def without_times(line: str) -> dict:
    return {name: v for name, v in json.loads(line).items() if name not in ("pictures_per_second", "seconds")}


@posix
@pytest.mark.slow
def test_the_command_killed_at_random_times_ends_with_the_same_weights_and_log(tmp_path):
    """As from a terminal; it is resumed each time, with the run.json that it has written."""
    options = [*SMALL, *"--epochs 150 --checkpoint-steps 7 --dropout 0.1 --ema 0.9 --affine 1".split()]
    moments = random.Random(3)

    def train(folder: Path, seconds: float | None = None) -> int:
        """The exit code; seconds: from the first checkpoint on, after which it is killed."""
        config = ["--config", folder / "run.json", "--no-progress"] if (folder / "run.json").exists() else options
        process = vitbook("train", *config, "--folder", folder, "--resume", stdout=subprocess.DEVNULL)
        last = folder / "last.json"
        before = last.stat().st_mtime_ns if last.exists() else None
        while seconds and process.poll() is None and (not last.exists() or last.stat().st_mtime_ns == before):
            time.sleep(0.01)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert train(whole) == 0
    length = json.loads((whole / "last.json").read_text())["seconds"]
    assert sum(train(killed, moments.uniform(0, 0.1) * length) == -signal.SIGKILL for _ in range(8)) >= 3
    assert train(killed) == 0
    assert sha256s(killed) == sha256s(whole)
    log, again = ((folder / "log.jsonl").read_text().splitlines() for folder in (whole, killed))
    assert list(map(without_times, again)) == list(map(without_times, log))
    names, others = (sorted(path.name for path in folder.iterdir()) for folder in (whole, killed))
    assert others == names


# Two at once


def test_a_folder_belongs_to_one_process_until_it_ends_however_it_ends(tmp_path):
    folder = tmp_path / "run"
    code = f"from pathlib import Path; from vitbook._support.files import alone_in; f = Path({str(folder)!r})\n"
    code += "with alone_in(f), alone_in(f):\n    print('here', flush=True)\n    input()"
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdout.readline().startswith(b"here")
    assert main(["train", "--folder", str(folder), *SMALL]) == 1
    assert not (folder / "run.json").exists()
    with pytest.raises(ValueError, match="run is in use by another training run"), alone_in(folder):
        pass
    other.kill()
    other.communicate()
    with alone_in(folder):
        pass
    assert not list(folder.iterdir()), "the lock is gone"


@pytest.mark.slow
def test_of_two_runs_that_start_at_once_in_one_folder_one_is_refused(tmp_path):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    both = [vitbook("train", "--folder", tmp_path, *SMALL, "--seed", seed, **pipes) for seed in (1, 2)]
    said = [process.communicate(timeout=120) for process in both]
    assert sorted(process.returncode for process in both) == [0, 1]
    lost = [process.returncode for process in both].index(1)
    assert "kept in" not in said[lost][0]
    assert str(tmp_path) in said[lost][1] and said[lost][1].count("\n") == 1
    assert load_checkpoint(tmp_path / "last.json")[1]["config"]["seed"] == (2, 1)[lost]


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
    """What makes a folder read-only, whoever tries."""
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


def sha256s(folder: Path) -> dict[str, str]:
    return {name: json.loads((folder / f"{name}.json").read_text())["sha256"] for name in ("last", "best")}


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> dict[str, str]:
    """The SHA-256 of what a run with room enough leaves."""
    folder = tmp_path_factory.mktemp("whole")
    assert main(["train", "--folder", str(folder), *SMALL]) == 0
    return sha256s(folder)


@pytest.mark.parametrize("kilobytes", [4, 28, 60, *(pytest.param(k, marks=pytest.mark.slow) for k in range(8, 104, 4))])
def test_a_full_disk_is_said_in_a_line_and_with_more_room_the_run_resumes(disk, kilobytes, whole, capfd):
    place = disk(kilobytes)
    options = ["train", "--folder", str(place / "run"), *SMALL]
    capfd.readouterr()
    code = main(options)
    said = capfd.readouterr()
    if code or kilobytes <= 60:
        assert code == 1
        message = one_line(said)
        assert "No space left on device" in message and str(place / "run") in message
    assert not list(place.rglob("*.part"))
    assert all(load_checkpoint(path) for path in place.rglob("*st.json"))
    disk(10_000)
    assert main([*options, "--resume"]) == 0
    assert sha256s(place / "run") == whole


def test_a_read_only_folder_is_said_in_a_line_and_can_be_read(tmp_path, locked, capsys):
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


def test_a_full_gpu_is_no_fault_of_the_checkpoint(tmp_path, monkeypatch, capsys):
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

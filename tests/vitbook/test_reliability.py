"""Whatever stops a training run, and wherever: resumed, it ends as one that was never stopped; no disk is littered.

`make reliability` runs those that are marked slow as well: every call that changes a file, and many more kills.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from vitbook._common.files import alone_in
from vitbook_workshop.commands import main

KILLED = Path(__file__).parents[1] / "support" / "killed.py"
SMALL = "--dim 12 --depth 1 --num-heads 3 --mlp-dim 20 --patch-size 4 --epochs 3 --affine 0 --no-progress".split()
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
posix = pytest.mark.skipif(os.name != "posix", reason="SIGKILL and forks are of POSIX")


@posix
@pytest.mark.slow
@pytest.mark.parametrize(
    ("tasks", "at_least"),
    [
        (["kill:write:2", "kill:os.re:4", "fail:5:12", "chain:0:1"], 18),
        (["kill:1:1"], 70),
        (["fail:1:1"], 70),
        (["chain:1:40"], 60),
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


def test_a_folder_belongs_to_one_process_until_it_ends_however_it_ends(tmp_path):
    folder = tmp_path / "run"
    code = f"from pathlib import Path; from vitbook._common.files import alone_in; f = Path({str(folder)!r})\n"
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


def one_line(said) -> str:
    """What a command said of an error."""
    assert said.err.startswith("vitbook: ") and said.err.count("\n") == 1, said.err
    return said.err


def test_a_file_where_a_folder_should_be_is_said_in_a_line(tmp_path, capsys):
    (tmp_path / "file").write_bytes(b"mine")
    for folder in (tmp_path / "file", tmp_path / "file" / "run"):
        assert main(["train", "--folder", str(folder), *SMALL]) == 1
        assert str(tmp_path / "file") in one_line(capsys.readouterr())
    assert (tmp_path / "file").read_bytes() == b"mine"


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

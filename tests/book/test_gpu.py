"""What waits for a GPU runs through on a CPU, at tiny size."""

import json

import gpu
import pytest
import torch

pytest_plugins = ["shared_fixtures"]


def test_every_part_runs_through_once(cifar10, tmp_path, capsys):
    chosen = ["deletion", "until_flat"]
    options = ["--tiny", "--folder", str(tmp_path / "gpu"), "--data-dir", str(cifar10), "--parts", *chosen]
    assert gpu.main(options) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert gpu.main(options) == 0 and capsys.readouterr().out == "", "what passed is not run again"
    results = json.loads((tmp_path / "gpu" / "results.json").read_text())
    assert list(results["parts"]) == chosen and results["tiny"]
    runs = json.loads((tmp_path / "gpu" / "until_flat.json").read_text())["runs"]
    assert [one["model"] for one in runs] == ["ViT", "CNN"]


@pytest.mark.slow
def test_all_parts_run_through(cifar10, tmp_path):
    assert gpu.main(["--tiny", "--folder", str(tmp_path / "gpu"), "--data-dir", str(cifar10)]) == 0
    results = json.loads((tmp_path / "gpu" / "results.json").read_text())
    assert list(results["parts"]) == list(gpu.parts(tmp_path, None, tiny=False))
    assert "± " in results["parts"]["cifar10_gpu"]["printed"][-1]


def test_a_part_that_fails_says_so_and_is_run_again(tmp_path, capsys):
    options = ["--tiny", "--folder", str(tmp_path), "--data-dir", str(tmp_path / "none"), "--parts", "deletion"]
    for _ in range(2):
        assert gpu.main(options) == 1
        assert "FAILED" in capsys.readouterr().out


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_nothing_starts(tmp_path, capsys):
    with pytest.raises(SystemExit):
        gpu.main(["--folder", str(tmp_path)])
    assert "there is no CUDA GPU here" in capsys.readouterr().err

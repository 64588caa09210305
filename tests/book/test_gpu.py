"""What waits for a GPU runs through on a CPU, at tiny size, and a curve is flat where longer training wins little."""

import json

import gpu
import pytest
import record_until_flat
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
    records = json.loads((tmp_path / "gpu" / "until_flat.json").read_text())
    assert [record["model"] for record in records] == ["ViT", "CNN"]
    for record in records:
        assert [point["steps"] for point in record["curve"]] == [2, 4]
        assert record["flat"] == record_until_flat.is_flat(record["curve"], 0.005)


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


def test_a_curve_is_flat_where_the_last_doubling_wins_too_little():
    points = [{"validation_accuracy": accuracy} for accuracy in (0.2, 0.3, 0.304)]
    assert [record_until_flat.is_flat(points[:count], 0.005) for count in (1, 2, 3)] == [False, False, True]

"""A finished run's log, test accuracy and weights, as the package keeps them."""

import json

import keep_run
import pytest
import torch

from vitbook.pretrained import load_pretrained
from vitbook_workshop.commands import main
from vitbook_workshop.training_runs import results, trained_models

pytestmark = pytest.mark.slow

SMALL = "--dim 12 --depth 1 --num-heads 3 --mlp-dim 20 --epochs 2 --learning-rate 0.02 --no-progress".split()


def test_the_runs_of_two_seeds_are_tested_as_their_weights_are_kept(tmp_path, monkeypatch):
    assert main(["train", "--folder", str(tmp_path / "run"), "--seeds", "2", *SMALL]) == 0
    kept = ["--assets", str(tmp_path), "--weights", "small", "--core-seconds", "240", "--teacher-core-seconds", "60"]
    keep_run.main([str(tmp_path / "run"), "small", "--about", "digits", *kept])
    record = json.loads((tmp_path / "runs" / "small.json").read_text())
    first, second = record["test_accuracies"]
    assert first != second and record["test_accuracy"] == (first + second) / 2
    assert len(record["history"]) == 2 and record["core_seconds"] == 300

    weights = load_pretrained(str(tmp_path / "weights" / "small.json"))
    trained = trained_models.open_model(tmp_path / "run" / "seed_0").model.state_dict()
    assert all(torch.equal(weights.model.state_dict()[name], trained[name].half().float()) for name in trained)

    monkeypatch.setitem(results.RECORDED, "cifar10_quick", tmp_path / "runs" / "small.json")
    assert f"{record['test_accuracy']:.1%} (mean of 2 seeds) after 5 minutes" in results.recorded("cifar10_quick")

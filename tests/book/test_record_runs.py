"""The scripts that record runs keep what was trained, it loads, and chapter 10 reports what was recorded."""

import json
from dataclasses import replace
from pathlib import Path

import notebooks
import pytest
import record_ablation
import record_run
import torch
from small_sets import SMALL_SETS, unpack

from vitbook import runs
from vitbook.checkpoint import load_checkpoint


def test_a_run_is_tested_and_kept(tmp_path):
    small = runs.Run()
    small = replace(
        small,
        folder=tmp_path / "run",
        train=replace(small.train, epochs=2),
        vit=replace(small.vit, dim=12, depth=1, num_heads=3, mlp_dim=20),
    )
    history = runs.train_run(small, progress=False)
    record_run.main([str(tmp_path / "run"), "small", "--about", "a try", "--weights", "w", "--assets", str(tmp_path)])
    record = json.loads((tmp_path / "runs" / "small.json").read_text())
    assert record["history"] == history
    assert record["test_accuracy"] == pytest.approx(runs.evaluate_run(tmp_path / "run").accuracy, abs=0.01)
    halves, facts = load_checkpoint(tmp_path / "weights" / "w.json")
    whole, _ = load_checkpoint(tmp_path / "run" / "best.json")
    assert halves.keys() == whole.keys()
    assert all(tensor.dtype == torch.float16 for tensor in halves.values())
    assert all(torch.equal(halves[name], whole[name].half()) for name in whole)
    assert facts["class_names"] == list("0123456789") and facts["recipe"] == "small"


def test_an_ablation_changes_one_thing_at_a_time(tmp_path, capsys):
    unpack(SMALL_SETS["cifar10"], tmp_path / "cifar-10-batches-bin")
    recipe = runs.run_of(config=Path("cifar10_quick"))
    some = ["the whole recipe", "no crop, no flip"]
    for change, (train, vit) in record_ablation.CHANGES.items():
        changed = replace(recipe, train=replace(recipe.train, **train), vit=replace(recipe.vit, **vit))
        assert (changed == recipe) == (change == "the whole recipe"), change
    small = {name: record_ablation.CHANGES[name] for name in some}
    records = [
        record_ablation.record(name, epochs=1, data_dir=tmp_path, seed=0, batch_size=8, validation=0.2)
        for name in small
    ]
    assert [record["change"] for record in records] == some
    assert records[0]["config"]["crop"] > records[1]["config"]["crop"] == 0
    assert records[0]["train_loss"] != records[1]["train_loss"]


def test_chapter_10_reports_of_cifar10_what_was_recorded():
    chapter = notebooks.read(Path(__file__).parents[2] / "chapters" / "10_training.ipynb")
    section = next(cell.source for cell in chapter.cells if "on CIFAR-10?" in cell.source)
    names = ("data", "cifar10_quick", "cifar10_hour")
    data, quick, hour = (json.loads(runs.RECORDED[name].read_text()) for name in names)
    plain = max((record for record in data if record["model"] == "ViT"), key=lambda record: record["pictures"])
    for record, digits in ((plain, 1), (quick, 2), (hour, 2)):
        assert f"| {100 * record['test_accuracy']:.{digits}f} % |" in section
    for record in (quick, hour):
        assert f"| {record['config']['epochs']} epochs, " in section

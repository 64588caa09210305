"""What the record of the exam writes down: a row for each method, task and model, and how heads carry the answer."""

import json

import exam
import pytest
import torch

from vitbook.planted import planted
from vitbook.recorded import RECORDED, rows_of
from vitbook_workshop.exam.methods import ALL
from vitbook_workshop.exam.sittings import SHIPPED, SITTINGS, exam_model


@pytest.mark.slow
def test_a_run_marks_every_method_and_goes_on_where_it_was_stopped(tmp_path, monkeypatch):
    few = {"by chance": ALL["by chance"], "rollout": ALL["rollout"]}
    monkeypatch.setattr(exam, "STEPS", dict.fromkeys(SITTINGS, 3))
    monkeypatch.setattr(exam, "ALL", few)
    called = [str(tmp_path / "exam.json"), "--models", str(tmp_path), "--scenes", "40", "--seeds"]
    exam.main([*called, "0"])
    exam.main([*called, "0", "1"])
    found = json.loads((tmp_path / "exam.json").read_text())
    keys = [(row["arm"], row["task"], row["seed"]) for row in found["rows"]]
    assert len(set(keys)) == len(keys) == len(few) * len(SITTINGS) * 2
    assert all(
        {"n", "rate", "processor", "precision", "auc", "whole", "accuracy"} <= row.keys() for row in found["rows"]
    )
    assert [row["seed"] for row in found["heads"]] == [0, 1] and len(found["heads"][0]["cue"]) == 3
    assert all("follows_the_watermark" in row for row in found["rows"] if row["task"] == "watermark")


@pytest.mark.slow
def test_training_begins_to_learn_the_task_and_depends_on_the_seed():
    scenes = planted("find", 300, torch.Generator().manual_seed(3))
    accuracy = {}
    for steps in (1, 60):
        answers = exam.trained("find", 0, steps)(scenes.images).argmax(dim=1)
        accuracy[steps] = (answers == scenes.labels).double().mean().item()
    assert accuracy[60] > accuracy[1] + 0.1
    one, other = (exam.trained("find", seed, 2).head.weight for seed in (0, 1))
    assert not torch.equal(one, other)


@pytest.mark.slow
def test_the_recorded_models_are_the_shipped_ones():
    heads = {row["seed"]: row for row in json.loads(RECORDED["exam"].read_text())["heads"]}
    assert exam.through_heads(exam_model("compare")) == {
        change: [pytest.approx(row, abs=0.02) for row in heads[0][change]] for change in ("cue", "color")
    }
    assert SHIPPED.exists() and {(row["task"], row["seed"]) for row in rows_of("exam")} == {
        (task, seed) for task in SITTINGS for seed in exam.SEEDS
    }

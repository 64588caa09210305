"""Chapter 19's costs hold a number for every seed, and the mistake that is only in the start changes no logit."""

import json

import mistakes as record
import pytest
import torch
from harness import Rows

from vitbook.recorded import RECORDED

pytestmark = pytest.mark.slow


def test_every_mistake_that_can_show_is_measured_for_every_seed():
    rows = Rows(RECORDED["mistakes"], "alike")
    mistaken = (*record.IN_A_MODEL, *record.IN_TRAINING)
    longer = {arm for arm in mistaken if arm in record.ASKED or record.cost(rows, arm, 8) >= 1}
    expected = {(arm, 8) for arm in ("right", "right, mean pooling", *mistaken)} | {
        (arm, 30) for arm in ("right", *longer)
    }
    seeds = {key: [] for key in expected}
    for row in rows.all():
        seeds[row["arm"], row["epochs"]].append(row["seed"])
    assert all(sorted(of_arm) == list(range(5)) for of_arm in seeds.values())
    assert max(row["logits"] for row in rows.all() if row["arm"] == "BlocksAreCopies") == 0
    own = {row["arm"] for row in Rows(RECORDED["mistakes"], "rows").all()}
    lasting = {arm for arm in longer if record.cost(rows, arm, 30) >= 1}
    assert own == lasting | {*record.RIGHT.values()}


def test_weights_that_change_hands_are_read_by_the_other_code(monkeypatch):
    monkeypatch.setattr(record, "train", lambda arm, rate, seed, *_: (torch.manual_seed(seed), record.build(arm))[1])
    record.right_one.cache_clear()
    try:
        found = record.alike("ViewWithoutTranspose", 0.01, seed=3, epochs=1)
        assert found["borrowed"] == found["trained"]  # untrained, both have the same weights
        assert found["handed_on"] == record.alike("right", 0.01, seed=3, epochs=1)["trained"]
        assert found["n"] == 360
    finally:
        record.right_one.cache_clear()


def test_only_what_costs_a_point_is_trained_longer_and_tuned_and_nothing_is_run_twice(tmp_path, monkeypatch):
    trained = []

    def train(arm, rate, seed, epochs, data):
        trained.append((arm, rate, seed, epochs, data.validation is not None))
        return {"right": 96, "cheap": 95.5, "costly": 60 if epochs == 8 else 95.6, "lasting": 50}.get(
            arm.partition(",")[0]
        )

    class Said:
        labels = [0] * 360

        def __init__(self, accuracy):
            self.accuracy = accuracy / 100

    monkeypatch.setattr(record, "IN_A_MODEL", [])
    monkeypatch.setattr(record, "IN_TRAINING", ["cheap", "costly", "lasting"])
    monkeypatch.setattr(record, "train", train)
    monkeypatch.setattr(record, "judge", lambda model, data, split: Said(model))
    file = tmp_path / "costs.json"
    record.right_one.cache_clear()
    try:
        record.main([str(file), "--seeds", "3"])
        first = len(trained)
        assert {arm for arm, *_, epochs, _ in trained if epochs == 30} == {"right", "costly", "lasting"}
        found = json.loads(file.read_text())
        assert {row["arm"] for row in found["rows"] if row["tuning"]} == {"right", "right, 8 epochs", "lasting"}
        record.main([str(file), "--seeds", "3"])
        assert len(trained) == first
    finally:
        record.right_one.cache_clear()

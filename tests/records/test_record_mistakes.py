"""Chapter 19's costs hold a number for every seed, and the mistake that is only in the start changes no logit."""

import json

import mistakes as record
import pytest

from vitbook.recorded import RECORDED

pytestmark = pytest.mark.slow


def test_every_mistake_that_can_show_is_measured_for_every_seed():
    costs = json.loads(RECORDED["mistakes"].read_text())
    expected = {"right, pool class", "right, pool mean", *record.IN_A_MODEL, *record.IN_TRAINING}
    assert set(costs["mistakes"]) == expected and costs["seeds"] >= 3
    for found in costs["mistakes"].values():
        assert all(len(runs) == costs["seeds"] for runs in found.values())
    assert max(costs["mistakes"]["BlocksAreCopies"]["logits"]) == 0


def test_a_command_that_is_repeated_adds_the_seeds_that_are_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "of_a_seed", lambda data, seed: {"some mistake": {"trained": 90.0 + seed}})
    for seeds in (2, 3, 3):
        record.main([str(tmp_path / "costs.json"), "--seeds", str(seeds)])
        costs = json.loads((tmp_path / "costs.json").read_text())
        assert costs["seeds"] == seeds and costs["mistakes"]["some mistake"]["trained"] == [90.0, 91.0, 92.0][:seeds]

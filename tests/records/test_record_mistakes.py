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


def test_a_command_that_is_repeated_adds_the_seeds_and_the_mistakes_that_are_missing(tmp_path, monkeypatch):
    asked = []

    def of_a_seed(data, seed, names):
        asked.append(len(names))
        return {name: {"trained": 90.0 + seed} for name in ("right, pool class", *names)}

    monkeypatch.setattr(record, "of_a_seed", of_a_seed)
    monkeypatch.setattr(record, "IN_TRAINING", [])
    for known, seeds in ((2, 2), (2, 3), (3, 3), (3, 3)):
        monkeypatch.setattr(record, "IN_A_MODEL", ["one", "two", "three"][:known])
        record.main([str(tmp_path / "costs.json"), "--seeds", str(seeds)])
        costs = json.loads((tmp_path / "costs.json").read_text())
        assert costs["seeds"] == seeds and set(costs["mistakes"]) == {"right, pool class", *record.IN_A_MODEL}
        assert all(found["trained"] == [90.0, 91.0, 92.0][:seeds] for found in costs["mistakes"].values())
    assert asked == [2, 2, 2, 1, 1, 1]


def test_numbers_of_another_machine_are_not_mixed_in(tmp_path, monkeypatch):
    file = tmp_path / "costs.json"
    file.write_text('{"seeds": 1, "mistakes": {"right": {"trained": [91.0]}}}')
    monkeypatch.setattr(record, "of_a_seed", lambda data, seed, names: {"right": {"trained": 92.0}})
    with pytest.raises(ValueError, match="is 92.000 here, and 91.0 in the file"):
        record.main([str(file), "--seeds", "1"])

"""Recorded runs go on where they were stopped, each arm at the rate that is best for it."""

import json

import pytest
from harness import TUNING_SEED, Rows, compare, tune

BEST = {"plain": 0.004, "other": 0.064}  # rates


def run(arm: str, rate: float, seed: int, tuning: bool) -> dict:
    """A training that takes no time: the nearer the rate to the arm's best, the better."""
    near = -abs(rate - BEST[arm])
    return {"validation_accuracy": near, "n": 10} | ({} if tuning else {"test_accuracy": near + seed})


def test_every_arm_is_measured_at_its_own_rate_with_every_seed(tmp_path):
    rows = Rows(tmp_path / "found.json", "rows", images=10)
    found = compare(rows, run, list(BEST), rates=(0.002, 0.004, 0.008), seeds=(0, 1, 2))
    assert [(row["arm"], row["rate"], row["seed"]) for row in found] == [
        (arm, BEST[arm], seed) for seed in (0, 1, 2) for arm in BEST
    ]
    document = json.loads((tmp_path / "found.json").read_text())
    assert document["images"] == 10
    tuning = [row for row in document["rows"] if row["tuning"]]
    assert {row["seed"] for row in tuning} == {TUNING_SEED} and not any("test_accuracy" in row for row in tuning)
    tried = {arm: {row["rate"] for row in tuning if row["arm"] == arm} for arm in BEST}
    assert all(min(rates) < BEST[arm] < max(rates) and len(rates) >= 3 for arm, rates in tried.items())
    assert all({"n", "core_seconds", "processor", "python", "torch"} <= row.keys() for row in document["rows"])
    with pytest.raises(ValueError, match="seeds must be others"):
        compare(rows, run, ["plain"], (0.004,), seeds=(0, TUNING_SEED))


def test_a_command_that_was_stopped_goes_on_and_one_that_is_repeated_changes_nothing(tmp_path):
    file, calls = tmp_path / "found.json", []

    def stopped(**key):
        calls.append(key)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return run(**key)

    options = dict(arms=["plain"], rates=(0.002, 0.004, 0.008), seeds=(0, 1, 2))
    with pytest.raises(KeyboardInterrupt):
        compare(Rows(file), stopped, **options)
    before = json.loads(file.read_text())
    assert len(before) == 5
    compare(Rows(file), stopped, **options)
    after = json.loads(file.read_text())
    assert after[:5] == before and len(after) == 6 and len(calls) == 7
    whole = file.read_bytes()
    compare(Rows(file), stopped, **options)
    assert file.read_bytes() == whole and len(calls) == 7


def test_two_lists_share_a_file_and_a_file_of_other_runs_is_refused(tmp_path):
    file = tmp_path / "found.json"
    Rows(file, "tuning", images=10).once(lambda: {"rates": [1, 2]}, model="ViT")
    row = Rows(file, "runs", images=10).once(lambda: {"core_seconds": 5.0}, model="ViT", seed=0)
    assert row["core_seconds"] == 5.0, "what a row says of itself stands"
    document = json.loads(file.read_text())
    assert [len(document[part]) for part in ("tuning", "runs")] == [1, 1]
    with pytest.raises(ValueError, match="images is 10 there, 11 here"):
        Rows(file, "runs", images=11)


@pytest.mark.slow
def test_several_processes_make_the_same_rows(tmp_path):
    keys = [dict(arm=arm, rate=0.01, seed=seed, tuning=False) for seed in range(3) for arm in BEST]
    alone, together = (Rows(tmp_path / name).fill(run, keys, workers) for name, workers in (("a", 1), ("b", 2)))
    assert [row | {"core_seconds": 0} for row in alone] == [row | {"core_seconds": 0} for row in together]


@pytest.mark.parametrize("peak, tried", [(2, [1, 2, 4]), (8, [1, 2, 4, 8, 16]), (0.5, [0.25, 0.5, 1, 2, 4])])
def test_rates_are_tried_until_the_best_lies_between_two(peak, tried):
    assert sorted(tune(lambda rate: -abs(rate - peak), (1, 2, 4))) == tried
    assert len(tune(lambda rate: rate, (1, 2, 4), most=5)) == 5

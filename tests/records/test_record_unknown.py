"""What is turned away: the share of known photographs that was asked for, and a row for each score and seed."""

import json

import pytest
import unknown as record

pytest_plugins = ["shared_fixtures"]
pytestmark = pytest.mark.slow


def test_each_score_is_recorded_for_what_was_learned_and_for_what_was_kept_away(tmp_path, cifar10, monkeypatch):
    monkeypatch.setattr(record, "SHARE", 0.2)
    file = tmp_path / "unknown.json"
    record.main([str(file), "--data-dir", str(cifar10), "--seeds", "0", "1", "--known", "40", "--draws", "9"])
    rows = json.loads(file.read_text())
    arms = [f"{situation}, {score}" for situation in ("learned", "kept away") for score in record.SCORES]
    assert sorted((row["arm"], row["seed"]) for row in rows) == sorted((arm, seed) for arm in arms for seed in (0, 1))
    assert {row["n"] for row in rows} == {20 - 9, 16 - 9}
    for row in rows:
        assert row["turned_away"].keys() == {"known", "others", "digits"} == row["auroc"].keys() | {"known"}
        shares = [*row["turned_away"].values(), *row["auroc"].values()]
        assert all(0 <= share <= 1 for share in shares)

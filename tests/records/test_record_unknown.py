"""What is turned away: the share of known photographs that was asked for, and a row for each score and seed."""

import json

import pytest
import torch
import unknown as record

from vitbook.data import Split

pytest_plugins = ["shared_fixtures"]
pytestmark = pytest.mark.slow


def test_each_score_is_recorded_for_what_was_learned_and_for_what_was_kept_away(tmp_path, cifar10, monkeypatch):
    monkeypatch.setattr(record, "SHARE", 0.2)
    strange = Split(torch.randint(256, (3, 3, 32, 32), dtype=torch.uint8), torch.zeros(3, dtype=torch.int64))
    monkeypatch.setattr(record, "tiny_imagenet", lambda folder, size: (strange, strange))
    file = tmp_path / "unknown.json"
    folders = ["--data-dir", str(cifar10), "--tiny", str(tmp_path)]
    record.main([str(file), *folders, "--seeds", "0", "1", "--known", "40", "--draws", "9"])
    rows = json.loads(file.read_text())
    arms = [f"{situation}, {score}" for situation in ("learned", "probe") for score in record.SCORES]
    assert sorted((row["arm"], row["seed"]) for row in rows) == sorted((arm, seed) for arm in arms for seed in (0, 1))
    assert {row["n"] for row in rows} == {20 - 9, 16 - 9}
    for row in rows:
        kinds = {"known", "others", "digits"} | ({"kept away"} if row["arm"].startswith("probe") else set())
        assert row["turned_away"].keys() == kinds == row["auroc"].keys() | {"known"}
        shares = [*row["turned_away"].values(), *row["auroc"].values()]
        assert all(0 <= share <= 1 for share in shares)

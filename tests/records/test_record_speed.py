"""All arms are timed in every round, in an order of its own, and a stopped command goes on."""

import json

import pytest
import speed
from torch import nn

pytestmark = pytest.mark.slow


def test_every_round_times_every_arm_once(tmp_path, monkeypatch):
    monkeypatch.setattr(speed, "MODELS", {"linear": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(3072, 10)), (2, 3))})
    file = tmp_path / "speed.json"
    for rounds in ("1", "3"):
        speed.main([str(file), "--rounds", rounds])
    rows = json.loads(file.read_text(encoding="utf-8"))
    orders = [[(row["arm"], row["n"]) for row in rows if row["seed"] == seed] for seed in range(3)]
    assert len(rows) == 12 and all(len(set(order)) == 4 for order in orders) and orders[0] != orders[1]
    assert all(row["milliseconds"] > 0 and row["processor"] and row["parameters"] == 30730 for row in rows)
    assert {row["flops"] for row in rows} == {2 * 2 * 30720}  # forward, and the gradient of the weights

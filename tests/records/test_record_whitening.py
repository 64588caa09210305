"""What whitening is worth, on digits in place of photographs."""

import json

import pytest
import whitening as record

pytestmark = pytest.mark.slow


def test_a_row_holds_the_three_shares_and_the_best_of_what_was_tried(tmp_path):
    file = tmp_path / "whitening.json"
    record.main([str(file), "--dataset", "digits", "--arms", "pixels"])
    (row,) = json.loads(file.read_text())
    assert row["n"] == 360 and row["raw"] > 0.95 and row["whitened"] > 0.9
    assert row["tried"][str(row["shrinkage"])] == max(row["tried"].values())

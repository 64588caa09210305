"""What a comparison rests on is counted in its rows."""

import pytest

from vitbook.recorded import evidence


def test_evidence_counts_what_the_rows_hold():
    rows = [
        {"arm": arm, "rate": rate, "seed": 100, "tuning": True, "n": 7, "processor": "A"}
        for arm, rates in (("plain", (1, 2, 4)), ("other", (1, 2, 4, 8)))
        for rate in rates
    ]
    rows += [
        {"arm": arm, "rate": 2, "seed": seed, "tuning": False, "n": 1000, "processor": "B"}
        for arm, seeds in (("plain", 3), ("other", 5))
        for seed in range(seeds)
    ]
    said = str(evidence(rows))
    assert said == "2 arms, 3 to 4 rates tried for each on validation images, 3 seeds, n = 1,000\nA; B"
    assert "one rate for all, not tuned" in str(evidence([row for row in rows if row["rate"] == 2]))
    untrained = [{"arm": "drop", "rate": None, "seed": 0, "n": 9, "processor": "A"}]
    assert str(evidence(untrained)) == "1 arm, nothing trained, 1 seed, n = 9\nA"
    with pytest.raises(ValueError, match="got none"):
        evidence([])

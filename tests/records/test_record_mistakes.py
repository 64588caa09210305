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

"""The census's counts agree with each other, and what its mistakes cost is looked up under names that there are."""

import json

import pytest

from vitbook.recorded import RECORDED
from vitbook_workshop.faults.mistakes import MISTAKES


@pytest.fixture(scope="module")
def census() -> dict:
    return json.loads(RECORDED["census"].read_text(encoding="utf-8"))


def test_its_counts_add_up(census):
    assert census["run"] + census["do_not_run"] == census["repositories"]
    right, wrong = census["diagnosed"]["right"], census["diagnosed"]["wrong"]
    assert right["models"] == census["without_a_mistake"]
    assert right["models"] + wrong["models"] == census["diagnosed"]["models"] <= census["run"]
    assert wrong["wholly_found"] + wrong["in_part"] + wrong["not_at_all"] == wrong["models"]
    counted = [row["models"] for row in census["mistakes"]]
    assert counted == sorted(counted, reverse=True)
    assert sum(counted) <= census["diagnosed"]["by_mistake"]["single"]


def test_each_cost_is_that_of_one_mistake_that_is_known(census):
    named = [name for row in census["mistakes"] for name in row["measured_as"]]
    assert set(named) <= set(MISTAKES) and len(set(named)) == len(named)


def test_no_repository_is_named(census):
    assert "/" not in json.dumps(census)

"""What chapter 24's longer runs train with and what they are asked about share no pair; and a command goes on."""

import json

import contrastive as record
import pytest

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("shapes", (2, 6))
def test_every_color_has_as_many_shapes_and_no_pair_is_in_both(shapes):
    trained, kept = record.scenes_of(shapes)
    for scenes, each in ((trained, shapes), (kept, 2)):
        pairs = scenes[:, :2].unique(dim=0)
        assert pairs[:, 0].bincount().tolist() == pairs[:, 1].bincount().tolist() == [each] * 8
        assert len(scenes) == len(scenes.unique(dim=0)) == 4 * len(pairs)
    assert not {tuple(pair) for pair in trained[:, :2].tolist()} & {tuple(pair) for pair in kept[:, :2].tolist()}


def test_a_command_that_is_repeated_adds_what_is_missing(tmp_path):
    command = [str(tmp_path / "runs.json"), "--steps", "31", "--shapes", "2", "--seeds", "0"]
    record.main(command)
    first = json.loads((tmp_path / "runs.json").read_text())["runs"]
    record.main([*command, "1"])
    second = json.loads((tmp_path / "runs.json").read_text())["runs"]
    assert second[:2] == first and len(second) == 4
    assert {run["loss"] for run in first} == {"softmax", "sigmoid"}

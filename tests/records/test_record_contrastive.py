"""What chapter 24's longer runs train with and what they are asked about share no name, and all see the same scenes."""

import contrastive as record
import pytest
import torch

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("shapes", (2, 6))
def test_every_color_has_as_many_shapes_and_no_name_is_in_both(shapes):
    trained, kept = record.scenes_of(shapes)
    for scenes, each in ((trained, shapes), (kept, 2)):
        names = scenes[:, :2].unique(dim=0)
        assert names[:, 0].bincount().tolist() == names[:, 1].bincount().tolist() == [each] * 8
        assert len(scenes) == len(scenes.unique(dim=0)) == 4 * len(names)
    assert not {tuple(name) for name in trained[:, :2].tolist()} & {tuple(name) for name in kept[:, :2].tolist()}


def test_all_arms_of_a_seed_are_shown_and_asked_the_same(monkeypatch):
    drawn = {}
    for arm in record.ARMS:
        shown = drawn[arm] = []
        monkeypatch.setattr(record, "draw_scenes", lambda scenes, shown=shown: shown.append(draw(scenes)) or shown[-1])
        found = record.run(arm, 1e-3, seed=1, tuning=False, steps=31, images=128)
        assert 0 <= found["seen"]["both"] <= min(found["seen"]["color"], found["seen"]["shape"])
        assert found["never_seen"]["among"] >= found["never_seen"]["both"]
    for names in (48, 16):
        first, *others = (shown for arm, shown in drawn.items() if arm.endswith(f"{names} names"))
        assert len(first) == 31 + 2 and len(others) == 3
        assert all(torch.equal(one, another) for shown in others for one, another in zip(first, shown, strict=True))


draw = record.draw_scenes


def test_while_tuning_nothing_else_is_said():
    found = record.run("heads, 16 names", 1e-3, seed=1, tuning=True, steps=31, images=64)
    assert found.keys() == {"validation_accuracy", "core_seconds", "n"}

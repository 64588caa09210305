"""Chapter 22's fine-tuning on few labels, as short as can be: who chooses a rate, and what starts pretrained."""

import few_labels as record
import pytest

pytestmark = pytest.mark.slow


def test_a_rate_is_chosen_on_other_digits_than_those_that_judge():
    tuned = record.run("pretrained, 60 steps", 1e-3, seed=100, tuning=True, epochs=1)
    assert tuned["n"] == 1437 - 50 and "test_accuracy" not in tuned
    judged = record.run("from scratch, 60 steps", 1e-3, seed=0, tuning=False)
    assert judged["n"] == 360 and 0.1 < judged["test_accuracy"] < 1


def test_a_pretrained_start_is_the_same_seeds_start_trained():
    before, after, other = (
        record.backbone(pretrained, seed, epochs=1).encoder.blocks[0].mlp.fc1.weight.detach()
        for pretrained, seed in ((False, 3), (True, 3), (False, 4))
    )
    assert 0 < (after - before).norm() < (after - other).norm()

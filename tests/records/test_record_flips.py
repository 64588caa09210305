"""What a run with flips and one without write down."""

import flips
import torch

from vitbook.data import Dataset, Split
from vitbook.positions import SinCosPositions2D


def test_mirrored_places_are_those_that_a_flip_exchanges():
    rows, columns = torch.randn(4, 6), torch.randn(4, 6)
    columns[2:] = columns[:2].flip(0)  # the same left and right
    table = torch.cat([torch.zeros(1, 12), torch.cat([rows.repeat_interleave(4, 0), columns.repeat(4, 1)], dim=1)])
    found = flips.mirrors(table.unsqueeze(0), 4)
    assert found["left_right"] == [1.0] and found["top_bottom"][0] < 0.99
    assert 0 < flips.mirrors(SinCosPositions2D((8, 8), 32, 1)(), 8)["neighbors"] < 1


def test_a_flip_mirrors_half_of_the_images():
    images = torch.arange(3.0).expand(200, 1, 2, 3)
    mirrored = (flips.flipped(images) == images.flip(3)).flatten(1).all(dim=1)
    assert 60 < mirrored.sum() < 140


def test_a_run_is_judged_on_its_test_images_only_after_tuning():
    images = Split(torch.randint(256, (12, 3, 16, 16), dtype=torch.uint8), torch.arange(12) % 10)
    data = Dataset("small", images, images, tuple("abcdefghij"), images)
    torch.manual_seed(0)
    tuning = flips.train(data, "flips", 1e-3, 0, tuning=True, steps=20)
    assert tuning.keys() == {"n", "validation_accuracy"}
    final = {arm: flips.train(data, arm, 1e-3, 0, tuning=False, steps=20) for arm in flips.ARMS}
    assert final["flips"].keys() - tuning.keys() == {"test_accuracy", "neighbors", "left_right", "top_bottom"}
    assert final["flips"] != final["no flips"] and len(final["flips"]["left_right"]) == 3

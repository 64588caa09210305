"""What each wrong preparation costs is counted on the same images."""

import json
from collections import Counter
from itertools import combinations

import preprocessing
import pytest
import torch

from vitbook.pretrained import load_pretrained

pytest_plugins = ["shared_fixtures"]
pytestmark = pytest.mark.slow


def test_the_ways_do_what_their_names_say():
    images = torch.randint(0, 256, (2, 3, 4, 6), dtype=torch.uint8)
    ways = preprocessing.prepared(images, torch.tensor([0.4, 0.5, 0.6]), torch.tensor([0.1, 0.2, 0.3]))
    x = images.double() / 255
    red = ((x[:, 0] - 0.4) / 0.1).float()
    torch.testing.assert_close(ways["right"][:, 0], red)
    torch.testing.assert_close(ways["BGR"][:, 2], ((x[:, 0] - 0.6) / 0.3).float())
    torch.testing.assert_close(ways["-1 … 1"], (2 * x - 1).float())
    torch.testing.assert_close(ways["/255 twice"][:, 0], ((x[:, 0] / 255 - 0.4) / 0.1).float())
    torch.testing.assert_close(ways["gray"][:, 1], ways["right"].mean(dim=1))
    assert {way.shape for way in ways.values()} == {images.shape}


def test_every_mistake_in_copying_changes_the_logits():
    right, x = load_pretrained("vitbook:cifar10").model, torch.randn(2, 3, 32, 32)
    logits = [model(x) for model in (right, *preprocessing.miscopied("vitbook:cifar10").values())]
    assert all((one - other).abs().max() > 0.1 for one, other in combinations(logits, 2))


def test_what_is_lost_and_won_makes_the_difference(tmp_path, cifar10):
    file = tmp_path / "preprocessing.json"
    preprocessing.main([str(file), "--data-dir", str(cifar10), "--images", "3"])
    rows = json.loads(file.read_text(encoding="utf-8"))
    right = rows[0]
    assert right["arm"] == "right" and right["answers_lost"] == right["answers_won"] == 0
    kinds = Counter(row["kind"] for row in rows)
    assert kinds == {"prepared": 9, "copied": 4, "computed": 2}
    assert {row["arm"] for row in rows if row["kind"] == "computed"} == {"gelu_tanh", "quick_gelu"}
    for row in rows:
        assert row["n"] == 3
        assert row["answers_right"] == right["answers_right"] - row["answers_lost"] + row["answers_won"]

"""Each way to have fewer tokens leaves as many, and what they answer and take is recorded."""

import json

import merging
import pytest
import torch

from vitbook.data import album
from vitbook.pretrained import load_pretrained

pytest_plugins = ["shared_fixtures"]
pytestmark = pytest.mark.slow


@torch.no_grad()
def test_with_all_patches_left_the_model_is_as_it_is():
    weights = load_pretrained("vitbook:cifar10")
    images = weights.preprocessing.normalize(album().images[:3])
    expected = weights.model(images)
    for attentions in (0, 1):
        logits = merging.with_few_patches(weights.model, images, 65, attentions)
        torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)
    for way in merging.WAYS.values():
        torch.testing.assert_close(way(weights.model, images, r=0), expected, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_few_tokens_are_the_class_token_and_patches_of_the_same_image():
    z = torch.arange(2 * 9.0).view(2, 9, 1)
    kept = merging.few(z, 4)[..., 0]
    assert kept[:, 0].tolist() == [0, 9]
    assert kept.shape == (2, 4) and all(len(set(row.tolist())) == 4 for row in kept)
    assert (kept[0] < 9).all() and (kept[1] >= 9).all()


def test_every_way_is_judged_with_every_seed_and_timed(tmp_path, cifar10):
    file = tmp_path / "merging.json"
    few = ["--data-dir", str(cifar10), "--images", "3", "--seeds", "0", "1", "--rounds", "10", "--models", "hybrid"]
    merging.main([str(file), *few])
    document = json.loads(file.read_text())
    arms = {row["arm"] for row in document["rows"]}
    assert len(document["rows"]) == 2 * (1 + 2 * (len(arms) - 1))
    for row in document["rows"]:
        assert row["n"] == 3 and 0 <= row["right"] <= 3
        assert row["r"] or (row["lost"], row["won"], row["tokens_left"]) == (0, 0, 65)
    for times in document["times"]:
        assert len(times["milliseconds"]) == 1 + 2 * len(merging.TIMED)
        assert min(times["milliseconds"].values()) > 0

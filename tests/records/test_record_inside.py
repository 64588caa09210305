"""What is recorded of each block is what a model of the blocks before it says, or one whose attention is fixed."""

import json

import inside
import pytest
import torch

from vitbook.attention_maps import recorded_attention, residual_stream
from vitbook.data import Split, album
from vitbook.pretrained import load_pretrained

pytest_plugins = ["shared_fixtures"]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def seen():
    """The model, photographs as it takes them, and the classes that it names with some blocks' attention fixed."""
    weights = load_pretrained("vitbook:cifar10")
    model, images = weights.model, weights.preprocessing.normalize(album().images)
    return model, images, inside.answers(model, images, inside.fixed_weights(model, images))


@torch.no_grad()
def test_a_block_with_even_attention_gives_each_token_the_mean_of_the_values(seen):
    model, images, named = seen
    assert torch.equal(named["lens", (0, 1, 2, 3)], model(images).argmax(dim=1))
    for i, block in enumerate(model.encoder.blocks):
        key_and_query = block.attn.qkv.weight[: 2 * model.config.dim], block.attn.qkv.bias[: 2 * model.config.dim]
        kept = [part.clone() for part in key_and_query]
        for part in key_and_query:
            part.zero_()  # all scores are 0: the softmax is even
        assert (named["even", (i,)] == model(images).argmax(dim=1)).float().mean() > 0.95  # but for rounding
        for part, before in zip(key_and_query, kept, strict=True):
            part.copy_(before)
    assert len({tuple(named["even", chosen].tolist()) for chosen in inside.choices(4)}) > 1


@torch.no_grad()
def test_a_block_that_attends_as_it_did_gives_what_it_gave(seen):
    model, images, _ = seen
    block, z = model.encoder.blocks[1], residual_stream(model, images[:1])
    with recorded_attention(model) as weights:
        model(images[:1])
    torch.testing.assert_close(inside.attending(block, z[1], weights[1][0]), z[2], rtol=1e-4, atol=1e-4)


def test_each_block_alone_all_others_and_all_make_no_choice():
    assert inside.choices(3) == [(0,), (1,), (2,), (1, 2), (0, 2), (0, 1), (0, 1, 2)]


def test_what_is_fitted_to_tokens_that_hold_the_class_finds_it():
    weights = load_pretrained("vitbook:cifar10")
    images = album().images
    labels = weights.model(weights.preprocessing.normalize(images)).argmax(dim=1)
    split = Split(images.repeat(5, 1, 1, 1), labels.repeat(5))
    shares = inside.fitted(weights.model, split, split, weights.preprocessing.moments)
    assert shares["class token"][-1] == 1 > shares["class token"][0]


def test_shares_are_recorded_of_every_model(tmp_path, cifar10):
    file = tmp_path / "inside.json"
    few = ["--data-dir", str(cifar10), "--images", "3", "--known", "20", "--models", "hybrid"]
    inside.main([str(file), *few])
    document = json.loads(file.read_text())
    (row,), (fitted,) = document["rows"], document["fitted"]
    found = {(each["kind"], tuple(each["blocks"])): each for each in row["changed"]}
    assert len(found) == len(row["changed"]) == 5 + 2 * len(inside.choices(4))
    whole = found["lens", (0, 1, 2, 3)]
    assert whole["as_the_whole"] == 1 and whole["lost"] == whole["won"] == 0
    for each in found.values():
        assert 3 * (whole["right"] - each["right"]) == pytest.approx(each["lost"] - each["won"])
    assert len(fitted["class token"]) == len(fitted["mean of patches"]) == 5

"""What is recorded of each block is what a model of the blocks before it says, or one whose attention is even."""

import json

import inside
import pytest
import torch

from vitbook.data import album
from vitbook.pretrained import load_pretrained

pytest_plugins = ["shared_fixtures"]
pytestmark = pytest.mark.slow


@torch.no_grad()
def test_a_block_with_even_attention_gives_each_token_the_mean_of_the_values():
    weights = load_pretrained("vitbook:cifar10")
    model, images = weights.model, weights.preprocessing.normalize(album().images)
    named = inside.answers(model, images)
    assert torch.equal(named["lens"][-1], model(images).argmax(dim=1))
    for i, block in enumerate(model.encoder.blocks):
        key_and_query = block.attn.qkv.weight[: 2 * model.config.dim], block.attn.qkv.bias[: 2 * model.config.dim]
        kept = [part.clone() for part in key_and_query]
        for part in key_and_query:
            part.zero_()  # all scores are 0: the softmax is even
        assert (named["even"][i] == model(images).argmax(dim=1)).float().mean() > 0.95  # but for rounding
        for part, before in zip(key_and_query, kept, strict=True):
            part.copy_(before)
    assert len({tuple(row.tolist()) for row in named["even"]}) > 1


def test_shares_are_recorded_of_every_model(tmp_path, cifar10):
    file = tmp_path / "inside.json"
    inside.main([str(file), "--data-dir", str(cifar10), "--images", "3", "--weights", "vitbook:cifar10"])
    (shares,) = json.loads(file.read_text())["models"].values()
    assert len(shares["lens"]["right"]) == 5 and len(shares["even"]["right"]) == 4
    assert shares["lens"]["as the whole"][-1] == 1
    assert all(share * 3 == round(share * 3) for name in shares for share in shares[name]["right"])

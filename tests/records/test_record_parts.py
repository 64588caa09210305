"""A part that is taken out adds nothing to the stream."""

import parts
import pytest
import torch

from vitbook.data import album
from vitbook.pretrained import load_pretrained

pytestmark = pytest.mark.slow


@torch.no_grad()
def test_what_is_left_is_what_the_other_parts_make():
    weights, photographs = load_pretrained(parts.WEIGHTS), album()
    vit, labels = weights.model, photographs.labels
    z_0 = vit.embedding(weights.preprocessing.normalize(photographs.images))
    without = parts.without_parts(vit, [(z_0[:9], labels[:9]), (z_0[9:], labels[9:])])

    def right(z):
        return (vit.head(vit.norm(z[:, 0])).argmax(dim=1) == labels).sum().item() / len(labels)

    z = z_0
    for block in vit.encoder.blocks:
        z = block.attn(block.norm1(z)) + z
    assert without["every MLP"] == right(z)
    assert without["nothing"] == right(vit.encoder(z_0))
    assert without["positions"] == right(vit.encoder(z_0 - vit.embedding.positions()))
    z = z_0
    for n, block in enumerate(vit.encoder.blocks, start=1):
        z = block.mlp(block.norm2(z)) + z if n == 2 else block(z)
    assert without["attention 2"] == right(z)
    assert len(set(without.values())) > 3

"""A part that is taken out adds nothing to the stream, and one that says the same of every image adds its mean."""

import record_parts
import torch

from vitbook.data import album
from vitbook.pretrained import load_pretrained


@torch.no_grad()
def test_what_is_left_is_what_the_other_parts_make():
    weights, photographs = load_pretrained(record_parts.WEIGHTS), album()
    vit, labels = weights.model, photographs.labels
    z_0 = vit.embedding(weights.preprocessing.normalize(photographs.images))
    found = record_parts.without_parts(vit, [(z_0[:9], labels[:9]), (z_0[9:], labels[9:])])

    def right(z):
        return (vit.head(vit.norm(z[:, 0])).argmax(dim=1) == labels).sum().item() / len(labels)

    z = z_0
    for block in vit.encoder.blocks:
        z = block.attn(block.norm1(z)) + z
    assert found["without"]["every MLP"] == right(z)
    assert found["without"]["nothing"] == right(vit.encoder(z_0))
    assert found["without"]["positions"] == right(vit.encoder(z_0 - vit.embedding.positions()))
    first, *others = vit.encoder.blocks
    z = z_0 + first.attn(first.norm1(z_0)).mean(dim=0)
    z = z + first.mlp(first.norm2(z))
    for block in others:
        z = block(z)
    assert found["mean"]["attention 1"] == right(z)
    assert len(set(found["without"].values())) > 3

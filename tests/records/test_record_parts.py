"""A part that is taken out adds nothing to the stream, or what it adds on average."""

import parts
import pytest
import torch

from vitbook.data import album
from vitbook.pretrained import load_pretrained

pytestmark = pytest.mark.slow


@torch.no_grad()
def test_what_is_left_is_what_the_other_parts_make():
    weights, photographs = load_pretrained(parts.MODELS["plain"][0]), album()
    vit, labels = weights.model, photographs.labels
    images = weights.preprocessing.normalize(photographs.images)
    means = parts.mean_outputs(vit, images[:5])
    found = parts.without_parts(vit, [(images[:9], labels[:9]), (images[9:], labels[9:])], means)
    without = {what: result["accuracy"] for what, result in found.items()}

    def right(z):
        return (vit.head(vit.norm(z[:, 0])).argmax(dim=1) == labels).sum().item() / len(labels)

    def through(z, attention=lambda n, part, x: part(x), mlp=lambda n, part, x: part(x)):
        for n, block in enumerate(vit.encoder.blocks, start=1):
            z = attention(n, block.attn, block.norm1(z)) + z
            z = mlp(n, block.mlp, block.norm2(z)) + z
        return z

    z_0 = vit.embedding(images)
    table = vit.embedding.positions()
    blank = torch.cat([table[:, :1], torch.zeros_like(table[:, 1:])], dim=1)
    first, second = vit.encoder.blocks[:2]
    mean_of_2 = second.attn(second.norm1(first(z_0[:5]))).mean(dim=0)
    assert without["every MLP", "zero"] == right(through(z_0, mlp=lambda n, part, x: 0 * x))
    assert without["every MLP but the first", "zero"] == right(
        through(z_0, mlp=lambda n, part, x: part(x) if n == 1 else 0 * x)
    )
    assert without["nothing", ""] == right(through(z_0))
    assert without["positions", "zero"] == right(through(z_0 - table + blank))
    assert without["attention 2", "zero"] == right(
        through(z_0, attention=lambda n, part, x: 0 * x if n == 2 else part(x))
    )
    assert without["attention 2", "mean"] == right(
        through(z_0, attention=lambda n, part, x: mean_of_2 + 0 * x if n == 2 else part(x))
    )
    assert without["the last LayerNorm", ""] == (
        (vit.head(through(z_0)[:, 0]).argmax(dim=1) == labels).sum().item() / len(labels)
    )
    assert len(set(without.values())) > 3


def test_places_are_dealt_out_again():
    table = torch.arange(7.0).view(1, 7, 1).expand(1, 7, 2)  # a class token and 2 rows of 3
    other = parts.places(table, (2, 3))
    assert other["mirrored"][0, :, 0].tolist() == [0, 3, 2, 1, 6, 5, 4]
    assert other["upside down"][0, :, 0].tolist() == [0, 4, 5, 6, 1, 2, 3]
    assert other["mean"][0, :, 0].tolist() == [0] + [3.5] * 6
    assert other["zero"][0, :, 0].tolist() == [0] * 7
    assert sorted(other["shuffled"][0, :, 0].tolist()) == list(range(7)) != other["shuffled"][0, :, 0].tolist()

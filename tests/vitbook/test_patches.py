"""Patches are cut, laid back and mapped to tokens as the equations say, on pictures that are not square."""

import pytest
import torch
from small_models import B, C, D, P, images, same_map
from torch import nn

from vitbook.patches import HybridEmbedding, PatchEmbedding, conv_stem, patchify, stem_stride

both_precisions = pytest.mark.usefixtures("precision")


def hybrid(**settings) -> HybridEmbedding:
    """A stem of stride 2 with 6 channels, then patches of 2 places: 4 pixels in all."""
    return HybridEmbedding(conv_stem(C, (6,)), 6, 2, D, **{"patch_size": 2} | settings)


@both_precisions
def test_each_token_depends_on_its_own_patch_alone():
    embedding, x = PatchEmbedding(P, C, D), images()
    before = embedding(x)
    x[:, :, P:, 2 * P :] += 1  # row 1, column 2
    changed = (embedding(x) != before).any(dim=-1)
    assert changed.tolist() == [[False, False, False, False, False, True]] * B


@both_precisions
def test_the_hybrid_cuts_its_patches_from_the_stems_map():
    embedding = hybrid()
    linear = nn.Linear(6 * 2 * 2, D)
    with torch.no_grad():
        linear.weight.copy_(embedding.patch_embed.proj.weight.flatten(1))
        linear.bias.copy_(embedding.patch_embed.proj.bias)
    weights = list(zip(embedding.stem.parameters(), embedding.stem.parameters(), strict=True))
    same_map(embedding, lambda x: linear(patchify(embedding.stem(x), 2)), images(), weights=weights)
    assert embedding.patch_size == P


@pytest.mark.parametrize(
    ("widths", "stride"), [((6,), 2), ((5, 7), 4), ((4, 5, 6), 8), ((5, 5), 2), ((4, 4, 6, 6, 6), 4), ((C, 4, 3), 8)]
)
def test_the_stem_halves_the_picture_where_its_width_changes(widths, stride):
    assert stem_stride(widths) == stride
    features = conv_stem(C, widths)(torch.randn(B, C, 16, 24))
    assert features.shape == (B, widths[-1], 16 // stride, 24 // stride)
    assert (features >= 0).all()
    assert [type(layer) for layer in conv_stem(C, widths)] == [nn.Conv2d, nn.BatchNorm2d, nn.ReLU] * len(widths)

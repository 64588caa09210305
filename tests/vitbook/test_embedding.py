"""Equation 1 by hand, any positions, and the patches that training drops."""

import pytest
import small_models
import torch
from small_models import HEIGHT, WIDTH, B, C, D, N, P, close, differ, images

from vitbook.embedding import ImageEmbedding, drop_patches
from vitbook.patches import PatchEmbedding
from vitbook.positions import POSITIONS

both_precisions = pytest.mark.usefixtures("precision")


def embedding(**settings) -> ImageEmbedding:
    return ImageEmbedding(PatchEmbedding(P, C, D), (HEIGHT, WIDTH), D, **settings)


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("class_token", [True, False])
def test_any_positions_go_with_and_without_a_class_token(positions, class_token):
    module, x = small_models.shake(embedding(positions=positions, class_token=class_token)), images()
    z = module(x)
    assert z.shape == (B, N + class_token, D)
    assert len(module.prefix_tokens) == class_token
    close((z - module.positions())[:, int(class_token) :], module.patch_embed(x))


def test_dropout_acts_on_the_whole_sum_and_in_training_alone():
    module, x = embedding(dropout=0.5), images()
    assert differ(module(x), module(x))
    assert not embedding(dropout=1.0)(x).any()
    module.eval()
    assert torch.equal(module(x), module(x))


def test_patches_are_left_out_evenly_and_the_class_token_never():
    x = torch.arange(7.0).expand(400, -1).unsqueeze(-1).repeat(1, 1, 2)
    kept = drop_patches(x, 0.5)
    assert kept.shape == (400, 4, 2)  # the class token and 6 − ⌊0.5 · 6⌋ patches
    assert (kept[:, 0] == 0).all()
    numbers = kept[:, 1:, 0].long()
    assert all(row.unique().numel() == 3 and row.min() >= 1 for row in numbers)
    counts = numbers.flatten().bincount(minlength=7)[1:]
    assert (counts - 200).abs().max() < 50  # standard deviation 10
    assert drop_patches(x, 0.5, num_prefix_tokens=0).shape == (400, 4, 2)
    assert torch.equal(drop_patches(x, 0.0).sort(dim=1).values, x)


def test_patches_are_left_out_in_training_alone():
    embed = ImageEmbedding(PatchEmbedding(4, 3, 12), (8, 12), 12)
    pictures = torch.randn(2, 3, 8, 12)
    whole = embed(pictures)
    embed.patch_dropout = 0.5
    assert embed.train()(pictures).shape == (2, 4, 12)
    assert torch.equal(embed.eval()(pictures), whole)
    embed.train()(pictures).sum().backward()
    assert embed.patch_embed.proj.weight.grad.isfinite().all()


def test_under_autocast_the_tokens_stay_in_bfloat16():
    embed = ImageEmbedding(PatchEmbedding(4, 3, 12), (8, 12), 12)
    with torch.autocast("cpu", torch.bfloat16):
        assert embed(torch.randn(2, 3, 8, 12)).dtype == torch.bfloat16
    assert embed.double()(torch.randn(2, 3, 8, 12, dtype=torch.float64)).dtype == torch.float64

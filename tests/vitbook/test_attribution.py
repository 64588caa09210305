"""Attributions against closed forms on models that can be solved, and marks against scikit-learn's."""

import itertools
import math

import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import nn
from torch.testing import assert_close

from vitbook.attribution import (
    FILLINGS,
    auc,
    filled,
    masked_scores,
    occlusion,
    precision_at_k,
)
from vitbook.vit import VisionTransformer, ViTConfig
from vitbook_workshop.exam.maps_from_papers import (
    attention_norms,
    gradient_times_input,
    integrated_gradients,
    rise,
    shapley,
)

GRID, B, K = (2, 3), 4, 5
IMAGES = (B, 3, 4, 9)  # patches of 2×3 pixels


def images_and_classes() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(IMAGES, dtype=torch.float64), torch.arange(B) % K


def linear() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 4 * 9, K)).double()


def bent() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 4 * 9, 16), nn.GELU(), nn.Linear(16, K)).double()


def by_patches(pixels: torch.Tensor) -> torch.Tensor:
    """Sums over each patch, by loops."""
    cut = [[pixels[:, :, 2 * r : 2 * r + 2, 3 * c : 3 * c + 3].sum(dim=(1, 2, 3)) for c in range(3)] for r in range(2)]
    return torch.stack([torch.stack(row, dim=1) for row in cut], dim=1)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize(
    "attribute",
    [
        gradient_times_input,
        integrated_gradients,
        occlusion,
        lambda *given: shapley(*given, generator()),
        lambda *given: shapley(*given, generator(), orders=1),
    ],
)
def test_of_a_linear_model_each_patch_gets_what_it_adds(attribute):
    model, (images, classes) = linear(), images_and_classes()
    weight = model[1].weight[classes].view(IMAGES)
    assert_close(attribute(model, images, classes, GRID), by_patches(weight * images))


def test_rise_orders_the_patches_of_a_linear_model_and_finds_their_sizes():
    model, (images, classes) = linear(), images_and_classes()
    added = by_patches(model[1].weight[classes].view(IMAGES) * images)
    assert (rise(model, images, classes, GRID, generator(), masks=4000) - added).abs().max() < 0.15
    odd = rise(model, images, classes, GRID, generator(), masks=33)
    assert odd.shape == (B, *GRID) and odd.isfinite().all()


def test_shapley_is_the_formula_over_all_subsets():
    model, (images, classes) = bent(), images_and_classes()
    count, found = 6, torch.zeros(B, 6, dtype=torch.float64)
    for size in range(count):
        for subset in itertools.combinations(range(count), size):
            share = math.factorial(size) * math.factorial(count - size - 1) / math.factorial(count)
            for patch in set(range(count)) - set(subset):
                kept = torch.zeros(2, count, dtype=torch.bool)
                kept[:, list(subset)] = True
                kept[1, patch] = True
                without, with_it = masked_scores(model, images, classes, kept.view(1, 2, *GRID)).unbind(dim=1)
                found[:, patch] += share * (with_it - without)
    assert_close(shapley(model, images, classes, GRID, generator()).flatten(1), found)


def test_shapley_and_integrated_gradients_share_out_the_whole_score():
    model, (images, classes) = bent(), images_and_classes()
    ends = masked_scores(model, images, classes, torch.tensor([True, False]).view(1, 2, 1, 1).expand(1, 2, *GRID))
    whole = ends[:, 0] - ends[:, 1]
    large = torch.randn(2, 3, 6, 12, dtype=torch.float64)
    model_of_many = nn.Sequential(nn.Flatten(), nn.Linear(216, 16), nn.GELU(), nn.Linear(16, K)).double()
    sampled = shapley(model_of_many, large, classes[:2], (3, 4), generator(), orders=2)
    kept = torch.tensor([True, False]).view(1, 2, 1, 1).expand(1, 2, 3, 4)
    assert_close(sampled.sum(dim=(1, 2)), masked_scores(model_of_many, large, classes[:2], kept).diff(dim=1)[:, 0] * -1)
    fine = integrated_gradients(model, images, classes, GRID, steps=200).sum(dim=(1, 2))
    assert_close(fine, whole, rtol=0, atol=1e-4)
    assert (gradient_times_input(model, images, classes, GRID).sum(dim=(1, 2)) - whole).abs().max() > 0.01


@pytest.mark.parametrize("filling", FILLINGS)
def test_masked_scores_in_batches_are_those_of_one_image_at_a_time(filling):
    model, (images, classes) = bent(), images_and_classes()
    kept = torch.rand(B, 7, *GRID) < 0.5
    scores = masked_scores(model, images, classes, kept, filling, at_once=3)
    fill = filled(images, filling)
    for image, mask in itertools.product(range(B), range(7)):
        shown = images[image].clone()
        for r, c in (~kept[image, mask]).nonzero().tolist():
            shown[:, 2 * r : 2 * r + 2, 3 * c : 3 * c + 3] = fill[image, :, 2 * r : 2 * r + 2, 3 * c : 3 * c + 3]
        assert_close(scores[image, mask], model(shown[None])[0, classes[image]])


def test_fillings_are_gray_the_images_mean_and_another_image():
    images = torch.rand(IMAGES)
    assert not filled(images, "gray").any()
    assert_close(filled(images, "mean")[1, 2], images[1, 2].mean().expand(4, 9))
    assert_close(filled(images, "other image")[1], images[0])
    with pytest.raises(ValueError, match="filling must be one of gray, mean, other image, got 'black'"):
        filled(images, "black")


def test_attention_norms_are_lengths_of_what_each_key_adds():
    model = VisionTransformer(ViTConfig(8, 4, num_classes=5, dim=24, depth=2, num_heads=3, mlp_dim=48))
    attention, x = model.encoder.blocks[0].attn.double(), torch.randn(2, 5, model.config.dim, dtype=torch.float64)
    weights, values = attention.attend(x)[1], attention.project(x)[2]
    strips = attention.proj.weight.T.unflatten(0, (attention.num_heads, -1))
    for image, query, key in itertools.product(range(2), range(5), range(5)):
        added = sum(weights[image, h, query, key] * values[image, h, key] @ strips[h] for h in range(len(strips)))
        assert_close(attention_norms(attention, x)[image, query, key], added.norm())


def test_the_auc_is_scikit_learns_ties_included():
    maps, key = torch.randint(4, (30, 2, 3)).double(), torch.rand(30, 2, 3) < 0.5
    key[:, 0, 0], key[:, 1, 1] = True, False
    expected = [roc_auc_score(k.flatten(), m.flatten()) for m, k in zip(maps, key, strict=True)]
    assert_close(auc(maps, key), torch.tensor(expected, dtype=torch.float64))


def test_precision_counts_the_highest_and_a_constant_map_is_worth_a_guess():
    key = torch.tensor([[[1, 1, 0], [0, 0, 0]]]).bool()
    for values, expected in (
        ([9, 8, 0, 0, 0, 0], 1.0),
        ([9, 0, 8, 0, 0, 0], 0.5),
        ([0, 0, 9, 8, 0, 0], 0.0),
        ([9, 5, 5, 0, 0, 0], 0.75),  # the second place is drawn by lot
        ([5, 5, 9, 5, 5, 5], 0.2),
        ([1, 1, 1, 1, 1, 1], 1 / 3),
        ([-1, -2, -3, -3, -3, -3], 1.0),
    ):
        assert precision_at_k(torch.tensor(values).float().view(1, 2, 3), key).item() == pytest.approx(expected), values
    assert auc(torch.ones(1, 2, 3), key).item() == 0.5


@pytest.mark.slow
def test_a_map_that_ignores_the_image_scores_as_random_where_places_are_uniform():
    from vitbook.planted import TASKS, planted

    for task in TASKS:
        key = planted(task, 5000, generator()).key
        rows = torch.arange(6) - 2.5
        for blind in (torch.rand(6, 6), -torch.hypot(rows[:, None], rows), torch.ones(6, 6)):
            maps = blind.expand(len(key), -1, -1)
            assert auc(maps, key).mean().item() == pytest.approx(0.5, abs=0.024)
            chance = key.sum(dim=(1, 2)).double().mean().item() / 36
            assert precision_at_k(maps, key).mean().item() == pytest.approx(chance, abs=0.016)

"""Features: each function equals loops or somebody else's implementation, and the mistakes do not pass."""

import math

import numpy as np
import properties as check
import pytest
import torch
import torch.nn.functional as F
from properties import backbone, pictures
from sklearn.decomposition import PCA
from sklearn.neighbors import KNeighborsClassifier
from tables import accepted_and_rejected
from torch.testing import assert_close

from vitbook.features import collect_features, feature_colors, feature_map, neighbor_votes

B, D, K = 2, 12, 5
ROWS, COLUMNS = GRID = check.GRID  # (2, 3) patches of 4 pixels


# The checks, each of one implementation


def map_has_each_patch_at_its_place(feature_map) -> None:
    for model in (backbone(), backbone(class_token=False, pool="mean")):
        tokens = model.tokens(pictures := check.images().double())
        first = int(model.config.class_token)
        expected = torch.empty(B, D, ROWS, COLUMNS, dtype=torch.float64)
        for row in range(ROWS):
            for column in range(COLUMNS):
                expected[:, :, row, column] = tokens[:, first + row * COLUMNS + column]
        assert_close(feature_map(model, pictures), expected)


def known() -> tuple[torch.Tensor, ...]:
    """Queries, known features of very different lengths, and their labels."""
    bank = torch.randn(40, D, dtype=torch.float64) * torch.linspace(0.1, 9, 40, dtype=torch.float64)[:, None]
    return torch.randn(9, D, dtype=torch.float64), bank, torch.arange(40) * 7 % K


def votes_equal_scikit_learn(votes) -> None:
    queries, bank, labels = known()
    for k, temperature in ((1, 0.07), (6, 0.07), (11, 0.5), (8, math.inf)):

        def weigh(distance, temperature=temperature):
            return np.exp((1 - distance) / temperature)

        oracle = KNeighborsClassifier(k, metric="cosine", weights=weigh).fit(bank, labels)
        expected = torch.from_numpy(oracle.predict_proba(queries))
        assert_close(votes(queries, bank, labels, K, k, temperature), expected)


def colors_equal_scikit_learn(colors) -> None:
    maps = torch.randn(4, D, ROWS, COLUMNS, dtype=torch.float64) * torch.linspace(1, 3, D).view(D, 1, 1) + 2
    rows = maps.permute(0, 2, 3, 1).reshape(-1, D)
    oracle = PCA(3, svd_solver="full").fit(rows)
    directions = torch.from_numpy(oracle.components_)
    for direction in directions:
        direction *= direction[direction.abs().argmax()].sign()
    amounts = (rows - rows.mean(dim=0)) @ directions.T
    stretched = (amounts - amounts.min(dim=0).values) / (amounts.max(dim=0).values - amounts.min(dim=0).values)
    assert_close(colors(maps), stretched.view(4, ROWS, COLUMNS, 3).permute(0, 3, 1, 2))


def features_are_those_of_a_model_at_rest(collect_features) -> None:
    model = backbone(dropout=0.4).train()
    batches = [(pictures(3), torch.tensor([1, 0, 2])), (pictures(1), torch.tensor([4]))]
    collected, labels = collect_features(model, batches)
    assert model.training and not collected.requires_grad
    model.eval()
    expected = torch.cat([model.features(images) for images, _ in batches])
    assert_close(collected, expected)
    assert labels.tolist() == [1, 0, 2, 4]


# The smallest wrong variants of what the module computes


def map_of(make):
    """make: from tokens (B, T, D)"""
    return lambda model, images: make(model.tokens(images))


def dot_product_for_cosine(queries, bank, labels, num_classes, k, temperature):
    nearest, index = (queries @ bank.T).topk(k, dim=-1)
    weights = (nearest / temperature).softmax(dim=-1)
    return weights.new_zeros(len(queries), num_classes).scatter_add(1, labels[index], weights)


def last_vote_counts(queries, bank, labels, num_classes, k, temperature):
    nearest, index = (F.normalize(queries, dim=-1) @ F.normalize(bank, dim=-1).T).topk(k, dim=-1)
    weights = (nearest / temperature).softmax(dim=-1)
    return weights.new_zeros(len(queries), num_classes).scatter(1, labels[index], weights)


def components(maps, centered, together):
    """Amounts of three components, stretched for all of them together or for each."""
    patches = maps.movedim(1, -1).flatten(0, 2)
    patches = patches - patches.mean(dim=0) if centered else patches
    amounts = patches @ torch.linalg.svd(patches, full_matrices=False).Vh[:3].T
    low, high = (amounts.min(), amounts.max()) if together else (amounts.amin(dim=0), amounts.amax(dim=0))
    return ((amounts - low) / (high - low)).unflatten(0, (len(maps), *GRID)).movedim(-1, 1)


def collected_with_dropout(model, batches):
    images, labels = zip(*batches, strict=True)
    return torch.cat([model.features(x).detach().float() for x in images]), torch.cat(labels)


def collected_and_left_in_eval(model, batches):
    collected = collect_features(model, batches)
    model.eval()
    return collected


TABLE = [
    (
        map_has_each_patch_at_its_place,
        feature_map,
        [
            map_of(lambda z: z[:, : ROWS * COLUMNS].mT.unflatten(2, GRID)),  # with the class token
            map_of(lambda z: z[:, -ROWS * COLUMNS :].mT.unflatten(2, GRID[::-1]).mT),  # of columns
            map_of(lambda z: z[:, -ROWS * COLUMNS :].reshape(len(z), -1, *GRID)),  # without transpose
        ],
    ),
    (
        votes_equal_scikit_learn,
        neighbor_votes,
        [
            dot_product_for_cosine,
            last_vote_counts,
            lambda q, *rest: neighbor_votes(-q, *rest),  # the farthest
            lambda q, bank, y, c, k, t: neighbor_votes(q, bank, y, c, k, math.inf),  # always one vote each
            lambda q, bank, y, c, k, t: neighbor_votes(q, bank, y, c, k, 1 / t),  # multiplied by the temperature
            lambda q, bank, y, c, k, t: neighbor_votes(q, bank, y, c, len(bank), t),  # everybody votes
        ],
    ),
    (
        colors_equal_scikit_learn,
        feature_colors,
        [
            lambda maps: torch.cat([feature_colors(one[None]) for one in maps]),  # each image separately
            lambda maps: components(maps, centered=False, together=False),
            lambda maps: components(maps, centered=True, together=True),
            lambda maps: maps[:, :3] - maps[:, :3].amin(dim=(0, 2, 3), keepdim=True),
        ],
    ),
    (
        features_are_those_of_a_model_at_rest,
        collect_features,
        [collected_with_dropout, collected_and_left_in_eval],
    ),
]

test_the_right_implementation_passes, test_the_wrong_variant_is_rejected = accepted_and_rejected(TABLE)


def test_whatever_precedes_the_patches_is_dropped():
    model = backbone()
    right = feature_map(model, images := pictures())
    tokens = model.tokens(images)
    model.tokens = lambda _: torch.cat([tokens[:, :1], tokens], dim=1)  # a second token before the patches
    assert_close(feature_map(model, images), right)


def test_colors_fill_the_scale_and_ignore_what_all_patches_share():
    maps = torch.randn(4, D, ROWS, COLUMNS, dtype=torch.float64)
    colors = feature_colors(maps)
    assert_close(colors.amin(dim=(0, 2, 3)), torch.zeros(3, dtype=torch.float64))
    assert_close(colors.amax(dim=(0, 2, 3)), torch.ones(3, dtype=torch.float64))
    assert_close(feature_colors(maps + torch.randn(D, 1, 1, dtype=torch.float64)), colors)
    assert feature_colors(torch.ones(1, D, ROWS, COLUMNS)).isfinite().all()  # no differences at all


@pytest.mark.door
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, y: neighbor_votes(x, x, y[:3], 2, k=1), "labels must be 4, one for each known feature, got 3"),
        (lambda x, y: neighbor_votes(x, x, y, 2, k=0), "k and temperature must be above 0, got 0 and 0.07"),
        (lambda x, y: neighbor_votes(x, x, y, 2, k=1, temperature=0), "above 0, got 1 and 0"),
        (lambda x, y: feature_colors(torch.ones(4, 2, 3, 3)), r"three channels and three patches, got \(4, 2, 3, 3\)"),
        (lambda x, y: feature_colors(torch.ones(1, 8, 1, 2)), r"got \(1, 8, 1, 2\)"),
    ],
)
def test_what_would_be_silently_wrong_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(torch.ones(4, 3), torch.zeros(4).long())

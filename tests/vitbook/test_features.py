"""Features: each function equals loops, or somebody else's implementation."""

import math

import numpy as np
import pytest
import small_models
import torch
from sklearn.decomposition import PCA
from sklearn.neighbors import KNeighborsClassifier
from small_models import backbone, pictures
from torch.testing import assert_close

from vitbook.features import collect_features, feature_colors, feature_map, neighbor_votes, stored_features, whitening

B, D, K = 2, 12, 5
ROWS, COLUMNS = GRID = small_models.GRID  # (2, 3) patches of 4 pixels


def test_a_map_has_each_patch_at_its_place():
    for model in (backbone(), backbone(class_token=False, pool="mean")):
        tokens = model.tokens(pictures := small_models.images().double())
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


def test_votes_equal_scikit_learns():
    queries, bank, labels = known()
    for k, temperature in ((1, 0.07), (6, 0.07), (11, 0.5), (8, math.inf)):

        def weigh(distance, temperature=temperature):
            return np.exp((1 - distance) / temperature)

        oracle = KNeighborsClassifier(k, metric="cosine", weights=weigh).fit(bank, labels)
        expected = torch.from_numpy(oracle.predict_proba(queries))
        assert_close(neighbor_votes(queries, bank, labels, K, k, temperature), expected)


def test_whitened_features_vary_alike_and_shrinkage_leaves_the_weak_directions_weak():
    features = torch.randn(400, D, dtype=torch.float64) @ torch.randn(D, D, dtype=torch.float64) + 7
    mean, matrix = whitening(features, shrinkage=0.0)
    white = (features - mean) @ matrix
    assert_close(torch.cov(white.T, correction=0), torch.eye(D, dtype=torch.float64))
    oracle = torch.from_numpy(PCA(whiten=True).fit_transform(features))
    assert_close(white @ white.T, oracle @ oracle.T * 400 / 399)
    mean, matrix = whitening(features, shrinkage=1e6)
    assert_close(matrix / matrix[0, 0], torch.eye(D, dtype=torch.float64), atol=1e-4, rtol=0)


def test_colors_equal_scikit_learns():
    maps = torch.randn(4, D, ROWS, COLUMNS, dtype=torch.float64) * torch.linspace(1, 3, D).view(D, 1, 1) + 2
    rows = maps.permute(0, 2, 3, 1).reshape(-1, D)
    oracle = PCA(3, svd_solver="full").fit(rows)
    directions = torch.from_numpy(oracle.components_)
    for direction in directions:
        direction *= direction[direction.abs().argmax()].sign()
    amounts = (rows - rows.mean(dim=0)) @ directions.T
    stretched = (amounts - amounts.min(dim=0).values) / (amounts.max(dim=0).values - amounts.min(dim=0).values)
    assert_close(feature_colors(maps), stretched.view(4, ROWS, COLUMNS, 3).permute(0, 3, 1, 2))


def test_collected_features_are_those_of_a_model_at_rest():
    model = backbone(dropout=0.4).train()
    batches = [(pictures(3), torch.tensor([1, 0, 2])), (pictures(1), torch.tensor([4]))]
    collected, labels = collect_features(model, batches)
    assert model.training and not collected.requires_grad
    model.eval()
    expected = torch.cat([model.features(images) for images, _ in batches])
    assert_close(collected, expected)
    assert labels.tolist() == [1, 0, 2, 4]


def test_whatever_precedes_the_patches_is_dropped():
    model = backbone()
    right = feature_map(model, images := pictures())
    tokens = model.tokens(images)
    model.tokens = lambda _: torch.cat([tokens[:, :1], tokens], dim=1)  # a second token before the patches
    assert_close(feature_map(model, images), right)


def test_patches_that_do_not_differ_have_a_color():
    assert feature_colors(torch.ones(1, D, ROWS, COLUMNS)).isfinite().all()


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


def test_stored_features_are_of_every_class_and_tell_them_apart():
    (known, labels), (asked, right), names = stored_features()
    assert (known.shape, asked.shape, len(names)) == ((6000, 128), (1000, 128), 20)
    assert labels.bincount().tolist() == [300] * 20 and right.bincount().tolist() == [50] * 20
    votes = neighbor_votes(asked, known, labels, 20, k=5)
    assert (votes.argmax(dim=1) == right).double().mean() > 0.3

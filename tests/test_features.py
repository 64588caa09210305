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
from tables import accepted_and_rejected, defined_in, name
from torch import nn
from torch.testing import assert_close

from vitbook import features
from vitbook.features import Features, collect_features, feature_colours, feature_map, neighbour_votes
from vitbook.training import evaluate

B, D, K = 2, 12, 5
ROWS, COLUMNS = GRID = check.GRID  # (2, 3) patches of 4 pixels


def random_maps(batch: int = B) -> torch.Tensor:
    return torch.randn(batch, D, ROWS, COLUMNS, dtype=torch.float64)


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


def colours_equal_scikit_learn(colours) -> None:
    maps = torch.randn(4, D, ROWS, COLUMNS, dtype=torch.float64) * torch.linspace(1, 3, D).view(D, 1, 1) + 2
    rows = maps.permute(0, 2, 3, 1).reshape(-1, D)
    oracle = PCA(3, svd_solver="full").fit(rows)
    directions = torch.from_numpy(oracle.components_)
    for direction in directions:
        direction *= direction[direction.abs().argmax()].sign()
    amounts = (rows - rows.mean(dim=0)) @ directions.T
    stretched = (amounts - amounts.min(dim=0).values) / (amounts.max(dim=0).values - amounts.min(dim=0).values)
    assert_close(colours(maps), stretched.view(4, ROWS, COLUMNS, 3).permute(0, 3, 1, 2))


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


def map_with_the_class_token(model, images):
    return model.tokens(images)[:, : ROWS * COLUMNS].mT.unflatten(2, GRID)


def map_of_columns(model, images):
    return model.tokens(images)[:, -ROWS * COLUMNS :].mT.unflatten(2, GRID[::-1]).mT


def map_viewed_without_transpose(model, images):
    return model.tokens(images)[:, -ROWS * COLUMNS :].reshape(len(images), -1, *GRID)


def dot_product_for_cosine(queries, bank, labels, num_classes, k, temperature):
    nearest, index = (queries @ bank.T).topk(k, dim=-1)
    weights = (nearest / temperature).softmax(dim=-1)
    return weights.new_zeros(len(queries), num_classes).scatter_add(1, labels[index], weights)


def the_farthest(queries, bank, labels, num_classes, k, temperature):
    return neighbour_votes(-queries, bank, labels, num_classes, k, temperature)


def always_one_vote_each(queries, bank, labels, num_classes, k, temperature):
    return neighbour_votes(queries, bank, labels, num_classes, k, math.inf)


def temperature_multiplied(queries, bank, labels, num_classes, k, temperature):
    return neighbour_votes(queries, bank, labels, num_classes, k, 1 / temperature)


def last_vote_counts(queries, bank, labels, num_classes, k, temperature):
    nearest, index = (F.normalize(queries, dim=-1) @ F.normalize(bank, dim=-1).T).topk(k, dim=-1)
    weights = (nearest / temperature).softmax(dim=-1)
    return weights.new_zeros(len(queries), num_classes).scatter(1, labels[index], weights)


def everybody_votes(queries, bank, labels, num_classes, k, temperature):
    return neighbour_votes(queries, bank, labels, num_classes, len(bank), temperature)


def each_picture_by_itself(maps):
    return torch.cat([feature_colours(one[None]) for one in maps])


def not_centred(maps):
    mirrored = torch.cat([maps, -maps])  # mean zero, whatever the maps
    patches = mirrored.movedim(1, -1).flatten(0, 2)
    directions = torch.linalg.svd(patches, full_matrices=False).Vh[:3]
    amounts = maps.movedim(1, -1) @ directions.T
    low, high = amounts.amin(dim=(0, 1, 2)), amounts.amax(dim=(0, 1, 2))
    return ((amounts - low) / (high - low)).movedim(-1, 1)


def stretched_together(maps):
    patches = maps.movedim(1, -1).flatten(0, 2)
    amounts = (patches - patches.mean(dim=0)) @ torch.linalg.svd(patches - patches.mean(dim=0)).Vh[:3].T
    amounts = (amounts - amounts.min()) / (amounts.max() - amounts.min())
    return amounts.unflatten(0, (len(maps), *maps.shape[2:])).movedim(-1, 1)


def first_three_channels(maps):
    low, high = maps[:, :3].amin(dim=(0, 2, 3), keepdim=True), maps[:, :3].amax(dim=(0, 2, 3), keepdim=True)
    return (maps[:, :3] - low) / (high - low)


def collected_with_dropout(model, batches):
    images, labels = zip(*batches, strict=True)
    return torch.cat([model.features(x).detach().float() for x in images]), torch.cat(labels)


def collected_and_left_in_eval(model, batches):
    collected = collect_features(model, batches)
    model.eval()
    return collected


def scores_for_features(model, batches):
    evaluated = evaluate(model, batches)
    return evaluated.scores, evaluated.labels


TABLE = [
    (
        map_has_each_patch_at_its_place,
        feature_map,
        [map_with_the_class_token, map_of_columns, map_viewed_without_transpose],
    ),
    (
        votes_equal_scikit_learn,
        neighbour_votes,
        [
            *(dot_product_for_cosine, the_farthest, always_one_vote_each),
            *(temperature_multiplied, last_vote_counts, everybody_votes),
        ],
    ),
    (
        colours_equal_scikit_learn,
        feature_colours,
        [each_picture_by_itself, not_centred, stretched_together, first_three_channels],
    ),
    (
        features_are_those_of_a_model_at_rest,
        collect_features,
        [collected_with_dropout, collected_and_left_in_eval, scores_for_features],
    ),
]

test_the_right_implementation_passes, test_the_wrong_variant_is_rejected = accepted_and_rejected(TABLE)


# Maps


def test_whatever_precedes_the_patches_is_left_away():
    model = backbone()
    right = feature_map(model, images := pictures())
    tokens = model.tokens(images)
    model.tokens = lambda _: torch.cat([tokens[:, :1], tokens], dim=1)  # a second token before the patches
    assert_close(feature_map(model, images), right)


def test_colours_fill_the_scale_and_ignore_what_all_patches_share():
    maps = random_maps(4)
    colours = feature_colours(maps)
    assert colours.shape == (4, 3, ROWS, COLUMNS)
    assert_close(colours.amin(dim=(0, 2, 3)), torch.zeros(3, dtype=torch.float64))
    assert_close(colours.amax(dim=(0, 2, 3)), torch.ones(3, dtype=torch.float64))
    assert_close(feature_colours(maps + torch.randn(D, 1, 1, dtype=torch.float64)), colours)
    assert feature_colours(torch.ones(1, D, ROWS, COLUMNS)).isfinite().all()  # no differences at all


# One vector a picture


def test_features_under_a_linear_layer_are_a_linear_probe():
    model, probe = backbone(), nn.Linear(D, K).double()
    images = pictures()
    assert_close(nn.Sequential(Features(model), probe)(images), probe(model.features(images)))


def test_votes_do_not_depend_on_lengths_or_on_other_queries():
    queries, bank, labels = known()
    votes = neighbour_votes(queries, bank, labels, K, 6)
    assert_close(votes.sum(dim=1), torch.ones(9, dtype=torch.float64))
    assert_close(neighbour_votes(queries * torch.arange(1, 10)[:, None], 0.3 * bank, labels, K, 6), votes)
    assert_close(neighbour_votes(queries[4:], bank, labels, K, 6), votes[4:])


def test_a_cold_vote_is_the_nearests_alone_and_a_hot_one_counts_heads():
    queries, bank, labels = known()
    alone = neighbour_votes(queries, bank, labels, K, 1)
    assert_close(neighbour_votes(queries, bank, labels, K, 9, temperature=1e-6), alone)
    assert_close(alone.amax(dim=1), torch.ones(9, dtype=torch.float64))
    hot = neighbour_votes(queries, bank, labels, K, 8, temperature=math.inf)
    assert_close(hot * 8, (hot * 8).round())


# Arguments and bad input

MODEL, OTHER = backbone(), backbone()
X = check.images(3).double()
VOTES = dict(zip(("queries", "bank", "labels"), known(), strict=True))
ARGUMENTS = {
    feature_map: (dict(backbone=MODEL, images=X), dict(backbone=OTHER, images=-X)),
    Features: (dict(backbone=MODEL), dict(backbone=OTHER), X),
    collect_features: (
        dict(backbone=MODEL, batches=[(X, torch.arange(3))]),
        dict(backbone=OTHER, batches=[(-X, torch.arange(3))]),
    ),
    neighbour_votes: (
        VOTES | dict(num_classes=K),
        dict(queries=-VOTES["queries"], bank=-VOTES["bank"], labels=VOTES["labels"].flip(0))
        | dict(num_classes=7, k=3, temperature=0.5),
    ),
    feature_colours: (dict(maps=random_maps(4)), dict(maps=random_maps(3))),
}


@pytest.mark.parametrize("function", ARGUMENTS, ids=name)
def test_every_argument_has_an_effect(function):
    check.each_argument_counts(function, *ARGUMENTS[function])


def test_the_table_of_arguments_is_complete():
    assert defined_in(features) == set(ARGUMENTS)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: neighbour_votes(torch.ones(2, 3), torch.ones(4, 5), torch.zeros(4).long(), 2),
            r"\(M, D\), \(N, D\) and \(N,\), got \(2, 3\), \(4, 5\), \(4,\)",
        ),
        (
            lambda: neighbour_votes(torch.ones(2, 3), torch.ones(4, 3), torch.zeros(5).long(), 2),
            r"got \(2, 3\), \(4, 3\), \(5,\)",
        ),
        (
            lambda: neighbour_votes(torch.ones(2, 3), torch.ones(4, 3), torch.zeros(4).long(), 2, k=5),
            "k must lie in 1 … 4, the number of known features, got 5",
        ),
        (
            lambda: neighbour_votes(torch.ones(2, 3), torch.ones(4, 3), torch.zeros(4).long(), 2, k=0),
            "k must lie in 1 … 4, the number of known features, got 0",
        ),
        (
            lambda: neighbour_votes(torch.ones(2, 3), torch.ones(4, 3), torch.zeros(4).long(), 2, 1, temperature=0),
            "temperature must be positive, got 0",
        ),
        (
            lambda: neighbour_votes(torch.ones(2, 3), torch.ones(4, 3), torch.arange(4), 3, 2),
            r"labels must lie in 0 … 2, got 0 … 3",
        ),
        (lambda: feature_colours(torch.ones(12, 2, 3)), r"got \(12, 2, 3\)"),
        (lambda: feature_colours(torch.ones(4, 2, 3, 3)), r"three channels and three patches at least, got \(4, 2, 3"),
        (lambda: feature_colours(torch.ones(1, 8, 1, 2)), r"got \(1, 8, 1, 2\)"),
        (lambda: feature_colours(torch.ones(1, 0, 3, 1)), r"got \(1, 0, 3, 1\)"),
    ],
)
def test_bad_input_is_refused_with_what_was_expected_and_what_came(call, message):
    with pytest.raises(ValueError, match=message):
        call()

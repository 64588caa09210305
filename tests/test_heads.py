"""Heads: each equals its formula written as loops or somebody else's implementation, and the mistakes do not pass."""

import inspect
import math

import numpy as np
import properties as check
import pytest
import torch
import torch.nn.functional as F
from sklearn.decomposition import PCA
from sklearn.metrics import jaccard_score
from sklearn.neighbors import KNeighborsClassifier
from torch import nn
from torch.testing import assert_close

from vitbook import heads
from vitbook.heads import (
    Features,
    HeatmapHead,
    HiddenLayerHead,
    SegmentationHead,
    cell_centres,
    collect_features,
    feature_colours,
    feature_map,
    intersection_over_union,
    neighbour_votes,
    soft_argmax,
    target_heatmaps,
)
from vitbook.training import evaluate
from vitbook.vit import VisionTransformer

B, D, K = 2, 12, 5
ROWS, COLUMNS = GRID = check.GRID  # (2, 3) patches of 4 pixels
P = check.P


def features(batch: int = B) -> torch.Tensor:
    return torch.randn(batch, D, ROWS, COLUMNS, dtype=torch.float64)


def backbone(**changes) -> VisionTransformer:
    return check.shake(VisionTransformer(check.small_config(**changes))).double().eval()


def pictures(batch: int = B) -> torch.Tensor:
    return check.images(batch).double()


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


def heatmap_head_equals_loops(head) -> None:
    s = 3
    head = check.shake(head(D, K, s).double())
    x, weight = features(), head.proj.weight  # (D, K, s, s)
    expected = torch.empty(B, K, ROWS * s, COLUMNS * s, dtype=torch.float64)
    for y in range(ROWS * s):
        for z in range(COLUMNS * s):
            token = x[:, :, y // s, z // s]
            expected[:, :, y, z] = token @ weight[:, :, y % s, z % s] + head.proj.bias
    assert_close(head(x), expected)


def certain_heatmap_means_its_cell(soft_argmax) -> None:
    rows, columns, cell = 3, 5, 4.0
    for row in range(rows):
        for column in range(columns):
            certain = torch.full((B, K, rows, columns), -math.inf, dtype=torch.float64)
            certain[..., row, column] = 1.7
            # columns 0 … 3 are the cell of column 0: its centre is 1.5
            expected = torch.tensor([1.5 + 4 * column, 1.5 + 4 * row], dtype=torch.float64)
            assert_close(soft_argmax(certain, cell), expected.expand(B, K, 2))


def any_heatmap_means_its_centre_of_mass(soft_argmax) -> None:
    rows, columns, cell = 3, 5, 2.0
    scores = torch.randn(B, K, rows, columns, dtype=torch.float64)
    mass = scores.exp()
    expected = torch.zeros(B, K, 2, dtype=torch.float64)
    for row in range(rows):
        for column in range(columns):
            place = torch.tensor([2.0 * column + 0.5, 2.0 * row + 0.5], dtype=torch.float64)
            expected += mass[..., row, column, None] * place / mass.sum(dim=(-1, -2))[..., None]
    assert_close(soft_argmax(scores, cell), expected)


def target_equals_gaussian(target_heatmaps) -> None:
    rows, columns, cell, sigma = 4, 6, 3.0, 2.5
    points = torch.rand(B, K, 2, dtype=torch.float64) * torch.tensor([18.0, 12.0])
    expected = torch.zeros(B, K, rows, columns, dtype=torch.float64)
    for row in range(rows):
        for column in range(columns):
            centre = torch.tensor([3.0 * column + 1, 3.0 * row + 1], dtype=torch.float64)  # pixels 0, 1, 2: 1
            expected[..., row, column] = (-(points - centre).square().sum(dim=-1) / (2 * sigma**2)).exp()
    expected /= expected.sum(dim=(-1, -2), keepdim=True)
    assert_close(target_heatmaps(points, (rows, columns), cell, sigma), expected)


def segmentation_equals_loops(head) -> None:
    head = check.shake(head(D, K, P).double())
    x = features()
    scores = torch.einsum("bdhw,kd->bkhw", x, head.proj.weight.flatten(1)) + head.proj.bias[:, None, None]

    def neighbours(pixel, count):  # the two patches between whose centres a pixel lies, and the second's share
        place = min(max((pixel + 0.5) / P - 0.5, 0), count - 1)
        first = min(int(place), count - 2)
        return first, place - first

    expected = torch.empty(B, K, ROWS * P, COLUMNS * P, dtype=torch.float64)
    for y in range(ROWS * P):
        for z in range(COLUMNS * P):
            (row, down), (column, right) = neighbours(y, ROWS), neighbours(z, COLUMNS)
            top, bottom = scores[:, :, row], scores[:, :, row + 1]
            line = top + down * (bottom - top)
            expected[:, :, y, z] = line[..., column] + right * (line[..., column + 1] - line[..., column])
    assert_close(head(x), expected)


def iou_equals_scikit_learn(iou) -> None:
    predicted, labels = torch.randint(K, (2, B, 7, 11))
    labels[1, :, 3:] = 0
    expected = jaccard_score(labels.flatten(), predicted.flatten(), labels=range(K), average=None)
    assert_close(iou(predicted, labels, K), torch.from_numpy(expected))


def hidden_layer_equals_formula(head) -> None:
    head = check.shake(head(D, 7, K).double())
    x = torch.randn(B, D, dtype=torch.float64)
    hidden = x @ head.pre_logits.weight.T + head.pre_logits.bias
    hidden = (hidden.exp() - (-hidden).exp()) / (hidden.exp() + (-hidden).exp())
    assert_close(head(x), hidden @ head.head.weight.T + head.head.bias)


def first_loss_is_log_k(head) -> None:
    scores = head(D, 7, K)(torch.randn(B, D))
    assert_close(F.cross_entropy(scores, torch.tensor([1, 4])), torch.tensor(math.log(K)))


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


class CellsTransposed(HeatmapHead):
    def forward(self, x):
        return F.conv_transpose2d(x, self.proj.weight.mT, self.proj.bias, stride=self.proj.stride)


class OneCellRepeated(HeatmapHead):
    def forward(self, x):
        weight = self.proj.weight[..., :1, :1].expand_as(self.proj.weight)
        return F.conv_transpose2d(x, weight, self.proj.bias, stride=self.proj.stride)


def corners_for_centres(heatmaps, cell):
    return soft_argmax(heatmaps, cell) - (cell - 1) / 2


def half_pixel_too_far(heatmaps, cell):
    return soft_argmax(heatmaps, cell) + 0.5


def y_before_x(heatmaps, cell):
    return soft_argmax(heatmaps, cell).flip(-1)


def in_cells_for_pixels(heatmaps, cell):
    return soft_argmax(heatmaps, 1.0)


def softmax_over_each_row(heatmaps, cell):
    return soft_argmax(heatmaps.nan_to_num(neginf=-1e9).log_softmax(dim=-1), cell)


def softmax_over_the_keypoints(heatmaps, cell):
    return soft_argmax(heatmaps.nan_to_num(neginf=-1e9).softmax(dim=1).log(), cell)


def hard_argmax(heatmaps, cell):
    certain = F.one_hot(heatmaps.flatten(-2).argmax(dim=-1), heatmaps[0, 0].numel()).view_as(heatmaps)
    return soft_argmax(certain.to(heatmaps).log(), cell)


def target_of_y_before_x(points, grid, cell, sigma):
    return target_heatmaps(points.flip(-1), grid, cell, sigma)


def sigma_in_cells(points, grid, cell, sigma):
    return target_heatmaps(points, grid, cell, sigma * cell)


def sigma_without_its_square(points, grid, cell, sigma):
    return target_heatmaps(points, grid, cell, math.sqrt(sigma))


def height_one(points, grid, cell, sigma):
    target = target_heatmaps(points, grid, cell, sigma)
    return target / target.amax(dim=(-1, -2), keepdim=True)


def target_on_the_corners(points, grid, cell, sigma):
    return target_heatmaps(points - (cell - 1) / 2, grid, cell, sigma)


class CornersAligned(SegmentationHead):
    def forward(self, x):
        return F.interpolate(self.proj(x), scale_factor=self.patch_size, mode="bilinear", align_corners=True)


class BlocksOfPixels(SegmentationHead):
    def forward(self, x):
        return F.interpolate(self.proj(x), scale_factor=self.patch_size, mode="nearest")


class SoftmaxInside(SegmentationHead):
    def forward(self, x):
        return super().forward(x).softmax(dim=1)


def share_of_the_labels(predicted, labels, num_classes):
    agree = predicted == labels
    return torch.stack([agree[labels == k].double().mean() for k in range(num_classes)])


def share_of_the_predictions(predicted, labels, num_classes):
    return share_of_the_labels(labels, predicted, num_classes)


def dice(predicted, labels, num_classes):
    iou = intersection_over_union(predicted, labels, num_classes)
    return 2 * iou / (1 + iou)


def mean_over_pictures(predicted, labels, num_classes):
    pairs = zip(predicted, labels, strict=True)
    return torch.stack([intersection_over_union(*pair, num_classes) for pair in pairs]).nanmean(dim=0)


class NoTanh(HiddenLayerHead):
    def forward(self, x):
        return self.head(self.pre_logits(x))


class GeluForTanh(HiddenLayerHead):
    def forward(self, x):
        return self.head(F.gelu(self.pre_logits(x)))


class TanhTwice(HiddenLayerHead):
    def forward(self, x):
        return super().forward(x).tanh()


class OutputStartsAtRandom(HiddenLayerHead):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.head.reset_parameters()


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
    (heatmap_head_equals_loops, HeatmapHead, [CellsTransposed, OneCellRepeated]),
    (
        certain_heatmap_means_its_cell,
        soft_argmax,
        [corners_for_centres, half_pixel_too_far, y_before_x, in_cells_for_pixels, softmax_over_each_row],
    ),
    (
        any_heatmap_means_its_centre_of_mass,
        soft_argmax,
        [
            *(corners_for_centres, half_pixel_too_far, y_before_x, in_cells_for_pixels),
            *(softmax_over_each_row, softmax_over_the_keypoints, hard_argmax),
        ],
    ),
    (
        target_equals_gaussian,
        target_heatmaps,
        [target_of_y_before_x, sigma_in_cells, sigma_without_its_square, height_one, target_on_the_corners],
    ),
    (segmentation_equals_loops, SegmentationHead, [CornersAligned, BlocksOfPixels, SoftmaxInside]),
    (
        iou_equals_scikit_learn,
        intersection_over_union,
        [share_of_the_labels, share_of_the_predictions, dice, mean_over_pictures],
    ),
    (hidden_layer_equals_formula, HiddenLayerHead, [NoTanh, GeluForTanh, TanhTwice]),
    (first_loss_is_log_k, HiddenLayerHead, [OutputStartsAtRandom]),
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


def name(value) -> str:
    return value.__name__


@pytest.mark.parametrize(("test", "right"), [row[:2] for row in TABLE], ids=name)
def test_the_right_implementation_passes(test, right):
    test(right)


@pytest.mark.parametrize(("test", "variant"), [(row[0], v) for row in TABLE for v in row[2]], ids=name)
def test_the_wrong_variant_is_rejected(test, variant):
    with pytest.raises(AssertionError):
        test(variant)


# Maps and places


def test_whatever_precedes_the_patches_is_left_away():
    model = backbone()
    right = feature_map(model, images := pictures())
    tokens = model.tokens(images)
    model.tokens = lambda _: torch.cat([tokens[:, :1], tokens], dim=1)  # a second token before the patches
    assert_close(feature_map(model, images), right)


def test_a_heatmap_head_that_knows_nothing_says_the_middle_of_the_picture():
    heatmaps = HeatmapHead(D, K, 3).double()(features())
    middle = torch.tensor([(COLUMNS * P - 1) / 2, (ROWS * P - 1) / 2], dtype=torch.float64)
    assert_close(soft_argmax(heatmaps, P / 3), middle.expand(B, K, 2))


def test_soft_argmax_of_the_logarithm_of_a_target_is_the_point():
    points = torch.rand(3, K, 2, dtype=torch.float64) * 10 + 15  # five sigma from each side
    targets = target_heatmaps(points, (20, 22), cell=2.0, sigma=3.0)
    assert_close(soft_argmax(targets.log(), 2.0), points, atol=1e-4, rtol=0)


def test_a_symmetric_heatmap_means_its_centre():
    rows = torch.tensor([0.0, 2.0, 3.0, 2.0, 0.0], dtype=torch.float64)  # about row 2
    columns = torch.tensor([1.0, 4.0, 4.0, 1.0], dtype=torch.float64)  # about the border of columns 1 and 2
    assert_close(soft_argmax(rows[:, None] + columns, 6.0), torch.tensor([11.5, 14.5], dtype=torch.float64))


def test_soft_argmax_does_not_see_a_constant_and_has_the_right_gradient():
    scores = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    assert_close(soft_argmax(scores + 700, 2.0), soft_argmax(scores, 2.0))
    assert torch.autograd.gradcheck(lambda x: soft_argmax(x, 2.0), scores)


def test_cells_tile_the_picture():
    assert_close(cell_centres(3, 1), torch.tensor([0.0, 1.0, 2.0]))  # cells of one pixel: the pixels
    assert_close(cell_centres(2, 4), torch.tensor([1.5, 5.5]))
    assert_close(cell_centres(4, 0.5), torch.tensor([-0.25, 0.25, 0.75, 1.25]))


def test_a_target_is_a_distribution_as_wide_as_sigma_wherever_the_point_lies():
    points = torch.tensor([[40.0, 30.0], [0.0, 0.0], [-50.0, 200.0]], dtype=torch.float64)
    targets = target_heatmaps(points, (30, 40), cell=2.0, sigma=5.0)
    assert_close(targets.sum(dim=(-1, -2)), torch.ones(3, dtype=torch.float64))
    along_x = targets[0].sum(dim=0)
    centres = cell_centres(40, 2.0).double()
    assert_close(along_x @ (centres - 40).square(), torch.tensor(25.0, dtype=torch.float64), rtol=1e-3, atol=0)


# Heads


@pytest.mark.parametrize("head", [HeatmapHead(D, K, 2), SegmentationHead(D, K, P), HiddenLayerHead(D, 7, K)], ids=type)
def test_a_head_starts_by_preferring_nothing_and_its_gradient_reaches_the_backbone_from_then_on(head):
    model = check.shake(VisionTransformer(check.small_config(num_classes=0)))
    dense = not isinstance(head, HiddenLayerHead)

    def loss():
        output = head(feature_map(model, images) if dense else model.features(images))
        return (output * torch.linspace(-1, 1, output.numel()).view_as(output)).sum(), output

    images = check.images()
    first, output = loss()
    assert output.count_nonzero() == 0
    first.backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    assert all(gradient.count_nonzero() == 0 for gradient in gradients)
    check.shake(head)
    loss()[0].backward()
    assert all(p.grad.count_nonzero() > 0 for p in [*model.encoder.parameters(), *head.parameters()])


def test_the_heads_are_as_large_as_they_should_be():
    def count(module):
        return sum(p.numel() for p in module.parameters())

    assert count(HeatmapHead(D, K, 3)) == D * K * 9 + K
    assert count(SegmentationHead(D, K, P)) == D * K + K
    assert count(HiddenLayerHead(D, 7, K)) == D * 7 + 7 + 7 * K + K


def test_a_hidden_layer_takes_the_place_of_a_models_head():
    model = backbone()
    model.head = check.shake(HiddenLayerHead(D, 7, K)).double()
    assert_close(model(images := pictures()), model.head(model.features(images)))
    assert model(images).shape == (B, K)


def test_the_hidden_layer_starts_as_the_encoder_does():
    weight = HiddenLayerHead(300, 200, K).pre_logits.weight
    assert_close(weight.std(), torch.tensor(math.sqrt(2 / 500)), rtol=0.02, atol=0)
    assert weight.abs().max() <= math.sqrt(6 / 500)


def test_intersection_over_union_of_two_shifted_squares():
    labels, predicted = torch.zeros(2, 30, 40, dtype=torch.int64)
    labels[10:22, 10:22] = 1
    predicted[10:22, 13:25] = 1
    iou = intersection_over_union(predicted, labels, 3)
    assert_close(iou[1], torch.tensor(9 * 12 / (2 * 144 - 9 * 12), dtype=torch.float64))
    assert iou[2].isnan()  # nobody has that class


# Features


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


def test_colours_fill_the_scale_and_ignore_what_all_patches_share():
    maps = features(4)
    colours = feature_colours(maps)
    assert colours.shape == (4, 3, ROWS, COLUMNS)
    assert_close(colours.amin(dim=(0, 2, 3)), torch.zeros(3, dtype=torch.float64))
    assert_close(colours.amax(dim=(0, 2, 3)), torch.ones(3, dtype=torch.float64))
    assert_close(feature_colours(maps + torch.randn(D, 1, 1, dtype=torch.float64)), colours)
    assert feature_colours(torch.ones(1, D, ROWS, COLUMNS)).isfinite().all()  # no differences at all


# Arguments and bad input

MODEL, OTHER = backbone(), backbone()
X = check.images(3).double()
VOTES = dict(zip(("queries", "bank", "labels"), known(), strict=True))
ARGUMENTS = {
    feature_map: (dict(backbone=MODEL, images=X), dict(backbone=OTHER, images=-X)),
    HeatmapHead: (
        dict(dim=D, num_keypoints=K, cells_per_patch=2),
        dict(dim=13, num_keypoints=4, cells_per_patch=3),
        features().float(),
    ),
    cell_centres: (dict(count=3, cell=2), dict(count=4, cell=3)),
    soft_argmax: (dict(heatmaps=features(), cell=2), dict(heatmaps=-features(), cell=3)),
    target_heatmaps: (
        dict(points=torch.rand(K, 2) * 9, grid=(4, 5), cell=2, sigma=1.5),
        dict(points=torch.rand(K, 2) * 7, grid=(5, 4), cell=3, sigma=2.0),
    ),
    SegmentationHead: (
        dict(dim=D, num_classes=K, patch_size=4),
        dict(dim=13, num_classes=4, patch_size=3),
        features().float(),
    ),
    intersection_over_union: (
        dict(predicted=torch.arange(6) % K, labels=torch.arange(6) % 4, num_classes=K),
        dict(predicted=torch.arange(6) % 3, labels=torch.arange(6) % 2, num_classes=7),
    ),
    HiddenLayerHead: (
        dict(dim=D, hidden_dim=7, num_classes=K),
        dict(dim=13, hidden_dim=8, num_classes=4),
        torch.randn(B, D),
    ),
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
    feature_colours: (dict(maps=features(4)), dict(maps=features(3))),
}


@pytest.mark.parametrize("function", ARGUMENTS, ids=name)
def test_every_argument_has_an_effect(function):
    check.each_argument_counts(function, *ARGUMENTS[function])


def test_the_table_of_arguments_is_complete():
    own = {value for value in vars(heads).values() if getattr(value, "__module__", None) == heads.__name__}
    public = {value for value in own if inspect.isroutine(value) or inspect.isclass(value)}
    assert public - {heads.start_at_zero, heads.check_classes, heads.check_map} == set(ARGUMENTS)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: soft_argmax(torch.ones(3), 2), r"\(\.\.\., rows, columns\), got \(3,\)"),
        (lambda: soft_argmax(torch.ones(3, 4), 0), "cell must be a positive number, got 0"),
        (lambda: target_heatmaps(torch.ones(2, 3), (4, 5), 2, 1.0), r"\(\.\.\., 2\), x and y in pixels, got \(2, 3\)"),
        (lambda: target_heatmaps(torch.tensor(1.0), (4, 5), 2, 1.0), r"\(\.\.\., 2\), x and y in pixels, got \(\)"),
        (lambda: target_heatmaps(torch.ones(2), (4, 5), 2, 0.0), "sigma must be a positive number, got 0.0"),
        (lambda: target_heatmaps(torch.ones(2), (4, 5), -1, 1.0), "cell must be a positive number, got -1"),
        (
            lambda: intersection_over_union(torch.zeros(2, 3).long(), torch.zeros(3, 2).long(), 4),
            r"labels' shape \(3, 2\), got \(2, 3\)",
        ),
        (
            lambda: intersection_over_union(torch.tensor([4]), torch.tensor([3]), 4),
            r"predicted must lie in 0 … 3, got 4 … 4",
        ),
        (
            lambda: intersection_over_union(torch.tensor([0]), torch.tensor([-1]), 4),
            r"labels must lie in 0 … 3, got -1 … -1",
        ),
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

"""Heads: each equals its formula written as loops or somebody else's implementation, and the mistakes do not pass."""

import math

import properties as check
import pytest
import torch
import torch.nn.functional as F
from properties import backbone, pictures
from sklearn.metrics import jaccard_score
from tables import accepted_and_rejected, defined_in, name
from torch.testing import assert_close

from vitbook import heads
from vitbook.features import feature_map
from vitbook.heads import (
    HeatmapHead,
    HiddenLayerHead,
    SegmentationHead,
    cell_centres,
    intersection_over_union,
    soft_argmax,
    target_heatmaps,
)
from vitbook.vit import VisionTransformer

B, D, K = 2, 12, 5
ROWS, COLUMNS = GRID = check.GRID  # (2, 3) patches of 4 pixels
P = check.P


def features(batch: int = B) -> torch.Tensor:
    return torch.randn(batch, D, ROWS, COLUMNS, dtype=torch.float64)


# The checks, each of one implementation


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


# The smallest wrong variants of what the module computes


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


TABLE = [
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
]

test_the_right_implementation_passes, test_the_wrong_variant_is_rejected = accepted_and_rejected(TABLE)


# Places


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


# Arguments and bad input

ARGUMENTS = {
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
}


@pytest.mark.parametrize("function", ARGUMENTS, ids=name)
def test_every_argument_has_an_effect(function):
    check.each_argument_counts(function, *ARGUMENTS[function])


def test_the_table_of_arguments_is_complete():
    assert defined_in(heads) - {heads.start_at_zero, heads.check_map} == set(ARGUMENTS)


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
    ],
)
def test_bad_input_is_refused_with_what_was_expected_and_what_came(call, message):
    with pytest.raises(ValueError, match=message):
        call()

"""Heads: each equals its formula written as loops or somebody else's implementation, and the mistakes do not pass."""

import math

import properties as check
import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import jaccard_score
from tables import accepted_and_rejected
from torch.testing import assert_close

from vitbook.features import feature_map
from vitbook.heads import (
    HeatmapHead,
    HiddenLayerHead,
    SegmentationHead,
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


def any_heatmap_means_its_center_of_mass(soft_argmax) -> None:
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
            center = torch.tensor([3.0 * column + 1, 3.0 * row + 1], dtype=torch.float64)  # pixels 0, 1, 2: 1
            expected[..., row, column] = (-(points - center).square().sum(dim=-1) / (2 * sigma**2)).exp()
    expected /= expected.sum(dim=(-1, -2), keepdim=True)
    assert_close(target_heatmaps(points, (rows, columns), cell, sigma), expected)


def segmentation_equals_loops(head) -> None:
    head = check.shake(head(D, K, P).double())
    x = features()
    scores = torch.einsum("bdhw,kd->bkhw", x, head.proj.weight.flatten(1)) + head.proj.bias[:, None, None]

    def neighbours(pixel, count):  # the two patches between whose centers a pixel lies, and the second's share
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
    assert iou(predicted, labels, K + 1)[K].isnan(), "nobody has that class"


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


class CornersAligned(SegmentationHead):
    def forward(self, x):
        return F.interpolate(self.proj(x), scale_factor=self.patch_size, mode="bilinear", align_corners=True)


class BlocksOfPixels(SegmentationHead):
    def forward(self, x):
        return F.interpolate(self.proj(x), scale_factor=self.patch_size, mode="nearest")


class NoTanh(HiddenLayerHead):
    def forward(self, x):
        return self.head(self.pre_logits(x))


class TanhTwice(HiddenLayerHead):
    def forward(self, x):
        return super().forward(x).tanh()


class OutputStartsAtRandom(HiddenLayerHead):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.head.reset_parameters()


def hard_argmax(heatmaps, cell):
    certain = F.one_hot(heatmaps.flatten(-2).argmax(dim=-1), heatmaps[0, 0].numel()).view_as(heatmaps)
    return soft_argmax(certain.to(heatmaps).log(), cell)


def height_one(points, grid, cell, sigma):
    target = target_heatmaps(points, grid, cell, sigma)
    return target / target.amax(dim=(-1, -2), keepdim=True)


def share_of_the_labels(predicted, labels, num_classes):
    agree = predicted == labels
    return torch.stack([agree[labels == k].double().mean() for k in range(num_classes)])


def dice(predicted, labels, num_classes):
    iou = intersection_over_union(predicted, labels, num_classes)
    return 2 * iou / (1 + iou)


def mean_over_images(predicted, labels, num_classes):
    pairs = zip(predicted, labels, strict=True)
    return torch.stack([intersection_over_union(*pair, num_classes) for pair in pairs]).nanmean(dim=0)


TABLE = [
    (heatmap_head_equals_loops, HeatmapHead, [CellsTransposed, OneCellRepeated]),
    (
        any_heatmap_means_its_center_of_mass,
        soft_argmax,
        [
            hard_argmax,
            lambda maps, cell: soft_argmax(maps, cell) - (cell - 1) / 2,  # corners for centers
            lambda maps, cell: soft_argmax(maps, cell) + 0.5,  # half a pixel too far
            lambda maps, cell: soft_argmax(maps, cell).flip(-1),  # y before x
            lambda maps, cell: soft_argmax(maps, 1.0),  # in cells for pixels
            lambda maps, cell: soft_argmax(maps.log_softmax(dim=-1), cell),  # softmax over each row
        ],
    ),
    (
        target_equals_gaussian,
        target_heatmaps,
        [
            height_one,
            lambda points, grid, cell, sigma: target_heatmaps(points.flip(-1), grid, cell, sigma),  # y before x
            lambda points, grid, cell, sigma: target_heatmaps(points, grid, cell, sigma * cell),  # sigma in cells
            lambda points, grid, cell, sigma: target_heatmaps(points, grid, cell, math.sqrt(sigma)),  # not squared
            lambda points, grid, cell, sigma: target_heatmaps(points - 1, grid, cell, sigma),  # on the corners
        ],
    ),
    (segmentation_equals_loops, SegmentationHead, [CornersAligned, BlocksOfPixels]),
    (iou_equals_scikit_learn, intersection_over_union, [share_of_the_labels, dice, mean_over_images]),
    (hidden_layer_equals_formula, HiddenLayerHead, [NoTanh, TanhTwice]),
    (first_loss_is_log_k, HiddenLayerHead, [OutputStartsAtRandom]),
]

test_the_right_implementation_passes, test_the_wrong_variant_is_rejected = accepted_and_rejected(TABLE)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_target_far_from_every_cell_is_finite_in_any_precision(dtype):
    """In float16 the square of 256 pixels is infinite."""
    points = torch.tensor([[40.0, 30.0], [1000.0, -900.0]], dtype=dtype)
    targets = target_heatmaps(points, (30, 40), cell=2.0, sigma=5.0)
    assert targets.dtype == dtype and targets.isfinite().all()
    expected = target_heatmaps(points.double(), (30, 40), cell=2.0, sigma=5.0)
    assert_close(targets.double(), expected, atol=torch.finfo(dtype).eps, rtol=torch.finfo(dtype).eps)


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


@pytest.mark.door
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: target_heatmaps(torch.ones(2), (4, 5), 2, 0.0), "sigma must be above 0, got 0.0"),
        (
            lambda: intersection_over_union(torch.zeros(2, 3).long(), torch.zeros(3, 2).long(), 4),
            r"labels' shape \(3, 2\), got \(2, 3\)",
        ),
        (lambda: intersection_over_union(torch.tensor([4]), torch.tensor([3]), 4), "predicted must lie in 0 … 3"),
        (lambda: intersection_over_union(torch.tensor([0]), torch.tensor([-1]), 4), "labels must lie in 0 … 3"),
    ],
)
def test_what_would_be_silently_wrong_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()

"""Heads: each equals its formula written as loops, or somebody else's implementation."""

import math

import properties as check
import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import jaccard_score
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


def test_a_heatmap_head_equals_loops():
    s = 3
    head = check.shake(HeatmapHead(D, K, s).double())
    x, weight = features(), head.proj.weight  # (D, K, s, s)
    expected = torch.empty(B, K, ROWS * s, COLUMNS * s, dtype=torch.float64)
    for y in range(ROWS * s):
        for z in range(COLUMNS * s):
            token = x[:, :, y // s, z // s]
            expected[:, :, y, z] = token @ weight[:, :, y % s, z % s] + head.proj.bias
    assert_close(head(x), expected)


def test_any_heatmap_means_its_center_of_mass():
    rows, columns, cell = 3, 5, 2.0
    scores = torch.randn(B, K, rows, columns, dtype=torch.float64)
    mass = scores.exp()
    expected = torch.zeros(B, K, 2, dtype=torch.float64)
    for row in range(rows):
        for column in range(columns):
            place = torch.tensor([2.0 * column + 0.5, 2.0 * row + 0.5], dtype=torch.float64)
            expected += mass[..., row, column, None] * place / mass.sum(dim=(-1, -2))[..., None]
    assert_close(soft_argmax(scores, cell), expected)


def test_a_target_equals_a_gaussian():
    rows, columns, cell, sigma = 4, 6, 3.0, 2.5
    points = torch.rand(B, K, 2, dtype=torch.float64) * torch.tensor([18.0, 12.0])
    expected = torch.zeros(B, K, rows, columns, dtype=torch.float64)
    for row in range(rows):
        for column in range(columns):
            center = torch.tensor([3.0 * column + 1, 3.0 * row + 1], dtype=torch.float64)  # pixels 0, 1, 2: 1
            expected[..., row, column] = (-(points - center).square().sum(dim=-1) / (2 * sigma**2)).exp()
    expected /= expected.sum(dim=(-1, -2), keepdim=True)
    assert_close(target_heatmaps(points, (rows, columns), cell, sigma), expected)


def test_a_segmentation_head_equals_loops():
    head = check.shake(SegmentationHead(D, K, P).double())
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


def test_intersection_over_union_equals_scikit_learns():
    predicted, labels = torch.randint(K, (2, B, 7, 11))
    labels[1, :, 3:] = 0
    expected = jaccard_score(labels.flatten(), predicted.flatten(), labels=range(K), average=None)
    assert_close(intersection_over_union(predicted, labels, K), torch.from_numpy(expected))
    assert intersection_over_union(predicted, labels, K + 1)[K].isnan(), "nobody has that class"


def test_a_hidden_layer_equals_its_formula_and_starts_at_log_k():
    head = check.shake(HiddenLayerHead(D, 7, K).double())
    x = torch.randn(B, D, dtype=torch.float64)
    hidden = x @ head.pre_logits.weight.T + head.pre_logits.bias
    hidden = (hidden.exp() - (-hidden).exp()) / (hidden.exp() + (-hidden).exp())
    assert_close(head(x), hidden @ head.head.weight.T + head.head.bias)
    scores = HiddenLayerHead(D, 7, K)(torch.randn(B, D))
    assert_close(F.cross_entropy(scores, torch.tensor([1, 4])), torch.tensor(math.log(K)))


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

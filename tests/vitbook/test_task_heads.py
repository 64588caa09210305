"""Heads: each equals its formula written as loops, or somebody else's implementation."""

import math
from itertools import permutations

import pytest
import small_models
import torch
import torch.nn.functional as F
from sklearn.metrics import average_precision_score, jaccard_score
from torch.testing import assert_close

from vitbook.features import feature_map
from vitbook.task_heads import (
    HeatmapHead,
    HiddenLayerHead,
    SegmentationHead,
    SetPredictionHead,
    average_precision,
    box_iou,
    hits,
    intersection_over_union,
    match,
    set_prediction_loss,
    soft_argmax,
    target_heatmaps,
)
from vitbook.vit import VisionTransformer

B, D, K = 2, 12, 5
ROWS, COLUMNS = GRID = small_models.GRID  # (2, 3) patches of 4 pixels
P = small_models.P


def features(batch: int = B) -> torch.Tensor:
    return torch.randn(batch, D, ROWS, COLUMNS, dtype=torch.float64)


def test_a_heatmap_head_equals_loops():
    s = 3
    head = small_models.shake(HeatmapHead(D, K, s).double())
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
    head = small_models.shake(SegmentationHead(D, K, P).double())
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


def guesses(count: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits of K classes and "nothing", (B, N, K + 1), and boxes, (B, N, 4)."""
    generator = torch.Generator().manual_seed(seed)
    boxes = 0.1 + 0.8 * torch.rand(B, count, 4, generator=generator, dtype=torch.float64)
    return torch.randn(B, count, K + 1, generator=generator, dtype=torch.float64), boxes


def test_a_box_lies_on_its_patch_until_the_token_moves_it():
    head = SetPredictionHead(D, K).double()
    logits, boxes = head(features())
    assert logits.shape == (B, ROWS * COLUMNS, K + 1) and logits.count_nonzero() == 0
    for n in range(ROWS * COLUMNS):
        row, column = divmod(n, COLUMNS)
        place = [(column + 0.5) / COLUMNS, (row + 0.5) / ROWS, 0.25, 0.25]
        assert_close(boxes[:, n], torch.tensor([place] * B, dtype=torch.float64))
    x = features()
    logits, boxes = small_models.shake(head)(x)
    token = x[:, :, 1, 2]  # of the last patch
    assert_close(logits[:, -1], token @ head.classes.weight.T + head.classes.bias)
    start = torch.tensor([2.5 / 3, 1.5 / 2, 0.25, 0.25], dtype=torch.float64)
    assert_close(boxes[:, -1].logit(), token @ head.boxes.weight.T + head.boxes.bias + start.logit())


def test_the_match_is_the_cheapest_of_all_assignments():
    logits, boxes = guesses(6)
    labels, true = torch.tensor([3, 0, 3]), guesses(3, seed=1)[1][0]
    p = logits[0].softmax(dim=-1)

    def cost(chosen):
        pairs = zip(chosen, labels, true, strict=True)
        return sum(5 * (boxes[0, guess] - box).abs().sum() - p[guess, label] for guess, label, box in pairs)

    chosen = match(p, boxes[0], labels, true).tolist()
    assert chosen == list(min(permutations(range(6), 3), key=cost))


def test_the_loss_of_a_set_equals_loops_and_does_not_know_its_order():
    logits, boxes = guesses(6)
    labels = [torch.tensor([3, 0, 3]), torch.empty(0, dtype=torch.long)]  # nothing in the second image
    true = [guesses(3, seed=1)[1][0], torch.empty(0, 4, dtype=torch.float64)]
    held, chosen = torch.full((B, 6), K), match(logits[0].softmax(dim=-1), boxes[0], labels[0], true[0])
    distance = 0.0
    for guess, label, box in zip(chosen, labels[0], true[0], strict=True):
        held[0, guess] = label
        distance += (boxes[0, guess] - box).abs().sum()
    total = weight = 0.0
    for image in range(B):
        for guess in range(6):
            share = 0.1 if held[image, guess] == K else 1.0
            total -= share * logits[image, guess].log_softmax(dim=0)[held[image, guess]]
            weight += share
    expected = total / weight + 5 * distance / 3
    assert_close(set_prediction_loss(logits, boxes, labels, true), expected)
    turned = [torch.tensor([2, 0, 1]), torch.tensor([], dtype=torch.long)]
    labels, true = ([part[order] for part, order in zip(parts, turned, strict=True)] for parts in (labels, true))
    assert_close(set_prediction_loss(logits, boxes, labels, true), expected)


def test_the_iou_of_boxes_equals_that_of_their_pixels():
    some = torch.tensor([[5.0, 5, 6, 4], [9, 8, 2, 8]], dtype=torch.float64)
    others = torch.tensor([[6.0, 6, 6, 4], [5, 5, 6, 4], [15, 15, 2, 2]], dtype=torch.float64)

    def pixels(box):
        grid = torch.zeros(20, 20, dtype=torch.long)
        x, y, width, height = box.long().tolist()
        grid[y - height // 2 : y + height // 2, x - width // 2 : x + width // 2] = 1
        return grid

    expected = [[jaccard_score(pixels(a).flatten(), pixels(b).flatten()) for b in others] for a in some]
    assert_close(box_iou(some, others), torch.tensor(expected, dtype=torch.float64))


def test_a_guess_takes_a_free_object_and_the_second_guess_at_it_is_wrong():
    iou = torch.tensor([[0.9, 0.0], [0.8, 0.6], [0.7, 0.0], [0.0, 0.4]])
    scores = torch.tensor([0.3, 0.9, 0.5, 0.8])
    # the best takes the first object, at 0.8; the fourth overlaps too little; the third and first come too late
    assert hits(scores, iou).tolist() == [False, True, False, False]
    assert hits(scores, iou, threshold=0.3).tolist() == [False, True, False, True]
    assert hits(scores, torch.empty(4, 0)).tolist() == [False] * 4


def test_average_precision_equals_scikit_learns():
    scores, right = torch.rand(40, dtype=torch.float64), torch.rand(40) < 0.3
    found = right.sum().item()
    expected = average_precision_score(right, scores)
    assert average_precision(scores, right, found) == pytest.approx(expected)
    # half of the objects were never found: recall ends at one half
    assert average_precision(scores, right, 2 * found) == pytest.approx(expected / 2)


def test_detections_are_judged_on_the_device_where_they_are():
    scores, iou = torch.tensor([0.9, 0.8]), torch.tensor([[0.7], [0.6]])
    with torch.device("meta"):  # where all that names no device is made
        right = hits(scores, iou)
        assert right.tolist() == [True, False] and average_precision(scores, right, 2) == 0.5


def test_a_hidden_layer_equals_its_formula_and_starts_at_log_k():
    head = small_models.shake(HiddenLayerHead(D, 7, K).double())
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
    model = small_models.shake(VisionTransformer(small_models.small_config(num_classes=0)))
    dense = not isinstance(head, HiddenLayerHead)

    def loss():
        output = head(feature_map(model, images) if dense else model.features(images))
        return (output * torch.linspace(-1, 1, output.numel()).view_as(output)).sum(), output

    images = small_models.images()
    first, output = loss()
    assert output.count_nonzero() == 0
    first.backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    assert all(gradient.count_nonzero() == 0 for gradient in gradients)
    small_models.shake(head)
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

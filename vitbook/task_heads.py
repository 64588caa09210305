"""What else can sit on a backbone: a head for places, for pixels, for boxes or for classes.

A head reads what `vitbook.features` describes: one vector an image, (B, D), or a feature map, (B, D, H', W') with
H' = H/P rows and W' = W/P columns.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from vitbook.features import feature_map
from vitbook.positions import Grid
from vitbook.vit import VisionTransformer

# Places: keypoints as heatmaps


class HeatmapHead(nn.Module):
    """A heatmap for each keypoint, s×s cells a patch, linear in the patch's token. (B, D, H', W') → (B, K, sH', sW').

    The patch embedding turned round: there a convolution whose stride is its size, here a transposed one. A softmax
    over a map's cells gives the probability that the keypoint lies in each. Weights start at zero: all cells alike.

    Differs: ViTPose (Xu et al. 2022) has two more layers, and regresses heatmaps by their squared error.
    """

    def __init__(self, dim: int, num_keypoints: int, cells_per_patch: int):
        super().__init__()
        self.proj = nn.ConvTranspose2d(dim, num_keypoints, kernel_size=cells_per_patch, stride=cells_per_patch)
        start_at_zero(self.proj)

    def forward(self, features: Float[Tensor, "B D rows columns"]) -> Float[Tensor, "B K down across"]:
        return self.proj(features)


def cell_centers(count: int, cell: float) -> Float[Tensor, " count"]:
    """Where the centers of `count` cells, each `cell` pixels wide, lie along an axis.

    Pixel i has its center at i, as in matplotlib's images, so that the image begins at −½.
    """
    return (torch.arange(count) + 0.5) * cell - 0.5


def soft_argmax(heatmaps: Float[Tensor, "*batch rows columns"], cell: float) -> Float[Tensor, "*batch 2"]:
    """The place that a heatmap means, x and y in pixels, to a fraction of a cell.

    The mean of all cells' centers under the softmax of the heatmap. cell: pixels along a cell's side. Sun et al. 2018
    ("Integral Human Pose Regression").
    """
    probability = heatmaps.flatten(-2).softmax(dim=-1).view_as(heatmaps)
    y, x = (cell_centers(count, cell).to(heatmaps) for count in heatmaps.shape[-2:])
    return torch.stack([probability.sum(dim=-2) @ x, probability.sum(dim=-1) @ y], dim=-1)


def target_heatmaps(
    points: Float[Tensor, "*batch 2"], grid: Grid, cell: float, sigma: float
) -> Float[Tensor, "*batch rows columns"]:
    """What a heatmap head should give: a Gaussian around each point, every map with sum 1.

    points: x and y in pixels; grid: rows and columns of cells; sigma: standard deviation in pixels. Tompson et al.
    2014. Differs: theirs has height 1 at its top, and is no distribution. Raises ValueError unless sigma is above 0.
    """
    if not sigma > 0:
        raise ValueError(f"sigma must be above 0, got {sigma}")
    along = []
    exact = points.to(torch.promote_types(points.dtype, torch.float32))  # in float16, 256² is infinite
    for coordinate, count in zip(exact.unbind(dim=-1), reversed(grid), strict=True):
        offset = coordinate.unsqueeze(-1) - cell_centers(count, cell).to(exact)
        along.append((-offset.square() / (2 * sigma**2)).softmax(dim=-1))
    x, y = along
    return (y.unsqueeze(-1) * x.unsqueeze(-2)).to(points.dtype)


# Pixels: segmentation


class SegmentationHead(nn.Module):
    """Class logits for each patch, linear in its token, stretched to pixels. (B, D, H', W') → (B, K, PH', PW').

    Bilinear interpolation of the logits, before any softmax. Strudel et al. 2021 (Segmenter, the linear decoder).
    Weights start at zero: all classes alike.
    """

    def __init__(self, dim: int, num_classes: int, patch_size: int):
        super().__init__()
        self.patch_size = patch_size
        self.proj = nn.Conv2d(dim, num_classes, kernel_size=1)
        start_at_zero(self.proj)

    def forward(self, features: Float[Tensor, "B D rows columns"]) -> Float[Tensor, "B K H W"]:
        return F.interpolate(self.proj(features), scale_factor=self.patch_size, mode="bilinear", align_corners=False)


class Segmenter(nn.Module):
    """A backbone without a head under a `SegmentationHead`. (B, C, H, W) → (B, K, H, W)."""

    def __init__(self, backbone: VisionTransformer, num_classes: int):
        super().__init__()
        self.backbone, patch_size = backbone, backbone.config.patch_size
        self.config = replace(backbone.config, num_classes=num_classes)
        self.head = SegmentationHead(backbone.config.dim, num_classes, patch_size)

    def forward(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B K H W"]:
        return self.head(feature_map(self.backbone, images))


def intersection_over_union(
    predicted: Int64[Tensor, "*shape"], labels: Int64[Tensor, "*shape"], num_classes: int
) -> Float[Tensor, " K"]:
    """For each class, the pixels in which prediction and label agree over those in which either has it.

    Classes are 0 … K − 1, pooled over all images; nan for a class that neither has. Raises ValueError where the shapes
    differ or a class is not among the K.
    """
    if predicted.shape != labels.shape:
        raise ValueError(f"predicted must have the labels' shape {tuple(labels.shape)}, got {tuple(predicted.shape)}")
    for name, classes in (("predicted", predicted), ("labels", labels)):
        if classes.numel() and not 0 <= classes.min() <= classes.max() < num_classes:
            raise ValueError(f"{name} must lie in 0 … {num_classes - 1}, got {classes.min()} … {classes.max()}")
    counts = (labels * num_classes + predicted).flatten().bincount(minlength=num_classes**2)
    counts = counts.view(num_classes, num_classes).double()  # row: label; column: prediction
    both = counts.diagonal()
    return both / (counts.sum(dim=0) + counts.sum(dim=1) - both)


# Boxes: a set of objects


class SetPredictionHead(nn.Module):
    """A guess from every patch's token: which class, the last one being "nothing", and in which box.

    (B, D, H', W') → logits (B, N, K + 1) and boxes (B, N, 4): center x, center y, width, height, as shares of the
    image's sides. Minderer et al. 2022 (OWL-ViT): a box lies on its patch until the token moves it. Weights start at
    zero: all classes alike, boxes a quarter of the image wide and high.

    Differs: OWL-ViT's boxes come from an MLP. DETR (Carion et al. 2020) has learned queries in place of patches.
    """

    def __init__(self, dim: int, num_classes: int):
        super().__init__()
        self.classes = nn.Linear(dim, num_classes + 1)
        self.boxes = nn.Linear(dim, 4)
        start_at_zero(self.classes)
        start_at_zero(self.boxes)

    def forward(
        self, features: Float[Tensor, "B D rows columns"]
    ) -> tuple[Float[Tensor, "B N classes"], Float[Tensor, "B N 4"]]:
        y, x = ((torch.arange(count).to(features) + 0.5) / count for count in features.shape[2:])
        y, x = torch.meshgrid(y, x, indexing="ij")
        on_patch = torch.stack([x, y, torch.full_like(x, 0.25), torch.full_like(x, 0.25)], dim=-1).flatten(0, 1)
        tokens = features.flatten(2).mT  # (B, N, D)
        return self.classes(tokens), (self.boxes(tokens) + on_patch.logit()).sigmoid()


def match(
    probabilities: Float[Tensor, "N classes"],
    boxes: Float[Tensor, "N 4"],
    labels: Int64[Tensor, " M"],
    true_boxes: Float[Tensor, "M 4"],
) -> Int64[Tensor, " M"]:
    """Which guess answers for each object, no guess for two, so that the sum of the costs is the least possible.

    A guess costs an object 5 ‖its box − the object's‖₁ − p(the object's class). Carion et al. 2020, Eq. 1, found by
    scipy (the Hungarian method). N ≥ M. Differs: DETR adds the generalized IoU of the boxes.
    """
    cost = 5 * torch.cdist(true_boxes, boxes, p=1) - probabilities[:, labels].mT  # (M, N)
    return torch.from_numpy(linear_sum_assignment(cost.detach().cpu())[1]).to(labels)


def set_prediction_loss(
    logits: Float[Tensor, "B N classes"],
    boxes: Float[Tensor, "B N 4"],
    labels: Sequence[Int64[Tensor, " _"]],
    true_boxes: Sequence[Float[Tensor, "_ 4"]],
    nothing: float = 0.1,
) -> Float[Tensor, ""]:
    """Each guess is held to the object that it was matched with, or to "nothing"; the order of objects has no effect.

    Cross-entropy of the classes, "nothing" weighing less because nearly all guesses are held to it, plus 5 times the
    mean L1 distance of matched boxes. labels, true_boxes: an image's objects each, (M,) and (M, 4). Carion et al. 2020,
    Eq. 2. Differs: no generalized IoU.
    """
    target = torch.full(logits.shape[:2], logits.shape[2] - 1, device=logits.device)
    distance = boxes.new_zeros(())
    for n, (classes, places) in enumerate(zip(labels, true_boxes, strict=True)):
        chosen = match(logits[n].softmax(dim=-1), boxes[n], classes, places)
        target[n, chosen] = classes
        distance = distance + (boxes[n, chosen] - places).abs().sum()
    weights = torch.ones(logits.shape[2]).to(logits)
    weights[-1] = nothing
    return F.cross_entropy(logits.mT, target, weights) + 5 * distance / max(1, sum(map(len, labels)))


def box_iou(some: Float[Tensor, "M 4"], others: Float[Tensor, "N 4"]) -> Float[Tensor, "M N"]:
    """Intersection over union of every pair of boxes, given as center x, center y, width, height."""
    (low, high), (other_low, other_high) = ((b[:, :2] - b[:, 2:] / 2, b[:, :2] + b[:, 2:] / 2) for b in (some, others))
    sides = torch.minimum(high[:, None], other_high) - torch.maximum(low[:, None], other_low)
    both = sides.clamp(min=0).prod(dim=-1)
    return both / (some[:, 2:].prod(dim=-1)[:, None] + others[:, 2:].prod(dim=-1) - both)


def hits(scores: Float[Tensor, " N"], iou: Float[Tensor, "N M"], threshold: float = 0.5) -> Bool[Tensor, " N"]:
    """Which guesses at an image's M objects of a class are right: best first, each takes a free one that it overlaps.

    iou: of each guess with each object; it takes the free object of the highest, if that is at least the threshold. A
    second guess at the same object is wrong.
    """
    right, free = torch.zeros_like(scores, dtype=torch.bool), iou.clone()
    for guess in scores.argsort(descending=True).tolist():
        if free.shape[1] and free[guess].max() >= threshold:
            right[guess] = True
            free[:, free[guess].argmax()] = -1
    return right


def average_precision(scores: Float[Tensor, " N"], right: Bool[Tensor, " N"], objects: int) -> float:
    """Mean over all objects of the precision down to the guess that found each; 0 for one that none found.

    All images' guesses at a class, in any order. The area under the steps of precision over recall, as in
    scikit-learn. Differs: Pascal VOC and COCO first raise each precision to the highest one at a larger recall.
    """
    right = right[scores.argsort(descending=True)]
    precision = right.cumsum(dim=0) / torch.arange(1, len(right) + 1, device=right.device)
    return precision[right].sum().item() / objects


# Classes: a hidden layer


class HiddenLayerHead(nn.Module):
    """The paper's head for pretraining: an MLP with one hidden layer and tanh. (B, D) → (B, K).

    Dosovitskiy et al. 2021, section 3.1 and appendix D.3; the authors' hidden layer is as wide as the tokens. It starts
    as the rest of the model does: the hidden layer Xavier-uniform, the output zero, so that the first loss is ln K.
    """

    def __init__(self, dim: int, hidden_dim: int, num_classes: int):
        super().__init__()
        self.pre_logits = nn.Linear(dim, hidden_dim)
        self.head = nn.Linear(hidden_dim, num_classes)
        nn.init.xavier_uniform_(self.pre_logits.weight)
        nn.init.zeros_(self.pre_logits.bias)
        start_at_zero(self.head)

    def forward(self, features: Float[Tensor, "B D"]) -> Float[Tensor, "B K"]:
        return self.head(torch.tanh(self.pre_logits(features)))


def start_at_zero(layer: nn.Module) -> None:
    """Set weight and bias to zero, so that a head begins by preferring nothing."""
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)

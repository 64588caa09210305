"""What else sits on a backbone: heads for places, for pixels and for classes, and what features tell without a head.

A backbone is a `VisionTransformer` under any head: `tokens` gives (B, T, D), `features` (B, D). A feature map is its
patch tokens laid out as the patches lie in the picture: (B, D, H', W') with H' = H/P rows and W' = W/P columns.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitbook.checks import (
    check_fits,
    check_floats,
    check_grids,
    check_numbers,
    check_positive,
    check_shape,
    check_sizes,
    check_tensors,
    decomposed,
)
from vitbook.training import Batches, evaluate
from vitbook.vit import VisionTransformer


def feature_map(backbone: VisionTransformer, images: Tensor) -> Tensor:
    """The patch tokens as a picture of D channels. (B, C, H, W) → (B, D, H', W'). What precedes them is left away."""
    rows, columns = backbone.embedding.grid
    return backbone.tokens(images)[:, -rows * columns :].mT.unflatten(2, (rows, columns))


def check_map(features: Tensor, layer: nn.Conv2d | nn.ConvTranspose2d) -> None:
    """Raise TypeError or ValueError unless features are a map (B, D, H', W') that a layer takes."""
    check_shape("features", features, "B", layer.in_channels, "H'", "W'")
    if 0 in features.shape[2:]:
        raise ValueError(f"features must have at least one row and one column, got {tuple(features.shape)}")
    check_fits("features", features, layer.weight)


# Places: keypoints as heatmaps


class HeatmapHead(nn.Module):
    """A heatmap for each keypoint, s×s cells a patch, linear in the patch's token. (B, D, H', W') → (B, K, sH', sW').

    The patch embedding turned round: there a convolution whose stride is its size, here a transposed one. A softmax
    over a map's cells gives the probability that the keypoint lies in each. Weights start at zero: all cells alike.

    Differs: ViTPose (Xu et al. 2022) has two more layers, and regresses heatmaps by their squared error.
    """

    def __init__(self, dim: int, num_keypoints: int, cells_per_patch: int):
        super().__init__()
        check_sizes(dim=dim, num_keypoints=num_keypoints, cells_per_patch=cells_per_patch)
        self.proj = nn.ConvTranspose2d(dim, num_keypoints, kernel_size=cells_per_patch, stride=cells_per_patch)
        start_at_zero(self.proj)

    def forward(self, features: Tensor) -> Tensor:
        check_map(features, self.proj)
        return self.proj(features)


def cell_centres(count: int, cell: float) -> Tensor:
    """Where the centres of `count` cells, each `cell` pixels wide, lie along an axis. → (count,).

    Pixel i has its centre at i, as in matplotlib's pictures, so that the picture begins at −½.
    """
    check_sizes(0, count=count)
    check_positive(cell=cell)
    return (torch.arange(count) + 0.5) * cell - 0.5


def soft_argmax(heatmaps: Tensor, cell: float) -> Tensor:
    """The place that a heatmap means, to a fraction of a cell: the mean of all cells' centres under its softmax.

    (..., rows, columns), before the softmax → (..., 2): x and y in pixels, `cell` of which make a cell's side.
    Sun et al. 2018 ("Integral Human Pose Regression").
    """
    check_floats(heatmaps=heatmaps)
    if heatmaps.ndim < 2 or 0 in heatmaps.shape[-2:]:
        raise ValueError(f"heatmaps must have shape (..., rows, columns), got {tuple(heatmaps.shape)}")
    probability = heatmaps.flatten(-2).softmax(dim=-1).view_as(heatmaps)
    y, x = (cell_centres(count, cell).to(heatmaps) for count in heatmaps.shape[-2:])
    return torch.stack([probability.sum(dim=-2) @ x, probability.sum(dim=-1) @ y], dim=-1)


def target_heatmaps(points: Tensor, grid: tuple[int, int], cell: float, sigma: float) -> Tensor:
    """What a heatmap head should say: a Gaussian around each point, every map with sum 1.

    (..., 2): x and y in pixels → (..., rows, columns) for a grid (rows, columns) of cells; sigma: standard deviation in
    pixels. Tompson et al. 2014. Differs: theirs has height 1 at its top, and is no distribution.
    """
    check_floats(points=points)
    check_grids(grid=grid)
    check_positive(sigma=sigma)
    if points.ndim < 1 or points.shape[-1] != 2:
        raise ValueError(f"points must have shape (..., 2), x and y in pixels, got {tuple(points.shape)}")
    along = []
    for coordinate, count in zip(points.unbind(dim=-1), reversed(grid), strict=True):
        offset = coordinate.unsqueeze(-1) - cell_centres(count, cell).to(points)
        along.append((-offset.square() / (2 * sigma**2)).softmax(dim=-1))
    x, y = along
    return y.unsqueeze(-1) * x.unsqueeze(-2)


# Pixels: segmentation


class SegmentationHead(nn.Module):
    """Class scores for each patch, linear in its token, drawn out to pixels. (B, D, H', W') → (B, K, PH', PW').

    Bilinear interpolation of the scores, before any softmax. Strudel et al. 2021 (Segmenter, the linear decoder).
    Weights start at zero: all classes alike.
    """

    def __init__(self, dim: int, num_classes: int, patch_size: int):
        super().__init__()
        check_sizes(dim=dim, num_classes=num_classes, patch_size=patch_size)
        self.patch_size = patch_size
        self.proj = nn.Conv2d(dim, num_classes, kernel_size=1)
        start_at_zero(self.proj)

    def forward(self, features: Tensor) -> Tensor:
        check_map(features, self.proj)
        return F.interpolate(self.proj(features), scale_factor=self.patch_size, mode="bilinear", align_corners=False)


def intersection_over_union(predicted: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """For each class, the pixels in which prediction and label agree over those in which either says it. → (K,).

    int64 (...) and (...): classes, 0 … K − 1, pooled over all pictures. nan for a class that neither has. Raises
    ValueError where the shapes differ or a class is not among the K.
    """
    check_tensors(predicted=predicted, labels=labels)
    if predicted.shape != labels.shape:
        raise ValueError(f"predicted must have the labels' shape {tuple(labels.shape)}, got {tuple(predicted.shape)}")
    check_classes("predicted", predicted, num_classes)
    check_classes("labels", labels, num_classes)
    counts = (labels * num_classes + predicted).flatten().bincount(minlength=num_classes**2)
    counts = counts.view(num_classes, num_classes).double()  # row: label; column: prediction
    both = counts.diagonal()
    return both / (counts.sum(dim=0) + counts.sum(dim=1) - both)


def check_classes(name: str, classes: Tensor, num_classes: int) -> None:
    """Raise TypeError or ValueError unless all classes, (...), are int64 and lie in 0 … num_classes − 1."""
    check_tensors(**{name: classes})
    check_sizes(num_classes=num_classes)
    if classes.dtype != torch.int64:
        raise ValueError(f"{name} must be int64, got {classes.dtype}")
    if classes.numel() and not 0 <= classes.min() <= classes.max() < num_classes:
        raise ValueError(f"{name} must lie in 0 … {num_classes - 1}, got {classes.min()} … {classes.max()}")


# Classes: another head, or none


class HiddenLayerHead(nn.Module):
    """The paper's head of pretraining: an MLP with one hidden layer and tanh. (B, D) → (B, K).

    Dosovitskiy et al. 2021, section 3.1 and appendix D.3; the authors' hidden layer is as wide as the tokens. It starts
    as the rest of the model does: the hidden layer Xavier-uniform, the output zero, so that the first loss is ln K.
    """

    def __init__(self, dim: int, hidden_dim: int, num_classes: int):
        super().__init__()
        check_sizes(dim=dim, hidden_dim=hidden_dim, num_classes=num_classes)
        self.pre_logits = nn.Linear(dim, hidden_dim)
        self.head = nn.Linear(hidden_dim, num_classes)
        nn.init.xavier_uniform_(self.pre_logits.weight)
        nn.init.zeros_(self.pre_logits.bias)
        start_at_zero(self.head)

    def forward(self, features: Tensor) -> Tensor:
        check_shape("features", features, "B", self.pre_logits.in_features)
        check_fits("features", features, self.pre_logits.weight)
        return self.head(torch.tanh(self.pre_logits(features)))


def start_at_zero(layer: nn.Module) -> None:
    """Set weight and bias to zero, so that a head begins by preferring nothing."""
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)


class Features(nn.Module):
    """A backbone without the head that it has: a model whose output is one vector a picture. (B, C, H, W) → (B, D)."""

    def __init__(self, backbone: VisionTransformer):
        super().__init__()
        self.backbone = backbone

    def forward(self, images: Tensor) -> Tensor:
        return self.backbone.features(images)


def collect_features(backbone: VisionTransformer, batches: Batches) -> tuple[Tensor, Tensor]:
    """Features and labels of every picture, on the CPU, without dropout and without gradients. → (N, D), (N,)."""
    collected = evaluate(Features(backbone), batches)
    return collected.scores, collected.labels


def neighbour_votes(
    queries: Tensor, bank: Tensor, labels: Tensor, num_classes: int, k: int = 20, temperature: float = 0.07
) -> Tensor:
    """What the k nearest known features say about each query: every class's share of their votes.

    (M, D), (N, D), int64 (N,) → (M, K), rows sum to 1. Near means a high cosine c; a neighbour's vote weighs
    exp(c/temperature), as in DINO (Caron et al. 2021); with temperature=math.inf, all k votes weigh alike. Queries do
    not depend on one another: where (M, N) numbers are too many, ask in parts.
    """
    check_floats(queries=queries, bank=bank)
    check_tensors(labels=labels)
    if queries.ndim != 2 or bank.ndim != 2 or queries.shape[1] != bank.shape[1] or labels.shape != bank.shape[:1]:
        got = ", ".join(str(tuple(tensor.shape)) for tensor in (queries, bank, labels))
        raise ValueError(f"queries, bank and labels must have shapes (M, D), (N, D) and (N,), got {got}")
    check_sizes(None, k=k)
    check_numbers(temperature=temperature)
    if queries.dtype != bank.dtype:
        raise ValueError(f"queries and bank must be of one dtype, got {queries.dtype} and {bank.dtype}")
    if not 1 <= k <= len(bank):
        raise ValueError(f"k must lie in 1 … {len(bank)}, the number of known features, got {k}")
    if not temperature > 0:
        raise ValueError(f"temperature must be positive, got {temperature}")
    check_classes("labels", labels, num_classes)
    similarity = F.normalize(queries, dim=-1) @ F.normalize(bank, dim=-1).T  # (M, N), cosines
    nearest, index = similarity.topk(k, dim=-1)
    weights = (nearest / temperature).softmax(dim=-1)  # (M, k)
    return weights.new_zeros(len(queries), num_classes).scatter_add(1, labels[index], weights)


def feature_colours(maps: Tensor) -> Tensor:
    """The three directions in which patches differ most, as red, green and blue. (B, D, H', W') → (B, 3, H', W').

    Principal components over the patches of all pictures at once, so that a colour means the same in each of them; each
    is stretched to 0 … 1. A component's sign is a convention: here its largest entry is positive. Oquab et al. 2024
    (DINOv2). Raises ValueError for fewer than three channels or patches.
    """
    check_floats(maps=maps)
    if maps.ndim != 4 or maps.shape[1] < 3 or maps[:, 0].numel() < 3:
        expected = "(B, D, H', W') with three channels and three patches at least"
        raise ValueError(f"maps must have shape {expected}, got {tuple(maps.shape)}")
    patches = maps.movedim(1, -1).flatten(0, 2)  # (B·N, D)
    centred = patches - patches.mean(dim=0)
    directions = decomposed("maps", centred)[2][:3]
    largest = directions.gather(1, directions.abs().argmax(dim=1, keepdim=True))
    amounts = centred @ (directions * largest.sign()).T
    low, high = amounts.amin(dim=0), amounts.amax(dim=0)
    colours = (amounts - low) / (high - low).clamp(min=torch.finfo(maps.dtype).tiny)
    return colours.unflatten(0, (len(maps), *maps.shape[2:])).movedim(-1, 1)

"""What else can sit on a backbone: a head for places, for pixels or for classes.

A head reads what `vitbook.features` describes: one vector a picture, (B, D), or a feature map, (B, D, H', W') with
H' = H/P rows and W' = W/P columns.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitbook._support.validation import (
    check_classes,
    check_fits,
    check_floats,
    check_grids,
    check_positive,
    check_shape,
    check_sizes,
    check_tensors,
)


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


# Classes: a hidden layer


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

"""The features of a backbone: one vector a picture or one a patch, from which much can be read without a head.

A backbone is a `VisionTransformer` under any head: `tokens` gives (B, T, D), `features` (B, D). A feature map is its
patch tokens laid out as the patches lie in the picture: (B, D, H', W') with H' = H/P rows and W' = W/P columns.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitbook._support.validation import (
    check_classes,
    check_floats,
    check_numbers,
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

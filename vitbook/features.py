"""The features of a backbone: one vector an image or one a patch, from which much can be read without a head.

A backbone is a `VisionTransformer` under any head: `tokens` gives (B, T, D), `features` (B, D). A feature map is its
patch tokens arranged as in the image: (B, D, H', W') with H' = H/P rows and W' = W/P columns.
"""

import json

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from safetensors import safe_open
from torch import Tensor, nn

from vitbook._common.files import ASSETS
from vitbook.training import Batches, evaluate
from vitbook.vit import VisionTransformer


def feature_map(backbone: VisionTransformer, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B D rows columns"]:
    """The patch tokens as an image of D channels. What precedes them is dropped."""
    rows, columns = backbone.embedding.grid
    return backbone.tokens(images)[:, -rows * columns :].mT.unflatten(2, (rows, columns))


class Features(nn.Module):
    """A backbone without its head: a model whose output is one vector an image."""

    def __init__(self, backbone: VisionTransformer):
        super().__init__()
        self.backbone = backbone

    def forward(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B D"]:
        return self.backbone.features(images)


def collect_features(backbone: VisionTransformer, batches: Batches) -> tuple[Float[Tensor, "N D"], Int64[Tensor, " N"]]:
    """Features and labels of every image, on the CPU, without dropout and without gradients."""
    collected = evaluate(Features(backbone), batches)
    return collected.logits, collected.labels


Known = tuple[Float[Tensor, "N D"], Int64[Tensor, " N"]]
Asked = tuple[Float[Tensor, "M D"], Int64[Tensor, " M"]]


def stored_features() -> tuple[Known, Asked, tuple[str, ...]]:
    """Features of photographs to learn from, (6000, 128), and to test on, (1000, 128), with labels; names of classes.

    Of `vitbook:cifar10` for twenty classes that it was not trained on, 300 and 50 photographs of each. They are from
    Tiny-ImageNet (a public copy), shrunk to 32×32 pixels. `records/transfer.py` made them; each number was
    rounded to 8 bits.
    """
    with safe_open(ASSETS / "features" / "tiny_imagenet.safetensors", "pt") as file:
        scale, names = file.get_tensor("scale"), tuple(json.loads(file.metadata()["classes"]))
        train, test = (
            (file.get_tensor(part).float() * scale, file.get_tensor(f"{part}_labels").long())
            for part in ("train", "test")
        )
    return train, test, names


def neighbor_votes(
    queries: Float[Tensor, "M D"],
    bank: Float[Tensor, "N D"],
    labels: Int64[Tensor, " N"],
    num_classes: int,
    k: int = 20,
    temperature: float = 0.07,
) -> Float[Tensor, "M K"]:
    """What the k nearest known features say about each query: every class's share of their votes; rows sum to 1.

    Near means a high cosine c; a neighbor's vote weighs exp(c/temperature), as in DINO (Caron et al. 2021); with
    temperature=math.inf, all k votes weigh alike. Queries do not depend on one another: where (M, N) numbers are too
    many, ask in parts.

    Raises ValueError unless each known feature has a label, and k and temperature are above 0.
    """
    if len(labels) != len(bank):
        raise ValueError(f"labels must be {len(bank)}, one for each known feature, got {len(labels)}")
    if not (k > 0 and temperature > 0):
        raise ValueError(f"k and temperature must be above 0, got {k} and {temperature}")
    similarity = F.normalize(queries, dim=-1) @ F.normalize(bank, dim=-1).T  # (M, N), cosines
    nearest, index = similarity.topk(k, dim=-1)
    weights = (nearest / temperature).softmax(dim=-1)  # (M, k)
    return weights.new_zeros(len(queries), num_classes).scatter_add(1, labels[index], weights)


def standardized(features: Float[Tensor, "M D"], known: Float[Tensor, "N D"]) -> Float[Tensor, "M D"]:
    """Each number less the mean of the known ones, over their standard deviation: nothing of other new images."""
    return (features - known.mean(dim=0)) / known.std(dim=0).clamp(min=1e-6)


def whitening(
    features: Float[Tensor, "N D"], shrinkage: float = 0.01
) -> tuple[Float[Tensor, " D"], Float[Tensor, "D D"]]:
    """A mean m and a matrix W, such that (features − m) @ W vary alike in every direction, and none goes with another.

    Each principal direction is divided by the root of its variance plus `shrinkage` times the mean variance, so that
    directions with hardly any do not become noise as loud as the rest. With shrinkage=0 the covariance is the identity.
    """
    mean = features.mean(dim=0)
    variances, directions = torch.linalg.eigh(torch.cov((features - mean).T, correction=0))
    scale = (variances.clamp(min=0) + shrinkage * variances.mean()).rsqrt()
    return mean, (directions * scale) @ directions.T


def feature_colors(maps: Float[Tensor, "B D rows columns"]) -> Float[Tensor, "B 3 rows columns"]:
    """The three directions in which patches differ most, as red, green and blue, 0 to 1.

    Principal components over the patches of all images at once, so that a color means the same in each of them; each
    is stretched to 0 … 1. A component's sign is a convention: here its largest entry is positive. Oquab et al. 2024
    (DINOv2). Raises ValueError for fewer than three channels or patches.
    """
    patches = maps.movedim(1, -1).flatten(0, 2)  # (B·N, D)
    if min(patches.shape) < 3:
        raise ValueError(f"maps must have at least three channels and three patches, got {tuple(maps.shape)}")
    centered = patches - patches.mean(dim=0)
    directions = torch.linalg.svd(centered, full_matrices=False).Vh[:3]
    largest = directions.gather(1, directions.abs().argmax(dim=1, keepdim=True))
    amounts = centered @ (directions * largest.sign()).T
    low, high = amounts.amin(dim=0), amounts.amax(dim=0)
    colors = (amounts - low) / (high - low).clamp(min=torch.finfo(maps.dtype).tiny)
    return colors.unflatten(0, (len(maps), *maps.shape[2:])).movedim(-1, 1)

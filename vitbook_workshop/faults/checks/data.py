"""What must hold of a data set: its labels are those of its images."""

import hashlib
import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from vitbook.data import Dataset
from vitbook_workshop.faults.findings import Failed, NotAsked


def labels_match_images(dataset: Dataset) -> None:
    """Asked of 2,000 images."""
    chosen = torch.randperm(len(dataset.train))[:2000]
    neighbors_agree(dataset.normalize(dataset.train.images[chosen]), dataset.train.labels[chosen])


def neighbors_agree(images: Float[Tensor, "N C H W"], labels: Int[Tensor, " N"]) -> None:
    """Raise `Failed` unless the nearest other image has the same label more often than by chance, by pixels or colors.

    Copies of an image, which come again in the next epoch, are no neighbors.
    """
    kinds = len(labels.unique())
    if kinds < 2 or len(labels) < max(400, 20 * kinds):
        raise NotAsked(f"{len(labels)} images of {kinds} classes are too few to compare neighbors")
    small = F.adaptive_avg_pool2d(images.float(), 8)
    pixels = small.flatten(1)
    contrast = (pixels - pixels.mean(dim=1, keepdim=True)) / (pixels.std(dim=1, keepdim=True) + 1e-6)
    colors = torch.cat([small.mean(dim=(2, 3)), small.std(dim=(2, 3))], dim=1)
    share = labels.bincount().double() / len(labels)
    chance = share.square().sum().item()
    agreement = 0.0
    for x in (pixels, contrast, colors):
        distance = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist").fill_diagonal_(math.inf)
        distance[distance < 1e-3 * distance[0, 1:].median()] = math.inf
        agreement = max(agreement, (labels[distance.argmin(dim=1)] == labels).double().mean().item())
    spread = math.sqrt(chance * (1 - chance) / len(labels))
    if agreement < chance + 4 * spread:  # of three tries the best; on CIFAR-10, 500 images give 9
        raise Failed(
            f"the nearest of {len(labels)} images has the same label in {agreement:.1%} of all cases, by chance in "
            f"{chance:.1%} ± {spread:.1%}.",
            likely="a task too hard for pixels and colors looks the same",
        )


def copies_have_one_label(dataset: Dataset) -> None:
    """Whether images that are the same, byte for byte, have the same label."""
    label_of, wrong = {}, 0
    for image, label in zip(dataset.train.images, dataset.train.labels.tolist(), strict=True):
        key = hashlib.blake2b(image.cpu().numpy().tobytes(), digest_size=16).digest()
        wrong += label_of.setdefault(key, label) != label
    if wrong:
        raise Failed(f"{wrong} of {len(dataset.train)} images have a copy with another label.")

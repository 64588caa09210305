"""What an image can be asked for beside its class: which of several labels hold, one number, or each pixel's class."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

TASKS = ("classes", "labels", "number", "masks")
IGNORED = 255  # the level of a pixel of which nothing is asked

Targets = Float[Tensor, "N K"]  # of labels: 1 where one holds, else 0; of a number: standardized, K = 1
Masks = Int[Tensor, "N H W"]  # of each pixel, its class or `IGNORED`


def target_loss(
    logits: Targets | Float[Tensor, "N K H W"], targets: Targets | Masks, task: str, smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """The mean over images and labels of −ln of the probability of what holds, each label's being σ(z); or (z − y)².

    Of masks, the mean over pixels of the cross-entropy; 0 where all are ignored. smoothing: share of a label's target
    that is spread over yes and no, or of a pixel's over all classes.
    """
    if task == "number":
        return F.mse_loss(logits, targets)
    if task == "masks":
        total = F.cross_entropy(logits, targets, ignore_index=IGNORED, label_smoothing=smoothing, reduction="sum")
        return total / (targets != IGNORED).sum().clamp(min=1)
    return F.binary_cross_entropy_with_logits(logits, targets * (1 - smoothing) + smoothing / 2)


def target_score(logits: Targets | Float[Tensor, "N K H W"], targets: Targets | Masks, task: str) -> Float[Tensor, ""]:
    """The share of labels answered rightly, yes or no; of a number, 1 − (z − y)²: R², as far as its variance is 1.

    Of masks, the share of the pixels that are not ignored.
    """
    if task == "masks":
        asked = targets != IGNORED
        return (logits.argmax(dim=1) == targets)[asked].float().sum() / asked.sum().clamp(min=1)
    if task == "number":
        return 1 - F.mse_loss(logits, targets)
    return ((logits > 0) == (targets > 0.5)).float().mean()


def mean_average_precision(logits: Targets, targets: Targets) -> float:
    """The mean over the labels that occur of the mean precision down to each image that has the label ("mAP")."""
    precisions = []
    for scores, right in zip(logits.T, (targets > 0.5).T, strict=True):
        ranked = right[scores.argsort(descending=True, stable=True)]
        if ranked.any():
            precision = ranked.cumsum(dim=0) / torch.arange(1, len(ranked) + 1, device=ranked.device)
            precisions.append(precision[ranked].double().mean())
    return torch.stack(precisions).mean().item() if precisions else float("nan")

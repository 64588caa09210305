"""Classes of very different sizes: what is good by class, and three ways to let rare classes count as much."""

import torch
from jaxtyping import Float, Int, Int64
from torch import Tensor

BALANCES = ("none", "sample", "loss", "logits")

Counts = Int64[Tensor, " K"]


def class_counts(labels: Int[Tensor, " N"], num_classes: int) -> Counts:
    """How many images each class has."""
    return labels.bincount(minlength=num_classes)


def balanced_order(labels: Int[Tensor, " N"], length: int, generator: torch.Generator) -> Int64[Tensor, " length"]:
    """Images drawn with replacement, such that every class is as likely as any other; within a class all images are."""
    weights = 1 / class_counts(labels, int(labels.max()) + 1)[labels].double()
    return torch.multinomial(weights, length, replacement=True, generator=generator)


def class_weights(counts: Counts) -> Float[Tensor, " K"]:
    """What an image of each class counts in the loss: N / (K n_k), in all as much as before. A class without any: 0."""
    some = counts > 0
    return torch.where(some, counts.sum() / (some.sum() * counts.clamp(min=1)), 0.0).float()


def log_prior(counts: Counts) -> Float[Tensor, " K"]:
    """What is added to the logits in the training loss, ln(n_k / N), and left out afterwards.

    The model need not learn which classes are frequent, and does not say so. Menon et al. 2021 ("logit adjustment"),
    Eq. 10 with τ = 1. A class without any image counts as if it had one.
    """
    return (counts.clamp(min=1) / counts.sum()).log().float()


def by_class(confusion: Int[Tensor, "K K"]) -> tuple[Float[Tensor, " K"], Float[Tensor, " K"], Float[Tensor, " K"]]:
    """Precision, recall and F1 of each class, from the images of class i that were taken for class j (row i, column j).

    Recall is the share of a class that was found, precision the share of what was called so that is so, and F1 their
    harmonic mean, 2 tp / (2 tp + fp + fn). nan where there is nothing to divide by.
    """
    right = confusion.diagonal().double()
    called, there = confusion.sum(dim=0), confusion.sum(dim=1)
    return right / called, right / there, 2 * right / (called + there)


def mean_iou(confusion: Int[Tensor, "K K"]) -> float:
    """The mean over classes of tp / (tp + fp + fn), which is F1 / (2 − F1): "mIoU", of the pixels of all images."""
    f1 = by_class(confusion)[2]
    return (f1 / (2 - f1)).nanmean().item()


def balanced_accuracy(confusion: Int[Tensor, "K K"]) -> float:
    """The mean of the recalls of the classes that there are: every class counts alike, however few images it has."""
    return by_class(confusion)[1].nanmean().item()


def macro_f1(confusion: Int[Tensor, "K K"]) -> float:
    """The mean of the F1 of the classes that are there or were named."""
    return by_class(confusion)[2].nanmean().item()

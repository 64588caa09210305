"""Integrated gradients, RISE, Shapley values, value norms: maps that the exam marks, and that chapter 28 only names."""

import itertools
import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitbook._common.validation import check_sizes
from vitbook.attribution import Classes, Maps, masked_scores
from vitbook.multihead import MultiHeadSelfAttention
from vitbook.patches import Images
from vitbook.positions import Grid


def rise(
    model: nn.Module,
    images: Images,
    classes: Classes,
    grid: Grid,
    generator: torch.Generator,
    masks: int = 256,
    filling: str = "gray",
) -> Maps:
    """The mean score of the random masks that keep a patch, less that of those that hide it (Petsiuk et al. 2018).

    Differs: a mask keeps or hides whole patches, half of them; theirs are coarser, smooth and moved about.
    """
    check_sizes(2, masks=masks)
    kept = torch.rand(1, masks, *grid, generator=generator) < 0.5
    kept[:, 1::2] = ~kept[:, : masks // 2 * 2 : 2]  # pairs of opposites: each patch is hidden in half of the masks
    shown = kept[0].flatten(1).float().to(images)  # (masks, N)
    scores = masked_scores(model, images, classes, kept.to(images.device), filling)
    means = scores @ shown / shown.sum(dim=0) - scores @ (1 - shown) / (1 - shown).sum(dim=0)
    return means.unflatten(1, grid)


def shapley(
    model: nn.Module,
    images: Images,
    classes: Classes,
    grid: Grid,
    generator: torch.Generator,
    orders: int = 8,
    filling: str = "gray",
) -> Maps:
    """What each patch adds to the score, on average over the orders in which patches can be shown (Shapley 1953).

    With up to 6 patches all orders are taken, and the values are exact; else so many at random (Lundberg and Lee 2017
    estimate the same by a regression). They sum to the score of the whole image less that of the filling alone.
    """
    check_sizes(orders=orders)
    count = math.prod(grid)
    if count <= 6:
        drawn = torch.tensor(list(itertools.permutations(range(count))))
    else:
        drawn = torch.rand(orders, count, generator=generator).argsort(dim=1)
    rank = drawn.argsort(dim=1)  # when each patch comes, (orders, N)
    kept = rank[:, None] < torch.arange(count + 1)[:, None]  # (orders, N + 1, N)
    scores = masked_scores(model, images, classes, kept.view(1, -1, *grid).to(images.device), filling)
    added = scores.unflatten(1, kept.shape[:2]).diff(dim=2)  # by the patch that comes first, second …
    values = added.gather(2, rank.to(images.device).expand(len(images), -1, -1)).mean(dim=1)
    return values.unflatten(1, grid)


def gradient_times_input(model: nn.Module, images: Images, classes: Classes, grid: Grid) -> Maps:
    """Σ ∂score/∂x ⊙ x over a patch: by how much the score would fall, were it a line, if the patch became 0."""
    return _in_patches(_gradient(model, images, classes) * images, grid)


def integrated_gradients(model: nn.Module, images: Images, classes: Classes, grid: Grid, steps: int = 16) -> Maps:
    """x ⊙ the mean gradient on the straight way from 0 to x, at the middle of each of `steps` parts of it.

    Sundararajan et al. 2017. With many steps the map sums to the score of the image less that of a gray one.
    """
    check_sizes(steps=steps)
    ways = [(step + 0.5) / steps for step in range(steps)]
    mean = torch.stack([_gradient(model, images * way, classes) for way in ways]).mean(dim=0)
    return _in_patches(mean * images, grid)


def _gradient(model: nn.Module, images: Images, classes: Classes) -> Images:
    images = images.detach().requires_grad_()
    score = model(images).gather(1, classes[:, None]).sum()
    return torch.autograd.grad(score, images)[0]


def _in_patches(pixels: Images, grid: Grid) -> Maps:
    """Sums over channels and over the pixels of each patch."""
    return pixels.sum(dim=1).unflatten(2, (grid[1], -1)).unflatten(1, (grid[0], -1)).sum(dim=(2, 4))


def attention_norms(
    attention: MultiHeadSelfAttention, x: Float[Tensor, "batch tokens dim"]
) -> Float[Tensor, "batch tokens tokens"]:
    """How long what each key adds to each query is: ‖Σ over heads of a · v W_O‖ (Kobayashi et al. 2020)."""
    weights = attention.attend(x)[1]  # (B, h, T, T)
    values = attention.project(x)[2]
    w_o = attention.proj.weight.T.unflatten(0, (attention.num_heads, -1))  # (h, D_h, D)
    return torch.einsum("bhqk,bhkd->bqkd", weights, values @ w_o).norm(dim=-1)

"""RISE, Shapley values and the norms of what attention adds: maps that the exam marks, and the chapter only names."""

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
    kept[:, 1::2] = ~kept[
        :, : masks // 2 * 2 : 2
    ]  # in pairs of opposites, so that each patch is hidden in half of them
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


def attention_norms(
    attention: MultiHeadSelfAttention, x: Float[Tensor, "batch tokens dim"]
) -> Float[Tensor, "batch tokens tokens"]:
    """How long what each key adds to each query is: ‖Σ over heads of a · v W_O‖ (Kobayashi et al. 2020)."""
    weights = attention.attend(x)[1]  # (B, h, T, T)
    values = attention.project(x)[2]
    w_o = attention.proj.weight.T.unflatten(0, (attention.num_heads, -1))  # (h, D_h, D)
    return torch.einsum("bhqk,bhkd->bqkd", weights, values @ w_o).norm(dim=-1)

"""What attends to what: recording a model's attention, and measuring what was recorded. Tensors in, tensors out.

Recorded weights have the shape (L, B, h, T, T): block, image, head, query, key; each query's row sums to 1. What the
attention makes of the tokens, `residual_stream`, has the shape (L + 1, B, T, D). A grid is (rows, columns) of patches;
num_prefix_tokens counts the tokens before the patches: 1 with a class token, 0 without.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from vitbook._common.validation import check_shares
from vitbook.multihead import MultiHeadSelfAttention
from vitbook.positions import Grid
from vitbook.vit import VisionTransformer

Weights = Float[Tensor, "L B h T T"]
HEAD_REDUCTIONS = {"mean": Tensor.mean, "max": Tensor.amax, "min": Tensor.amin}


@contextmanager
def recorded_attention(model: nn.Module) -> Iterator[list[Tensor]]:
    """Inside the block, keep the attention weights of the latest call: a list of (B, h, T, T), one for each block.

        with recorded_attention(model) as weights:
            logits = model(images)
        weights = torch.stack(weights)  # (L, B, h, T, T)

    The weights are those before dropout, and part of the graph wherever gradients flow. Meanwhile every
    `MultiHeadSelfAttention` computes by its explicit softmax, which equals the fused kernel to rounding. Afterwards the
    model is as it was, also when the block raises.

    Raises ValueError for a model without `MultiHeadSelfAttention` or with one in several places, and if nested.
    """
    layers = list(attention_layers(model).values())
    if any("forward" in vars(layer) for layer in layers):
        raise ValueError("this model's attention is being recorded already: leave that block first")
    recorded: list[Tensor] = []

    def attend(layer: MultiHeadSelfAttention, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if layer is layers[0]:
            recorded.clear()
        output, weights = layer.attend(x, mask)
        recorded.append(weights)
        return output

    try:
        for layer in layers:
            layer.forward = partial(attend, layer)  # hides the class's own
        yield recorded
    finally:
        for layer in layers:
            vars(layer).pop("forward", None)


def attention_layers(model: nn.Module) -> dict[str, MultiHeadSelfAttention]:
    """Every `MultiHeadSelfAttention` by its name, in the order of blocks. Raises ValueError as `recorded_attention`."""
    modules = model.named_modules(remove_duplicate=False)
    layers = {name: module for name, module in modules if isinstance(module, MultiHeadSelfAttention)}
    if not layers:
        raise ValueError(f"{type(model).__name__} has no MultiHeadSelfAttention whose weights could be recorded")
    if len(set(layers.values())) < len(layers):
        raise ValueError("blocks of this model share an attention, whose calls could not be told apart")
    return layers


def residual_stream(model: VisionTransformer, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "states B T D"]:
    """All tokens on their way through a model: before the first block and after each, L + 1 states.

    The z_0 of Eq. 1 and z_1 … z_L of Eq. 3 (Dosovitskiy et al. 2021), without the last LayerNorm; part of the graph
    wherever gradients flow. A block only adds to its tokens, so z_ℓ − z_(ℓ−1) is what block ℓ has written.
    """
    states = [model.embedding(images)]
    for block in model.encoder.blocks:
        states.append(block(states[-1]))
    return torch.stack(states)


def logit_lens(model: VisionTransformer, states: Float[Tensor, "states B T D"]) -> Float[Tensor, "states B K"]:
    """The logits that a model would give if these tokens were its last ones.

    The last LayerNorm, the model's own pooling and its head, on every state of a `residual_stream`, of which there may
    be any number (nostalgebraist 2020). The last state's logits are the model's. A model without a head gives features.

    Raises ValueError for states of another rank, or without patches.
    """
    least = len(model.embedding.prefix_tokens) + 1
    if states.ndim != 4 or states.shape[2] < least:
        raise ValueError(f"states must have shape (L + 1, B, T, D) with T ≥ {least}, got {tuple(states.shape)}")
    return model.logits(model.norm(states.flatten(0, 1))).unflatten(0, states.shape[:2])


def rollout(
    weights: Weights, heads: str = "mean", residual: bool = True, discard: float = 0.0
) -> Float[Tensor, "B T T"]:
    """How much of each input token has reached each output token; rows sum to 1.

    Ã_ℓ = A_ℓ Ã_{ℓ−1} with A = ½W̄ + ½I, W̄ the weights of a block's heads taken together (Abnar and Zuidema 2020).
    Differs: the paper takes the mean of the heads and discards nothing.

    heads: "mean", "max" or "min" over heads; residual: whether the ½I of the residual connection is there;
    discard: this share of each image's and block's smallest weights is set to 0 first. Rows are normalized after each
    of these; one in which no weight is left stays empty. Raises ValueError for weights of another shape, unknown
    heads and no share.
    """
    _check_weights(weights)
    check_shares(discard=discard)
    if heads not in HEAD_REDUCTIONS:
        raise ValueError(f"heads must be one of {', '.join(HEAD_REDUCTIONS)}, got {heads!r}")
    identity = torch.eye(weights.shape[-1], dtype=weights.dtype, device=weights.device)
    rolled = identity.expand(weights.shape[1], -1, -1)
    for block in weights:
        mixed = HEAD_REDUCTIONS[heads](block, dim=1)  # (B, T, T)
        if discard:
            mixed = _without_smallest(mixed, discard)
        mixed = _normalized(mixed)
        if residual:
            mixed = 0.5 * mixed + 0.5 * identity
        rolled = mixed @ rolled
    return rolled


def _without_smallest(weights: Float[Tensor, "B T T"], share: float) -> Float[Tensor, "B T T"]:
    """Set this share of each image's weights, the smallest, to 0, but never a row's largest."""
    count = int(share * weights[0].numel())
    smallest = weights.flatten(1).topk(count, dim=-1, largest=False).indices
    kept = torch.ones_like(weights, dtype=torch.bool).flatten(1).scatter(1, smallest, False).view_as(weights)
    return weights * (kept | (weights == weights.amax(dim=-1, keepdim=True)))


def gradient_weighted_attention(
    weights: list[Float[Tensor, "B h T T"]], score: Float[Tensor, " B"]
) -> Float[Tensor, "B T T"]:
    """Attention that speaks for one class: Ā = mean over heads of (∂score/∂A ⊙ A)⁺, rolled out as R ← R + ĀR.

    weights: each block's, still in the graph; score: one class's logit for each image. Chefer et al. 2021, "Generic
    Attention-model Explainability", Eqs. 5 and 6. Row 0, without the first column, is the class token's map.

    Raises ValueError where score does not have shape (B,).
    """
    batch, _, tokens, _ = weights[0].shape
    if score.shape != (batch,):
        raise ValueError(f"score must have shape (B,) = ({batch},), one for each image, got {tuple(score.shape)}")
    gradients = torch.autograd.grad(score.sum(), weights)
    relevance = torch.eye(tokens, dtype=weights[0].dtype, device=score.device).expand(batch, -1, -1)
    for attention, gradient in zip(weights, gradients, strict=True):
        relevance = relevance + (attention * gradient).clamp(min=0).mean(dim=1).detach() @ relevance
    return relevance


def patch_map(
    attention: Float[Tensor, "*batch T T"], grid: Grid, query: int = 0, num_prefix_tokens: int = 1
) -> Float[Tensor, "*batch rows columns"]:
    """One query's attention to the patches, arranged as in the image.

    query: a token's number; 0 is the class token where there is one. The prefix tokens' share is dropped, and nothing
    is renormalized.
    """
    return attention[..., query, num_prefix_tokens:].unflatten(-1, grid)


def attention_distance(
    weights: Weights, grid: Grid, patch_size: int, num_prefix_tokens: int = 1
) -> Float[Tensor, "L h"]:
    """How far each head looks, in pixels.

    The Euclidean distance between the centers of the query's and the key's patch, weighted by attention, averaged over
    patch queries and images (Dosovitskiy et al. 2021, Figure 7). Differs: the class token is left out as query and as
    key, and the remaining weights are renormalized to sum to 1; the authors' snippet leaves it out without that.

    Raises ValueError for weights of another shape, and for no images.
    """
    _check_weights(weights)
    between_patches = only_patches(weights, grid, num_prefix_tokens)
    distances = patch_distances(grid, patch_size).to(weights)
    return _mean_per_head((between_patches * distances).sum(dim=-1))


def patch_distances(grid: Grid, patch_size: int) -> Float[Tensor, "N N"]:
    """Distances between the centers of all patches, in pixels."""
    rows, columns = torch.arange(grid[0]), torch.arange(grid[1])
    centers = torch.cartesian_prod(rows, columns).to(torch.get_default_dtype()) * patch_size
    return torch.cdist(centers, centers, compute_mode="donot_use_mm_for_euclid_dist")


def only_patches(
    weights: Float[Tensor, "*batch T T"], grid: Grid, num_prefix_tokens: int = 1
) -> Float[Tensor, "*batch N N"]:
    """The weights among patches alone, each row renormalized to sum to 1.

    Raises ValueError where grid and prefix tokens are not all the tokens.
    """
    expected = num_prefix_tokens + grid[0] * grid[1]
    if weights.shape[-2:] != (expected, expected):
        tokens = f"{num_prefix_tokens} + {grid[0]}·{grid[1]} = {expected}"
        raise ValueError(f"weights must have shape (..., T, T) with T = {tokens}, got {tuple(weights.shape)}")
    return _normalized(weights[..., num_prefix_tokens:, num_prefix_tokens:])


def attention_entropy(weights: Weights) -> Float[Tensor, "L h"]:
    """How evenly each head spreads its attention, in nats: 0 for one token alone, ln T for all alike.

    The mean over queries and images. Raises ValueError for weights of another shape, and for no images.
    """
    _check_weights(weights)
    return _mean_per_head(torch.special.entr(weights).sum(dim=-1))


def linear_cka(x: Float[Tensor, "N D1"], y: Float[Tensor, "N D2"]) -> float:
    """How similar two layers' vectors of the same N things are, 0 to 1, whatever their directions and scale are called.

    ‖XᵀY‖² / (‖XᵀX‖ ‖YᵀY‖), columns centered, Frobenius norms (linear centered kernel alignment, Kornblith et al. 2019).
    1 where one is a rotation and a scaling of the other. Unrelated vectors have about 0 only where N is far above D.
    """
    x, y = x - x.mean(dim=0), y - y.mean(dim=0)
    return ((x.T @ y).square().sum() / ((x.T @ x).norm() * (y.T @ y).norm())).item()


def position_similarity(
    pos_embed: Float[Tensor, "1 T D"], grid: Grid, num_prefix_tokens: int = 1
) -> Float[Tensor, "N rows columns"]:
    """Cosine of each patch's position with every other's, as maps, in −1 … 1.

    Dosovitskiy et al. 2021, Figure 7 (center).
    """
    directions = F.normalize(pos_embed[0, num_prefix_tokens:], dim=-1)
    return (directions @ directions.T).unflatten(1, grid)


def patch_filters(
    weight: Float[Tensor, "D C P P"], count: int
) -> tuple[Float[Tensor, "count C P P"], Float[Tensor, " count"]]:
    """The principal components of the patch projection, as images, and the share of variance that each explains.

    Largest first. Dosovitskiy et al. 2021, Figure 7 (left). Raises ValueError where there are not that many components,
    and where all filters are alike.
    """
    filters = weight.flatten(1)
    if not 1 <= count <= min(filters.shape):
        raise ValueError(f"count must lie in 1 … {min(filters.shape)}, got {count}")
    centered = filters - filters.mean(dim=0)
    if centered.norm() <= len(filters) * torch.finfo(weight.dtype).eps * filters.norm():
        raise ValueError(f"weight must hold filters that differ, got {len(filters)} that are all alike")
    _, singular_values, components = torch.linalg.svd(centered, full_matrices=False)
    variance = (singular_values / singular_values[0]).square()
    return components[:count].unflatten(1, weight.shape[1:]), (variance / variance.sum())[:count]


def _normalized(weights: Float[Tensor, "*batch Q K"]) -> Float[Tensor, "*batch Q K"]:
    """Rows divided by their sums; an empty row stays empty."""
    return weights / weights.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)


def _mean_per_head(values: Float[Tensor, "L B h T"]) -> Float[Tensor, "L h"]:
    """The mean over images and queries. Raises ValueError where there are none."""
    if not values.shape[1] * values.shape[3]:
        shape = tuple(values.shape)
        raise ValueError(f"weights must hold at least one image and one query, got {shape} of (L, B, h, T)")
    return values.mean(dim=(1, 3))


def _check_weights(weights: Tensor) -> None:
    """Raise ValueError unless weights have the shape (L, B, h, T, T): a mean over a wrong axis would hide it."""
    if weights.ndim != 5 or weights.shape[-1] != weights.shape[-2] or not weights.shape[2]:
        raise ValueError(f"weights must have shape (L, B, h, T, T) with h ≥ 1, got {tuple(weights.shape)}")

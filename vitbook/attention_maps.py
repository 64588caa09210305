"""What attends to what: recording a model's attention, and measuring what was recorded. Tensors in, tensors out.

Recorded weights have the shape (L, B, h, T, T): block, picture, head, query, key; each query's row sums to 1. What the
attention makes of the tokens, `residual_stream`, has the shape (L + 1, B, T, D). A grid is (rows, columns) of patches;
num_prefix_tokens counts the tokens before the patches: 1 with a class token, 0 without.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitbook._support.validation import (
    check_choice,
    check_fits,
    check_floats,
    check_grids,
    check_kind,
    check_numbers,
    check_shape,
    check_shares,
    check_sizes,
    check_tensors,
    decomposed,
)
from vitbook.embedding import Grid
from vitbook.multihead import MultiHeadSelfAttention
from vitbook.vit import VisionTransformer

HEAD_REDUCTIONS = {"mean": Tensor.mean, "max": Tensor.amax, "min": Tensor.amin}


@contextmanager
def recorded_attention(model: nn.Module) -> Iterator[list[Tensor]]:
    """Inside the block, keep the attention weights of the latest call: a list of (B, h, T, T), one for each block.

        with recorded_attention(model) as weights:
            scores = model(images)
        weights = torch.stack(weights)  # (L, B, h, T, T)

    The weights are those before dropout, and part of the graph wherever gradients flow. Every
    `MultiHeadSelfAttention` computes by its explicit softmax meanwhile, which gives the fused kernel's output to
    rounding; afterwards the model is as it was, also when the block raises.

    Raises ValueError for a model without `MultiHeadSelfAttention`, or with one in several places, and where recordings
    are nested.
    """
    check_kind(nn.Module, model=model)
    modules = [module for _, module in model.named_modules(remove_duplicate=False)]
    layers = [module for module in modules if isinstance(module, MultiHeadSelfAttention)]
    if not layers:
        raise ValueError(f"{type(model).__name__} has no MultiHeadSelfAttention whose weights could be recorded")
    if len(set(layers)) < len(layers):
        raise ValueError("blocks of this model share an attention, whose calls could not be told apart")
    if any("forward" in vars(layer) for layer in layers):
        raise ValueError("this model's attention is being recorded already: leave that block first")
    recorded: list[Tensor] = []

    def recording(layer: MultiHeadSelfAttention):
        def forward(x: Tensor, mask: Tensor | None = None) -> Tensor:
            if layer is layers[0]:
                recorded.clear()
            output, weights = layer.attend(x, mask)
            recorded.append(weights)
            return output

        return forward

    try:
        for layer in layers:
            layer.forward = recording(layer)  # stands before the class's own
        yield recorded
    finally:
        for layer in layers:
            vars(layer).pop("forward", None)


def residual_stream(model: VisionTransformer, images: Tensor) -> Tensor:
    """All tokens on their way through a model: before the first block and after each. (B, C, H, W) → (L + 1, B, T, D).

    The z_0 of Eq. 1 and z_1 … z_L of Eq. 3 (Dosovitskiy et al. 2021), without the last LayerNorm; part of the graph
    wherever gradients flow. A block only adds to its tokens, so z_ℓ − z_(ℓ−1) is what block ℓ has written.

    Raises TypeError for a model that is no `VisionTransformer`, and ValueError for pictures that it does not take.
    """
    check_kind(VisionTransformer, model=model)
    states = [model.embedding(images)]
    for block in model.encoder.blocks:
        states.append(block(states[-1]))
    return torch.stack(states)


def logit_lens(model: VisionTransformer, states: Tensor) -> Tensor:
    """What the model would say of tokens if they were its last ones. (L + 1, B, T, D) → (L + 1, B, K).

    The last LayerNorm, the model's own pooling and its head, on every state of a `residual_stream`, of which there may
    be any number (nostalgebraist 2020). The last state's scores are the model's. A model without a head gives features.

    Raises TypeError for a model that is no `VisionTransformer`, and ValueError for states of another shape or dtype,
    or without patches.
    """
    check_kind(VisionTransformer, model=model)
    check_shape("states", states, "L + 1", "B", "T", model.config.dim)
    check_fits("states", states, model.norm.weight)
    least = len(model.embedding.prefix_tokens) + 1
    if states.shape[2] < least:
        raise ValueError(f"states must hold {least} tokens at least, the last a patch, got shape {tuple(states.shape)}")
    reader = copy(model)  # the same layers, but what it is given are tokens already
    reader.tokens = lambda tokens: model.norm(tokens)
    return reader.forward(states.flatten(0, 1)).unflatten(0, states.shape[:2])


def rollout(weights: Tensor, heads: str = "mean", residual: bool = True, discard: float = 0.0) -> Tensor:
    """How much of each input token has reached each output token. (L, B, h, T, T) → (B, T, T), rows sum to 1.

    Ã_ℓ = A_ℓ Ã_{ℓ−1} with A = ½W̄ + ½I, W̄ the weights of a block's heads taken together (Abnar and Zuidema 2020).
    Differs: the paper takes the mean of the heads and discards nothing.

    heads: "mean", "max" or "min" over heads; residual: whether the ½I of the residual connection is there;
    discard: this share of each picture's and block's smallest weights is set to 0 first. Rows are normalised after
    each of these; one in which no weight is left stays empty. Raises ValueError for weights of another shape or without
    heads, an unknown heads and a share outside 0 … 1.
    """
    check_weights(weights)
    if not weights.shape[2]:
        raise ValueError(f"weights must have at least one head, got shape {tuple(weights.shape)}")
    check_choice("heads", heads, HEAD_REDUCTIONS)
    check_numbers(discard=discard)
    if not 0 <= discard < 1:
        raise ValueError(f"discard must be a share, 0 or more and below 1, got {discard}")
    tokens = weights.shape[-1]
    identity = torch.eye(tokens, dtype=weights.dtype, device=weights.device)
    rolled = identity.expand(weights.shape[1], -1, -1)
    for block in weights:
        mixed = HEAD_REDUCTIONS[heads](block, dim=1)  # (B, T, T)
        if discard:
            mixed = without_smallest(mixed, discard)
        mixed = mixed / mixed.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)
        if residual:
            mixed = 0.5 * mixed + 0.5 * identity
        rolled = mixed @ rolled
    return rolled


def without_smallest(weights: Tensor, share: float) -> Tensor:
    """Set each picture's smallest weights to 0, but never a row's largest. (B, T, T) → (B, T, T)."""
    check_shape("weights", weights, "B", "T", "T")
    check_floats(weights=weights)
    check_shares(share=share)
    count = int(share * weights.shape[1] * weights.shape[2])
    smallest = weights.flatten(1).topk(count, dim=-1, largest=False).indices
    kept = torch.ones_like(weights, dtype=torch.bool).flatten(1).scatter(1, smallest, False).view_as(weights)
    kept = kept | (weights == weights.amax(dim=-1, keepdim=True))  # so that no row is left empty
    return weights * kept


def gradient_weighted_attention(weights: list[Tensor], score: Tensor) -> Tensor:
    """Attention that speaks for one class: Ā = mean over heads of (∂score/∂A ⊙ A)⁺, rolled out as R ← R + ĀR.

    (B, h, T, T) for each block, still in the graph, and a score for each picture (B,) → (B, T, T). Chefer et al. 2021,
    "Generic Attention-model Explainability", Eqs. 5 and 6. Row 0, without the first column, is the class token's map.

    Raises ValueError where score does not have shape (B,), or does not depend on the weights.
    """
    check_recorded(weights)
    check_floats(score=score)
    batch, _, tokens, _ = weights[0].shape
    if score.shape != (batch,):
        raise ValueError(f"score must have shape (B,) = ({batch},), one for each picture, got {tuple(score.shape)}")
    gradients = gradients_of(score, weights)
    relevance = torch.eye(tokens, dtype=weights[0].dtype, device=score.device).expand(batch, -1, -1)
    for attention, gradient in zip(weights, gradients, strict=True):
        relevance = relevance + (attention * gradient).clamp(min=0).mean(dim=1).detach() @ relevance
    return relevance


def gradients_of(score: Tensor, weights: list[Tensor]) -> tuple[Tensor, ...]:
    """∂score/∂A for the weights A of each block. (B,), L times (B, h, T, T) → L times (B, h, T, T).

    Raises ValueError where the score does not depend on them.
    """
    try:
        return torch.autograd.grad(score.sum(), weights)
    except torch.OutOfMemoryError:  # a RuntimeError, but no fault of the score's
        raise
    except RuntimeError as error:
        raise ValueError(f"score must depend on the weights, and the graph still be there: {error}") from None


def patch_map(attention: Tensor, grid: Grid, query: int = 0, num_prefix_tokens: int = 1) -> Tensor:
    """One query's attention to the patches, laid out as they lie in the picture. (..., T, T) → (..., rows, columns).

    query: a token's number; 0 is the class token where there is one. The prefix tokens' share is left away, and nothing
    is renormalised. Raises ValueError where grid, tokens and query do not fit together.
    """
    check_tensors(attention=attention)
    if attention.ndim < 2:
        raise ValueError(f"attention must have shape (..., T, T), got {tuple(attention.shape)}")
    check_grid(attention.shape[-1], grid, num_prefix_tokens)
    check_sizes(None, query=query)
    if not -attention.shape[-2] <= query < attention.shape[-2]:
        raise ValueError(f"query must be the number of one of {attention.shape[-2]} tokens, got {query}")
    return attention[..., query, num_prefix_tokens:].unflatten(-1, grid)


def class_map(attention: Tensor, grid: Grid, num_prefix_tokens: int = 1) -> Tensor:
    """The class token's attention to the patches. (..., T, T) → (..., rows, columns).

    Raises ValueError where there is no class token, or grid and tokens do not fit together.
    """
    check_sizes(0, num_prefix_tokens=num_prefix_tokens)
    if num_prefix_tokens < 1:
        raise ValueError(
            "this model has no class token (num_prefix_tokens 0) whose attention could be shown: name a patch as query"
        )
    return patch_map(attention, grid, 0, num_prefix_tokens)


def attention_distance(weights: Tensor, grid: Grid, patch_size: int, num_prefix_tokens: int = 1) -> Tensor:
    """How far each head looks, in pixels. (L, B, h, T, T) → (L, h).

    The Euclidean distance between the centres of the query's and the key's patch, weighted by attention, averaged over
    patch queries and pictures (Dosovitskiy et al. 2021, Figure 7). Differs: the class token is left out as query and as
    key, and the remaining weights are renormalised to sum to 1; the authors' snippet leaves it out without that.
    """
    check_weights(weights)
    between_patches = only_patches(weights, grid, num_prefix_tokens)
    distances = patch_distances(grid, patch_size).to(weights)
    return (between_patches * distances).sum(dim=-1).mean(dim=(1, 3))


def patch_distances(grid: Grid, patch_size: int) -> Tensor:
    """Distances between the centres of all patches, in pixels. → (N, N)."""
    check_grids(grid=grid)
    check_sizes(patch_size=patch_size)
    rows, columns = torch.arange(grid[0]), torch.arange(grid[1])
    centres = torch.cartesian_prod(rows, columns).view(-1, 2).to(torch.get_default_dtype()) * patch_size
    return torch.cdist(centres, centres, compute_mode="donot_use_mm_for_euclid_dist")


def only_patches(weights: Tensor, grid: Grid, num_prefix_tokens: int = 1) -> Tensor:
    """The weights among patches alone, each row renormalised to sum to 1. (..., T, T) → (..., N, N)."""
    check_floats(weights=weights)
    if weights.ndim < 2 or weights.shape[-1] != weights.shape[-2]:
        raise ValueError(f"weights must have shape (..., T, T), got {tuple(weights.shape)}")
    check_grid(weights.shape[-1], grid, num_prefix_tokens)
    among = weights[..., num_prefix_tokens:, num_prefix_tokens:]
    return among / among.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)


def attention_entropy(weights: Tensor) -> Tensor:
    """How evenly each head spreads its attention, in nats: 0 for one token alone, ln T for all alike.

    (L, B, h, T, T) → (L, h), the mean over queries and pictures.
    """
    check_weights(weights)
    return torch.special.entr(weights).sum(dim=-1).mean(dim=(1, 3))


def position_similarity(pos_embed: Tensor, grid: Grid, num_prefix_tokens: int = 1) -> Tensor:
    """Cosine of each patch's position with every other's, as maps. (1, T, D) → (N, rows, columns), in −1 … 1.

    Dosovitskiy et al. 2021, Figure 7 (centre).
    """
    check_floats(pos_embed=pos_embed)
    check_shape("pos_embed", pos_embed, 1, "T", "D")
    check_grid(pos_embed.shape[-2], grid, num_prefix_tokens)
    directions = F.normalize(pos_embed[0, num_prefix_tokens:], dim=-1)
    return (directions @ directions.T).unflatten(1, grid)


def patch_filters(weight: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The principal components of the patch projection, as pictures. (D, C, P, P) → (count, C, P, P), (count,).

    Dosovitskiy et al. 2021, Figure 7 (left). Second: the share of the filters' variance that each explains, largest
    first. Raises ValueError where there are not that many components.
    """
    check_floats(weight=weight)
    check_shape("weight", weight, "D", "C", "P", "P")
    check_sizes(None, count=count)
    filters = weight.flatten(1)
    if not 1 <= count <= min(filters.shape):
        raise ValueError(f"count must lie in 1 … {min(filters.shape)}, got {count}")
    _, singular_values, components = decomposed("weight", filters - filters.mean(dim=0))
    variance = singular_values.square()
    return components[:count].unflatten(1, weight.shape[1:]), (variance / variance.sum())[:count]


def check_recorded(weights: list[Tensor]) -> None:
    """Raise TypeError or ValueError unless weights is a list of (B, h, T, T), all of one shape, and not empty."""
    if not isinstance(weights, (list, tuple)) or not weights:
        raise TypeError(f"weights must be a list of tensors, one for each block, got {type(weights).__name__}")
    check_shape("weights", weights[0], "B", "h", "T", "T")
    for one in weights:
        check_shape("weights", one, *weights[0].shape[:-1], weights[0].shape[-2])


def check_weights(weights: Tensor) -> None:
    """Raise TypeError or ValueError unless weights has shape (L, B, h, T, T)."""
    check_floats(weights=weights)
    if weights.ndim != 5 or weights.shape[-1] != weights.shape[-2]:
        raise ValueError(f"weights must have shape (L, B, h, T, T), got {tuple(weights.shape)}")


def check_number(name: str, number: int, count: int) -> int:
    """The number of a block or head, counted from 0; −1 is the last. Raises ValueError where there is no such one."""
    check_sizes(None, **{name: number})
    if not -count <= number < count:
        raise ValueError(f"{name} must lie in 0 … {count - 1}, or -{count} … -1 from the end, got {number}")
    return number % count


def check_grid(tokens: int, grid: Grid, num_prefix_tokens: int) -> None:
    """Raise TypeError or ValueError unless prefix tokens and patches together are all the tokens."""
    check_grids(grid=grid)
    check_sizes(0, num_prefix_tokens=num_prefix_tokens)
    expected = num_prefix_tokens + grid[0] * grid[1]
    if tokens != expected:
        raise ValueError(f"{num_prefix_tokens} + {grid[0]}·{grid[1]} = {expected} tokens expected, got {tokens}")

"""Scaled dot-product attention, softmax(QKᵀ/√d)V, as pure functions with nothing to learn.

Every function takes any number of leading dimensions (a batch, heads), which broadcast.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from vitbook.runtime import has_bfloat16

Mask = Bool[Tensor, "..."]  # broadcastable to the scores (..., queries, keys); True where a query may look

MOST_WEIGHTS = 2**26  # that the explicit form may store at once: 128 MiB in bfloat16
# Whether the CPU has a unit for products of bfloat16 matrices; taken for granted where torch cannot say
MATRIX_UNIT = getattr(torch.cpu, "get_capabilities", dict)().get("amx_bf16", True)


def attention_scores(
    q: Float[Tensor, "*#batch queries d"], k: Float[Tensor, "*#batch keys d"]
) -> Float[Tensor, "*#batch queries keys"]:
    """How well each query matches each key: QKᵀ/√d.

    Vaswani et al. 2017, section 3.2.1. If the entries of q and k are independent with mean 0 and variance 1, then q·k
    has variance d; dividing by √d brings it back to 1 for every width. In float16, QKᵀ must stay below 65,504.
    """
    return q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])


def attention_weights(scores: Float[Tensor, "*#batch queries keys"], mask: Mask | None = None) -> Float[Tensor, "..."]:
    """Softmax over the keys: each query's row sums to 1. A query that may look nowhere gets a row of zeros."""
    if mask is None:
        return scores.softmax(dim=-1)
    _check_mask(mask)
    return scores.masked_fill(~mask, -math.inf).softmax(dim=-1).masked_fill(~mask, 0.0)


def attention(
    q: Float[Tensor, "*#batch queries d"],
    k: Float[Tensor, "*#batch keys d"],
    v: Float[Tensor, "*#batch keys d_v"],
    mask: Mask | None = None,
    *,
    dropout_p: float = 0.0,
) -> tuple[Float[Tensor, "... queries d_v"], Float[Tensor, "... queries keys"]]:
    """softmax(QKᵀ/√d)V, and the weights that made it, as they were before dropout. Vaswani et al. 2017, Eq. 1.

    dropout_p: probability with which each weight is set to zero while the others grow by 1/(1 − p). It applies whenever
    it is not 0, so a module passes 0 in evaluation. Raises ValueError for a mask that is not boolean.
    """
    weights = attention_weights(attention_scores(q, k), mask)
    return F.dropout(weights, dropout_p) @ v, weights


def fused_attention(
    q: Float[Tensor, "*#batch queries d"],
    k: Float[Tensor, "*#batch keys d"],
    v: Float[Tensor, "*#batch keys d_v"],
    mask: Mask | None = None,
    *,
    dropout_p: float = 0.0,
) -> Float[Tensor, "... queries d_v"]:
    """The output of `attention`, to rounding, by torch's fused kernel where it has one: no weights are stored."""
    if mask is not None:
        _check_mask(mask)
        q = q.expand(*torch.broadcast_shapes(q.shape[:-2], mask.shape[:-2]), *q.shape[-2:])
        mask = torch.atleast_2d(mask)  # torch lets a mask broadcast no further than the scores
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout_p)


def quickest_attention(
    q: Float[Tensor, "*#batch queries d"],
    k: Float[Tensor, "*#batch keys d"],
    v: Float[Tensor, "*#batch keys d_v"],
    mask: Mask | None = None,
    *,
    dropout_p: float = 0.0,
) -> Float[Tensor, "... queries d_v"]:
    """The output of `attention` from whichever of its two forms is quicker here.

    Nearly always that is the fused kernel. On a CPU with bfloat16 it is, in bfloat16, the explicit form, as long as the
    weights fit easily into memory: there the gradient of the fused kernel takes several times as long, and without a
    matrix unit its output takes longer too.
    """
    if q.dtype == torch.bfloat16 and q.device.type == "cpu" and has_bfloat16(q.device):
        differentiated = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
        weights = math.prod(q.shape[:-1]) * k.shape[-2]
        if (differentiated or not MATRIX_UNIT) and weights <= MOST_WEIGHTS:
            return attention(q, k, v, mask, dropout_p=dropout_p)[0]
    return fused_attention(q, k, v, mask, dropout_p=dropout_p)


def gaussian_attention(
    q: Float[Tensor, "*#batch queries d"],
    k: Float[Tensor, "*#batch keys d"],
    v: Float[Tensor, "*#batch keys d_v"],
    bandwidth: float = 1.0,
) -> tuple[Float[Tensor, "... queries d_v"], Float[Tensor, "... queries keys"]]:
    """Attention pooling with a Gaussian kernel: f(q) = Σᵢ α(q, kᵢ)vᵢ with α ∝ exp(−‖q − kᵢ‖²/2σ²), σ the bandwidth.

    Nadaraya 1964, Watson 1964. In float16, ‖q − kᵢ‖² and ‖q − kᵢ‖²/2σ² must stay below 65,504. Raises ValueError for a
    bandwidth that is not positive, and for queries and keys of different widths, which would broadcast.
    """
    if not bandwidth > 0:
        raise ValueError(f"bandwidth must be positive, got {bandwidth}")
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(f"queries and keys must be equally wide, got d = {q.shape[-1]} for q and {k.shape[-1]} for k")
    squared_distances = (q.unsqueeze(-2) - k.unsqueeze(-3)).square().sum(dim=-1)
    weights = attention_weights(-squared_distances / (2 * bandwidth**2))
    return weights @ v, weights


def _check_mask(mask: Tensor) -> None:
    """Other libraries add a float mask to the scores, and give True to what is hidden."""
    if mask.dtype != torch.bool:
        raise ValueError(f"mask must be boolean, True where a query may look, got {mask.dtype}")

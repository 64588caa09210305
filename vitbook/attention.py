"""Scaled dot-product attention as pure functions, with nothing to learn.

Symbols: T_q queries, T_k keys and as many values; queries and keys are d wide, values d_v wide. Every function takes
any number of leading dimensions (a batch, heads), written `...`, which broadcast.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from vitbook._support.validation import check_floats, check_positive, check_shares, check_tensors
from vitbook.runtime import has_bfloat16

MOST_WEIGHTS = 2**26  # so many `quickest_attention` may store at once: 128 MiB in bfloat16
# Whether the CPU has a unit for products of bfloat16 matrices; taken for granted where torch cannot say
MATRIX_UNIT = getattr(torch.cpu, "get_capabilities", dict)().get("amx_bf16", True)


def attention_scores(q: Tensor, k: Tensor) -> Tensor:
    """How well each query matches each key: QKᵀ/√d. (..., T_q, d), (..., T_k, d) → (..., T_q, T_k).

    Vaswani et al. 2017, section 3.2.1. For independent entries of mean 0 and variance 1, q·k has variance d;
    dividing by √d brings it back to 1 whatever the width.

    In float16, QKᵀ has to stay below 65,504 before it is divided; the fused kernel does not mind.
    """
    check_attention_inputs(q, k, k)
    return q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])


def attention_weights(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Softmax over the keys, so that each query's row sums to 1. (..., T_q, T_k) → (..., T_q, T_k).

    mask: boolean, broadcastable to the scores; True where a query may look. A query that may look nowhere gets a row of
    zeros, as in torch's fused kernel.
    """
    check_scores_and_mask(scores, mask)
    if mask is None:
        return scores.softmax(dim=-1)
    weights = scores.masked_fill(~mask, -math.inf).softmax(dim=-1)
    return weights.masked_fill(~mask, 0.0)


def attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *, dropout_p: float = 0.0
) -> tuple[Tensor, Tensor]:
    """softmax(QKᵀ/√d)V, step by step. (..., T_q, d), (..., T_k, d), (..., T_k, d_v) → (..., T_q, d_v), (..., T_q, T_k).

    Vaswani et al. 2017, Eq. 1. Returns the output and the weights that made it, as they were before dropout.

    mask: boolean, broadcastable to (..., T_q, T_k); True where a query may look.
    dropout_p: probability with which each weight is set to zero, the others growing by 1/(1 − p). It is applied
        whenever it is not 0: a module passes 0 in evaluation.

    Raises ValueError where the shapes do not fit or the mask is not boolean.
    """
    check_attention_inputs(q, k, v, mask, dropout_p)
    weights = attention_weights(attention_scores(q, k), mask)
    return F.dropout(weights, dropout_p) @ v, weights


def fused_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *, dropout_p: float = 0.0) -> Tensor:
    """The output of `attention` from torch's fused kernel, which never stores the (..., T_q, T_k) weights.

    Same arguments, same errors and, to rounding, the same output and gradients as `attention`.
    """
    check_attention_inputs(q, k, v, mask, dropout_p)
    if mask is not None:  # torch lets a mask broadcast no further than the scores
        mask = torch.atleast_2d(mask)
        q = q.expand(*torch.broadcast_shapes(q.shape[:-2], mask.shape[:-2]), *q.shape[-2:])
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout_p)


def quickest_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *, dropout_p: float = 0.0
) -> Tensor:
    """The output of `attention`, by whichever of the two forms is quicker here; the arguments are the same.

    Nearly always that is the fused kernel. On a CPU that has bfloat16 it is, in bfloat16, the explicit form, as long as
    the (..., T_q, T_k) weights fit into memory with ease: the fused kernel's gradient takes several times as long
    there, and without a matrix unit its output takes longer, too.
    """
    check_tensors(q=q, k=k, v=v)
    differentiated = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
    slow_kernel = q.dtype == torch.bfloat16 and (differentiated or not MATRIX_UNIT)
    weights = math.prod((*q.shape[:-1], *k.shape[-2:-1]))
    if slow_kernel and q.device.type == "cpu" and has_bfloat16(q.device) and weights <= MOST_WEIGHTS:
        return attention(q, k, v, mask, dropout_p=dropout_p)[0]
    return fused_attention(q, k, v, mask, dropout_p=dropout_p)


def gaussian_attention(q: Tensor, k: Tensor, v: Tensor, bandwidth: float = 1.0) -> tuple[Tensor, Tensor]:
    """Attention pooling with a Gaussian kernel: f(q) = Σᵢ α(q, kᵢ)vᵢ with α ∝ exp(−‖q − kᵢ‖²/2σ²), σ the bandwidth.

    (..., T_q, d), (..., T_k, d), (..., T_k, d_v) → (..., T_q, d_v), (..., T_q, T_k). Nadaraya 1964, Watson 1964.

    In float16, ‖q − kᵢ‖² and ‖q − kᵢ‖²/2σ² have to stay below 65,504. Raises ValueError where the shapes do not fit or
    the bandwidth is not positive.
    """
    check_attention_inputs(q, k, v)
    check_positive(bandwidth=bandwidth)
    squared_distances = (q.unsqueeze(-2) - k.unsqueeze(-3)).square().sum(dim=-1)
    weights = attention_weights(-squared_distances / (2 * bandwidth**2))
    return weights @ v, weights


def check_attention_inputs(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, dropout_p: float = 0.0) -> None:
    """Raise TypeError or ValueError, with what was expected and what came, unless the arguments fit together.

    (..., T_q, d), (..., T_k, d), (..., T_k, d_v), (..., T_q, T_k).
    """
    check_floats(q=q, k=k, v=v)
    check_shares(dropout_p=dropout_p)
    same = q.shape == k.shape == v.shape and q.dtype == k.dtype == v.dtype
    same = same and q.device == k.device == v.device
    if mask is None and same and q.ndim > 1 and 0 not in q.shape[-2:]:
        return  # as in self-attention: nothing is left to check, and in a small model checking costs time
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.ndim < 2:
            raise ValueError(f"{name} must have shape (..., tokens, width), got {tuple(x.shape)}")
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(f"queries and keys must be equally wide, got d = {q.shape[-1]} for q and {k.shape[-1]} for k")
    if q.shape[-1] == 0 or k.shape[-2] == 0:
        raise ValueError(f"attention needs at least one key of width at least 1, got k of shape {tuple(k.shape)}")
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(f"each key needs one value, got {k.shape[-2]} keys and {v.shape[-2]} values")
    if not q.device == k.device == v.device:
        raise ValueError(f"q, k and v must be on one device, got {q.device}, {k.device} and {v.device}")
    if not q.dtype == k.dtype == v.dtype and not torch.is_autocast_enabled(q.device.type):
        raise ValueError(f"q, k and v must be of one dtype, got {q.dtype}, {k.dtype} and {v.dtype}")
    leading = [x.shape[:-2] for x in (q, k, v)]
    try:
        batch = torch.broadcast_shapes(*leading)
    except RuntimeError:
        shapes = ", ".join(str(tuple(shape)) for shape in leading)
        raise ValueError(f"the leading dimensions of q, k and v must broadcast, got {shapes}") from None
    if mask is not None:
        check_mask(mask, (*batch, q.shape[-2], k.shape[-2]))
        if mask.device != q.device:
            raise ValueError(f"mask must be on the queries' device {q.device}, got {mask.device}")


def check_scores_and_mask(scores: Tensor, mask: Tensor | None) -> None:
    """Raise TypeError or ValueError unless scores are (..., T_q, T_k), floating-point, and the mask fits them."""
    check_floats(scores=scores)
    if scores.ndim < 1:
        raise ValueError(f"scores must have shape (..., T_q, T_k), got {tuple(scores.shape)}")
    if mask is None:
        return
    check_tensors(mask=mask)
    try:  # the mask may be there for more examples than the scores
        leading = torch.broadcast_shapes(scores.shape[:-2], mask.shape[:-2])
    except RuntimeError:
        leading = scores.shape[:-2]
    check_mask(mask, (*leading, *scores.shape[-2:]))


def check_mask(mask: Tensor, expected: tuple[int, ...]) -> None:
    """Raise TypeError or ValueError unless the mask is boolean and broadcasts to the scores' (..., T_q, T_k)."""
    check_tensors(mask=mask)
    if mask.dtype != torch.bool:
        raise ValueError(f"mask must be boolean, True where a query may look, got {mask.dtype}")
    try:
        fits = torch.broadcast_shapes(mask.shape, expected) == torch.Size(expected)
    except RuntimeError:
        fits = False
    if not fits:
        raise ValueError(f"mask must broadcast to the scores' (..., T_q, T_k) = {expected}, got {tuple(mask.shape)}")

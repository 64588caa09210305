"""Which form of attention is quicker where: the one place that chooses."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from vitbook.attention import Mask, attention, fused_attention
from vitbook.runtime import has_bfloat16

MOST_WEIGHTS = 2**26  # that the explicit form may store at once: 128 MiB in bfloat16
# Whether the CPU has a unit for products of bfloat16 matrices; taken for granted where torch cannot say
MATRIX_UNIT = getattr(torch.cpu, "get_capabilities", dict)().get("amx_bf16", True)


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

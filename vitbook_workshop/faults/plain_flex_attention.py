"""torch's `flex_attention` by plain operations, which can be watched and, on a CPU too, have gradients."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

MODULE = "torch.nn.attention.flex_attention"


@contextmanager
def plain_flex_attention() -> Iterator[None]:
    """Meanwhile it is plain for everybody who has imported it, under whatever name; where nobody has, nothing is done.

    torch's own refuses gradients on a CPU, and compiles; so its code itself is exchanged.
    """
    function = getattr(sys.modules.get(MODULE), "flex_attention", None)
    if function is None:
        yield
        return
    kept = function.__code__, function.__defaults__, function.__kwdefaults__
    try:
        function.__code__, function.__defaults__, function.__kwdefaults__ = _entry.__code__, None, None
        yield
    finally:
        function.__code__, function.__defaults__, function.__kwdefaults__ = kept


def _entry(*args, **kwargs):  # runs among the globals of torch's module
    from vitbook_workshop.faults.plain_flex_attention import attend

    return attend(*args, **kwargs)


def attend(
    query, key, value, score_mod=None, block_mask=None, scale=None, enable_gqa=False, return_lse=False, *_, **unread
):
    """Scores (B, h, T_q, T_k), as score_mod changes them and block_mask hides them; softmax; values."""
    if enable_gqa:
        key, value = (x.repeat_interleave(query.shape[1] // key.shape[1], dim=1) for x in (key, value))
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    places = torch.meshgrid(*(torch.arange(n, device=query.device) for n in scores.shape), indexing="ij")
    if score_mod is not None:
        scores = score_mod(scores, *places)
    if block_mask is not None:
        scores = scores.masked_fill(~block_mask.mask_mod(*places), -float("inf"))
    output = scores.softmax(dim=-1) @ value
    return (output, scores.logsumexp(dim=-1)) if return_lse else output

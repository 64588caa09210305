"""Kernels of torch's by plain operations, which can be watched and, on a CPU too, have gradients."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FunctionType

import torch
import torch.nested._internal.sdpa  # half a millisecond; a model that needs it may import it only as it runs
import torch.nn.functional as F
from torch.utils.checkpoint import CheckpointFunction


@contextmanager
def plain_kernels() -> Iterator[None]:
    """Meanwhile `flex_attention` and attention on jagged tensors are plain, and checkpoints keep what is computed.

    For everybody who has imported them, under whatever name: torch's own code is exchanged.
    """
    with ExitStack() as stack:
        for module, name, entry in (
            ("torch.nn.attention.flex_attention", "flex_attention", _flex),
            ("torch.nested._internal.sdpa", "jagged_scaled_dot_product_attention", _jagged),
        ):
            function = getattr(sys.modules.get(module), name, None)
            if function is not None:
                stack.enter_context(_exchanged(function, entry))
        CheckpointFunction.apply = staticmethod(lambda run, preserve, *args: run(*args))  # shadows Function.apply
        stack.callback(delattr, CheckpointFunction, "apply")
        yield


@contextmanager
def _exchanged(function: FunctionType, entry: FunctionType) -> Iterator[None]:
    kept = function.__code__, function.__defaults__, function.__kwdefaults__
    try:
        function.__code__, function.__defaults__, function.__kwdefaults__ = entry.__code__, None, None
        yield
    finally:
        function.__code__, function.__defaults__, function.__kwdefaults__ = kept


def _flex(*args, **kwargs):  # runs among the globals of torch's module
    from vitbook_workshop.faults.recorders.plain_kernels import attend

    return attend(*args, **kwargs)


def _jagged(*args, **kwargs):
    from vitbook_workshop.faults.recorders.plain_kernels import attend_one_by_one

    return attend_one_by_one(*args, **kwargs)


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


def attend_one_by_one(query, key, value, *args, **kwargs):
    """Of jagged tensors (B, h, T, d), with as many tokens T in each as there are."""
    images = zip(query.unbind(), key.unbind(), value.unbind(), strict=True)
    outputs = [F.scaled_dot_product_attention(*(x[None] for x in image), *args, **kwargs)[0] for image in images]
    rows = torch.cat([output.transpose(0, 1) for output in outputs])  # (all tokens, h, d)
    return torch.nested.nested_tensor_from_jagged(rows, query.offsets()).transpose(1, 2)

"""One head of self-attention is attention among three views of the same tokens."""

import pytest
import small_models
import torch
from small_models import B, D, T, close

from vitbook.attention import attention
from vitbook.self_attention import SelfAttention

pytestmark = pytest.mark.usefixtures("precision")


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("mask", [None, torch.ones(T, T).tril() > 0], ids=["unmasked", "masked"])
def test_the_head_is_the_equation(bias, mask):
    head, x = small_models.shake(SelfAttention(D, 4, bias=bias)), torch.randn(B, T, D)
    q, k, v = (x @ linear.weight.T + (linear.bias if bias else 0) for linear in (head.query, head.key, head.value))
    for got, expected in zip(head(x, mask), attention(q, k, v, mask), strict=True):
        close(got, expected)

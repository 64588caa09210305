"""Equations of the chapters that no module computes as they stand there: each against its parts."""

import math

import pytest
import torch
from small_models import HEADS, B, D, T, close, shake

from vitbook.attention import attention, gaussian_attention
from vitbook.multihead import MultiHeadSelfAttention, merge_heads, split_heads
from vitbook.transformer import sincos_positions

both_precisions = pytest.mark.usefixtures("precision")


@both_precisions
def test_keys_that_carry_half_their_square_make_attention_a_gaussian_kernel():
    c = torch.randn(T, 3)
    u = c.square().sum(dim=1, keepdim=True) / 2
    q, k = math.sqrt(4) * torch.cat([c, torch.ones(T, 1)], dim=1), torch.cat([c, -u], dim=1)
    close(attention(q, k, c)[1], gaussian_attention(c, c, c)[1])


@both_precisions
def test_the_projection_is_a_sum_over_heads():
    layer, x = shake(MultiHeadSelfAttention(D, HEADS)), torch.randn(B, T, D)
    heads = attention(*(split_heads(part, HEADS) for part in layer.qkv(x).chunk(3, dim=-1)))[0]
    close(layer(x), merge_heads(heads) @ layer.proj.weight.T + layer.proj.bias)
    slices = layer.proj.weight.T.split(D // HEADS)  # W_O^i: rows of W_O
    close(layer(x), sum(heads[:, i] @ slices[i] for i in range(HEADS)) + layer.proj.bias)


@both_precisions
@pytest.mark.parametrize("k", [-3, 1, 7])
def test_moving_on_by_k_positions_turns_each_pair_of_a_code(k):
    table = sincos_positions(20, D)
    angle = k / 10_000 ** (torch.arange(0, D, 2) / D)
    sines, cosines = table[5:9, 0::2], table[5:9, 1::2]
    turned = [angle.cos() * sines + angle.sin() * cosines, angle.cos() * cosines - angle.sin() * sines]
    close(torch.stack(turned, dim=-1).flatten(1), table[5 + k : 9 + k])

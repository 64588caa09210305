"""Attention is seen however it is written, with its width, its scale and what its weights sum to."""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from small_models import HEADS, B, D, T
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from vitbook.multihead import HeadShapedAttention, ListOfHeads, MultiHeadSelfAttention
from vitbook_workshop.faults.recorders.operations import attentions_of, is_right_scale
from vitbook_workshop.faults.recorders.plain_kernels import plain_kernels

Q, K, V = (torch.linspace(-1, 2, B * HEADS * T * 4).view(B, HEADS, T, 4).roll(i) for i in (0, 5, 11))


def baddbmm(q, k, v):
    scores = torch.baddbmm(torch.empty(1), q.flatten(0, 1), k.flatten(0, 1).mT, beta=0, alpha=0.5)
    return scores.softmax(dim=-1) @ v.flatten(0, 1)


WAYS = {
    "matmul": lambda q, k, v: (q @ k.mT / math.sqrt(4)).softmax(dim=-1) @ v,
    "scaled queries": lambda q, k, v: ((q * 4**-0.5) @ k.transpose(-2, -1)).softmax(dim=-1) @ v,
    "in place": lambda q, k, v: F.softmax((q @ k.mT).div_(2), dim=3) @ v,
    "half and half": lambda q, k, v: ((q * 2**-0.5) @ (k * 2**-0.5).mT).softmax(dim=-1) @ v,
    "a tensor as scale": lambda q, k, v: (q @ k.mT / torch.tensor(4.0).sqrt()).softmax(dim=-1) @ v,
    "einsum": lambda q, k, v: torch.einsum(
        "bhts,bhsd->bhtd", (torch.einsum("bhtd,bhsd->bhts", q, k) / 2).softmax(dim=-1), v
    ),
    "keys first": lambda q, k, v: (k @ q.mT / 2).softmax(dim=-2).mT @ v,
    "values first": lambda q, k, v: v.mT @ (k @ q.mT / 2).softmax(dim=-2),
    "baddbmm": baddbmm,
    "with a mask": lambda q, k, v: (q @ k.mT / 2).masked_fill(torch.ones(T, T).triu(1) > 0, -math.inf).softmax(-1) @ v,
    "with a bias": lambda q, k, v: (q @ k.mT / 2 + torch.ones(T, T)).softmax(dim=-1) @ v,
    "fused": lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
    "with dropout of 0": lambda q, k, v: F.dropout((q @ k.mT / 2).softmax(dim=-1), 0.0) @ v,
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_right_attention_is_seen_as_right(way):
    (look,) = attentions_of(lambda: way(Q, K, V))
    assert look.width == 4 and look.factor == pytest.approx(0.5) and is_right_scale(look)
    torch.testing.assert_close(look.sums, torch.ones_like(look.sums))


@pytest.mark.parametrize(
    ("way", "factor", "sums_to_one"),
    [
        (lambda q, k, v: (q @ k.mT).softmax(dim=-1) @ v, 1, True),
        (lambda q, k, v: (q @ k.mT * 2).softmax(dim=-1) @ v, 2, True),
        (lambda q, k, v: (q @ k.mT / math.sqrt(12)).softmax(dim=-1) @ v, 12**-0.5, True),
        (lambda q, k, v: ((q / 2) @ k.mT / 2).softmax(dim=-1) @ v, 0.25, True),
        (lambda q, k, v: F.scaled_dot_product_attention(q / 2, k, v), 0.25, True),
        (lambda q, k, v: (q @ k.mT).softmax(dim=-1) / 2 @ v, 1, False),
        (lambda q, k, v: (q @ k.mT / 2).softmax(dim=-2) @ v, 0.5, False),
        (lambda q, k, v: (q @ k.mT / 2).softmax(dim=0) @ v, 0.5, False),
        (lambda q, k, v: (q @ k.mT / 2).softmax(dim=-1).masked_fill(torch.eye(T) > 0, 0) @ v, 0.5, False),
    ],
)
def test_wrong_attention_is_seen_as_wrong(way, factor, sums_to_one):
    (look,) = attentions_of(lambda: way(Q, K, V))
    assert look.factor == pytest.approx(factor)
    assert is_right_scale(look) == (factor == 0.5)
    assert torch.allclose(look.sums, torch.ones_like(look.sums)) == sums_to_one


@pytest.mark.parametrize(
    ("layer", "count"),
    [
        (MultiHeadSelfAttention(D, HEADS), 1),
        (ListOfHeads(D, HEADS), HEADS),
        (HeadShapedAttention(D, HEADS), 1),
        (nn.TransformerEncoderLayer(D, HEADS, batch_first=True), 1),
        (nn.Sequential(nn.Linear(D, D), nn.Softmax(dim=-1), nn.Linear(D, D)), 0),
    ],
)
def test_layers_are_seen_and_what_is_no_attention_is_not(layer, count):
    looks = attentions_of(lambda: layer.eval()(torch.randn(B, T, D)))
    assert [is_right_scale(look) for look in looks] == [True] * count
    assert all(look.width == D // HEADS for look in looks)


@pytest.mark.slow
def test_flex_attention_by_plain_operations_is_torchs():
    q, k, v = (torch.randn(B, HEADS, T, 4) for _ in range(3))
    mask = create_block_mask(lambda b, h, i, j: i + 1 >= j, None, None, T, T, device="cpu")
    call = partial(flex_attention, q, k, v, lambda score, b, h, i, j: score + h * (i - j), mask, scale=0.3)
    expected, code = call(), flex_attention.__code__
    with plain_kernels():
        (look,) = attentions_of(lambda: torch.testing.assert_close(call(), expected))
    assert look.factor == pytest.approx(0.3) and flex_attention.__code__ is code


def test_watching_changes_nothing():
    layer, x = MultiHeadSelfAttention(D, HEADS), torch.randn(B, T, D)
    seen = []
    attentions_of(lambda: seen.append(layer(x)))
    torch.testing.assert_close(seen[0], layer(x), rtol=0, atol=0)


def test_attention_is_seen_in_a_layer_that_torch_can_run_as_one_operation():
    layer = nn.TransformerEncoderLayer(D, HEADS, batch_first=True).eval()
    with torch.no_grad():
        assert len(attentions_of(lambda: layer(torch.randn(B, T, D)))) == 1

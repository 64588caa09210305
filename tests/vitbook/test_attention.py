"""Attention agrees with torch's own, and with its definition."""

import math

import pytest
import small_models
import torch
from small_models import HEADS, B, S, T, close

from vitbook.attention import attention, fused_attention, gaussian_attention
from vitbook_workshop.faults.checks.parts import attention_equals_torch

both_precisions = pytest.mark.usefixtures("precision")


def queries_keys_values(*leading: int):
    return torch.randn(*leading, T, 4), torch.randn(*leading, S, 4), torch.randn(*leading, S, 6)


@both_precisions
def test_fused_attention_equals_torch():
    attention_equals_torch(lambda q, k, v, mask=None: (fused_attention(q, k, v, mask), None))


@both_precisions
@pytest.mark.parametrize("mask_shape", [None, (), (S,), (T, 1), (HEADS, 1, S), (1, 1, T, S)])
def test_leading_dimensions_broadcast_and_the_fused_kernel_agrees(mask_shape):
    q, k, v = torch.randn(B, 1, T, 4), torch.randn(HEADS, S, 4), torch.randn(1, 1, S, 6)
    mask = None if mask_shape is None else torch.rand(mask_shape) < 0.6
    small_models.same_map(lambda *qkv: attention(*qkv, mask)[0], lambda *qkv: fused_attention(*qkv, mask), q, k, v)
    apart = attention(q.expand(B, HEADS, T, 4), k.expand(B, HEADS, S, 4), v.expand(B, HEADS, S, 6), mask)
    for got, expected in zip(attention(q, k, v, mask), apart, strict=True):
        close(got.expand_as(expected), expected)


@pytest.mark.parametrize("leading", [(), (1,)])
def test_queries_and_keys_of_one_example_serve_many_values_and_masks(leading):
    q, k, _ = queries_keys_values(*leading)
    v, mask = torch.randn(B, S, 6), torch.rand(B, T, S) < 0.6
    close(fused_attention(q, k, v, mask), attention(q, k, v, mask)[0])


@both_precisions
def test_where_nothing_may_be_seen_the_output_and_the_gradients_are_zero():
    leaves = [x.requires_grad_() for x in queries_keys_values()]
    output, weights = attention(*leaves, torch.zeros(T, S, dtype=torch.bool))
    assert not output.any() and not weights.any()
    for gradient in torch.autograd.grad(output.sum(), leaves):
        assert not gradient.any()


def test_dropout_keeps_the_output_on_average_and_the_returned_weights_as_they_were():
    q, k, v = queries_keys_values()
    output, weights = attention(q, k, v)
    dropped = [attention(q, k, v, dropout_p=0.25) for _ in range(1000)]
    torch.testing.assert_close(torch.stack([o for o, _ in dropped]).mean(dim=0), output, rtol=0, atol=0.1)
    assert all(torch.equal(w, weights) for _, w in dropped)
    assert all(small_models.differ(o, output) for o, _ in dropped[:5])


@both_precisions
def test_gaussian_attention_is_kernel_regression_written_as_loops():
    q, k, v = queries_keys_values()
    expected = torch.zeros(T, S)
    for t in range(T):
        for s in range(S):
            expected[t, s] = math.exp(-sum((a - b) ** 2 for a, b in zip(q[t], k[s], strict=True)) / (2 * 0.7**2))
    expected /= expected.sum(dim=1, keepdim=True)
    output, weights = gaussian_attention(q, k, v, bandwidth=0.7)
    close(weights, expected)
    close(output, expected @ v)

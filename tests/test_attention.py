"""Attention agrees with torch's own, with loops, and with its definition."""

import math

import properties as check
import pytest
import torch
from properties import HEADS, B, S, T, close

from vitbook.attention import (
    attention,
    attention_scores,
    attention_weights,
    fused_attention,
    gaussian_attention,
    quickest_attention,
)

both_precisions = pytest.mark.usefixtures("precision")


def queries_keys_values(*leading: int):
    return torch.randn(*leading, T, 4), torch.randn(*leading, S, 4), torch.randn(*leading, S, 6)


def fused(q, k, v, mask=None):
    return fused_attention(q, k, v, mask), None


@both_precisions
@pytest.mark.parametrize("implementation", [attention, fused])
def test_attention_equals_torch(implementation):
    check.attention_equals_torch(implementation)


@both_precisions
@pytest.mark.parametrize("test", [check.rows_sum_to_one, check.hidden_keys_do_not_leak], ids=lambda test: test.__name__)
def test_property(test):
    test(attention)


@both_precisions
def test_attention_is_the_weighted_mean_written_as_loops():
    q, k, v = queries_keys_values()
    expected = torch.zeros(T, 6)
    for t in range(T):
        shares = [math.exp(sum(a * b for a, b in zip(q[t].tolist(), k[s].tolist(), strict=True)) / 2) for s in range(S)]
        for s in range(S):
            expected[t] += shares[s] / sum(shares) * v[s]
    close(attention(q, k, v)[0], expected)


@both_precisions
@pytest.mark.parametrize("mask_shape", [None, (T, S), (T, 1), (1, S), (HEADS, 1, S), (1, 1, T, S)])
def test_leading_dimensions_broadcast_and_the_fused_kernel_agrees(mask_shape):
    q, k, v = torch.randn(B, 1, T, 4), torch.randn(HEADS, S, 4), torch.randn(1, 1, S, 6)
    mask = None if mask_shape is None else torch.rand(mask_shape) < 0.6
    check.same_map(
        lambda q, k, v: attention(q, k, v, mask)[0], lambda q, k, v: fused_attention(q, k, v, mask), *(q, k, v)
    )
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


def test_unit_variance_queries_and_keys_give_unit_variance_scores():
    scores = attention_scores(torch.randn(500, 64), torch.randn(400, 64))
    assert scores.var().item() == pytest.approx(1, abs=0.03)


@both_precisions
def test_a_constant_added_to_every_key_changes_nothing():
    q, k, v = queries_keys_values(B)
    close(attention(q, k + torch.randn(4), v)[0], attention(q, k, v)[0])


def test_large_scores_do_not_overflow():
    weights = attention_weights(torch.tensor([[1e4, -1e4, 1e4]]))
    close(weights, torch.tensor([[0.5, 0.0, 0.5]]))


def test_dropout_keeps_the_output_on_average_and_the_returned_weights_as_they_were():
    q, k, v = queries_keys_values()
    output, weights = attention(q, k, v)
    dropped = [attention(q, k, v, dropout_p=0.25) for _ in range(4000)]
    torch.testing.assert_close(torch.stack([o for o, _ in dropped]).mean(dim=0), output, rtol=0, atol=0.05)
    assert all(torch.equal(w, weights) for _, w in dropped)
    assert all(check.differ(o, output) for o, _ in dropped[:5])


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


@both_precisions
def test_gaussian_attention_with_equally_long_keys_is_dot_product_attention():
    q, k, v = queries_keys_values(B, HEADS)
    k = 3 * torch.nn.functional.normalize(k, dim=-1)
    for got, expected in zip(gaussian_attention(q, k, v, bandwidth=4**0.25), attention(q, k, v), strict=True):
        close(got, expected)


@pytest.mark.parametrize("function", [attention, fused_attention])
@pytest.mark.parametrize(
    ("shapes", "mask", "message"),
    [
        (((4,), (S, 4), (S, 6)), None, r"q must have shape \(\.\.\., tokens, width\), got \(4,\)"),
        (((T, 4), (S,), (S, 6)), None, r"k must have shape \(\.\.\., tokens, width\), got \(7,\)"),
        (((T, 4), (S, 4), (S,)), None, r"v must have shape \(\.\.\., tokens, width\), got \(7,\)"),
        (((T, 4), (S, 3), (S, 6)), None, "d = 4 for q and 3 for k"),
        (((T, 4), (S, 4), (T, 6)), None, "7 keys and 5 values"),
        (((T, 4), (0, 4), (0, 6)), None, r"at least one key .* got k of shape \(0, 4\)"),
        (((T, 0), (S, 0), (S, 6)), None, r"width at least 1, got k of shape \(7, 0\)"),
        (((B, T, 4), (HEADS, S, 4), (S, 6)), None, r"must broadcast, got \(2,\), \(3,\), \(\)"),
        (((T, 4), (S, 4), (S, 6)), torch.ones(T, S), "mask must be boolean.* got torch.float32"),
        (((T, 4), (S, 4), (S, 6)), torch.ones(S, T) > 0, r"\(\.\.\., T_q, T_k\) = \(5, 7\), got \(7, 5\)"),
        (((T, 4), (S, 4), (S, 6)), torch.ones(B, T, S) > 0, r"= \(5, 7\), got \(2, 5, 7\)"),
        (((B, T, 4), (S, 4), (S, 6)), torch.ones(HEADS, T, S) > 0, r"= \(2, 5, 7\), got \(3, 5, 7\)"),
    ],
)
def test_what_does_not_fit_is_named(function, shapes, mask, message):
    with pytest.raises(ValueError, match=message):
        function(*(torch.randn(shape) for shape in shapes), mask)


@pytest.mark.parametrize("function", [attention, fused_attention])
@pytest.mark.parametrize("elsewhere", ["q", "k", "v", "mask"])
def test_what_lies_on_another_device_is_named(function, elsewhere):
    arguments = dict(zip("qkv", queries_keys_values(), strict=True)) | dict(mask=torch.ones(T, S, dtype=torch.bool))
    arguments[elsewhere] = arguments[elsewhere].to("meta")
    with pytest.raises(ValueError, match=f"{elsewhere}.* must be on .* device.*, got .*meta"):
        function(**arguments)


@pytest.mark.parametrize("function", [attention_scores, attention, fused_attention])
def test_equal_shapes_are_no_reason_to_overlook_the_device(function):
    x = torch.randn(B, T, 4)
    with pytest.raises(ValueError, match="q, k and v must be on one device, got cpu, meta and"):
        function(*[x, x.to("meta"), x][: 2 if function is attention_scores else 3])


@pytest.mark.parametrize("bandwidth", [0, -0.5])
def test_a_bandwidth_must_be_positive(bandwidth):
    with pytest.raises(ValueError, match=f"must be a positive number, got {bandwidth}"):
        gaussian_attention(*queries_keys_values(), bandwidth)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("differentiated", [True, False])
@pytest.mark.parametrize(("has", "matrix_unit"), [(True, True), (True, False), (False, False)])
def test_the_quickest_form_is_one_of_the_two(dtype, differentiated, has, matrix_unit, monkeypatch):
    """Explicit for bfloat16 on a CPU that has it, unless with a matrix unit and without gradients; else fused."""
    calls = []

    def explicit(*args, **kwargs):
        calls.append("explicit")
        return attention(*args, **kwargs)

    q, k, v = (torch.randn(2, 3, 5, 4, dtype=dtype, requires_grad=differentiated) for _ in range(3))
    with monkeypatch.context() as patch:
        patch.setattr("vitbook.attention.attention", explicit)
        patch.setattr("vitbook.attention.MATRIX_UNIT", matrix_unit)
        patch.setattr("vitbook.attention.has_bfloat16", lambda device: has)
        output = quickest_attention(q, k, v)
    assert bool(calls) == (dtype == torch.bfloat16 and has and (differentiated or not matrix_unit))
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2}[dtype]
    torch.testing.assert_close(output, attention(q, k, v)[0], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("most", "stored"), [(2 * 3 * 5 * 7, True), (2 * 3 * 5 * 7 - 1, False)])
def test_the_quickest_form_stores_no_more_weights_than_it_may(most, stored, monkeypatch):
    calls = []
    monkeypatch.setattr("vitbook.attention.attention", lambda *args, **kwargs: calls.append(1) or [args[0]])
    monkeypatch.setattr("vitbook.attention.has_bfloat16", lambda device: True)
    monkeypatch.setattr("vitbook.attention.MOST_WEIGHTS", most)
    q, k = (torch.randn(2, 3, T, 4, dtype=torch.bfloat16, requires_grad=True) for T in (5, 7))
    assert quickest_attention(q, k, k).shape == (2, 3, 5, 4)
    assert bool(calls) == stored

"""Attention to Transformer, on whatever hypothesis draws: what is stated, or an error that says why."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import (
    NUMBERS,
    as_stated,
    close_to,
    counts,
    covers,
    is_finite,
    is_like,
    made,
    of_modules,
    or_refused,
    out_of_step,
    size,
    sums_to_one,
    tensor,
    whole,
)

from vitbook import attention, multihead, self_attention, transformer

MODULES = "attention self_attention multihead transformer"


def queries_keys_values(draw, dtype=None, queries=0):
    """q, k, v whose leading dimensions broadcast, and the shape of the weights."""
    dtype = dtype or draw(st.sampled_from((torch.float32, torch.float64, torch.float16, torch.bfloat16)))
    t, s, d, d_v = size(draw, queries), size(draw), size(draw), size(draw)
    leading = [draw(st.sampled_from(((), (1,), (2,), (3, 1), (1, 2), (0,)))) for _ in range(3)]
    leading = [leading[0], leading[1] if leading[0] != (0,) else (), leading[2] if leading[0] != (0,) else (1,)]
    leading = [part if part != (0,) or i == 0 else () for i, part in enumerate(leading)]
    q = tensor(draw, *leading[0], t, d, dtype=dtype)
    k = tensor(draw, *leading[1], s, d, dtype=dtype)
    v = tensor(draw, *leading[2], s, d_v, dtype=dtype)
    weights = (*torch.broadcast_shapes(*leading[:2]), t, s)
    return dict(q=q, k=k, v=v), weights, (*torch.broadcast_shapes(*leading), t, d_v)


def some_mask(draw, *shape):
    """None, or a boolean mask that broadcasts to a shape, with and without rows that look nowhere."""
    if draw(st.booleans()):
        return None
    shape = tuple(draw(st.sampled_from((length, 1))) for length in shape[-2:])
    return tensor(draw, *shape, dtype=torch.bool)


QKV = dict(q="queries", k="keys|key", v="values|value")


@covers(attention.attention_scores, QKV)
def _(draw):
    arguments, weights, _ = queries_keys_values(draw)
    q, k = arguments["q"], arguments["k"]

    def holds(scores):
        is_like(scores, weights, q.dtype)
        is_finite(scores)
        close_to(scores, q.double() @ k.double().mT / math.sqrt(q.shape[-1]), rounding=1000)

    return dict(q=q, k=k), holds


@covers(attention.attention_weights)
def _(draw):
    t, s = size(draw, 0), size(draw)
    scores = tensor(draw, *draw(st.sampled_from(((), (2,), (3, 1), (0,)))), t, s, scale=(1.0, 1e-6, 1e4))
    mask = some_mask(draw, t, s)

    def holds(weights):
        is_like(weights, scores.shape, scores.dtype)
        if mask is None:
            return sums_to_one(weights)
        shown = mask.expand(scores.shape)
        assert (weights[~shown] == 0).all()
        sums_to_one(weights[shown.any(dim=-1)])

    return dict(scores=scores, mask=mask), holds


def of_attention(draw, queries=0):
    arguments, weights_shape, output_shape = queries_keys_values(draw, queries=queries)
    mask = some_mask(draw, *weights_shape)
    q, v = arguments["q"], arguments["v"]

    def holds_output(output):
        is_like(output, output_shape, q.dtype)
        is_finite(output)
        if v.numel() and output.numel():
            eps = torch.finfo(v.dtype).eps
            assert output.abs().max() <= v.abs().max() * (1 + 32 * eps), "a mean lies among what it is the mean of"

    return arguments | dict(mask=mask, dropout_p=0.0), weights_shape, holds_output


@covers(attention.attention, QKV)
def _(draw):
    arguments, weights_shape, holds_output = of_attention(draw)

    def holds(result):
        output, weights = result
        holds_output(output)
        assert tuple(weights.shape[-2:]) == weights_shape[-2:]
        if arguments["mask"] is None:
            sums_to_one(weights)

    return arguments, holds


def same_as_explicit(function):
    @covers(function, QKV)
    def _(draw):
        # of no queries at all, torch's kernel leaves out leading dimensions that v alone has
        arguments, _, holds_output = of_attention(draw, queries=1)

        def holds(output):
            holds_output(output)
            expected = attention.attention(
                **{
                    name: x.double() if x is not None and x.is_floating_point() else x
                    for name, x in arguments.items()
                    if name != "dropout_p"
                }
            )[0]
            close_to(output, expected, rounding=2000)

        return arguments, holds


same_as_explicit(attention.fused_attention)
same_as_explicit(attention.quickest_attention)


@covers(attention.gaussian_attention, QKV)
def _(draw):
    arguments, _, shape = queries_keys_values(
        draw, draw(st.sampled_from((torch.float32, torch.float64, torch.bfloat16)))
    )

    def holds(result):
        output, weights = result
        is_like(output, shape, arguments["q"].dtype)
        is_finite(output)
        sums_to_one(weights)

    return arguments | dict(bandwidth=draw(st.sampled_from((1.0, 0.1, 10, 1e-6)))), holds


# Modules: a case for the constructor, and one for each method


@covers(self_attention.SelfAttention)
def _(draw):
    dim, head_dim, bias = size(draw), draw(st.none() | st.integers(1, 5)), draw(st.booleans())
    width = dim if head_dim is None else head_dim
    return dict(dim=dim, head_dim=head_dim, bias=bias), lambda model: counts(model, 3 * (dim * width + bias * width))


@covers(self_attention.SelfAttention.forward, dict(x="mask"))
def _(draw):
    model, dtype = made(draw, self_attention.SelfAttention, 6, 4)
    b, t = size(draw, 0), size(draw)
    x, mask = tensor(draw, b, t, 6, dtype=dtype), some_mask(draw, t, t)

    def holds(result):
        is_like(result[0], (b, t, 4), dtype)
        is_like(result[1], (b, t, t), dtype)
        is_finite(result[0])

    return dict(self=model, x=x, mask=mask), holds


@covers(multihead.split_heads, dict(num_heads="heads", x="width"))
def _(draw):
    b, t, h, d = size(draw, 0), size(draw, 0), size(draw), size(draw, 0)
    x = tensor(draw, b, t, h * d, dtype=NUMBERS)

    def holds(heads):
        is_like(heads, (b, h, t, d), x.dtype)
        assert torch.equal(multihead.merge_heads(heads), x)

    return dict(x=x, num_heads=h), holds


@covers(multihead.merge_heads)
def _(draw):
    b, t, h, d = size(draw, 0), size(draw, 0), size(draw), size(draw, 0)
    x = tensor(draw, b, h, t, d, dtype=NUMBERS)

    def holds(merged):
        is_like(merged, (b, t, h * d), x.dtype)
        assert torch.equal(multihead.split_heads(merged, h), x)

    return dict(x=x), holds


WIDTHS = dict(dim="num_heads", num_heads="dim")


def of_heads(module):
    """The constructor and the forward of one of the three forms."""

    @covers(module, WIDTHS)
    def _(draw):
        h, d, bias = size(draw), size(draw), draw(st.booleans())
        dim = h * d
        arguments = dict(dim=dim, num_heads=h, qkv_bias=bias)
        if module is multihead.MultiHeadSelfAttention:
            arguments |= dict(attention_dropout=draw(st.floats(0, 1)), dropout=draw(st.floats(0, 1)))
        return arguments, lambda model: counts(model, 4 * dim**2 + dim + 3 * dim * bias)

    @covers(module.forward, dict(x="mask"))
    def _(draw):
        return self_attending(draw, *made(draw, module, 6, 3))


def self_attending(draw, model, dtype, weights=False):
    b, t = size(draw, 0), size(draw)
    x, mask = tensor(draw, b, t, 6, dtype=dtype), some_mask(draw, t, t)

    def holds(result):
        output = result[0] if weights else result
        is_like(output, (b, t, 6), dtype)
        is_finite(output)
        order = torch.randperm(t)
        if mask is None and dtype != torch.bfloat16:
            again = model(x[:, order])
            close_to(again, output[:, order], rounding=500)
        if weights:
            is_like(result[1], (b, 3, t, t), dtype)

    return dict(self=model, x=x, mask=mask), holds


for form in (multihead.MultiHeadSelfAttention, multihead.ListOfHeads, multihead.HeadShapedAttention):
    of_heads(form)


@covers(multihead.MultiHeadSelfAttention.attend, dict(x="mask"))
def _(draw):
    return self_attending(draw, *made(draw, multihead.MultiHeadSelfAttention, 6, 3), weights=True)


@covers(multihead.MultiHeadSelfAttention.project)
def _(draw):
    model, dtype = made(draw, multihead.MultiHeadSelfAttention, 6, 3)
    b, t = size(draw, 0), size(draw)

    def holds(result):
        for part in result:
            is_like(part, (b, 3, t, 2), dtype)

    return dict(self=model, x=tensor(draw, b, t, 6, dtype=dtype)), holds


# The Transformer of 2017


@covers(transformer.sincos_positions)
def _(draw):
    length, dim = size(draw, 0, 40), 2 * size(draw, 0)

    def holds(table):
        is_like(table, (length, dim), torch.float32)
        assert (table.abs() <= 1).all()

    return dict(length=length, dim=dim, base=draw(st.sampled_from((10_000.0, 2, 1e30)))), holds


@covers(transformer.causal_mask)
def _(draw):
    length = size(draw, 0, 9)

    def holds(mask):
        is_like(mask, (length, length), torch.bool)
        assert mask.sum() == length * (length + 1) // 2

    return dict(length=length), holds


@covers(transformer.padding_mask)
def _(draw):
    b, s, padding = size(draw, 0), size(draw, 0), size(draw, -1)
    return dict(tokens=whole(draw, (b, s), 5), padding=padding), lambda mask: is_like(mask, (b, 1, 1, s), torch.bool)


@covers(transformer.MultiHeadCrossAttention, WIDTHS)
def _(draw):
    h, d = size(draw), size(draw)
    return dict(dim=h * d, num_heads=h), lambda model: counts(model, 4 * (h * d) ** 2 + 4 * h * d)


SEQUENCES = dict.fromkeys(("x", "memory"), "leading dimensions|mask|one key")  # of which two do not fit together


def crossing(draw, holds, mask=True):
    model, dtype = made(draw, transformer.MultiHeadCrossAttention, 6, 3)
    b, t, s = size(draw, 0), size(draw), size(draw)
    arguments = dict(self=model, x=tensor(draw, b, t, 6, dtype=dtype), memory=tensor(draw, b, s, 6, dtype=dtype))
    return arguments | (dict(mask=some_mask(draw, t, s)) if mask else {}), lambda result: holds(result, b, t, s, dtype)


@covers(
    transformer.MultiHeadCrossAttention.forward,
    dict(memory="leading dimensions|batch|mask", x="leading dimensions|batch|mask"),
)
def _(draw):
    return crossing(draw, lambda output, b, t, s, dtype: (is_like(output, (b, t, 6), dtype), is_finite(output)))


@covers(
    transformer.MultiHeadCrossAttention.attend,
    dict(memory="leading dimensions|batch|mask", x="leading dimensions|batch|mask"),
)
def _(draw):
    return crossing(draw, lambda result, b, t, s, dtype: is_like(result[1], (b, 3, t, s), dtype))


@covers(transformer.MultiHeadCrossAttention.project)
def _(draw):
    return crossing(draw, lambda result, b, t, s, dtype: is_like(result[2], (b, 3, s, 2), dtype), mask=False)


@covers(transformer.FeedForward)
def _(draw):
    d, hidden = size(draw), size(draw)
    return dict(dim=d, hidden_dim=hidden), lambda model: counts(model, 2 * d * hidden + d + hidden)


LAYER = WIDTHS | dict(hidden_dim="hidden_dim")


@covers(transformer.EncoderLayer, LAYER)
def _(draw):
    dim, hidden = 2 * size(draw), size(draw)
    arguments = dict(dim=dim, num_heads=2, hidden_dim=hidden, dropout=draw(st.floats(0, 1)))
    return arguments, lambda model: counts(model, 4 * dim**2 + 4 * dim + 2 * dim * hidden + dim + hidden + 4 * dim)


@covers(transformer.EncoderLayer.forward, dict(x="mask"))
def _(draw):
    return self_attending(draw, *made(draw, transformer.EncoderLayer, 6, 3, 7))


@covers(transformer.DecoderLayer, LAYER)
def _(draw):
    dim, hidden = 2 * size(draw), size(draw)
    arguments = dict(dim=dim, num_heads=2, hidden_dim=hidden, dropout=draw(st.floats(0, 1)))
    return arguments, lambda model: counts(model, 8 * dim**2 + 8 * dim + 2 * dim * hidden + dim + hidden + 6 * dim)


@covers(
    transformer.DecoderLayer.forward,
    SEQUENCES | dict(memory_mask="mask"),
)
def _(draw):
    model, dtype = made(draw, transformer.DecoderLayer, 6, 3, 7)
    b, t, s = size(draw, 0), size(draw), size(draw)
    arguments = dict(x=tensor(draw, b, t, 6, dtype=dtype), memory=tensor(draw, b, s, 6, dtype=dtype))
    arguments |= dict(mask=transformer.causal_mask(t), memory_mask=some_mask(draw, t, s))
    return dict(self=model) | arguments, lambda y: (is_like(y, (b, t, 6), dtype), is_finite(y))


TRANSFORMER = dict(vocab_size=9, dim=6, depth=1, num_heads=3, hidden_dim=7)


@covers(transformer.Transformer, LAYER)
def _(draw):
    arguments = dict(vocab_size=size(draw), dim=2 * size(draw), depth=size(draw), num_heads=2, hidden_dim=size(draw))
    arguments |= dict(padding=size(draw, 0), dropout=draw(st.floats(0, 1)))
    return arguments, lambda model: is_like(model.scores.weight, (arguments["vocab_size"], arguments["dim"]))


def words(draw, *names):
    """Sentences of one batch, a model that reads them, and their lengths."""
    model, dtype = made(draw, transformer.Transformer, **TRANSFORMER)
    b = size(draw, 0)
    lengths = [size(draw) for _ in names]
    sentences = {name: whole(draw, (b, length), 9) for name, length in zip(names, lengths, strict=True)}
    return dict(self=model) | sentences, (b, *lengths), dtype


SENTENCES = SEQUENCES | dict.fromkeys(("source", "target"), "token|leading dimensions|mask")


@covers(transformer.Transformer.forward, SENTENCES)
def _(draw):
    arguments, (b, _, t), dtype = words(draw, "source", "target")
    return arguments, lambda y: (is_like(y, (b, t, 9), dtype), is_finite(y))


@covers(transformer.Transformer.encode, SENTENCES)
def _(draw):
    arguments, (b, s), dtype = words(draw, "source")
    return arguments, lambda y: (is_like(y, (b, s, 6), dtype), is_finite(y))


@covers(transformer.Transformer.decode, SENTENCES | dict(memory_mask="mask"))
def _(draw):
    arguments, (b, t), dtype = words(draw, "target")
    s = size(draw)
    arguments |= dict(memory=tensor(draw, b, s, 6, dtype=dtype), memory_mask=some_mask(draw, t, s))
    return arguments, lambda y: (is_like(y, (b, t, 9), dtype), is_finite(y))


@covers(transformer.Transformer.embed)
def _(draw):
    arguments, (b, t), dtype = words(draw, "tokens")
    embedding = arguments["self"].source_embedding
    return arguments | dict(embedding=embedding), lambda y: (is_like(y, (b, t, 6), dtype), is_finite(y))


@covers(transformer.Transformer.write, SENTENCES | dict(start="tokens"))
def _(draw):
    arguments, (b, _), _ = words(draw, "source")
    length = size(draw, 0, 2)
    return arguments | dict(start=1, length=length), lambda y: is_like(y, (b, length), torch.int64)


# The tests

ELSEWHERE = {
    # from_fused: of a module; tests/test_multihead.py holds it equal to the module's own map
    *("multihead.ListOfHeads.from_fused", "multihead.HeadShapedAttention.from_fused"),
}


@pytest.mark.parametrize("name", of_modules(MODULES))
@given(data=st.data())
def test_the_result_is_as_stated(name, data):
    as_stated(name, data)


@pytest.mark.parametrize("name", of_modules(MODULES))
@given(data=st.data())
def test_anything_else_is_refused_by_name(name, data):
    or_refused(name, data)


def test_every_public_name_has_a_case():
    assert not out_of_step(MODULES, ELSEWHERE)

"""Multi-head self-attention agrees with torch's own, and its three constructions with one another."""

import copy

import pytest
import small_models
import torch
from small_models import HEADS, B, D, T, close, same_map
from torch import nn

from vitbook.multihead import HeadShapedAttention, ListOfHeads, MultiHeadSelfAttention, merge_heads, split_heads

both_precisions = pytest.mark.usefixtures("precision")
TWINS = [ListOfHeads, HeadShapedAttention]


def msa(**settings) -> MultiHeadSelfAttention:
    return small_models.shake(MultiHeadSelfAttention(D, HEADS, **settings))


@both_precisions
def test_the_weights_of_each_head_are_torchs():
    ours, theirs = msa(), nn.MultiheadAttention(D, HEADS, batch_first=True)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(ours.qkv.weight)
        theirs.in_proj_bias.copy_(ours.qkv.bias)
    x, mask = torch.randn(B, T, D), torch.rand(T, T).add(torch.eye(T)) > 0.5
    _, expected = theirs(x, x, x, attn_mask=~mask, average_attn_weights=False)
    _, weights = ours.attend(x, mask)
    assert weights.shape == (B, HEADS, T, T)
    close(weights, expected)


@both_precisions
@pytest.mark.parametrize("mask_shape", [None, (T, T), (HEADS, T, T), (B, 1, 1, T), (B, HEADS, T, T)])
def test_the_fused_and_the_explicit_form_agree(mask_shape):
    module, mask = msa(), None if mask_shape is None else torch.rand(mask_shape) < 0.6
    parameters = [(parameter, parameter) for parameter in module.parameters()]
    same_map(lambda x: module(x, mask), lambda x: module.attend(x, mask)[0], torch.randn(B, T, D), weights=parameters)


@both_precisions
@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize("qkv_bias", [True, False])
@pytest.mark.parametrize("mask", [None, torch.ones(T, T).tril() > 0], ids=["unmasked", "masked"])
def test_the_constructions_agree_in_outputs_and_gradients(twin, qkv_bias, mask):
    fused = msa(qkv_bias=qkv_bias)
    other = twin.from_fused(fused)
    same_map(lambda x: other(x, mask), lambda x: fused(x, mask), torch.randn(B, T, D))
    x = torch.randn(B, T, D)
    for module in (fused, other):
        module(x, mask).square().sum().backward()
    gradients = copy.deepcopy(fused)
    for parameter, source in zip(gradients.parameters(), fused.parameters(), strict=True):
        parameter.data = source.grad
    for expected, parameter in zip(twin.from_fused(gradients).parameters(), other.parameters(), strict=True):
        close(parameter.grad, expected)


def test_heads_split_into_neighbouring_numbers_and_merge_again():
    x = torch.arange(B * T * D).view(B, T, D)
    heads = split_heads(x, HEADS)
    assert heads.shape == (B, HEADS, T, D // HEADS)
    assert torch.equal(heads[1, 2, 3], x[1, 3, 8:12])
    assert torch.equal(merge_heads(heads), x)


@pytest.mark.parametrize("name", ["attention_dropout", "dropout"])
def test_each_dropout_acts_in_training_alone_and_spares_the_returned_weights(name):
    module, x = msa(**{name: 0.5}), torch.randn(B, T, D)
    assert small_models.differ(module(x), module(x)) and small_models.differ(module.attend(x)[0], module.attend(x)[0])
    assert torch.equal(module.attend(x)[1], module.attend(x)[1])
    module.eval()
    close(module(x), module.attend(x)[0])

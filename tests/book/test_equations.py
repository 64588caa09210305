"""Equations of the chapters that no module computes as they stand there: each against torch, or against its parts."""

import math

import pytest
import torch
import torch.nn.functional as F
from properties import HEADS, B, D, K, T, close, shake
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from vitbook.attention import attention, gaussian_attention
from vitbook.cnn import SmallCNN
from vitbook.multihead import MultiHeadSelfAttention, merge_heads, split_heads
from vitbook.transformer import sincos_positions

both_precisions = pytest.mark.usefixtures("precision")


@both_precisions
def test_the_slope_of_a_softmax_is_diag_w_minus_w_w():
    scores = torch.randn(T)
    w = scores.softmax(dim=-1)
    close(torch.autograd.functional.jacobian(lambda s: s.softmax(dim=-1), scores), torch.diag(w) - torch.outer(w, w))


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


def multiplications(tokens: int, dim: int, heads: int) -> int:
    """As torch counts them, who counts a multiplication and an addition as two operations."""
    layer, x = MultiHeadSelfAttention(dim, heads), torch.randn(1, tokens, dim)
    with FlopCounterMode(display=False) as counter:
        layer.attend(x)
    return counter.get_total_flops() // 2


@pytest.mark.parametrize("heads", [1, 3, 6])
@pytest.mark.parametrize("tokens", [5, 17])
def test_attention_costs_4td2_and_2t2d_multiplications(tokens, heads):
    assert multiplications(tokens, D, heads) == 4 * tokens * D**2 + 2 * tokens**2 * D


def test_the_quadratic_part_costs_as_much_as_the_maps_at_twice_the_width():
    maps = 4 * D**2  # for each token
    shares = [multiplications(tokens, D, HEADS) / tokens - maps for tokens in (2 * D - 1, 2 * D, 2 * D + 1)]
    assert shares[0] < maps == shares[1] < shares[2]


@both_precisions
@pytest.mark.parametrize("k", [-3, 1, 7])
def test_moving_on_by_k_positions_turns_each_pair_of_a_code(k):
    table = sincos_positions(20, D)
    angle = k / 10_000 ** (torch.arange(0, D, 2) / D)
    sines, cosines = table[5:9, 0::2], table[5:9, 1::2]
    turned = [angle.cos() * sines + angle.sin() * cosines, angle.cos() * cosines - angle.sin() * sines]
    close(torch.stack(turned, dim=-1).flatten(1), table[5 + k : 9 + k])


@both_precisions
def test_cross_entropy_is_the_logarithm_of_the_probability():
    scores, labels = torch.randn(B, K), torch.tensor([4, 0])
    probabilities = scores.exp() / scores.exp().sum(dim=1, keepdim=True)
    losses = F.cross_entropy(scores, labels, reduction="none")
    close(losses, -probabilities[range(B), labels].log())
    close(losses, scores.exp().sum(dim=1).log() - scores[range(B), labels])


@both_precisions
def test_sigmoid_cross_entropy_is_a_question_for_each_class():
    scores, labels = torch.randn(B, K), torch.tensor([4, 0])
    losses = F.binary_cross_entropy_with_logits(scores, F.one_hot(labels, K).to(scores), reduction="none").sum(dim=1)
    for loss, s, y in zip(losses, scores, labels, strict=True):
        sigma = 1 / (1 + (-s).exp())
        close(loss, -sigma[y].log() - sum((1 - sigma[k]).log() for k in range(K) if k != y))


@both_precisions
def test_adam_is_two_running_means():
    w, parameter = torch.randn(D), nn.Parameter(torch.empty(D))
    parameter.data.copy_(w)
    eta, beta1, beta2, eps = 3e-3, 0.8, 0.95, 1e-8
    optimizer = torch.optim.Adam([parameter], lr=eta, betas=(beta1, beta2), eps=eps)
    m = v = torch.zeros(D)
    for t in range(1, 6):
        parameter.grad = g = torch.randn(D)
        optimizer.step()
        m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g**2
        w = w - eta * (m / (1 - beta1**t)) / ((v / (1 - beta2**t)).sqrt() + eps)
        close(parameter.detach(), w)


@pytest.mark.parametrize("moved", [(0, 1), (3, -2)])
def test_a_convolution_moves_with_its_picture(moved):
    stem, picture = SmallCNN(channels=1, num_classes=2, width=4).double().eval().stem, torch.zeros(1, 1, 16, 20)
    picture[..., 6:10, 7:12] = torch.randn(4, 5)
    picture = picture.double()
    close(stem(picture.roll(moved, dims=(-2, -1))), stem(picture).roll(moved, dims=(-2, -1)))


@both_precisions
def test_the_loss_of_a_heatmap_has_cells_for_classes():
    scores, target = torch.randn(B, 4, 6), torch.rand(B, 4, 6)
    p = scores.exp() / scores.exp().sum(dim=(1, 2), keepdim=True)
    by_hand = [
        -sum(t * q.log() for t, q in zip(ts.flatten(), ps.flatten(), strict=True))
        for ts, ps in zip(target, p, strict=True)
    ]
    close(F.cross_entropy(scores.flatten(1), target.flatten(1), reduction="none"), torch.stack(by_hand))

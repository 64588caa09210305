"""Equations 2 and 3 agree with torch's pre-norm layer; the blocks are as many and as large as they should be."""

import properties as check
import pytest
import torch
import torch.nn.functional as F
from properties import HEADS, HIDDEN, B, D, T, close, same_map
from torch import nn

from vitbook.encoder import MLP, Encoder, EncoderBlock

both_precisions = pytest.mark.usefixtures("precision")


@both_precisions
@pytest.mark.parametrize("layer", [EncoderBlock, Encoder])
@pytest.mark.parametrize(
    "test",
    [check.tokens_have_no_order, check.examples_do_not_mix, check.eval_is_deterministic],
    ids=lambda t: t.__name__,
)
def test_property(test, layer):
    test(layer)


@both_precisions
def test_the_block_equals_torchs_pre_norm_layer():
    check.block_equals_torch(EncoderBlock)


@both_precisions
def test_the_block_is_equations_2_and_3():
    block, z = check.shake(EncoderBlock(D, HEADS, HIDDEN)), torch.randn(B, T, D)
    z_prime = block.attn(check.layer_norm(z, block.norm1)) + z
    close(block(z), block.mlp(check.layer_norm(z_prime, block.norm2)) + z_prime)


@both_precisions
def test_the_encoder_is_its_blocks_one_after_the_other():
    encoder, x = check.build(Encoder), torch.randn(B, T, D)
    first, second, third = encoder.blocks
    same_map(encoder, lambda x: third(second(first(x))), x)


@both_precisions
def test_the_mlp_is_two_linear_maps_with_an_exact_gelu_between():
    mlp = check.shake(MLP(D, HIDDEN))
    pairs = [(parameter, parameter) for parameter in mlp.parameters()]

    def by_hand(x):
        hidden = F.linear(x, mlp.fc1.weight, mlp.fc1.bias)
        hidden = hidden * (1 + torch.erf(hidden / 2**0.5)) / 2
        return F.linear(hidden, mlp.fc2.weight, mlp.fc2.bias)

    same_map(mlp, by_hand, torch.randn(B, T, D), weights=pairs)


def test_the_two_gelus_differ_by_what_the_text_says():
    x = torch.linspace(-8, 8, 160_001, dtype=torch.float64)
    gap = (F.gelu(x) - F.gelu(x, approximate="tanh")).abs()
    assert gap.max().item() == pytest.approx(4.73e-4, abs=1e-6)
    assert abs(x[gap.argmax()].item()) == pytest.approx(2.70, abs=0.01)


@pytest.mark.parametrize("dim", [12, 192, 768])
def test_a_block_has_12_d_squared_plus_13_d_parameters(dim):
    with torch.device("meta"):
        block = EncoderBlock(dim, HEADS, 4 * dim)
    assert sum(p.numel() for p in block.parameters()) == 12 * dim**2 + 13 * dim


@pytest.mark.parametrize("name", ["dropout", "attention_dropout"])
def test_dropout_reaches_every_place_it_is_said_to(name):
    encoder = Encoder(D, 2, HEADS, HIDDEN, **{name: 0.25})
    for block in encoder.blocks:
        rates = (block.attn.dropout.p, block.mlp.dropout.p, block.attn.attention_dropout)
        assert rates == ((0.25, 0.25, 0.0) if name == "dropout" else (0.0, 0.0, 0.25))


def test_the_mlp_drops_after_each_of_its_maps():
    dropped = []
    mlp = MLP(D, HIDDEN, dropout=0.5)
    mlp.dropout.register_forward_hook(lambda module, inputs, output: dropped.append(output.shape[-1]))
    mlp(torch.randn(B, T, D))
    assert dropped == [HIDDEN, D]


@pytest.mark.parametrize(
    "make", [EncoderBlock, lambda *sizes: Encoder(sizes[0], 2, *sizes[1:])], ids=["block", "encoder"]
)
def test_heads_must_share_the_width(make):
    with pytest.raises(ValueError, match="dim 12 is not divisible by num_heads 5"):
        make(D, 5, HIDDEN)


@pytest.mark.parametrize("shape", [(T, D), (B, HEADS, T, D)])
def test_tokens_come_in_batches(shape):
    got = ", ".join(map(str, shape))
    with pytest.raises(ValueError, match=rf"\(B, T, D\) with D = 12, got \({got}\)"):
        EncoderBlock(D, HEADS, HIDDEN)(torch.randn(shape))


def test_tokens_must_have_the_width():
    with pytest.raises(ValueError, match=r"D = 12, got \(2, 5, 11\)"):
        EncoderBlock(D, HEADS, HIDDEN)(torch.randn(B, T, 11))


def test_layer_norm_divides_by_the_biased_variance():
    norm, x = check.shake(nn.LayerNorm(D, eps=1e-6)), torch.randn(B, T, D)
    close(norm(x), check.layer_norm(x, norm))

"""Equations 2 and 3 agree with torch's pre-norm layer; the blocks are as many and as large as they should be."""

import properties as check
import pytest
import torch
import torch.nn.functional as F
from properties import HEADS, HIDDEN, B, D, T, close, same_map
from torch import nn
from torch.testing import assert_close

from vitbook.encoder import MLP, DropPath, Encoder, EncoderBlock
from vitbook.vit import create_vit

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


def test_layer_norm_divides_by_the_biased_variance():
    norm, x = check.shake(nn.LayerNorm(D, eps=1e-6)), torch.randn(B, T, D)
    close(norm(x), check.layer_norm(x, norm))


# Stochastic depth


def test_a_image_keeps_its_whole_branch_or_nothing():
    torch.manual_seed(0)
    kept = DropPath(0.25).train()(torch.ones(4000, T, D))
    assert_close(kept.unique(), torch.tensor([0, 1 / 0.75]))
    assert (kept == kept[:, :1, :1]).all(), "one draw for each image"
    assert kept.mean().item() == pytest.approx(1, abs=0.03)


def test_evaluation_and_probability_zero_change_nothing_and_draw_nothing():
    x = torch.randn(B, T, D)
    for path in (DropPath(0.9).eval(), DropPath(0.0).train()):
        before = torch.get_rng_state()
        assert path(x) is x
        assert torch.equal(torch.get_rng_state(), before)


def test_a_block_drops_either_branch_by_itself():
    torch.manual_seed(0)
    block = EncoderBlock(D, HEADS, HIDDEN, drop_path=0.5).train()
    x = torch.randn(1, T, D).expand(400, T, D)
    z = block(x).detach()
    attention = 2 * block.attn(block.norm1(x[:1]))  # what is kept counts twice
    outcomes = [x[:1] + a * attention for a in (0, 1)]
    outcomes += [z_prime + 2 * block.mlp(block.norm2(z_prime)) for z_prime in outcomes]
    distance = torch.stack([(z - outcome).abs().amax(dim=(1, 2)) for outcome in outcomes])  # (4, 400)
    nearest, which = distance.min(dim=0)
    assert nearest.max() < 1e-5, "every image is one of the four"
    assert_close(which.bincount(minlength=4) / 400, torch.full((4,), 0.25), rtol=0, atol=0.08)


def test_it_grows_evenly_with_depth():
    encoder = Encoder(D, 4, HEADS, HIDDEN, drop_path=0.2)
    assert [block.drop_path.p for block in encoder.blocks] == pytest.approx([0.05, 0.1, 0.15, 0.2])


def test_the_models_setting_reaches_the_blocks_and_adds_no_weights():
    model = create_vit("vit_digits", drop_path=0.4)
    assert model.encoder.blocks[-1].drop_path.p == 0.4
    model.load_state_dict(create_vit("vit_digits").state_dict(), strict=True)
    torch.nn.init.normal_(model.head.weight)
    images = torch.randn(B, 1, 8, 8)
    assert not torch.equal(model.train()(images), model(images))
    assert torch.equal(model.eval()(images), model(images))

"""Equations 2 and 3 agree with torch's pre-norm layer; dropout and stochastic depth act where they should."""

import pytest
import small_models
import torch
from small_models import HEADS, HIDDEN, B, D, T, same_map
from torch.testing import assert_close

from vitbook.encoder import MLP, DropPath, Encoder, EncoderBlock
from vitbook.vit import create_vit

both_precisions = pytest.mark.usefixtures("precision")


@both_precisions
def test_the_encoder_is_its_blocks_one_after_the_other():
    encoder, x = small_models.build(Encoder), torch.randn(B, T, D)
    first, second, third = encoder.blocks
    same_map(encoder, lambda x: third(second(first(x))), x)


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


def test_a_image_keeps_its_whole_branch_or_nothing():
    kept = DropPath(0.25).train()(torch.ones(4000, T, D))
    assert_close(kept.unique(), torch.tensor([0, 1 / 0.75]))
    assert (kept == kept[:, :1, :1]).all(), "one draw for each image"
    assert kept.mean().item() == pytest.approx(1, abs=0.03)


def test_a_block_drops_either_branch_by_itself():
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

"""Stochastic depth: whole branches go, picture by picture, in training alone, and the mean stays."""

import pytest
import torch
from torch.testing import assert_close

from vitbook.encoder import DropPath, Encoder, EncoderBlock
from vitbook.vit import create_vit

B, T, D, HEADS, HIDDEN = 2, 5, 12, 3, 20


def test_a_picture_keeps_its_whole_branch_or_nothing():
    torch.manual_seed(0)
    kept = DropPath(0.25).train()(torch.ones(4000, T, D))
    assert_close(kept.unique(), torch.tensor([0, 1 / 0.75]))
    assert (kept == kept[:, :1, :1]).all(), "one draw for each picture"
    assert kept.mean().item() == pytest.approx(1, abs=0.03)


def test_evaluation_and_probability_zero_change_nothing_and_draw_nothing():
    x = torch.randn(B, T, D)
    for path in (DropPath(0.9).eval(), DropPath(0.0).train()):
        before = torch.get_rng_state()
        assert path(x) is x
        assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("p", [-0.1, 1.0])
def test_a_probability_out_of_range_is_refused(p):
    with pytest.raises(ValueError, match=f"drop_path must be at least 0 and less than 1, got {p}"):
        DropPath(p)


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
    assert nearest.max() < 1e-5, "every picture is one of the four"
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

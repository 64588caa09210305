"""Each table holds every name of its library and no other, once; other families are called by their names."""

from dataclasses import replace

import foreign
import pytest
import torch
from foreign import DEPTH, D, H

from vitbook.pretrained import load_pretrained
from vitbook.pretrained.layouts import (
    BIG_VISION,
    CLASS,
    GOOGLE,
    LAYOUTS,
    POSITIONS,
    PUBLISHED_TORCHVISION,
    REGISTERS,
    TIMM,
    TORCHVISION,
    VITBOOK,
)
from vitbook.vit import VisionTransformer, ViTConfig

OURS = set(VisionTransformer(ViTConfig(8, 4, 3, 5, 12, DEPTH, 3, 20)).state_dict())
DISTILLED = {"embedding.dist_token", "head_dist.weight", "head_dist.bias"}
AVERAGED = ("fc_norm.weight", "fc_norm.bias")
GAMMAS = [f"encoder.blocks.{i}.{name}.gamma" for i in range(DEPTH) for name in ("attn.proj", "mlp.fc2")]
LATER_IN_TIMM = {"reg_token", *AVERAGED} | {f"blocks.{i}.ls{n}.gamma" for i in range(DEPTH) for n in (1, 2)}
PRE_LOGITS = {"heads.pre_logits.weight", "heads.pre_logits.bias"}


@pytest.mark.parametrize(
    ("layout", "names", "prefix"),
    [
        (GOOGLE, {*foreign.google(hidden=True)}, ""),
        (BIG_VISION, {*foreign.google(big_vision=True, hidden=True)}, "params/"),
        (TIMM, {*foreign.timm(distilled=True)} | LATER_IN_TIMM, ""),
        (TORCHVISION, {*foreign.torchvision()} | PRE_LOGITS, ""),
        (PUBLISHED_TORCHVISION, {*foreign.torchvision(published=True)} | PRE_LOGITS, ""),
        (VITBOOK, OURS | DISTILLED | {*AVERAGED, *GAMMAS, REGISTERS}, ""),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_table_holds_every_name_once(layout, names, prefix):
    listed = [name for row in replace(layout, prefix=prefix).rows(DEPTH) for name in row.theirs]
    assert len(listed) == len(set(listed))
    assert set(listed) == names


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_all_tables_name_the_same_tensors_of_ours(layout):
    ours = [row.ours for row in layout.rows(DEPTH) if row.ours]
    assert len(ours) == len(set(ours))
    beginnings = ("pooling.", "embedding.norm.", REGISTERS, *AVERAGED)
    later = {name for name in ours if name.startswith(beginnings) or "gamma" in name}
    not_everywhere = DISTILLED | {"head.weight", "head.bias", CLASS, POSITIONS}
    assert {*ours, *layout.zeros} - later - not_everywhere == OURS - not_everywhere


def test_timms_names_are_ours_without_the_modules_around_them():
    """So that Hugging Face's logits, which ours equal, vouch for timm's table too; test_peers.py asks timm itself."""
    plain = [row for row in TIMM.rows(DEPTH) if row.theirs[0] not in LATER_IN_TIMM]
    assert all(row.theirs == (row.theirs[0],) and row.ours.endswith(row.theirs[0]) for row in plain)


@pytest.mark.parametrize(
    ("names", "family"),
    [
        (["decoder_pos_embed", "decoder_blocks.0.norm1.weight", "mask_token"], "a masked autoencoder"),
        (
            ["visual.conv1.weight", "visual.layer1.0.conv1.weight", "visual.attnpool.positional_embedding"],
            "CLIP with a ResNet",
        ),
        (
            ["params/img/embedding/kernel", "params/img/Transformer/encoderblock/LayerNorm_0/scale"],
            "a big_vision model",
        ),
        (["layers.0.blocks.0.attn.logit_scale", "layers.0.blocks.0.attn.cpb_mlp.0.weight"], "a Swin Transformer"),
        (["blocks.0.attn.relative_position_bias_table", "blocks.0.attn.q_bias"], "a BEiT, a data2vec or an EVA"),
        (["conv1.weight", "layer1.0.conv1.weight"], "a ResNet"),
    ],
)
def test_other_families_are_named(names, family):
    state = foreign.timm() if family.startswith(("a masked", "a BEiT")) else {}  # which have timm's names otherwise
    with pytest.raises(ValueError, match=f"by its names this is {family}.*, which has no table here$"):
        load_pretrained({**state, **{name: torch.ones(2) for name in names}}, num_heads=H)


def test_a_norm_behind_the_pooling_goes_with_the_mean_of_the_patches():
    state = {
        name.replace("norm.", "fc_norm.", 1) if name.startswith("norm.") else name: t
        for name, t in foreign.timm().items()
    }
    model, x = load_pretrained(state, num_heads=H).model, foreign.images().float()
    z = model.tokens(x)[:, 1:].mean(dim=1)
    expected = torch.nn.functional.layer_norm(z, [D], model.fc_norm.weight, model.fc_norm.bias, 1e-6)
    torch.testing.assert_close(model(x), model.head(expected))


def test_no_family_is_guessed_without_a_sign():
    with pytest.raises(ValueError, match=r"unexpected fc_norm\.weight$"):
        load_pretrained(foreign.timm() | {"fc_norm.weight": torch.ones(D)}, num_heads=H)

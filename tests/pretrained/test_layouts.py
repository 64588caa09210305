"""Each table holds every name of its library and no other, once; a row turns a tensor into ours by its axes."""

from math import prod

import foreign
import pytest
import torch
from foreign import DEPTH, HIDDEN, C, D, H, K, P
from torch.testing import assert_close

from vitbook.pretrained.layouts import (
    BIG_VISION,
    GOOGLE,
    HUGGING_FACE,
    IN_MEMORY,
    LAYOUTS,
    TIMM,
    TORCHVISION,
    VITBOOK,
    Row,
    _expand,
    translate,
)
from vitbook.pretrained.weight_files import tensors_in
from vitbook.vit import VisionTransformer, ViTConfig


def state_of(content: dict) -> dict[str, torch.Tensor]:
    return tensors_in(content)[0]


def names(layout, prefix: str = "") -> list[str]:
    return [name for row in layout.rows(DEPTH, prefix) for name in row.theirs]


@pytest.mark.parametrize(
    ("layout", "state", "prefix"),
    [
        (GOOGLE, foreign.google(hidden=True), ""),
        (BIG_VISION, foreign.google(big_vision=True, hidden=True), "params/"),
        (TIMM, foreign.timm(distilled=True), ""),
        (VITBOOK, VisionTransformer(ViTConfig(8, 4, 3, 5, 12, DEPTH, 3, 20)).state_dict(), ""),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_table_holds_every_name_once(layout, state, prefix):
    listed = names(layout, prefix)
    assert len(listed) == len(set(listed))
    optional = {"embedding.dist_token", "head_dist.weight", "head_dist.bias"} if layout is VITBOOK else set()
    assert set(listed) == {prefix + name.removeprefix("params/") for name in state} | optional


@pytest.mark.parametrize("old", [False, True])
def test_torchvisions_tables_hold_every_name_once(old):
    layout = LAYOUTS[LAYOUTS.index(TORCHVISION)] if not old else LAYOUTS[5]
    assert set(names(layout)) - set(foreign.torchvision(old)) == {
        "heads.pre_logits.weight",
        "heads.pre_logits.bias",
    }
    assert set(foreign.torchvision(old)) <= set(names(layout))


def test_all_tables_name_the_same_tensors_of_ours():
    own = set(VisionTransformer(ViTConfig(8, 4, 3, 5, 12, DEPTH, 3, 20)).state_dict())
    for layout in LAYOUTS:
        ours = [row.ours for row in layout.rows(DEPTH) if row.ours != "-"]
        assert len(ours) == len(set(ours))
        assert set(ours) - {"embedding.dist_token", "head_dist.weight", "head_dist.bias"} == own, layout.name


def test_the_tables_say_what_the_published_ones_say():
    """A line of each, by hand."""
    rows = {row.ours: row for row in GOOGLE.rows(2)}
    block = "Transformer/encoderblock_1/MultiHeadDotProductAttention_1"
    assert rows["encoder.blocks.1.attn.qkv.weight"] == Row(
        "encoder.blocks.1.attn.qkv.weight",
        (f"{block}/query/kernel", f"{block}/key/kernel", f"{block}/value/kernel"),
        "D h d -> (h d) D",
    )
    rows = {row.ours: row for row in HUGGING_FACE.rows(2)}
    assert rows["encoder.blocks.1.mlp.fc2.bias"].theirs == ("vit.encoder.layer.1.output.dense.bias",)
    today = {row.ours: row for row in HUGGING_FACE.renamed("hf", IN_MEMORY).rows(2)}
    assert today["encoder.blocks.1.mlp.fc2.bias"].theirs == ("vit.layers.1.mlp.fc2.bias",)
    assert today["encoder.blocks.1.attn.proj.bias"].theirs == ("vit.layers.1.attention.o_proj.bias",)


def test_one_tensor_after_the_other_becomes_ours():
    """The chapter's way: a row, their arrays, our tensor."""
    state = state_of(foreign.google())
    rows = {row.ours: row for row in GOOGLE.rows(DEPTH)}
    block = "Transformer/encoderblock_1/MultiHeadDotProductAttention_1"
    qkv = rows["encoder.blocks.1.attn.qkv.weight"].read(state)
    assert qkv.shape == (3 * D, D)
    for part, name in enumerate(("query", "key", "value")):
        for head in range(H):
            start = part * D + head * (D // H)
            assert_close(qkv[start : start + D // H], state[f"{block}/{name}/kernel"][:, head].T, rtol=0, atol=0)
    proj = rows["encoder.blocks.1.attn.proj.weight"].read(state)
    assert_close(proj[:, 4:8], state[f"{block}/out/kernel"][1].T, rtol=0, atol=0)
    patch = rows["embedding.patch_embed.proj.weight"].read(state)
    assert patch.shape == (D, C, P, P)
    assert patch[5, 2, 1, 3] == state["embedding/kernel"][1, 3, 2, 5]
    assert rows["encoder.blocks.0.mlp.fc1.weight"].read(state).shape == (HIDDEN, D)
    assert rows["head.weight"].read(state).shape == (K, D)


def test_no_number_is_lost_or_doubled():
    for content in (foreign.google(), foreign.timm(distilled=True), foreign.torchvision()):
        state = state_of(content)
        tensors = translate(state).tensors
        assert sum(t.numel() for t in tensors.values()) == sum(prod(t.shape) for t in state.values())
        ours, theirs = (torch.cat([t.flatten() for t in ts.values()]).sort()[0] for ts in (tensors, state))
        assert_close(ours, theirs, rtol=0, atol=0)


def test_a_row_that_is_written_is_read_again():
    row = Row("a", ("q", "k", "v"))
    tensor = torch.arange(24.0).view(6, 4)
    written = row.write(tensor)
    assert [part.shape for part in written.values()] == [(2, 4)] * 3
    assert torch.equal(row.read(written), tensor)


@pytest.mark.parametrize(
    ("name", "spelled"),
    [
        ("a.b", ["a.b"]),
        ("a.{b,c}", ["a.b", "a.c"]),
        ("{q,k}.{w,b}", ["q.w", "q.b", "k.w", "k.b"]),
        ("in_{w,b}", ["in_w", "in_b"]),
    ],
)
def test_braces_are_spelled_out(name, spelled):
    assert _expand(name) == spelled

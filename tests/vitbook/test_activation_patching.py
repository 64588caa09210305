"""Carrying parts of one run into another, against runs by hand, and on a model whose every weight was written down."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from vitbook.activation_patching import Part, head, patched
from vitbook.modern import ModernConfig, ModernViT
from vitbook.planted import planted
from vitbook.vit import VisionTransformer, ViTConfig
from vitbook_workshop.exam.head_table import head_table, twins
from vitbook_workshop.exam.model_by_hand import hand_written

SIZES = dict(image_size=(8, 12), patch_size=4, num_classes=5, dim=24, depth=3, num_heads=4, mlp_dim=48)


def model_and_images() -> tuple[VisionTransformer, torch.Tensor, torch.Tensor]:
    model = VisionTransformer(ViTConfig(**SIZES)).eval()
    nn.init.normal_(model.head.weight)
    return model.double(), *torch.randn(2, 2, 3, 8, 12, dtype=torch.float64)


def test_the_last_stream_carries_the_whole_answer_and_an_images_own_parts_carry_nothing():
    model, images, donors = model_and_images()
    assert_close(patched(model, images, donors, [Part("encoder.blocks.2")]), model(donors))
    assert_close(patched(model, images, donors, [Part("encoder.blocks.2", token=0)]), model(donors))
    assert_close(patched(model, images, donors, [Part("encoder.blocks.2", token=3)]), model(images))
    assert_close(patched(model, images, images, [Part("encoder.blocks.1"), head(model, 0, 1)]), model(images))
    assert_close(patched(model, images, donors, []), model(images))


@pytest.mark.parametrize("block", [0, 2])
def test_a_head_is_its_own_columns_before_the_projection(block):
    model, images, donors = model_and_images()
    found = patched(model, images, donors, [head(model, block, 2)])
    z = {name: model.embedding(x) for name, x in (("image", images), ("donor", donors))}
    for number, layer in enumerate(model.encoder.blocks):
        heads = {}
        for name in z:
            q, k, v = layer.attn.project(layer.norm1(z[name]))
            heads[name] = (q @ k.mT / 6**0.5).softmax(dim=-1) @ v
        if number == block:
            heads["image"] = torch.cat([heads["image"][:, :2], heads["donor"][:, 2:3], heads["image"][:, 3:]], dim=1)
        for name in z:
            z[name] = z[name] + layer.attn.proj(heads[name].transpose(1, 2).flatten(2))
            z[name] = z[name] + layer.mlp(layer.norm2(z[name]))
    assert_close(found, model.logits(model.norm(z["image"])))


def test_all_heads_and_the_mlp_of_a_block_make_what_it_writes():
    model, images, donors = model_and_images()
    heads = [head(model, 1, number) for number in range(4)]
    assert_close(patched(model, images, donors, heads), patched(model, images, donors, [Part("encoder.blocks.1.attn")]))


def test_modules_of_other_libraries_go_by_name():
    layer = nn.TransformerEncoderLayer(12, 3, 20, batch_first=True).eval().double()

    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.out = layer, nn.Linear(12, 2).double()

        def forward(self, x):
            return self.out(self.layer(x).mean(dim=1))

    model, (x, donors) = Plain(), torch.randn(2, 2, 5, 12, dtype=torch.float64)
    assert_close(patched(model, x, donors, [Part("layer")]), model(donors))
    half = layer(x).clone()
    half[:, 3, :6] = layer(donors)[:, 3, :6]
    assert_close(patched(model, x, donors, [Part("layer", token=3, columns=(0, 6))]), model.out(half.mean(dim=1)))


def test_later_models_have_heads_too():
    model = ModernViT(ModernConfig(**SIZES)).eval()
    images, donors = torch.randn(2, 2, 3, 8, 12)
    nn.init.normal_(model.head.weight)
    assert not torch.allclose(patched(model, images, donors, [head(model, 0, 3)]), model(images))


def test_hooks_are_gone_afterwards_also_where_a_part_is_refused():
    model, images, donors = model_and_images()
    before = model(images)
    for part, said in (
        (
            Part("encoder.blocks.9"),
            "module must be one of the model's, as encoder.blocks.0.mlp, got 'encoder.blocks.9'",
        ),
        (Part("head"), r"head must give a tensor \(B, T, D\), got torch.Size\(\[2, 5\]\)"),
    ):
        with pytest.raises(ValueError, match=said):
            patched(model, images, donors, [Part("encoder.blocks.1"), part])
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert_close(model(images), before)
    with pytest.raises(ValueError, match=r"head must lie in 0 … 3, got 4"):
        head(model, 0, 4)
    with pytest.raises(ValueError, match=r"block must lie in 0 … 2, got 3"):
        head(model, 3, 0)
    with pytest.raises(ValueError, match="no MultiHeadSelfAttention"):
        head(nn.Linear(2, 2), 0, 0)


def test_the_hand_written_model_solves_compare():
    scenes = planted("compare", 2000, torch.Generator().manual_seed(5))
    with torch.no_grad():
        assert torch.equal(hand_written()(scenes.images).argmax(dim=1), scenes.labels)


@pytest.mark.parametrize(
    ("change", "expected"), [("cue", [[0, 0], [1, 0], [0, 1]]), ("color", [[0, 0], [0, 0], [0, 1]])]
)
def test_patching_finds_the_heads_that_were_written(change, expected):
    images, donors = twins(change)
    assert len(images) > 50 and ((images - donors).abs().amax(dim=1) > 0).flatten(1).sum(dim=1).max() <= 16  # one patch
    found = head_table(hand_written(), images, donors)
    assert_close(found, torch.tensor(expected).float(), rtol=0, atol=1e-3)

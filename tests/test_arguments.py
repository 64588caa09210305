"""Every argument of every public function and class of the model has an effect: none is read by nobody."""

import importlib

import properties as check
import pytest
import torch
from properties import GRID, HEADS, HEIGHT, HIDDEN, WIDTH, B, C, D, N, P, S, T, images
from tables import defined_in, name

from vitbook import (
    attention,
    augment,
    distillation,
    embedding,
    encoder,
    multihead,
    names,
    patches,
    self_attention,
    training,
    transformer,
    vit,
)

torch.manual_seed(0)  # what follows is made at import, before any fixture
PATCHES = patches.PatchEmbedding(P, C, D)
STEM = patches.conv_stem(C, (6,))
SOME = torch.arange(T * S).view(T, S) % 3 > 0
x, memory = torch.randn(B, T, D), torch.randn(B, S, D)
q, k, v = torch.randn(B, T, 4), torch.randn(B, S, 4), torch.randn(B, S, 6)
source, target = torch.arange(B * S).view(B, S) % 10 + 1, torch.arange(B * T).view(B, T) % 10 + 1
heads = dict(dim=D, num_heads=HEADS)
other_heads = dict(dim=24, num_heads=2)
inside = heads | dict(mlp_dim=HIDDEN)
places = (dict(grid=GRID, dim=D, num_prefix_tokens=1), dict(grid=(4, 5), dim=24, num_prefix_tokens=0))

levels = images(5).abs().mul(99).clamp(max=255).round()
affine = torch.eye(2, 3).repeat(5, 1, 1)
changed = (dict(pixels=levels, strength=torch.ones(5, 1, 1, 1)), dict(pixels=255 - levels, strength=torch.zeros(1)))
mixed = (
    dict(images=images(5), targets=torch.eye(5), alpha=1.0),
    dict(images=images(5), targets=-torch.eye(5), alpha=0.5),
)

# function or class: arguments, another value for each, inputs of the module's forward
TABLE = {
    attention.attention_scores: (dict(q=q, k=k), dict(q=q + k[:, :T], k=k + 1 / k)),
    attention.attention_weights: (dict(scores=torch.randn(T, S)), dict(scores=torch.randn(T, S), mask=SOME)),
    attention.attention: (dict(q=q, k=k, v=v), dict(q=-q, k=-k, v=-v, mask=SOME, dropout_p=0.5)),
    attention.fused_attention: (dict(q=q, k=k, v=v), dict(q=-q, k=-k, v=-v, mask=SOME, dropout_p=0.5)),
    attention.quickest_attention: (dict(q=q, k=k, v=v), dict(q=-q, k=-k, v=-v, mask=SOME, dropout_p=0.5)),
    attention.gaussian_attention: (dict(q=q, k=k, v=v), dict(q=-q, k=-k, v=-v, bandwidth=2.0)),
    self_attention.SelfAttention: (dict(dim=D, head_dim=4), dict(dim=13, head_dim=5, bias=False), x),
    multihead.split_heads: (dict(x=x, num_heads=3), dict(x=-x, num_heads=4)),
    multihead.merge_heads: (dict(x=x.unsqueeze(2)), dict(x=x.unsqueeze(1))),
    multihead.MultiHeadSelfAttention: (
        heads,
        other_heads | dict(qkv_bias=False, attention_dropout=0.5, dropout=0.5),
        x,
    ),
    multihead.ListOfHeads: (heads, other_heads | dict(qkv_bias=False), x),
    multihead.HeadShapedAttention: (heads, other_heads | dict(qkv_bias=False), x),
    transformer.sincos_positions: (dict(length=T, dim=D), dict(length=S, dim=14, base=100.0)),
    transformer.causal_mask: (dict(length=T), dict(length=S, device="meta")),
    transformer.padding_mask: (dict(tokens=source, padding=3), dict(tokens=source + 1, padding=4)),
    transformer.MultiHeadCrossAttention: (heads, other_heads, x, memory),
    transformer.FeedForward: (dict(dim=D, hidden_dim=HIDDEN), dict(dim=13, hidden_dim=21), x),
    transformer.EncoderLayer: (heads | dict(hidden_dim=HIDDEN), other_heads | dict(hidden_dim=21, dropout=0.5), x),
    transformer.DecoderLayer: (
        heads | dict(hidden_dim=HIDDEN),
        other_heads | dict(hidden_dim=21, dropout=0.5),
        *(x, memory, transformer.causal_mask(T)),
    ),
    transformer.Transformer: (
        heads | dict(vocab_size=11, depth=2, hidden_dim=HIDDEN),
        other_heads | dict(vocab_size=12, depth=1, hidden_dim=21, padding=int(source[0, 0]), dropout=0.5),
        *(source, target),
    ),
    patches.patchify: (dict(images=images(), patch_size=P), dict(images=images(), patch_size=2)),
    patches.unpatchify: (
        dict(patches=torch.randn(B, N, 48), patch_size=P, image_size=(HEIGHT, WIDTH)),
        dict(patches=torch.randn(B, N, 48), patch_size=2, image_size=(WIDTH, HEIGHT)),
    ),
    patches.PatchEmbedding: (dict(patch_size=P, channels=C, dim=D), dict(patch_size=2, channels=1, dim=13), images()),
    patches.HybridEmbedding: (
        dict(stem=STEM, stem_channels=6, stem_stride=2, dim=D),
        dict(stem=patches.conv_stem(C, (6, 6)), stem_channels=5, stem_stride=5, dim=13, patch_size=2),
        images(),
    ),
    patches.conv_stem: (dict(channels=C, widths=(5,)), dict(channels=1, widths=(5, 6)), images()),
    patches.stem_stride: (dict(widths=(5, 6)), dict(widths=(5, 5))),
    patches.grid_size: (dict(image_size=(8, 12), patch_size=4), dict(image_size=(12, 8), patch_size=2)),
    embedding.ImageEmbedding: (
        dict(patch_embed=PATCHES, image_size=(HEIGHT, WIDTH), dim=D),
        dict(patch_embed=patches.PatchEmbedding(2, C, D), image_size=(4, 4), dim=24)
        | dict(class_token=False, positions="none", dropout=0.5),
        images(),
    ),
    embedding.drop_patches: (
        dict(x=x, share=0.5),
        dict(x=-x, share=0.2, num_prefix_tokens=2),
    ),
    embedding.LearnedPositions: places,
    embedding.LearnedPositions2D: places,
    embedding.SinCosPositions2D: places,
    embedding.sincos_positions_2d: (dict(grid=GRID, dim=D), dict(grid=(3, 2), dim=24)),
    embedding.resize_positions: (
        dict(pos_embed=torch.randn(1, 25, D), old_grid=(4, 6), new_grid=GRID),
        dict(pos_embed=torch.randn(1, 25, D), old_grid=(6, 4), new_grid=(3, 2), num_prefix_tokens=0)
        | dict(mode="bilinear", align_corners=True, antialias=False),
    ),
    encoder.MLP: (dict(dim=D, hidden_dim=HIDDEN), dict(dim=13, hidden_dim=21, dropout=0.5), x),
    encoder.DropPath: (dict(p=0.0), dict(p=0.5), x),
    encoder.EncoderBlock: (
        inside,
        other_heads | dict(mlp_dim=21, dropout=0.5, attention_dropout=0.5, qkv_bias=False, drop_path=0.5),
        x,
    ),
    encoder.Encoder: (
        inside | dict(depth=2),
        other_heads | dict(depth=3, mlp_dim=21, dropout=0.5, attention_dropout=0.5, qkv_bias=False, drop_path=0.5),
        x,
    ),
    vit.VisionTransformer: (
        dict(config=check.small_config()),
        dict(config=check.small_config(depth=3), patch_embed=patches.HybridEmbedding(STEM, 6, 2, D, 2)),
        images(),
    ),
    vit.make_patch_embed: (
        dict(config=check.small_config()),
        dict(config=check.small_config(stem=(5,))),
        images(),
    ),
    vit.create_vit: (dict(name="vit_digits"), dict(name="vit_fashion"), torch.randn(B, 1, 8, 8)),
    distillation.DistilledEmbedding: (
        dict(patch_embed=PATCHES, image_size=(HEIGHT, WIDTH), dim=D),
        dict(patch_embed=patches.PatchEmbedding(2, C, D), image_size=(4, 4), dim=24, positions="none", dropout=0.5),
        images(),
    ),
    distillation.DistilledVisionTransformer: (
        dict(config=check.small_config()),
        dict(config=check.small_config(depth=3), patch_embed=patches.HybridEmbedding(STEM, 6, 2, D, 2)),
        images(),
    ),
    distillation.soft_distillation_loss: (
        dict(scores=torch.randn(B, 3), labels=torch.tensor([0, 2]), teacher_scores=torch.randn(B, 3)),
        dict(scores=torch.randn(B, 3), labels=torch.tensor([1, 2]), teacher_scores=torch.randn(B, 3))
        | dict(temperature=2.0, weight=0.5),
    ),
    distillation.hard_distillation_loss: (
        dict(scores=torch.randn(B, 3), labels=torch.tensor([0, 2]), teacher_scores=torch.eye(3)[:B]),
        dict(scores=torch.randn(B, 3), labels=torch.tensor([1, 2]), teacher_scores=torch.eye(3)[1:]),
    ),
    distillation.token_distillation_loss: (
        dict(class_scores=torch.randn(B, 3), distillation_scores=torch.randn(B, 3))
        | dict(labels=torch.tensor([0, 2]), teacher_scores=torch.eye(3)[:B]),
        dict(class_scores=torch.randn(B, 3), distillation_scores=torch.randn(B, 3))
        | dict(labels=torch.tensor([1, 2]), teacher_scores=torch.eye(3)[1:]),
    ),
    distillation.late_fusion: (
        dict(class_scores=torch.randn(B, 3), distillation_scores=torch.randn(B, 3)),
        dict(class_scores=torch.randn(B, 3), distillation_scores=torch.randn(B, 3)),
    ),
    names.unknown: (dict(kind="cat", name="cat", known=["cap"]), dict(kind="dog", name="dog", known=["car"])),
    augment.random_affine: (
        dict(images=images(), degrees=0.0, shift=0.0, scale=0.0),
        dict(images=images(), degrees=20.0, shift=0.2, scale=0.2),
    ),
    augment.random_crop: (dict(images=images(), padding=1), dict(images=images(), padding=2)),
    augment.random_flip: (dict(images=images(5)), dict(images=images(5))),
    augment.warp: (
        dict(images=images(5), matrices=1.5 * affine, outside="zeros"),
        dict(images=images(5), matrices=1.7 * affine, outside="border"),
    ),
    augment.random_erasing: (dict(images=images(5), probability=1.0), dict(images=images(5), probability=0.0)),
    augment.rand_augment: (
        dict(images=levels.byte(), num_ops=2, magnitude=9.0),
        dict(images=255 - levels.byte(), num_ops=0, magnitude=2.0),
    ),
    augment.operate: (
        dict(pixels=levels, numbers=torch.arange(5), strengths=torch.ones(5)),
        dict(pixels=255 - levels, numbers=torch.arange(5) + 5, strengths=-torch.ones(5)),
    ),
    augment.move: (
        dict(pixels=levels, numbers=torch.arange(5), strengths=torch.ones(5)),
        dict(pixels=255 - levels, numbers=torch.arange(5).flip(0), strengths=-torch.ones(5)),
    ),
    **{change: changed for name, change in augment.COLOURS.items() if name not in ("auto_contrast", "equalize")},
    augment.grey: (dict(pixels=levels), dict(pixels=255 - levels)),
    augment.mixup: mixed,
    augment.cutmix: mixed,
    training.warmup_cosine: (
        dict(step=3, total_steps=20, warmup_steps=5),
        dict(step=4, total_steps=3, warmup_steps=6),
    ),
}


@pytest.mark.parametrize("function", TABLE, ids=name)
def test_every_argument_has_an_effect(function):
    check.each_argument_counts(function, *TABLE[function])


def test_the_table_is_complete():
    elsewhere = {  # tested field by field, or by what they do to a model
        *(vit.ViTConfig, training.parameter_groups, training.train_epoch, training.evaluate),
        *(training.Evaluation, training.keeping_modes, training.on_device_of, training.__getattr__),
        *(embedding.NoPositions, augment.auto_contrast, augment.equalize),  # take what siblings take, and need less
    }
    public = set()
    for each in (
        "attention self_attention multihead transformer patches embedding encoder vit distillation augment training "
        "names"
    ).split():
        module = importlib.import_module(f"vitbook.{each}")
        public |= defined_in(module)
    checks = {value for value in public if value.__name__.startswith("check_")}
    assert public - checks == set(TABLE) | elsewhere


def test_an_argument_without_effect_is_found():
    def idle(a, b=0):
        return a

    check.each_argument_counts(lambda a: a, dict(a=1), dict(a=2))
    with pytest.raises(AssertionError, match="idle: b has no effect"):
        check.each_argument_counts(idle, dict(a=1), dict(a=2, b=3))
    with pytest.raises(AssertionError, match="every argument of idle"):
        check.each_argument_counts(idle, dict(a=1), dict(a=2))

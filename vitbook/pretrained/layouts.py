"""How other libraries name and order the tensors of a Vision Transformer: a table for each, ours beside theirs.

A new library is a new table in `LAYOUTS`, and a line in `STYLES` and `KERNELS` under the same name.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import torch
from einops import rearrange
from torch import Tensor

_OUR_BLOCK = "encoder.blocks.{i}."
CLASS, DISTILLATION = "embedding.cls_token", "embedding.dist_token"  # our names
REGISTERS = "embedding.register_tokens"
POSITIONS, PATCHES = "embedding.positions.pos_embed", "embedding.patch_embed.proj.weight"
GAMMA = "encoder.blocks.0.attn.proj.gamma"


@dataclass(frozen=True)
class Row:
    """One tensor of ours, and the one or several of theirs that hold its numbers."""

    ours: str  # "" for what our model has no place for
    theirs: tuple[str, ...]
    axes: str = ""  # their axes -> ours, as einops writes it; empty where they are the same
    optional: bool = False
    unless: str = ""
    share: tuple[int, int] = (0, 1)  # which part of theirs is ours, and of how many laid end to end

    def read(self, state: Mapping[str, Tensor]) -> Tensor:
        """Our tensor, made of theirs."""
        parts = [state[name] for name in self.theirs]
        x = torch.stack(parts) if len(parts) > 1 else parts[0][None]  # an error unless all have the same shape
        if self.axes:
            theirs, ours = self.axes.split(" -> ")
            sides = _patch_sides(x.shape[-1]) if "(p q c)" in theirs else {}
            x = rearrange(x, f"n {theirs} -> n {ours}", **sides)
        part, of = self.share
        return x.flatten(0, 1).chunk(of)[part]

    def write(self, tensor: Tensor, num_heads: int = 1) -> dict[str, Tensor]:
        """Their tensors, made of ours; of a tensor that several of ours share, our part. num_heads: h of the axes."""
        parts = tensor.chunk(len(self.theirs))
        if self.axes:
            theirs, ours = self.axes.split(" -> ")
            h = {"h": num_heads} if "h" in theirs.split() else {}
            parts = [rearrange(part, f"{ours} -> {theirs}", **h) for part in parts]
        return {name: part.clone() for name, part in zip(self.theirs, parts, strict=True)}


@dataclass(frozen=True)
class Names:
    """A line of a table. {weight,bias} stands for two names.

    Several of theirs for one of ours, such as queries, keys and values, are laid end to end, and one of theirs for
    several of ours holds them so.
    """

    ours: str  # "" for what our model has no place for
    theirs: str
    axes: str = ""  # theirs -> ours, as einops writes it; empty where they are the same
    optional: bool = False  # whether it may be missing
    unless: str = ""  # theirs that may stand in its place


@dataclass(frozen=True)
class Layout:
    """A library's names: of the tensors outside the blocks, and of those in block i, which begin with `block`."""

    name: str
    outside: tuple[Names, ...]
    block: str
    inside: tuple[Names, ...]  # our names begin with _OUR_BLOCK
    positioned: str = "class"  # which tokens before the patches have a position: those but registers, "all", or "none"
    settings: dict[str, Any] = field(default_factory=dict)  # fields of ModernConfig that no tensor shows
    zeros: tuple[str, ...] = ()  # biases of ours that it lacks
    key_bias: bool = True  # whether keys have one, where they are apart from queries and values
    # D/h by D, where it is not 64
    head_dim: Mapping[int, int] = field(default_factory=lambda: {1152: 72, 1280: 80, 1408: 88, 1664: 104})
    tower: str | None = None  # what the image tower's names begin with, where a text tower may stand beside it
    prefix: str = ""  # what all names of a file begin with
    kernel: str = ""  # how its library interpolates positions, a key of KERNELS, where that is not the family's way

    def rows(self, depth: int) -> list[Row]:
        """Every tensor of a model of `depth` blocks, those outside first."""
        rows = list(_rows(self.outside, "", self.prefix))
        for i in range(depth):
            rows += _rows(self.inside, _OUR_BLOCK.format(i=i), self.prefix + self.block.format(i=i))
        return rows

    def renamed(self, name: str, words: dict[str, str], **changes: Any) -> "Layout":
        """The same layout with other words in their names, replaced one after the other. changes: other fields."""

        def in_other_words(text: str) -> str:
            for old, new in words.items():
                text = text.replace(old, new)
            return text

        outside, inside = (
            tuple(replace(names, theirs=in_other_words(names.theirs)) for names in table)
            for table in (self.outside, self.inside)
        )
        return replace(self, name=name, outside=outside, block=in_other_words(self.block), inside=inside, **changes)


def _rows(table: tuple[Names, ...], ours_begins: str, theirs_begins: str) -> Iterator[Row]:
    for line in table:
        left, right = _expand(line.ours), _expand(line.theirs)
        shares = max(len(left) // len(right), 1)
        for k, name in enumerate(left):
            names = tuple(theirs_begins + theirs for theirs in right[k % len(right) :: len(left)])
            ours = ours_begins + name if name else ""
            unless = theirs_begins + line.unless if line.unless else ""
            yield Row(ours, names, line.axes, line.optional, unless, (k // len(right), shares))


def _nowhere(theirs: str) -> Names:
    """What our model has no place for."""
    return Names("", theirs, optional=True)


def _patch_sides(numbers: int) -> dict[str, int]:
    """Side and channels of square patches that are laid out as so many numbers: colors, if that comes out even."""
    colors = math.isqrt(numbers // 3)
    return dict(p=colors, c=3) if 3 * colors**2 == numbers else dict(p=math.isqrt(numbers), c=1)


def _expand(name: str) -> list[str]:
    """ "a.{b,c}" is "a.b" and "a.c"; the last braces vary fastest."""
    parts = [part.split(",") for part in re.split(r"[{}]", name)]
    return ["".join(chosen) for chosen in product(*parts)]


# The layouts

# Google's .npz files of Dosovitskiy et al. 2021 and Steiner et al. 2022, written by Flax. D width, h heads of width d,
# p×q patches of c channels, f the MLP's hidden width, k classes.
GOOGLE = Layout(
    "google",
    (
        Names("embedding.cls_token", "cls"),
        Names("embedding.positions.pos_embed", "Transformer/posembed_input/pos_embedding"),
        Names("embedding.patch_embed.proj.weight", "embedding/kernel", "p q c D -> D c p q"),
        Names("embedding.patch_embed.proj.bias", "embedding/bias"),
        Names("norm.{weight,bias}", "Transformer/encoder_norm/{scale,bias}"),
        _nowhere("pre_logits/{kernel,bias}"),
        Names("head.weight", "head/kernel", "D k -> k D", optional=True),
        Names("head.bias", "head/bias", optional=True),
    ),
    "Transformer/encoderblock_{i}/",
    (
        Names("norm1.{weight,bias}", "LayerNorm_0/{scale,bias}"),
        Names("attn.qkv.weight", "MultiHeadDotProductAttention_1/{query,key,value}/kernel", "D h d -> (h d) D"),
        Names("attn.qkv.bias", "MultiHeadDotProductAttention_1/{query,key,value}/bias", "h d -> (h d)"),
        Names("attn.proj.weight", "MultiHeadDotProductAttention_1/out/kernel", "h d D -> D (h d)"),
        Names("attn.proj.bias", "MultiHeadDotProductAttention_1/out/bias"),
        Names("norm2.{weight,bias}", "LayerNorm_2/{scale,bias}"),
        Names("mlp.fc1.weight", "MlpBlock_3/Dense_0/kernel", "D f -> f D"),
        Names("mlp.fc1.bias", "MlpBlock_3/Dense_0/bias"),
        Names("mlp.fc2.weight", "MlpBlock_3/Dense_1/kernel", "f D -> D f"),
        Names("mlp.fc2.bias", "MlpBlock_3/Dense_1/bias"),
    ),
)

# Google's later code. The class token has no position, and is not always there: without it, patches are averaged.
BIG_VISION = replace(GOOGLE, outside=(replace(GOOGLE.outside[0], optional=True), *GOOGLE.outside[1:])).renamed(
    "big_vision",
    {
        "Transformer/posembed_input/": "",
        "LayerNorm_2": "LayerNorm_1",
        "MultiHeadDotProductAttention_1": "MultiHeadDotProductAttention_0",
        "MlpBlock_3": "MlpBlock_0",
    },
    positioned="none",
)

# timm, and DeiT's own files, which are made with it. Distilled models have a second token and a second head; what
# averages its patches has fc_norm behind that in place of norm.
TIMM = Layout(
    "timm",
    (
        Names("embedding.cls_token", "cls_token", optional=True),
        Names("embedding.dist_token", "dist_token", optional=True),
        Names("embedding.register_tokens", "reg_token", optional=True),
        Names("embedding.positions.pos_embed", "pos_embed"),
        Names("embedding.patch_embed.proj.{weight,bias}", "patch_embed.proj.{weight,bias}"),
        Names("norm.{weight,bias}", "norm.{weight,bias}", unless="fc_norm.weight"),
        Names("fc_norm.{weight,bias}", "fc_norm.{weight,bias}", optional=True, unless="norm.weight"),
        Names("head.{weight,bias}", "head.{weight,bias}", optional=True),
        Names("head_dist.{weight,bias}", "head_dist.{weight,bias}", optional=True),
    ),
    "blocks.{i}.",
    (
        Names("norm1.{weight,bias}", "norm1.{weight,bias}"),
        Names("attn.qkv.weight", "attn.qkv.weight"),
        Names("attn.qkv.bias", "attn.qkv.bias", optional=True),
        Names("attn.proj.{weight,bias}", "attn.proj.{weight,bias}"),
        Names("attn.proj.gamma", "ls1.gamma", optional=True),
        Names("norm2.{weight,bias}", "norm2.{weight,bias}"),
        Names("mlp.fc1.{weight,bias}", "mlp.fc1.{weight,bias}"),
        Names("mlp.fc2.{weight,bias}", "mlp.fc2.{weight,bias}"),
        Names("mlp.fc2.gamma", "ls2.gamma", optional=True),
    ),
)
TORCHVISION = Layout(
    "torchvision",
    (
        Names("embedding.cls_token", "class_token"),
        Names("embedding.positions.pos_embed", "encoder.pos_embedding"),
        Names("embedding.patch_embed.proj.{weight,bias}", "conv_proj.{weight,bias}"),
        Names("norm.{weight,bias}", "encoder.ln.{weight,bias}"),
        _nowhere("heads.pre_logits.{weight,bias}"),
        Names("head.{weight,bias}", "heads.head.{weight,bias}", optional=True),
    ),
    "encoder.layers.encoder_layer_{i}.",
    (
        Names("norm1.{weight,bias}", "ln_1.{weight,bias}"),
        Names("attn.qkv.{weight,bias}", "self_attention.in_proj_{weight,bias}"),
        Names("attn.proj.{weight,bias}", "self_attention.out_proj.{weight,bias}"),
        Names("norm2.{weight,bias}", "ln_2.{weight,bias}"),
        Names("mlp.fc1.{weight,bias}", "mlp.0.{weight,bias}"),
        Names("mlp.fc2.{weight,bias}", "mlp.3.{weight,bias}"),
    ),
)

# Hugging Face's files; its library now has other names in memory, and translates.
HUGGING_FACE = Layout(
    "hf",
    (
        Names("embedding.cls_token", "vit.embeddings.cls_token", optional=True),
        Names("embedding.dist_token", "vit.embeddings.distillation_token", optional=True),
        Names("embedding.positions.pos_embed", "vit.embeddings.position_embeddings"),
        Names("embedding.patch_embed.proj.{weight,bias}", "vit.embeddings.patch_embeddings.projection.{weight,bias}"),
        Names("norm.{weight,bias}", "vit.layernorm.{weight,bias}"),
        _nowhere("vit.pooler.dense.{weight,bias}"),
        Names("head.{weight,bias}", "classifier.{weight,bias}", optional=True),
        Names("head_dist.{weight,bias}", "distillation_classifier.{weight,bias}", optional=True),
    ),
    "vit.encoder.layer.{i}.",
    (
        Names("norm1.{weight,bias}", "layernorm_before.{weight,bias}"),
        Names("attn.qkv.weight", "attention.attention.{query,key,value}.weight"),
        Names("attn.qkv.bias", "attention.attention.{query,key,value}.bias", optional=True),
        Names("attn.proj.{weight,bias}", "attention.output.dense.{weight,bias}"),
        Names("norm2.{weight,bias}", "layernorm_after.{weight,bias}"),
        Names("mlp.fc1.{weight,bias}", "intermediate.dense.{weight,bias}"),
        Names("mlp.fc2.{weight,bias}", "output.dense.{weight,bias}"),
    ),
)
_IN_MEMORY = {
    "attention.attention.{query,key,value}": "attention.{q_proj,k_proj,v_proj}",
    "attention.output.dense": "attention.o_proj",
    "intermediate.dense": "mlp.fc1",
    "output.dense": "mlp.fc2",
}
_VIT_IN_MEMORY = {"encoder.layer.": "layers."} | _IN_MEMORY
DISTILLED = {"vit.": "deit.", "classifier": "cls_classifier", "distillation_cls_": "distillation_"}

# with a distillation token and one head, which does not see it: to us, a register
_DEIT_UNTAUGHT = {"embedding.dist_token": "embedding.register_tokens"}

# DINOv2 at Hugging Face
DINOV2 = Layout(
    "dinov2",
    (
        Names("embedding.cls_token", "dinov2.embeddings.cls_token"),
        Names("embedding.register_tokens", "dinov2.embeddings.register_tokens", optional=True),
        Names("embedding.positions.pos_embed", "dinov2.embeddings.position_embeddings"),
        Names(
            "embedding.patch_embed.proj.{weight,bias}", "dinov2.embeddings.patch_embeddings.projection.{weight,bias}"
        ),
        Names("norm.{weight,bias}", "dinov2.layernorm.{weight,bias}"),
        Names("head.{weight,bias}", "classifier.{weight,bias}", optional=True),
        _nowhere("dinov2.embeddings.mask_token"),
    ),
    "dinov2.encoder.layer.{i}.",
    (
        Names("norm1.{weight,bias}", "norm1.{weight,bias}"),
        Names("attn.qkv.weight", "attention.attention.{query,key,value}.weight"),
        Names("attn.qkv.bias", "attention.attention.{query,key,value}.bias", optional=True),
        Names("attn.proj.{weight,bias}", "attention.output.dense.{weight,bias}"),
        Names("attn.proj.gamma", "layer_scale1.lambda1"),
        Names("norm2.{weight,bias}", "norm2.{weight,bias}"),
        Names("mlp.fc1.{weight,bias}", "mlp.fc1.{weight,bias}"),
        Names("mlp.fc2.{weight,bias}", "mlp.fc2.{weight,bias}"),
        Names("mlp.fc2.gamma", "layer_scale2.lambda1"),
    ),
    head_dim={},
)
# DINOv2's own files, whose names are timm's but for the registers
DINOV2_HUB = TIMM.renamed("dinov2", {"reg_token": "register_tokens"}, head_dim={})
DINOV2_HUB = replace(DINOV2_HUB, outside=(*DINOV2_HUB.outside, _nowhere("mask_token")))
# DeiT-III has timm's names, and no position for the class token; in its authors' files γ is named as here.
DEIT3_HUB = TIMM.renamed("deit3", {"ls1.gamma": "gamma_1", "ls2.gamma": "gamma_2"}, positioned="none")
DEIT3_HUB = replace(
    DEIT3_HUB,
    outside=tuple(
        replace(line, optional=line.optional and line.ours != CLASS)
        for line in DEIT3_HUB.outside
        if line.ours != REGISTERS
    ),
)

# DINOv3 at Hugging Face: positions are angles, which nothing has to hold, and keys have no bias.
DINOV3 = Layout(
    "dinov3",
    (
        Names("embedding.cls_token", "embeddings.cls_token"),
        Names("embedding.register_tokens", "embeddings.register_tokens", optional=True),
        Names("embedding.patch_embed.proj.{weight,bias}", "embeddings.patch_embeddings.{weight,bias}"),
        Names("norm.{weight,bias}", "norm.{weight,bias}"),
        _nowhere("embeddings.mask_token"),
    ),
    "layer.{i}.",
    (
        Names("norm1.{weight,bias}", "norm1.{weight,bias}"),
        Names("attn.qkv.{weight,bias}", "attention.{q_proj,k_proj,v_proj}.{weight,bias}"),
        Names("attn.proj.{weight,bias}", "attention.o_proj.{weight,bias}"),
        Names("attn.proj.gamma", "layer_scale1.lambda1"),
        Names("norm2.{weight,bias}", "norm2.{weight,bias}"),
        Names("mlp.fc1.{weight,bias}", "mlp.up_proj.{weight,bias}"),
        Names("mlp.fc2.{weight,bias}", "mlp.down_proj.{weight,bias}"),
        Names("mlp.fc2.gamma", "layer_scale2.lambda1"),
    ),
    settings=dict(positions="none", rotary_base=100.0, norm_eps=1e-5),
    key_bias=False,
    head_dim={4096: 128},
)
# DINOv3's own files. Differs: their periods of rotation are rounded to bfloat16; ours, as Hugging Face's, are not.
DINOV3_HUB = replace(
    DINOV2_HUB,
    name="dinov3",
    outside=(
        Names("embedding.cls_token", "cls_token"),
        Names("embedding.register_tokens", "storage_tokens", optional=True),
        Names("embedding.patch_embed.proj.{weight,bias}", "patch_embed.proj.{weight,bias}"),
        Names("norm.{weight,bias}", "norm.{weight,bias}"),
        _nowhere("mask_token"),
        _nowhere("rope_embed.periods"),
        _nowhere("local_cls_norm.{weight,bias}"),
    ),
    inside=(*TIMM.inside, _nowhere("attn.qkv.bias_mask")),
    settings=DINOV3.settings,
    head_dim=DINOV3.head_dim,
)
# DINOv3 at timm
DINOV3_TIMM = replace(
    DINOV3_HUB,
    outside=(
        Names("embedding.cls_token", "cls_token"),
        Names("embedding.register_tokens", "reg_token", optional=True),
        Names("embedding.patch_embed.proj.{weight,bias}", "patch_embed.proj.{weight,bias}"),
        Names("norm.{weight,bias}", "norm.{weight,bias}", unless="fc_norm.weight"),
        Names("fc_norm.{weight,bias}", "fc_norm.{weight,bias}", optional=True, unless="norm.weight"),
        Names("head.{weight,bias}", "head.{weight,bias}", optional=True),
    ),
    inside=(
        Names("norm1.{weight,bias}", "norm1.{weight,bias}"),
        Names("attn.qkv.weight", "attn.qkv.weight"),
        Names("attn.qkv.bias", "attn.{q_bias,k_bias,v_bias}", optional=True),
        Names("attn.proj.{weight,bias}", "attn.proj.{weight,bias}"),
        Names("attn.proj.gamma", "gamma_1"),
        Names("norm2.{weight,bias}", "norm2.{weight,bias}"),
        Names("mlp.fc1.{weight,bias}", "mlp.fc1.{weight,bias}"),
        Names("mlp.fc2.{weight,bias}", "mlp.fc2.{weight,bias}"),
        Names("mlp.fc2.gamma", "gamma_2"),
    ),
    key_bias=False,
)
# with SwiGLU
_GATED = {"mlp.fc1": "mlp.weights_in", "mlp.fc2": "mlp.weights_out"}
_GATED_HUB = {"mlp.fc1": "mlp.w12", "mlp.fc2": "mlp.w3"}
_GATED_HUB_3 = {"mlp.fc1": "mlp.{w1,w2}", "mlp.fc2": "mlp.w3"}
_GATED_TIMM_3 = {"mlp.fc1": "mlp.{fc1_g,fc1_x}"}
_GATED_IN_MEMORY = {"mlp.fc1": "mlp.{gate_proj,up_proj}", "mlp.fc2": "mlp.down_proj"}

# CLIP at Hugging Face: a LayerNorm before the first block, patches without a bias, and a projection for a head.
CLIP = Layout(
    "clip",
    (
        Names("embedding.cls_token", "vision_model.embeddings.class_embedding", "D -> 1 1 D"),
        Names("embedding.positions.pos_embed", "vision_model.embeddings.position_embedding.weight", "T D -> 1 T D"),
        Names("embedding.patch_embed.proj.weight", "vision_model.embeddings.patch_embedding.weight"),
        Names("embedding.norm.{weight,bias}", "vision_model.pre_layrnorm.{weight,bias}"),
        Names("norm.{weight,bias}", "vision_model.post_layernorm.{weight,bias}"),
        Names("head.weight", "visual_projection.weight", optional=True),
        _nowhere("vision_model.embeddings.position_ids"),
    ),
    "vision_model.encoder.layers.{i}.",
    (
        Names("norm1.{weight,bias}", "layer_norm1.{weight,bias}"),
        Names("attn.qkv.{weight,bias}", "self_attn.{q_proj,k_proj,v_proj}.{weight,bias}"),
        Names("attn.proj.{weight,bias}", "self_attn.out_proj.{weight,bias}"),
        Names("norm2.{weight,bias}", "layer_norm2.{weight,bias}"),
        Names("mlp.fc1.{weight,bias}", "mlp.fc1.{weight,bias}"),
        Names("mlp.fc2.{weight,bias}", "mlp.fc2.{weight,bias}"),
    ),
    settings=dict(embedding_norm=True, norm_eps=1e-5, activation="quick_gelu"),
    zeros=("embedding.patch_embed.proj.bias", "head.bias"),
    tower="vision_model.",
)
# CLIP in the names of its authors and of OpenCLIP
CLIP_HUB = replace(
    CLIP,
    outside=(
        Names("embedding.cls_token", "visual.class_embedding", "D -> 1 1 D"),
        Names("embedding.positions.pos_embed", "visual.positional_embedding", "T D -> 1 T D"),
        Names("embedding.patch_embed.proj.weight", "visual.conv1.weight"),
        Names("embedding.norm.{weight,bias}", "visual.ln_pre.{weight,bias}"),
        Names("norm.{weight,bias}", "visual.ln_post.{weight,bias}"),
        Names("head.weight", "visual.proj", "D k -> k D", optional=True),
    ),
    block="visual.transformer.resblocks.{i}.",
    inside=(
        Names("norm1.{weight,bias}", "ln_1.{weight,bias}"),
        Names("attn.qkv.{weight,bias}", "attn.in_proj_{weight,bias}"),
        Names("attn.proj.{weight,bias}", "attn.out_proj.{weight,bias}"),
        Names("norm2.{weight,bias}", "ln_2.{weight,bias}"),
        Names("mlp.fc1.{weight,bias}", "mlp.c_fc.{weight,bias}"),
        Names("mlp.fc2.{weight,bias}", "mlp.c_proj.{weight,bias}"),
    ),
    tower="visual.",
)
# CLIP at timm, and OpenCLIP's files whose image tower is timm's
CLIP_TIMM = replace(
    CLIP,
    outside=(
        Names("embedding.cls_token", "cls_token"),
        Names("embedding.positions.pos_embed", "pos_embed"),
        Names("embedding.patch_embed.proj.weight", "patch_embed.proj.weight"),
        Names("embedding.norm.{weight,bias}", "norm_pre.{weight,bias}"),
        Names("norm.{weight,bias}", "norm.{weight,bias}"),
        Names("head.{weight,bias}", "head.{weight,bias}", optional=True),
    ),
    block=TIMM.block,
    inside=TIMM.inside,
    settings=CLIP.settings | dict(activation="gelu"),
    zeros=("embedding.patch_embed.proj.bias",),
    tower="",
)
# SigLIP, and SigLIP 2 of fixed resolution, at Hugging Face: no class token; what attention pooling finds is the output.
SIGLIP = replace(
    CLIP,
    name="siglip",
    outside=(
        Names("embedding.positions.pos_embed", "vision_model.embeddings.position_embedding.weight", "T D -> 1 T D"),
        Names("embedding.patch_embed.proj.{weight,bias}", "vision_model.embeddings.patch_embedding.{weight,bias}"),
        Names("norm.{weight,bias}", "vision_model.post_layernorm.{weight,bias}"),
        Names("pooling.probe", "vision_model.head.probe", optional=True),
        Names(
            "pooling.attn.{query,key,value}.{weight,bias}",
            "vision_model.head.attention.in_proj_{weight,bias}",
            optional=True,
        ),
        Names("pooling.attn.proj.{weight,bias}", "vision_model.head.attention.out_proj.{weight,bias}", optional=True),
        Names("pooling.norm.{weight,bias}", "vision_model.head.layernorm.{weight,bias}", optional=True),
        Names("pooling.mlp.{fc1,fc2}.{weight,bias}", "vision_model.head.mlp.{fc1,fc2}.{weight,bias}", optional=True),
        _nowhere("vision_model.embeddings.position_ids"),
    ),
    settings=dict(activation="gelu_tanh"),
    zeros=(),
    head_dim={1152: 72, 1408: 88, 1536: 96},
    positioned="none",
)
# SigLIP 2 of variable resolution ("NaFlex") at Hugging Face: patches are cut out, and flattened, before the model.
_PATCHES = "vision_model.embeddings.patch_embedding"
SIGLIP_NAFLEX = replace(
    SIGLIP,
    outside=(
        Names("embedding.patch_embed.proj.weight", f"{_PATCHES}.weight", "D (p q c) -> D c p q"),
        Names("embedding.patch_embed.proj.bias", f"{_PATCHES}.bias"),
        *(names for names in SIGLIP.outside if not names.theirs.startswith(_PATCHES)),
    ),
    kernel="siglip2",
)
# SigLIP at timm, and OpenCLIP's files of it
SIGLIP_TIMM = replace(
    SIGLIP,
    outside=(
        Names("embedding.positions.pos_embed", "pos_embed"),
        Names("embedding.patch_embed.proj.{weight,bias}", "patch_embed.proj.{weight,bias}"),
        Names("norm.{weight,bias}", "norm.{weight,bias}"),
        Names("pooling.probe", "attn_pool.latent"),
        Names("pooling.attn.query.{weight,bias}", "attn_pool.q.{weight,bias}"),
        Names("pooling.attn.{key,value}.{weight,bias}", "attn_pool.kv.{weight,bias}"),
        Names("pooling.attn.proj.{weight,bias}", "attn_pool.proj.{weight,bias}"),
        Names("pooling.norm.{weight,bias}", "attn_pool.norm.{weight,bias}"),
        Names("pooling.mlp.{fc1,fc2}.{weight,bias}", "attn_pool.mlp.{fc1,fc2}.{weight,bias}"),
        Names("head.{weight,bias}", "head.{weight,bias}", optional=True),
    ),
    block=TIMM.block,
    inside=TIMM.inside,
    tower="",
    kernel="timm",
)
# SigLIP in its authors' names
SIGLIP_BIG_VISION = replace(
    BIG_VISION,
    name="siglip",
    outside=(
        *BIG_VISION.outside,
        Names("pooling.probe", "MAPHead_0/probe"),
        Names(
            "pooling.attn.{query,key,value}.weight",
            "MAPHead_0/MultiHeadDotProductAttention_0/{query,key,value}/kernel",
            "D h d -> (h d) D",
        ),
        Names(
            "pooling.attn.{query,key,value}.bias",
            "MAPHead_0/MultiHeadDotProductAttention_0/{query,key,value}/bias",
            "h d -> (h d)",
        ),
        Names("pooling.attn.proj.weight", "MAPHead_0/MultiHeadDotProductAttention_0/out/kernel", "h d D -> D (h d)"),
        Names("pooling.attn.proj.bias", "MAPHead_0/MultiHeadDotProductAttention_0/out/bias"),
        Names("pooling.norm.{weight,bias}", "MAPHead_0/LayerNorm_0/{scale,bias}"),
        Names("pooling.mlp.{fc1,fc2}.weight", "MAPHead_0/MlpBlock_0/{Dense_0,Dense_1}/kernel", "D f -> f D"),
        Names("pooling.mlp.{fc1,fc2}.bias", "MAPHead_0/MlpBlock_0/{Dense_0,Dense_1}/bias"),
    ),
    settings=SIGLIP.settings,
    tower="",
    kernel="google",
)


def _as_ours(table: tuple[Names, ...]) -> tuple[Names, ...]:
    """A table's left column on both sides."""
    return tuple(replace(names, theirs=names.ours) for names in table)


VITBOOK = Layout("vitbook", _as_ours(TIMM.outside), _OUR_BLOCK, _as_ours(TIMM.inside))

PUBLISHED_TORCHVISION = TORCHVISION.renamed("torchvision", {"mlp.0": "mlp.linear_1", "mlp.3": "mlp.linear_2"})
LAYOUTS = [GOOGLE, BIG_VISION, TIMM, *(replace(TIMM, positioned=which) for which in ("none", "all"))]
LAYOUTS += [TORCHVISION, PUBLISHED_TORCHVISION, VITBOOK]
_SIMILAR = [HUGGING_FACE.renamed("hf", {"vit.": root}) for root in ("vit.", "", "ijepa.")]
_SIMILAR += [HUGGING_FACE.renamed("hf", DISTILLED)]
_ONE_HEAD = tuple(replace(names, ours=_DEIT_UNTAUGHT.get(names.ours, names.ours)) for names in _SIMILAR[-1].outside)
_SIMILAR += [replace(_SIMILAR[-1], outside=_ONE_HEAD, positioned="all").renamed("hf", {"cls_classifier": "classifier"})]
_MSN = {"vit.encoder.": "encoder."}  # as transformers writes ViTMSN with a head
LAYOUTS += [layout.renamed("hf", words) for layout in _SIMILAR for words in ({}, _VIT_IN_MEMORY, _MSN)]
for root in ("", "dinov2.", "dinov2_with_registers."):
    for words in ({}, _GATED, _IN_MEMORY, _IN_MEMORY | _GATED_IN_MEMORY):
        LAYOUTS += [DINOV2.renamed("dinov2", words | {"dinov2.": root})]
LAYOUTS += [DINOV2_HUB, DINOV2_HUB.renamed("dinov2", _GATED_HUB), DEIT3_HUB]
LAYOUTS += [DINOV3_HUB, DINOV3_HUB.renamed("dinov3", _GATED_HUB_3)]
LAYOUTS += [DINOV3_TIMM, DINOV3_TIMM.renamed("dinov3", _GATED_TIMM_3)]
for root in ({}, {"layer.": "model.layer."}):
    LAYOUTS += [DINOV3.renamed("dinov3", words) for words in (root, root | {"mlp.up_": "mlp.{gate_,up_}"})]

LAYOUTS += [CLIP, CLIP.renamed("clip", {"vision_model.": ""}, tower=None), CLIP_HUB, CLIP_TIMM]
LAYOUTS += [CLIP.renamed("clip", {"encoder.layers.": "encoder.layer."})]  # as transformers writes AltCLIP
for siglip in (SIGLIP, SIGLIP_NAFLEX):
    LAYOUTS += [siglip, siglip.renamed("siglip", {"vision_model.": ""}, tower=None)]
    dropped = (_nowhere(line.theirs) if line.ours.startswith("pooling.") else line for line in siglip.outside)
    head = Names("head.{weight,bias}", "classifier.{weight,bias}")  # a classifier sees the mean of the patches
    LAYOUTS += [replace(siglip, outside=(*dropped, head))]
LAYOUTS += [SIGLIP_TIMM, SIGLIP_BIG_VISION]

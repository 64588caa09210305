"""The components of the reader's own model, in the order of the chapters; the stubs are assets/my_vit.py."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from vitbook import mistakes as wrong
from vitbook.embedding import ImageEmbedding
from vitbook.encoder import MLP, Encoder, EncoderBlock
from vitbook.exercises import attention, embedding, encoder, scale, self_attention, vit
from vitbook.exercises.grading import Exercise
from vitbook.exercises.inputs import normal, random_module, tokens_and_module
from vitbook.exercises.modules import as_modules
from vitbook.multihead import MultiHeadSelfAttention
from vitbook.patches import HybridEmbedding, PatchEmbedding
from vitbook.vit import VisionTransformer, ViTConfig


def _variant(of: type) -> Callable:
    """The reference module, turned into one of a wrong class."""

    def attempt(x: Tensor, module: nn.Module) -> Tensor:
        module.__class__ = of
        return module(x)

    return attempt


def _in_place_of(right: type, *left_out: str) -> dict:
    """The named mistakes of a Vision Transformer that are made in a class, as attempts."""
    classes = {name: wrong.as_class(wrong.MISTAKES[name]) for name in wrong.IN_A_VIT if name not in left_out}
    return {wrong.MISTAKES[name].variant: _variant(made) for name, (of, made) in classes.items() if of is right}


def _module(build: Callable, inputs: Callable, hint: str, **more) -> Exercise:
    """An exercise to write a class. inputs: as in `Exercise`, each list an input and a reference module."""
    return Exercise(lambda x, module: module(x), hint, inputs, gradients=True, adapt=as_modules(build, inputs), **more)


_MULTIHEAD = _module(
    lambda theirs, m: theirs(m.proj.in_features, m.num_heads),
    tokens_and_module(MultiHeadSelfAttention, (2, 5, 12, 3), (3, 4, 8, 2)),
    "project, cut the width into (h, D_h), exchange tokens and heads, attend, exchange back, join, multiply by W_O.",
    sizes=lambda x, m: {"√D": x.shape[-1] ** 0.5, "√D_h": (x.shape[-1] / m.num_heads) ** 0.5},
) | _in_place_of(MultiHeadSelfAttention, "AttentionDropoutUnread")

_MLP = _module(
    lambda theirs, m: theirs(m.fc1.in_features, m.fc1.out_features),
    tokens_and_module(MLP, (2, 5, 6, 20), (3, 4, 8, 10)),
    "fc2 of the GELU of fc1 of x.",
    level="easy",
) | {
    wrong.GeluTwice: lambda x, m: F.gelu(m(x)),
    "There is no GELU between the two linear maps.": lambda x, m: m.fc2(m.fc1(x)),
    "There is a ReLU between the two linear maps, as in 2017; a Vision Transformer has a GELU.": (
        lambda x, m: m.fc2(F.relu(m.fc1(x)))
    ),
    "Your GELU is the one by tanh; trained weights want the exact one, torch's default.": (
        lambda x, m: m.fc2(F.gelu(m.fc1(x), approximate="tanh"))
    ),
    "You add x; the residual connection belongs to the block.": lambda x, m: m(x) + x,
}


def _patches(order: str) -> Callable:
    return lambda images, m: rearrange(m.proj(images), order)


_PATCHES = _module(
    lambda theirs, m: theirs(m.patch_size, m.proj.in_channels, m.dim),
    lambda g: [
        (normal(g, b, c, *size), random_module(g, lambda p=p, c=c, d=d: PatchEmbedding(p, c, d)))
        for b, c, size, p, d in ((2, 3, (8, 12), 4, 5), (3, 2, (15, 10), 5, 7))
    ],
    "proj(images) is (B, D, rows, columns): join rows and columns, and put the width last.",
) | {
    **_in_place_of(PatchEmbedding),
    "Your patches run down the grid; count them along its rows.": _patches("b d h w -> b (w h) d"),
    "Your width comes before the patches: exchange the last two axes.": _patches("b d h w -> b d (h w)"),
    "You join the axes as they lie, which mixes patches and width; put the width last first.": (
        lambda images, m: (x := m.proj(images)).reshape(len(x), -1, x.shape[1])
    ),
    "Rows and columns of patches are still two axes; join them.": _patches("b d h w -> b h w d"),
    "The bias of proj is missing.": lambda images, m: m(images) - m.proj.bias,
}


def _of_equation_1(attempt: Callable) -> Callable:
    """An attempt at chapter 7's Equation 1, made with a module: its patches are multiplied by E already."""
    return lambda images, m: attempt(
        x := m.patch_embed(images), torch.eye(x.shape[-1]).to(x), m.cls_token, m.positions()
    )


def _stem(width: int) -> HybridEmbedding:
    return HybridEmbedding(nn.Conv2d(3, 4, 3, stride=2, padding=1), 4, 2, width, patch_size=2)


_EMBEDDING = _module(
    lambda theirs, m: theirs(m.patch_embed, m.grid[0] * m.grid[1], m.cls_token.shape[-1]),
    lambda g: [
        (normal(g, 2, 3, 8, 12), random_module(g, lambda: ImageEmbedding(PatchEmbedding(4, 3, 5), (8, 12), 5))),
        (normal(g, 3, 3, 8, 8), random_module(g, lambda: ImageEmbedding(_stem(7), (8, 8), 7))),
    ],
    "patch_embed(images), the class token in front of every image's patches, then the positions added to all.",
) | {
    **{made: _of_equation_1(attempt) for made, attempt in embedding.equation_1.mistakes.items()},
    "Your class token is missing.": lambda images, m: m.patch_embed(images) + m.positions()[:, 1:],
}


def _with_norms(**attributes: object) -> Callable:
    """The reference block, its two norms with other attributes."""

    def attempt(x: Tensor, module: nn.Module) -> Tensor:
        for norm in (module.norm1, module.norm2):
            for name, value in attributes.items():
                setattr(norm, name, value)
        return module(x)

    return attempt


def _sizes(block: EncoderBlock) -> tuple[int, int, int]:
    """Width, heads, and hidden width of the MLP."""
    return block.norm1.normalized_shape[0], block.attn.num_heads, block.mlp.fc1.out_features


_blocks = tokens_and_module(EncoderBlock, (2, 5, 12, 3, 20), (3, 4, 10, 2, 40), scale=0.1)  # so small that ε matters
_BLOCK = replace(
    encoder.block, inputs=_blocks, adapt=as_modules(lambda theirs, m: theirs(*_sizes(m)), _blocks), kind="write"
) | {
    wrong.UnbiasedVariance: _with_norms(__class__=wrong.UnbiasedVariance),
    "Your LayerNorm has torch's own ε, 1e-5. The weights were trained with eps=1e-6.": _with_norms(eps=1e-5),
}


def _through(blocks: Iterable[nn.Module], x: Tensor, added: int = 0) -> Tensor:
    for block in blocks:
        x = block(x) + added * x
    return x


_ENCODER = _module(
    lambda theirs, m: theirs((sizes := _sizes(m.blocks[0]))[0], len(m.blocks), *sizes[1:]),
    tokens_and_module(Encoder, (2, 5, 12, 3, 3, 24), (3, 4, 8, 2, 2, 16)),
    "a ModuleList of depth blocks, each made separately; every block takes what the one before gives.",
    level="easy",
) | {
    "Only your last block counts: each takes what the one before gives.": lambda x, m: m.blocks[-1](x),
    "Your last block is left out.": lambda x, m: _through(m.blocks[:-1], x),
    "Your first block is left out.": lambda x, m: _through(m.blocks[1:], x),
    "Your blocks run from the last to the first.": lambda x, m: _through(m.blocks[::-1], x),
    "You add x to each block's output; the block has added it already.": lambda x, m: _through(m.blocks, x, added=1),
}


def build_vit(theirs: type, model: VisionTransformer) -> nn.Module:
    """The reader's model in the sizes of ours; patches on a stem are ours."""
    c, patches = model.config, model.embedding.patch_embed
    sizes = (c.image_size[0], c.patch_size, c.channels, c.num_classes, c.dim, c.depth, c.num_heads, c.mlp_dim)
    return theirs(*sizes, **({} if isinstance(patches, PatchEmbedding) else {"patch_embed": patches}))


def _vits(g: torch.Generator) -> list[tuple[Tensor, nn.Module]]:
    plain = ViTConfig(image_size=12, patch_size=4, num_classes=5, dim=12, depth=2, num_heads=3, mlp_dim=20)
    other = replace(plain, image_size=8, num_classes=4, dim=8, depth=3, num_heads=2, mlp_dim=24)
    return [
        (normal(g, 2, 3, 12, 12), random_module(g, lambda: VisionTransformer(plain))),
        (normal(g, 3, 3, 8, 8), random_module(g, lambda: VisionTransformer(other, _stem(8)))),
    ]


_VIT = replace(vit.forward, inputs=_vits, adapt=as_modules(build_vit, _vits), kind="write")

COMPONENTS = {
    "attend": attention.attend,
    "attention_scores": scale.scores,
    "project": self_attention.project,
    "MultiHeadAttention": _MULTIHEAD,
    "MLP": _MLP,
    "PatchEmbedding": _PATCHES,
    "Embedding": _EMBEDDING,
    "EncoderBlock": _BLOCK,
    "Encoder": _ENCODER,
    "ViT": _VIT,
}

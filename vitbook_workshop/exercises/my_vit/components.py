"""The components of the reader's own model, in the order of the chapters; the stubs are start/my_vit.py."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from vitbook.embedding import ImageEmbedding
from vitbook.encoder import MLP, Encoder, EncoderBlock
from vitbook.multihead import MultiHeadSelfAttention
from vitbook.patches import HybridEmbedding, PatchEmbedding
from vitbook.vit import VisionTransformer, ViTConfig
from vitbook_workshop.exercises import attention, scale, self_attention
from vitbook_workshop.exercises.grader.inputs import normal, random_module, tokens_and_module
from vitbook_workshop.exercises.grader.judging import Exercise, combined
from vitbook_workshop.exercises.grader.module_attempts import as_modules
from vitbook_workshop.faults.mistakes import IN_A_VIT, MISTAKES, as_class, make_mistakes
from vitbook_workshop.faults.mistakes import parts as wrong


def _in_place_of(right: type, *left_out: str) -> dict:
    """The named mistakes of a Vision Transformer that are made in a class, as attempts."""

    def attempt(name: str, x: Tensor, module: nn.Module) -> Tensor:
        make_mistakes(module, name)
        return module(x)

    made = {name: MISTAKES[name] for name in IN_A_VIT if name not in left_out}
    return {one.variant: partial(attempt, name) for name, one in made.items() if as_class(one)[0] is right}


def _module(build: Callable, inputs: Callable, hint: str, **more) -> Exercise:
    """An exercise to write a class. inputs: as in `Exercise`, each list an input and a reference module."""
    return Exercise(lambda x, module: module(x), hint, inputs, gradients=True, adapt=as_modules(build, inputs), **more)


_ADDS_X = "You add x. The residual connection belongs to the block."


def _attended(x: Tensor, m: MultiHeadSelfAttention, order: str, dim: int) -> Tensor:
    """Attention of queries, keys and values whose axes lie in this order; the softmax runs over axis `dim`."""
    q, k, v = rearrange(m.qkv(x), f"b t (three h d) -> three b {order} d", three=3, h=m.num_heads)
    weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(dim=dim)
    return m.proj(rearrange(weights @ v, f"b {order} d -> b t (h d)"))


_MULTIHEAD = _module(
    lambda theirs, m: theirs(m.proj.in_features, m.num_heads),
    tokens_and_module(MultiHeadSelfAttention, (2, 5, 12, 3), (3, 4, 8, 2)),
    "project, cut the width into (h, D_h), exchange tokens and heads, attend, exchange back, join, multiply by W_O.",
    sizes=lambda x, m: {"√D": x.shape[-1] ** 0.5, "√D_h": (x.shape[-1] / m.num_heads) ** 0.5},
) | {
    **_in_place_of(MultiHeadSelfAttention, "AttentionDropoutUnread", "WeightsChangedInPlace"),
    _ADDS_X: lambda x, m: m(x) + x,
    "Your softmax runs over the heads. It runs over the keys, the last axis.": partial(_attended, order="h t", dim=1),
    "Within each token, your heads attend to one another. Exchange tokens and heads first.": (
        partial(_attended, order="t h", dim=-1)
    ),
}

_MLP = _module(
    lambda theirs, m: theirs(m.fc1.in_features, m.fc1.out_features),
    tokens_and_module(MLP, (2, 5, 6, 20), (3, 4, 8, 10)),
    "fc2 of the GELU of fc1 of x.",
    level="easy",
) | {
    wrong.GeluTwice: lambda x, m: F.gelu(m(x)),
    "There is no GELU between the two linear maps.": lambda x, m: m.fc2(m.fc1(x)),
    "There is a ReLU between the two linear maps, as in 2017. A Vision Transformer has a GELU.": (
        lambda x, m: m.fc2(F.relu(m.fc1(x)))
    ),
    "Your GELU is the tanh approximation. The trained weights need the exact one, torch's default.": (
        lambda x, m: m.fc2(F.gelu(m.fc1(x), approximate="tanh"))
    ),
    _ADDS_X: lambda x, m: m(x) + x,
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
    "Your patches run down the columns of the grid. Count them along its rows.": _patches("b d h w -> b (w h) d"),
    "Your width comes before the patches. Exchange the last two axes.": _patches("b d h w -> b d (h w)"),
    "Your reshape mixes patches and width. Move the width to the last axis before you join rows and columns.": (
        lambda images, m: (x := m.proj(images)).reshape(len(x), -1, x.shape[1])
    ),
    "Rows and columns of patches are still two axes. Join them.": _patches("b d h w -> b h w d"),
    "The bias of proj is missing.": lambda images, m: m(images) - m.proj.bias,
}


def _embedded(images: Tensor, m: ImageEmbedding, last: bool = False) -> Tensor:
    parts = [m.cls_token.expand(len(images), -1, -1), m.patch_embed(images)]
    return torch.cat(parts[::-1] if last else parts, dim=1)


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
    "Your class token comes last. It is token 0.": lambda images, m: _embedded(images, m, last=True) + m.positions(),
    "Your positions are not added.": _embedded,
    "Your class token gets no position: put it in front before you add the positions.": (
        lambda images, m: _embedded(images, m) + F.pad(m.positions()[:, 1:], (0, 0, 1, 0))
    ),
    "Your class token gets no position, and the patches get the first ones: add the positions after the cat.": (
        lambda images, m: _embedded(images, m) + F.pad(m.positions()[:, :-1], (0, 0, 1, 0))
    ),
    "Your class token is missing.": lambda images, m: m.patch_embed(images) + m.positions()[:, 1:],
    # Without `expand`, or with the wrong axis expanded, the error is the same.
    "Before the cat, axis 0 of the class token has to be expanded to the number of images.": (
        lambda images, m: torch.cat([m.cls_token, m.patch_embed(images)], dim=1) + m.positions()
    ),
}


_FIRST_NORMALIZED = "You add the attention to the normalized z: z itself bypasses the first LayerNorm."
_SECOND_NORMALIZED = "You add the MLP to the normalized z: z itself bypasses the second LayerNorm."


def _block(made, z, block):
    x = block.norm1(z)
    z = block.attn(x) + (x if _FIRST_NORMALIZED in made else z)
    x = block.norm2(z)
    change = block.mlp(x)
    return (F.gelu(change) if wrong.GeluTwice in made else change) + (x if _SECOND_NORMALIZED in made else z)


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
_BLOCK = _module(
    lambda theirs, m: theirs(*_sizes(m)),
    _blocks,
    "each LayerNorm stands before attention or MLP, the residual is not normalized, and there is one GELU.",
    level="hard",
) | {
    **combined(_block, _FIRST_NORMALIZED, _SECOND_NORMALIZED, wrong.GeluTwice),
    "Each LayerNorm stands after its sum. That is post-norm, as in 2017. Put it before attention and before the MLP.": (
        lambda z, block: block.norm2((z := block.norm1(block.attn(z) + z)) + block.mlp(z))
    ),
    "Nothing is added to the output of the attention: the first residual is missing.": (
        lambda z, block: (z := block.attn(block.norm1(z))) + block.mlp(block.norm2(z))
    ),
    "Nothing is added to the output of the MLP: the second residual is missing.": (
        lambda z, block: block.mlp(block.norm2(block.attn(block.norm1(z)) + z))
    ),
    "Nothing is added to the output of the attention, nor to that of the MLP: both residuals are missing.": (
        lambda z, block: block.mlp(block.norm2(block.attn(block.norm1(z))))
    ),
    "The first LayerNorm is missing: the attention takes norm1(z).": (
        lambda z, block: (z := block.attn(z) + z) + block.mlp(block.norm2(z))
    ),
    "The second LayerNorm is missing: the MLP takes norm2(z).": (
        lambda z, block: (z := block.attn(block.norm1(z)) + z) + block.mlp(z)
    ),
    "You use norm1 twice. The MLP has its own norm, norm2.": (
        lambda z, block: (z := block.attn(block.norm1(z)) + z) + block.mlp(block.norm1(z))
    ),
    "There is no GELU between the two linear maps.": (
        lambda z, block: (z := block.attn(block.norm1(z)) + z) + block.mlp.fc2(block.mlp.fc1(block.norm2(z)))
    ),
    wrong.UnbiasedVariance: _with_norms(__class__=wrong.UnbiasedVariance),
    "Your LayerNorm has PyTorch's default ε, 1e-5. The weights were trained with eps=1e-6.": _with_norms(eps=1e-5),
}


def _through(blocks: Iterable[nn.Module], x: Tensor, added: int = 0) -> Tensor:
    for block in blocks:
        x = block(x) + added * x
    return x


_ENCODER = _module(
    lambda theirs, m: theirs((sizes := _sizes(m.blocks[0]))[0], len(m.blocks), *sizes[1:]),
    tokens_and_module(Encoder, (2, 5, 12, 3, 3, 24), (3, 4, 8, 2, 2, 16)),
    "a ModuleList of depth blocks, each made separately; every block takes the output of the one before.",
    level="easy",
) | {
    "Only your last block counts. Each block takes the output of the one before.": lambda x, m: m.blocks[-1](x),
    "Only your first block counts: return after the loop, not in it.": lambda x, m: m.blocks[0](x),
    "Your last block is not used.": lambda x, m: _through(m.blocks[:-1], x),
    "Your first block is not used.": lambda x, m: _through(m.blocks[1:], x),
    "Your blocks run from the last to the first.": lambda x, m: _through(m.blocks[::-1], x),
    "You add x to each block's output. The block has already added it.": lambda x, m: _through(m.blocks, x, added=1),
}


def build_vit(theirs: type, model: VisionTransformer) -> nn.Module:
    """The reader's model in the sizes of ours."""
    c = model.config
    return theirs(c.image_size[0], c.patch_size, c.channels, c.num_classes, c.dim, c.depth, c.num_heads, c.mlp_dim)


def _vits(g: torch.Generator) -> list[tuple[Tensor, nn.Module]]:
    one = ViTConfig(image_size=12, patch_size=4, num_classes=5, dim=12, depth=2, num_heads=3, mlp_dim=20)
    other = replace(one, image_size=8, patch_size=2, num_classes=4, dim=8, depth=3, num_heads=2, mlp_dim=24)
    return [
        (normal(g, 2, 3, 12, 12), random_module(g, lambda: VisionTransformer(one))),
        (normal(g, 3, 3, 8, 8), random_module(g, lambda: VisionTransformer(other))),
    ]


_MEAN_OF_ALL = "Your head sees the mean of all tokens; this model's head reads the class token, z[:, 0]."


def _forward(made, images, model):
    z = model.encoder(model.embedding(images))
    y = z.mean(dim=1) if _MEAN_OF_ALL in made else z[:, 0]
    logits = model.head(y if wrong.NoFinalNorm in made else model.norm(y))
    return logits.softmax(dim=-1) if wrong.SoftmaxBeforeCrossEntropy in made else logits


_VIT = _module(
    build_vit,
    _vits,
    "the last LayerNorm comes before the head; the class token alone goes to the head; logits, not probabilities.",
    level="hard",
) | {
    **combined(_forward, wrong.NoFinalNorm, _MEAN_OF_ALL, wrong.SoftmaxBeforeCrossEntropy),
    "Your head sees the mean of all normalized tokens; this model's head reads the class token, z[:, 0].": (
        lambda images, model: model.head(model.norm(model.encoder(model.embedding(images))).mean(dim=1))
    ),
    "Your head sees the mean of the patches; this model's head reads the class token, z[:, 0].": (
        lambda images, model: model.head(model.norm(model.encoder(model.embedding(images)))[:, 1:].mean(dim=1))
    ),
    "The head is missing: these are D features, not the logits of K classes.": lambda x, model: model.features(x),
}

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

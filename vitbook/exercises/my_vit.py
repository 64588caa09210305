"""The components of the reader's own model, in the order of the chapters; the stubs are assets/my_vit.py."""

from collections.abc import Callable
from dataclasses import replace

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from vitbook import mistakes as wrong
from vitbook.attention import attention_scores
from vitbook.embedding import ImageEmbedding
from vitbook.encoder import MLP, Encoder, EncoderBlock
from vitbook.exercises.grading import Exercise, combined
from vitbook.exercises.inputs import normal, random_module
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


def _module(reference: type, build: Callable, inputs: Callable, hint: str, **more) -> Exercise:
    """An exercise to write a class. inputs: as in `Exercise`, each list an input and a module of the reference."""
    return Exercise(lambda x, module: module(x), hint, inputs, gradients=True, adapt=as_modules(build, inputs), **more)


_ATTEND = Exercise(
    lambda scores, v: scores.softmax(dim=-1) @ v,
    "exponentials, divided by their sum over the keys (the last axis), then multiplied by v.",
    lambda g: [
        (normal(g, 2, 3, 4, 5), normal(g, 2, 3, 5, 6)),
        ((2 * normal(g, 3, 4, 9)).round() + 1000, normal(g, 3, 9, 7)),  # whole, so that float32 holds them too
    ],
    gradients=True,
) | {
    wrong.softmax_over_the_queries: lambda scores, v: scores.softmax(dim=-2) @ v,
    wrong.softmax_over_the_first_axis: lambda scores, v: scores.softmax(dim=0) @ v,
    "Your softmax runs over axis 1. The keys are the last axis: dim=-1.": lambda scores, v: scores.softmax(dim=1) @ v,
    wrong.scaled_after_the_softmax: lambda scores, v: scores.softmax(dim=-1) / v.shape[-1] ** 0.5 @ v,
    "Your scores are not put through a softmax.": lambda scores, v: scores @ v,
    "You return the weights; multiply them by v.": lambda scores, v: scores.softmax(dim=-1),
    "Your exponentials overflow: exp(1000) is ∞, and ∞/∞ is not a number. Subtract each row's maximum first.": (
        lambda scores, v: scores.exp() / scores.exp().sum(dim=-1, keepdim=True) @ v
    ),
    "Your exponentials are not divided by their sum.": (
        lambda scores, v: (scores - scores.amax(dim=-1, keepdim=True)).exp() @ v
    ),
    "You divide by one sum, not by each row's: dim=-1, keepdim=True.": (
        lambda scores, v: (x := (scores - scores.amax(dim=-1, keepdim=True)).exp()) / x.sum() @ v
    ),
}

_SCORES = Exercise(
    attention_scores,
    "multiply q by k with its last two axes exchanged, and divide by √D_h, the root of their width.",
    lambda g: [
        (normal(g, 2, 3, 4, 5), normal(g, 2, 3, 6, 5)),
        (normal(g, 3, 5, 7), normal(g, 3, 4, 7)),
    ],
    gradients=True,
    level="easy",
    sizes=lambda q, k: {"√D_h": q.shape[-1] ** 0.5},
) | {
    wrong.no_scale: lambda q, k: q @ k.mT,
    wrong.multiplied_by_the_scale: lambda q, k: q @ k.mT * q.shape[-1] ** 0.5,
    "You divide by D_h instead of its root.": lambda q, k: q @ k.mT / q.shape[-1],
    "You divide by the root of the number of keys; it is the root of the width, √D_h.": (
        lambda q, k: q @ k.mT / k.shape[-2] ** 0.5
    ),
    "You divide by the root of the number of queries; it is the root of the width, √D_h.": (
        lambda q, k: q @ k.mT / q.shape[-2] ** 0.5
    ),
    "Your queries and keys are exchanged: there is a row for each query.": lambda q, k: attention_scores(k, q),
    "Your transpose of k reverses all axes. k.mT exchanges the last two.": (
        lambda q, k: q @ k.permute(*reversed(range(k.ndim))) / q.shape[-1] ** 0.5
    ),
    "You apply the softmax already; it belongs to attend.": lambda q, k: attention_scores(q, k).softmax(dim=-1),
}


def _order(order: str) -> Callable:
    return lambda x, qkv: rearrange(qkv(x), f"b t ({order}) -> three b t d", three=3)


_PROJECT = Exercise(
    lambda x, qkv: _order("three d")(x, qkv),
    "apply qkv to x and cut the last axis into three equal pieces: query, key, value.",
    lambda g: [
        (normal(g, b, t, d), random_module(g, lambda d=d: nn.Linear(d, 3 * d))) for b, t, d in ((2, 5, 6), (3, 4, 8))
    ],
    gradients=True,
    level="easy",
    adapt=lambda attempt: lambda x, qkv: torch.stack(tuple(attempt(x, qkv))),
) | {
    wrong.QkvInterleaved: _order("d three"),
    "Your query and key are exchanged.": lambda x, qkv: _order("three d")(x, qkv)[[1, 0, 2]],
    "Your three stand in the wrong order: query, key, value.": lambda x, qkv: _order("three d")(x, qkv)[[2, 0, 1]],
    "The bias of qkv is missing: call it, qkv(x).": lambda x, qkv: torch.stack((x @ qkv.weight.mT).chunk(3, dim=-1)),
}

_MULTIHEAD = _module(
    MultiHeadSelfAttention,
    lambda theirs, m: theirs(m.proj.in_features, m.num_heads),
    lambda g: [
        (normal(g, b, t, d), random_module(g, lambda d=d, h=h: MultiHeadSelfAttention(d, h)))
        for b, t, d, h in ((2, 5, 12, 3), (3, 4, 8, 2))
    ],
    "project, cut the width into (h, D_h), exchange tokens and heads, attend, exchange back, join, multiply by W_O.",
    sizes=lambda x, m: {"√D": x.shape[-1] ** 0.5, "√D_h": (x.shape[-1] / m.num_heads) ** 0.5},
) | _in_place_of(MultiHeadSelfAttention, "AttentionDropoutUnread")

_MLP = _module(
    MLP,
    lambda theirs, m: theirs(m.fc1.in_features, m.fc1.out_features),
    lambda g: [
        (normal(g, b, t, d), random_module(g, lambda d=d, f=f: MLP(d, f)))
        for b, t, d, f in ((2, 5, 6, 20), (3, 4, 8, 10))
    ],
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
    def attempt(images: Tensor, m: PatchEmbedding) -> Tensor:
        return rearrange(m.proj(images), order)

    return attempt


_PATCHES = _module(
    PatchEmbedding,
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


def _embedded(images: Tensor, m: ImageEmbedding, last: bool = False) -> Tensor:
    parts = [m.cls_token.expand(len(images), -1, -1), m.patch_embed(images)]
    return torch.cat(parts[::-1] if last else parts, dim=1)


def _stem(width: int) -> HybridEmbedding:
    return HybridEmbedding(nn.Conv2d(3, 4, 3, stride=2, padding=1), 4, 2, width, patch_size=2)


_EMBEDDING = _module(
    ImageEmbedding,
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


def _with_norms(change: Callable[[nn.LayerNorm], None]) -> Callable:
    """The reference block, with something changed in each of its two norms."""

    def attempt(x: Tensor, module: nn.Module) -> Tensor:
        for norm in (module.norm1, module.norm2):
            change(norm)
        return module(x)

    return attempt


def _blocks(g: torch.Generator) -> list[tuple[Tensor, nn.Module]]:
    """Tokens so small that ε matters."""
    return [
        (0.1 * normal(g, b, t, d), random_module(g, lambda d=d, h=h, f=f: EncoderBlock(d, h, f)))
        for b, t, d, h, f in ((2, 5, 12, 3, 20), (3, 4, 10, 2, 40))
    ]


def _build_block(theirs: type, m: EncoderBlock) -> nn.Module:
    return theirs(m.norm1.normalized_shape[0], m.attn.num_heads, m.mlp.fc1.out_features)


_BLOCK = _module(
    EncoderBlock,
    _build_block,
    _blocks,
    "each LayerNorm stands before what it feeds, the residual is not normalized, and there is one GELU.",
    level="hard",
) | {
    **combined(_block, _FIRST_NORMALIZED, _SECOND_NORMALIZED, wrong.GeluTwice),
    "Each LayerNorm stands after its sum. That is post-norm, the way of 2017.": (
        lambda z, block: block.norm2((z := block.norm1(block.attn(z) + z)) + block.mlp(z))
    ),
    "Nothing is added to the output of the attention: the first residual is missing.": (
        lambda z, block: (z := block.attn(block.norm1(z))) + block.mlp(block.norm2(z))
    ),
    "Nothing is added to the output of the MLP: the second residual is missing.": (
        lambda z, block: block.mlp(block.norm2(block.attn(block.norm1(z)) + z))
    ),
    "Both norms are norm1. The MLP has its own, norm2.": (
        lambda z, block: (z := block.attn(block.norm1(z)) + z) + block.mlp(block.norm1(z))
    ),
    "There is no GELU between the two linear maps.": (
        lambda z, block: (z := block.attn(block.norm1(z)) + z) + block.mlp.fc2(block.mlp.fc1(block.norm2(z)))
    ),
    wrong.UnbiasedVariance: _with_norms(lambda norm: setattr(norm, "__class__", wrong.UnbiasedVariance)),
    "Your LayerNorm has torch's own ε, 1e-5. The weights were trained with eps=1e-6.": (
        _with_norms(lambda norm: setattr(norm, "eps", 1e-5))
    ),
}

_ENCODER = _module(
    Encoder,
    lambda theirs, m: theirs(
        (first := m.blocks[0]).norm1.normalized_shape[0],
        len(m.blocks),
        first.attn.num_heads,
        first.mlp.fc1.out_features,
    ),
    lambda g: [
        (normal(g, b, t, d), random_module(g, lambda d=d, n=n, h=h: Encoder(d, n, h, 2 * d)))
        for b, t, d, n, h in ((2, 5, 12, 3, 3), (3, 4, 8, 2, 2))
    ],
    "a ModuleList of depth blocks, each made separately; every block takes what the one before gives.",
    level="easy",
) | {
    "Only your last block counts: each takes what the one before gives.": lambda x, m: m.blocks[-1](x),
    "Your last block is left out.": lambda x, m: Encoder.forward(_shorter(m, slice(-1)), x),
    "Your first block is left out.": lambda x, m: Encoder.forward(_shorter(m, slice(1, None)), x),
    "Your blocks run from the last to the first.": lambda x, m: Encoder.forward(_shorter(m, slice(None, None, -1)), x),
    "You add x to each block's output; the block has added it already.": lambda x, m: _added(x, m),
}


def _shorter(m: Encoder, chosen: slice) -> Encoder:
    m.blocks = m.blocks[chosen]
    return m


def _added(x: Tensor, m: Encoder) -> Tensor:
    for block in m.blocks:
        x = x + block(x)
    return x


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


_MEAN_OF_ALL = "Your head sees the mean of all tokens; this model's head reads the class token, z[:, 0]."


def _forward(made, images, model):
    z = model.encoder(model.embedding(images))
    y = z.mean(dim=1) if _MEAN_OF_ALL in made else z[:, 0]
    logits = model.head(y if wrong.NoFinalNorm in made else model.norm(y))
    return logits.softmax(dim=-1) if wrong.SoftmaxBeforeCrossEntropy in made else logits


_VIT = _module(
    VisionTransformer,
    build_vit,
    _vits,
    "the last LayerNorm comes before the head; the class token alone goes to the head; logits, not probabilities.",
    level="hard",
) | {
    **combined(_forward, wrong.NoFinalNorm, _MEAN_OF_ALL, wrong.SoftmaxBeforeCrossEntropy),
    "Your head sees the mean of all normalized tokens; this model's head reads the class token, z[:, 0].": (
        lambda images, model: model.head(model.norm(model.encoder(model.embedding(images))).mean(dim=1))
    ),
    "The head is missing: these are D features, not the logits of K classes.": lambda x, model: model.features(x),
}

COMPONENTS = {
    "attend": _ATTEND,
    "attention_scores": _SCORES,
    "project": _PROJECT,
    "MultiHeadAttention": _MULTIHEAD,
    "MLP": _MLP,
    "PatchEmbedding": _PATCHES,
    "Embedding": _EMBEDDING,
    "EncoderBlock": _BLOCK,
    "Encoder": _ENCODER,
    "ViT": _VIT,
}

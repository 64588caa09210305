"""Patches to whole models, heads and maps, on whatever hypothesis draws: what is stated, or an error that says why."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import (
    FLOATS,
    NUMBERS,
    as_stated,
    close_to,
    counts,
    covers,
    is_finite,
    is_like,
    made,
    of_modules,
    or_refused,
    out_of_step,
    size,
    sums_to_one,
    tensor,
    whole,
)
from torch import nn

from vitbook import attention_maps, cnn, distillation, embedding, encoder, features, heads, patches, vit

MODULES = "patches embedding encoder vit cnn features heads distillation attention_maps"
PICTURE = dict(images="image", image_size="image", patch_size="patch")


def grid(draw):
    return size(draw, 1, 3), size(draw, 1, 3)


def pictures(draw, dtype, channels=2, patch=2, b=None):
    """A batch of pictures and their grid."""
    rows, columns = grid(draw)
    b = size(draw, 0) if b is None else b
    return tensor(draw, b, channels, rows * patch, columns * patch, dtype=dtype), (rows, columns)


# Patches


@covers(patches.patchify, PICTURE)
def _(draw):
    p = size(draw)
    images, (rows, columns) = pictures(draw, NUMBERS, size(draw, 0), p)
    b, c = images.shape[:2]

    def holds(cut):
        is_like(cut, (b, rows * columns, p * p * c), images.dtype)
        assert torch.equal(patches.unpatchify(cut, p, tuple(images.shape[2:])), images)

    return dict(images=images, patch_size=p), holds


@covers(patches.unpatchify, dict(patches="patch|picture", patch_size="patch", image_size="image|picture|patches"))
def _(draw):
    p, c, b, (rows, columns) = size(draw), size(draw, 0), size(draw, 0), grid(draw)
    cut = tensor(draw, b, rows * columns, p * p * c, dtype=NUMBERS)
    shape = (rows * p, columns * p)
    return dict(patches=cut, patch_size=p, image_size=shape), lambda x: is_like(x, (b, c, *shape), cut.dtype)


@covers(patches.PatchEmbedding)
def _(draw):
    p, c, dim = size(draw), size(draw), size(draw)
    return dict(patch_size=p, channels=c, dim=dim), lambda model: counts(model, c * p * p * dim + dim)


def images_to(draw, module, *arguments, channels=2, patch=2, shape, **settings):
    """Arguments of a module's forward on pictures; shape: of the result, by (B, rows, columns)."""
    model, dtype = made(draw, module, *arguments, **settings)
    images, (rows, columns) = pictures(draw, dtype, channels, patch)

    def holds(result):
        is_like(result, shape(len(images), rows, columns), dtype)
        is_finite(result)

    return dict(self=model, images=images), holds


@covers(patches.PatchEmbedding.forward, PICTURE)
def _(draw):
    return images_to(draw, patches.PatchEmbedding, 2, 2, 5, shape=lambda b, rows, columns: (b, rows * columns, 5))


def stem(*widths):
    torch.manual_seed(0)
    return patches.conv_stem(2, widths)


@covers(patches.HybridEmbedding)
def _(draw):
    arguments = dict(stem=stem(3), stem_channels=3, stem_stride=2, dim=size(draw), patch_size=size(draw))
    return arguments, lambda model: model.patch_size == 2 * arguments["patch_size"]


@covers(patches.HybridEmbedding.forward, free=("images",))  # a stem is any module, and refuses in words of its own
def _(draw):
    return images_to(
        draw,
        patches.HybridEmbedding,
        stem(3),
        3,
        2,
        5,
        2,
        patch=4,
        shape=lambda b, rows, columns: (b, rows * columns, 5),
    )


@covers(patches.conv_stem)
def _(draw):
    widths = tuple(draw(st.lists(st.integers(1, 4), max_size=3)))
    return dict(channels=size(draw), widths=widths), lambda model: len(model) == 3 * len(widths)


@covers(patches.stem_stride)
def _(draw):
    widths = tuple(draw(st.lists(st.integers(1, 4), max_size=3)))

    def holds(stride):
        maps = stem(*widths)(torch.zeros(1, 2, 3 * stride, stride))
        assert maps.shape[2:] == (3, 1)

    return dict(widths=widths), holds


@covers(patches.grid_size, PICTURE)
def _(draw):
    p, (rows, columns) = size(draw), grid(draw)

    def holds(result):
        assert result == (rows, columns)

    return dict(image_size=(rows * p, columns * p), patch_size=p), holds


# Positions and Equation 1


def positions_of(draw, least=1):
    return dict(grid=grid(draw), dim=4 * size(draw), num_prefix_tokens=size(draw, 0, 2))


for table in (
    embedding.LearnedPositions,
    embedding.LearnedPositions2D,
    embedding.SinCosPositions2D,
    embedding.NoPositions,
):
    free = ("grid", "dim", "num_prefix_tokens") if table is embedding.NoPositions else ()

    @covers(table, free=free)
    def _(draw, table=table):
        arguments = positions_of(draw)
        (rows, columns), prefix, dim = arguments["grid"], arguments["num_prefix_tokens"], arguments["dim"]
        shape = (1, 1, 1) if table is embedding.NoPositions else (1, prefix + rows * columns, dim)
        return arguments, lambda positions: is_like(positions(), shape, torch.float32)

    @covers(table.forward)
    def _(draw, table=table):
        return dict(self=table(**positions_of(draw))), lambda positions: is_finite(positions)

    @covers(table.resize, free=free)
    def _(draw, table=table):
        model, new = table(**positions_of(draw)), grid(draw)
        columns = model().shape[1:]

        def holds(_):
            assert model().shape[2] == columns[1]
            if table is not embedding.NoPositions:
                assert model().shape[1] == model.num_prefix_tokens + new[0] * new[1]
            is_finite(model())

        return dict(self=model, grid=new), holds


@covers(embedding.SinCosPositions2D.table)
def _(draw):
    model, (rows, columns) = embedding.SinCosPositions2D((2, 3), 8, 1), grid(draw)
    return dict(self=model, grid=(rows, columns)), lambda table: is_like(table, (1, 1 + rows * columns, 8))


@covers(embedding.sincos_positions_2d)
def _(draw):
    (rows, columns), dim = grid(draw), 4 * size(draw, 0)
    return dict(grid=(rows, columns), dim=dim), lambda table: is_like(table, (rows * columns, dim), torch.float32)


@covers(embedding.resize_positions, dict(old_grid="pos_embed", num_prefix_tokens="pos_embed", mode="mode"))
def _(draw):
    old, new, prefix, dim = grid(draw), grid(draw), size(draw, 0, 2), size(draw)
    table = tensor(draw, 1, prefix + old[0] * old[1], dim, dtype=FLOATS)
    arguments = dict(pos_embed=table, old_grid=old, new_grid=new, num_prefix_tokens=prefix)
    arguments |= dict(mode=draw(st.sampled_from(("bicubic", "bilinear"))), align_corners=draw(st.booleans()))

    def holds(resized):
        is_like(resized, (1, prefix + new[0] * new[1], dim), table.dtype)
        is_finite(resized)
        assert torch.equal(resized[:, :prefix], table[:, :prefix])

    return arguments | dict(antialias=draw(st.booleans())), holds


@covers(embedding.drop_patches, dict(x="num_prefix_tokens"))
def _(draw):
    b, t, d, prefix = size(draw, 0), size(draw), size(draw, 0), size(draw, 0, 1)
    x, share = tensor(draw, b, t, d, dtype=NUMBERS), draw(st.sampled_from((0, 0.3, 0.5, 0.99)))
    kept = t - int(share * (t - prefix))
    return dict(x=x, share=share, num_prefix_tokens=prefix), lambda y: is_like(y, (b, kept, d), x.dtype)


def equation_1(draw, module, **more):
    rows, columns = grid(draw)
    arguments = dict(patch_embed=patches.PatchEmbedding(2, 2, 8), image_size=(2 * rows, 2 * columns), dim=8)
    return arguments | dict(positions=draw(st.sampled_from(list(embedding.POSITIONS))), dropout=0.0) | more


@covers(  # whether there is a class token, ViTConfig checks
    embedding.ImageEmbedding, PICTURE | dict(dim="patch_embed|dim", patch_embed="patch"), free=("class_token",)
)
def _(draw):
    arguments = equation_1(draw, embedding.ImageEmbedding, class_token=draw(st.booleans()))
    prefix = int(arguments["class_token"])

    def holds(model):
        height, width = arguments["image_size"]
        is_like(model(torch.zeros(1, 2, height, width)), (1, prefix + height * width // 4, 8))

    return arguments, holds


@covers(embedding.ImageEmbedding.forward, PICTURE)
def _(draw):
    arguments = equation_1(draw, embedding.ImageEmbedding)
    model, dtype = made(draw, embedding.ImageEmbedding, **arguments)
    images = tensor(draw, size(draw, 0), 2, *arguments["image_size"], dtype=dtype)
    tokens = 1 + model.grid[0] * model.grid[1]
    return dict(self=model, images=images), lambda x: is_like(x, (len(images), tokens, 8), dtype)


@covers(embedding.ImageEmbedding.resize, PICTURE)
def _(draw):
    model, (rows, columns) = embedding.ImageEmbedding(**equation_1(draw, embedding.ImageEmbedding)), grid(draw)

    def holds(_):
        is_finite(model(torch.zeros(1, 2, 2 * rows, 2 * columns)))

    return dict(self=model, image_size=(2 * rows, 2 * columns)), holds


# The encoder


@covers(encoder.MLP)
def _(draw):
    dim, hidden = size(draw), size(draw)
    arguments = dict(dim=dim, hidden_dim=hidden, dropout=draw(st.floats(0, 1)))
    return arguments, lambda model: counts(model, 2 * dim * hidden + dim + hidden)


@covers(encoder.DropPath, dict(p="drop_path"))
def _(draw):
    return dict(p=draw(st.floats(0, 0.99))), lambda model: counts(model, 0)


@covers(encoder.DropPath.forward)
def _(draw):
    model = encoder.DropPath(draw(st.sampled_from((0.0, 0.5)))).train(draw(st.booleans()))
    b, t, d = size(draw, 0), size(draw, 0), size(draw, 0)
    branch = tensor(draw, b, t, d)

    def holds(result):
        is_like(result, (b, t, d), branch.dtype)
        is_finite(result)

    return dict(self=model, branch=branch), holds


BLOCK = dict(dim="num_heads", num_heads="dim")


@covers(encoder.EncoderBlock, BLOCK)
def _(draw):
    dim, hidden = 2 * size(draw), size(draw)
    arguments = dict(dim=dim, num_heads=2, mlp_dim=hidden, dropout=0.1, attention_dropout=0.2, drop_path=0.3)
    return arguments, lambda model: counts(model, 4 * dim**2 + 9 * dim + 2 * dim * hidden + hidden)


@covers(encoder.Encoder, BLOCK)
def _(draw):
    dim, hidden, depth = 2 * size(draw), size(draw), size(draw)
    arguments = dict(dim=dim, depth=depth, num_heads=2, mlp_dim=hidden, drop_path=draw(st.floats(0, 0.9)))
    arguments |= dict(dropout=0.1, attention_dropout=0.2)
    return arguments, lambda model: counts(model, depth * (4 * dim**2 + 9 * dim + 2 * dim * hidden + hidden))


for module, arguments in ((encoder.MLP, (6, 7)), (encoder.EncoderBlock, (6, 3, 7)), (encoder.Encoder, (6, 2, 3, 7))):

    @covers(module.forward)
    def _(draw, module=module, arguments=arguments):
        model, dtype = made(draw, module, *arguments)
        b, t = size(draw, 0), size(draw)
        x = tensor(draw, b, t, 6, dtype=dtype)

        def holds(result):
            is_like(result, (b, t, 6), dtype)
            is_finite(result)
            order = torch.randperm(t)
            if dtype != torch.bfloat16:
                close_to(model(x[:, order]), result[:, order], rounding=500)

        return dict(self=model, x=x), holds


# Whole models


def settings(draw):
    """Fields of a config that fit together."""
    p, (rows, columns), h = 2 * size(draw, 1, 2), grid(draw), size(draw, 1, 2)
    pool = draw(st.sampled_from(vit.POOLS))
    fields = dict(
        image_size=(rows * p, columns * p), patch_size=p, channels=size(draw, 1, 3), num_classes=size(draw, 0)
    )
    fields |= dict(dim=4 * h, depth=size(draw, 1, 2), num_heads=h, mlp_dim=size(draw), pool=pool)
    fields |= dict(stem=draw(st.sampled_from(((), (3,)))), positions=draw(st.sampled_from(list(embedding.POSITIONS))))
    fields |= dict(class_token=pool == "class" or draw(st.booleans()), qkv_bias=draw(st.booleans()))
    return fields | dict(dropout=0.1, attention_dropout=0.0, drop_path=0.1)


ANY_FIELD = dict(
    image_size="image", patch_size="image|patch", dim="dim|num_heads|divisible", num_heads="dim", pool="class"
)
ANY_FIELD |= dict(class_token="class_token", stem="stem", positions="positions|dim")


@covers(vit.ViTConfig, ANY_FIELD)
def _(draw):
    fields = settings(draw)

    def holds(config):
        assert {name: getattr(config, name) for name in fields} == fields

    return fields, holds


@covers(vit.VisionTransformer, dict(patch_embed="patch"))
def _(draw):
    config = vit.ViTConfig(**settings(draw))

    def holds(model):
        scores = model.eval()(torch.zeros(2, config.channels, *config.image_size))
        is_like(scores, (2, config.num_classes or config.dim), torch.float32)

    return dict(config=config, patch_embed=None), holds


def whole_model(draw, method, shape, model=vit.VisionTransformer, **changes):
    """Arguments of a method on pictures; shape: of its result, by (B, model)."""
    config = vit.ViTConfig(**settings(draw) | dict(stem=()) | changes)
    model, dtype = made(draw, model, config)
    images = tensor(draw, size(draw, 0, 3), config.channels, *config.image_size, dtype=dtype)

    def holds(result):
        for part in result if isinstance(result, tuple) else (result,):
            is_like(part, shape(len(images), model), dtype)
            is_finite(part)
        if len(images) > 1 and dtype == torch.float64 and not isinstance(result, tuple):
            close_to(getattr(model, method)(images[:1]), result[:1], rounding=500)

    return dict(self=model, images=images), holds


def tokens_of(model):
    rows, columns = model.embedding.grid
    return len(model.embedding.prefix_tokens) + rows * columns


SHAPES = {
    "tokens": lambda b, model: (b, tokens_of(model), model.config.dim),
    "features": lambda b, model: (b, model.config.dim),
    "forward": lambda b, model: (b, model.config.num_classes or model.config.dim),
}
for method, shape in SHAPES.items():

    @covers(getattr(vit.VisionTransformer, method), PICTURE)
    def _(draw, method=method, shape=shape):
        return whole_model(draw, method, shape)


@covers(vit.VisionTransformer.resize, PICTURE)
def _(draw):
    config, (rows, columns) = vit.ViTConfig(**settings(draw)), grid(draw)
    model, shape = vit.VisionTransformer(config).eval(), (rows * config.patch_size, columns * config.patch_size)

    def holds(_):
        assert model.config.image_size == shape
        is_finite(model(torch.zeros(1, config.channels, *shape)))

    return dict(self=model, image_size=shape), holds


@covers(vit.make_patch_embed)
def _(draw):
    config = vit.ViTConfig(**settings(draw))
    return dict(config=config), lambda module: is_like(torch.zeros(module.dim), (config.dim,))


@covers(vit.create_vit, dict(name="model"))
def _(draw):
    depth = size(draw, 1, 2)
    return dict(name="vit_digits", depth=depth), lambda model: len(model.encoder.blocks) == depth


@covers(cnn.SmallCNN)
def _(draw):
    c, k, width = size(draw), size(draw), size(draw)
    return dict(channels=c, num_classes=k, width=width), lambda model: is_like(model.head.weight, (k, 4 * width))


for method, shape in (("features", (12,)), ("forward", (5,))):

    @covers(getattr(cnn.SmallCNN, method))
    def _(draw, shape=shape):
        model, dtype = made(draw, cnn.SmallCNN, 2, 5, 3)
        b, height, width = size(draw, 0), size(draw, 4, 7), size(draw, 4, 7)
        images = tensor(draw, b, 2, height, width, dtype=dtype)
        return dict(self=model, images=images), lambda y: (is_like(y, (b, *shape), dtype), is_finite(y))


@covers(cnn.ResidualBlock)
def _(draw):
    one, other, stride = size(draw), size(draw), size(draw, 1, 2)
    arguments = dict(in_channels=one, out_channels=other, stride=stride)
    return arguments, lambda block: is_like(block.conv1.weight, (other, one, 3, 3))


@covers(cnn.ResidualBlock.forward)
def _(draw):
    model, dtype = made(draw, cnn.ResidualBlock, 2, 4, 2)
    b, height, width = size(draw, 0), size(draw), size(draw)
    shape = (b, 4, -(-height // 2), -(-width // 2))
    return dict(self=model, x=tensor(draw, b, 2, height, width, dtype=dtype)), lambda y: is_like(y, shape, dtype)


# Features


@covers(features.feature_map, PICTURE, free=("backbone",))
def _(draw):
    arguments, _ = whole_model(draw, "tokens", SHAPES["tokens"])
    model, images = arguments["self"], arguments["images"]
    shape = (len(images), model.config.dim, *model.embedding.grid)
    return dict(backbone=model, images=images), lambda maps: is_like(maps, shape, images.dtype)


@covers(features.Features.forward, PICTURE)
def _(draw):
    arguments, holds = whole_model(draw, "features", SHAPES["features"])
    return dict(self=features.Features(arguments["self"]), images=arguments["images"]), holds


@covers(features.neighbour_votes, dict(queries="queries|bank", num_classes="labels"))
def _(draw):
    m, n, d, k = size(draw, 0), size(draw), size(draw), size(draw)
    dtype = draw(st.sampled_from(FLOATS))
    arguments = dict(queries=tensor(draw, m, d, dtype=dtype), bank=tensor(draw, n, d, dtype=dtype))
    arguments |= dict(labels=whole(draw, (n,), k), num_classes=k, k=size(draw, 1, n))
    temperature = draw(st.sampled_from((0.07, 1, torch.inf)))
    return arguments | dict(temperature=temperature), lambda votes: (is_like(votes, (m, k), dtype), sums_to_one(votes))


@covers(features.feature_colours)
def _(draw):
    b, d, (rows, columns) = size(draw), size(draw, 3, 5), (size(draw, 3), size(draw))
    maps = tensor(draw, b, d, rows, columns, dtype=(torch.float32, torch.float64))

    def holds(colours):
        is_like(colours, (b, 3, rows, columns), maps.dtype)
        assert ((colours >= 0) & (colours <= 1)).all()

    return dict(maps=maps), holds


# Heads


def map_head(module, second):
    @covers(module)
    def _(draw):
        arguments = dict(zip(("dim", *second), (size(draw), size(draw), size(draw)), strict=True))

        def holds(head):
            assert all((parameter == 0).all() for parameter in head.parameters())

        return arguments, holds

    @covers(module.forward)
    def _(draw):
        model, dtype = made(draw, module, 4, 3, 2)
        b, (rows, columns) = size(draw, 0), grid(draw)
        features = tensor(draw, b, 4, rows, columns, dtype=dtype)
        return dict(self=model, features=features), lambda y: is_like(y, (b, 3, 2 * rows, 2 * columns), dtype)


map_head(heads.HeatmapHead, ("num_keypoints", "cells_per_patch"))
map_head(heads.SegmentationHead, ("num_classes", "patch_size"))


@covers(heads.cell_centres)
def _(draw):
    count = size(draw, 0, 9)
    return dict(count=count, cell=draw(st.sampled_from((1, 0.5, 16)))), lambda x: is_like(x, (count,), torch.float32)


@covers(heads.soft_argmax)
def _(draw):
    leading, (rows, columns) = draw(st.sampled_from(((), (2,), (2, 0)))), grid(draw)
    maps = tensor(draw, *leading, rows, columns, scale=(1.0, 1e-6, 1e4))

    def holds(places):
        is_like(places, (*leading, 2), maps.dtype)
        is_finite(places)
        most = torch.tensor([columns, rows], dtype=torch.float64) * 2 - 0.5
        assert (places.double() <= most * 1.02).all() and (places.double() >= -0.5).all()

    return dict(heatmaps=maps, cell=2.0), holds


@covers(heads.target_heatmaps)
def _(draw):
    leading, (rows, columns) = draw(st.sampled_from(((), (2,), (2, 0)))), grid(draw)
    points = tensor(draw, *leading, 2, dtype=(torch.float32, torch.float64), scale=(1.0, 100.0, 1e4))

    def holds(maps):
        is_like(maps, (*leading, rows, columns), points.dtype)
        sums_to_one(maps.flatten(-2))

    return dict(points=points, grid=(rows, columns), cell=4.0, sigma=draw(st.sampled_from((0.1, 1.0, 30)))), holds


@covers(heads.intersection_over_union, dict(num_classes="predicted|labels", predicted="labels", labels="predicted"))
def _(draw):
    k, shape = size(draw), tuple(draw(st.lists(st.integers(0, 3), max_size=3)))

    def holds(shares):
        is_like(shares, (k,), torch.float64)
        present = shares[~shares.isnan()]
        assert ((present >= 0) & (present <= 1)).all()

    return dict(predicted=whole(draw, shape, k), labels=whole(draw, shape, k), num_classes=k), holds


@covers(heads.HiddenLayerHead)
def _(draw):
    arguments = dict(dim=size(draw), hidden_dim=size(draw), num_classes=size(draw))
    return arguments, lambda head: is_like(head.head.weight, (arguments["num_classes"], arguments["hidden_dim"]))


@covers(heads.HiddenLayerHead.forward)
def _(draw):
    model, dtype = made(draw, heads.HiddenLayerHead, 4, 5, 3)
    b = size(draw, 0)
    return dict(self=model, features=tensor(draw, b, 4, dtype=dtype)), lambda y: is_like(y, (b, 3), dtype)


# Distillation


@covers(distillation.DistilledEmbedding, PICTURE | dict(dim="patch_embed|dim", patch_embed="patch"))
def _(draw):
    arguments = equation_1(draw, distillation.DistilledEmbedding)

    def holds(model):
        height, width = arguments["image_size"]
        is_like(model(torch.zeros(1, 2, height, width)), (1, 2 + height * width // 4, 8))

    return arguments, holds


@covers(distillation.DistilledVisionTransformer, dict(patch_embed="patch"))
def _(draw):
    config = vit.ViTConfig(**settings(draw) | dict(pool="class", class_token=True))
    return dict(config=config, patch_embed=None), lambda model: is_like(model.embedding.dist_token, (1, 1, config.dim))


for method, shape in dict(both_heads=SHAPES["forward"], forward=SHAPES["forward"], features=SHAPES["features"]).items():

    @covers(getattr(distillation.DistilledVisionTransformer, method), PICTURE)
    def _(draw, method=method, shape=shape):
        model = distillation.DistilledVisionTransformer
        return whole_model(draw, method, shape, model, pool="class", class_token=True)


def scores_and_labels(draw, *names):
    b, k, dtype = size(draw), size(draw), draw(st.sampled_from(FLOATS))
    arguments = {name: tensor(draw, b, k, dtype=dtype, scale=(1.0, 1e-6, 100)) for name in names}
    return arguments | dict(labels=whole(draw, (b,), k)), (b, k), dtype


def a_loss(loss):
    is_like(loss, ())
    is_finite(loss)
    assert loss > -1e-2


LABELS = dict(scores="labels|scores", labels="scores|labels", class_scores="labels|scores")


@covers(distillation.soft_distillation_loss, LABELS)
def _(draw):
    arguments, _, _ = scores_and_labels(draw, "scores", "teacher_scores")
    return arguments | dict(temperature=draw(st.sampled_from((1, 3.0))), weight=draw(st.floats(0, 1))), a_loss


@covers(distillation.hard_distillation_loss, LABELS)
def _(draw):
    return scores_and_labels(draw, "scores", "teacher_scores")[0], a_loss


@covers(distillation.token_distillation_loss, LABELS)
def _(draw):
    return scores_and_labels(draw, "class_scores", "distillation_scores", "teacher_scores")[0], a_loss


@covers(distillation.late_fusion, dict(class_scores="scores"))
def _(draw):
    arguments, shape, dtype = scores_and_labels(draw, "class_scores", "distillation_scores")
    del arguments["labels"]
    return arguments, lambda shares: (is_like(shares, shape, dtype), sums_to_one(shares))


# Attention maps


def recorded(draw, least=0, dtype=None):
    """Weights (L, B, h, T, T) of a grid and its prefix."""
    (rows, columns), prefix = grid(draw), size(draw, 0, 2)
    tokens = rows * columns + prefix
    scores = tensor(draw, size(draw), size(draw, least), size(draw), tokens, tokens, dtype=dtype or FLOATS)
    return scores.softmax(dim=-1), (rows, columns), prefix


@covers(attention_maps.residual_stream, PICTURE)
def _(draw):
    arguments, _ = whole_model(draw, "tokens", SHAPES["tokens"])
    model, images = arguments["self"], arguments["images"]
    shape = (model.config.depth + 1, *SHAPES["tokens"](len(images), model))

    def holds(states):
        is_like(states, shape, images.dtype)
        close_to(model.norm(states[-1]), model.tokens(images))

    return dict(model=model, images=images), holds


@covers(attention_maps.logit_lens)
def _(draw):
    arguments, _ = whole_model(draw, "forward", SHAPES["forward"])
    model, images = arguments["self"], arguments["images"]
    model.head.apply(lambda layer: layer.reset_parameters() if isinstance(layer, nn.Linear) else None)  # not all zeros
    states = attention_maps.residual_stream(model, images).detach()

    def holds(scores):
        is_like(scores, (len(states), *SHAPES["forward"](len(images), model)), images.dtype)
        is_finite(scores)
        close_to(scores[-1], model(images))

    return dict(model=model, states=states), holds


@covers(attention_maps.rollout)
def _(draw):
    weights, _, _ = recorded(draw)
    arguments = dict(weights=weights, heads=draw(st.sampled_from(("mean", "max", "min"))))
    arguments |= dict(residual=draw(st.booleans()), discard=draw(st.sampled_from((0.0, 0.5, 0.99))))

    def holds(rolled):
        is_like(rolled, (*weights.shape[1:2], *weights.shape[-2:]), weights.dtype)
        is_finite(rolled)
        if arguments["heads"] != "min" and weights.dtype in (torch.float32, torch.float64):
            sums = rolled.sum(dim=-1)
            torch.testing.assert_close(sums, torch.ones_like(sums))

    return arguments, holds


@covers(attention_maps.without_smallest)
def _(draw):
    weights = recorded(draw)[0][0, :, 0]
    return dict(weights=weights, share=draw(st.floats(0, 0.99))), lambda kept: is_like(
        kept, weights.shape, weights.dtype
    )


@covers(attention_maps.gradient_weighted_attention, dict(weights="weights|score"))
def _(draw):
    weights = [x.detach().requires_grad_() for x in recorded(draw, dtype=torch.float32)[0]]
    score = sum((x * x).sum(dim=(1, 2, 3)) for x in weights)
    shape = (len(weights[0]), *weights[0].shape[-2:])
    return dict(weights=weights, score=score), lambda relevance: (is_like(relevance, shape), is_finite(relevance))


GRID = dict(grid="token", num_prefix_tokens="token", weights="token", attention="token", pos_embed="token")


@covers(attention_maps.patch_map, GRID)
def _(draw):
    weights, places, prefix = recorded(draw)
    arguments = dict(attention=weights, grid=places, query=size(draw, 0, weights.shape[-1] - 1))
    shape = (*weights.shape[:3], *places)
    return arguments | dict(num_prefix_tokens=prefix), lambda maps: is_like(maps, shape, weights.dtype)


@covers(attention_maps.class_map, GRID)
def _(draw):
    (rows, columns) = places = grid(draw)
    weights = tensor(draw, size(draw, 0), 1 + rows * columns, 1 + rows * columns)
    arguments = dict(attention=weights, grid=places, num_prefix_tokens=1)
    return arguments, lambda maps: is_like(maps, (len(weights), *places), weights.dtype)


@covers(attention_maps.attention_distance, GRID)
def _(draw):
    weights, places, prefix = recorded(draw, least=1)
    arguments = dict(weights=weights, grid=places, patch_size=size(draw), num_prefix_tokens=prefix)

    def holds(distances):
        is_like(distances, (weights.shape[0], weights.shape[2]), weights.dtype)
        is_finite(distances)
        assert (distances >= 0).all()

    return arguments, holds


@covers(attention_maps.patch_distances)
def _(draw):
    (rows, columns), p = grid(draw), size(draw)

    def holds(distances):
        is_like(distances, (rows * columns,) * 2, torch.float32)
        assert torch.equal(distances, distances.T) and (distances.diagonal() == 0).all()

    return dict(grid=(rows, columns), patch_size=p), holds


@covers(attention_maps.only_patches, GRID)
def _(draw):
    weights, (rows, columns), prefix = recorded(draw)
    shape = (*weights.shape[:3], rows * columns, rows * columns)

    def holds(among):
        is_like(among, shape, weights.dtype)
        is_finite(among)

    return dict(weights=weights, grid=(rows, columns), num_prefix_tokens=prefix), holds


@covers(attention_maps.attention_entropy)
def _(draw):
    weights, _, _ = recorded(draw, least=1)
    shape = (weights.shape[0], weights.shape[2])
    return dict(weights=weights), lambda entropy: (is_like(entropy, shape, weights.dtype), is_finite(entropy))


@covers(attention_maps.position_similarity, GRID)
def _(draw):
    (rows, columns), prefix = grid(draw), size(draw, 0, 2)
    table = tensor(draw, 1, prefix + rows * columns, size(draw))
    shape = (rows * columns, rows, columns)
    arguments = dict(pos_embed=table, grid=(rows, columns), num_prefix_tokens=prefix)
    return arguments, lambda maps: (is_like(maps, shape, table.dtype), is_finite(maps))


@covers(attention_maps.patch_filters, dict(weight="count"))
def _(draw):
    d, c, p = size(draw, 2), size(draw), size(draw)
    weight = tensor(draw, d, c, p, p, dtype=(torch.float32, torch.float64))
    weight = weight + torch.arange(d, dtype=weight.dtype)[:, None, None, None]
    count = size(draw, 1, min(d, c * p * p))
    return dict(weight=weight, count=count), lambda found: (is_like(found[0], (count, c, p, p)), is_finite(found[1]))


# The tests

ELSEWHERE = {
    # what takes no argument but a module, and is held to more in tests/test_vit.py and tests/test_distillation.py
    *("vit.VisionTransformer.initialise", "distillation.DistilledVisionTransformer.initialise"),
    "encoder.DropPath.extra_repr",  # takes nothing
    "heads.start_at_zero",  # of layers, inside constructors
    *("features.Features", "features.collect_features"),  # of any backbone: tests/test_features.py
    "attention_maps.recorded_attention",  # a block: below
    "attention_maps.gradients_of",  # the half of gradient_weighted_attention that can fail
}


@pytest.mark.parametrize("name", of_modules(MODULES))
@given(data=st.data())
def test_the_result_is_as_stated(name, data):
    as_stated(name, data)


@pytest.mark.parametrize("name", of_modules(MODULES))
@given(data=st.data())
def test_anything_else_is_refused_by_name(name, data):
    or_refused(name, data)


def test_every_public_name_has_a_case():
    assert not out_of_step(MODULES, ELSEWHERE)


@pytest.mark.parametrize("model", [None, [nn.Identity()], "vit_b_16", nn.Identity()], ids=str)
def test_what_cannot_be_recorded_is_refused(model):
    with pytest.raises((TypeError, ValueError), match="model|MultiHeadSelfAttention"):
        with attention_maps.recorded_attention(model):
            pass


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.zeros(2, 8, 8), "B, C, H, W"),
        (torch.zeros(1, 2, 8, 8).half(), "dtype"),
        (None, "images must be a Tensor"),
    ],
    ids=["rank", "dtype", "type"],
)
def test_a_hybrid_refuses_what_no_stem_takes(images, message):
    with pytest.raises((TypeError, ValueError), match=message):
        patches.HybridEmbedding(stem(3), 3, 2, 5)(images)


def test_heads_that_agree_on_nothing_leave_no_nan():
    """With "min", a row of zeros was divided by its sum, 0."""
    weights = torch.stack([torch.eye(2), torch.eye(2).flip(0)]).view(1, 1, 2, 2, 2)
    assert torch.equal(attention_maps.rollout(weights, "min"), torch.eye(2)[None] / 2)


def test_small_whole_numbers_do_not_overflow_unseen():
    """Of 20 classes in uint8, 13 · 20 + 13 would be 17: the classes have to be int64."""
    classes = torch.full((4,), 13, dtype=torch.uint8)
    with pytest.raises(ValueError, match="predicted must be int64, got torch.uint8"):
        heads.intersection_over_union(classes, classes, 20)

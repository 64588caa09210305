"""Augmentation, training, data and what shows or reads tensors, on whatever hypothesis draws; see strategies.py."""

import matplotlib.pyplot as plt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from strategies import (
    FLOATS,
    NUMBERS,
    as_stated,
    covers,
    is_finite,
    is_like,
    of_modules,
    or_refused,
    out_of_step,
    size,
    tensor,
    whole,
)
from torch import nn

from vitbook import augment, data, pictures, plotting, preprocessing, pretrained, runtime, training, vit
from vitbook.layouts import listed, translate

MODULES = "augment training data pictures preprocessing layouts pretrained runtime"
FIGURES = "plotting"
SHARES = (0.0, 0.3, 1.0)


def batch(draw, dtype, least=1, channels=None):
    """Pictures, few and small."""
    channels = size(draw, 1, 3) if channels is None else channels
    return tensor(draw, size(draw, 0, 3), channels, size(draw, least, 6), size(draw, least, 6), dtype=dtype)


# Augmentation: what comes out is shaped like what went in, and lies where that lay


def alike(images):
    def holds(changed):
        is_like(changed, images.shape, images.dtype)
        is_finite(changed)
        if images.numel():
            eps = torch.finfo(images.dtype).eps if images.is_floating_point() else 0
            room = 32 * eps * float(images.double().abs().max())
            assert changed.double().max() <= max(0.0, float(images.double().max())) + room
            assert changed.double().min() >= min(0.0, float(images.double().min())) - room

    return holds


@covers(augment.random_affine)
def _(draw):
    images = batch(draw, (torch.float32, torch.float64))
    amounts = dict(degrees=draw(st.floats(0, 90)), shift=draw(st.floats(0, 1)), scale=draw(st.floats(0, 0.9)))
    return dict(images=images) | amounts, alike(images)


@covers(augment.warp, dict(matrices="matrices|images"))
def _(draw):
    images = batch(draw, (torch.float32, torch.float64))
    matrices = tensor(draw, len(images), 2, 3, dtype=torch.float32)
    outside = draw(st.sampled_from(("border", "zeros")))
    return dict(images=images, matrices=matrices, outside=outside), alike(images)


@covers(augment.random_crop, dict(images="padding"))
def _(draw):
    images = batch(draw, FLOATS)
    return dict(images=images, padding=size(draw, 0, min(images.shape[2:]) - 1)), alike(images)


@covers(augment.random_flip)
def _(draw):
    images = batch(draw, NUMBERS, least=0)

    def holds(flipped):
        is_like(flipped, images.shape, images.dtype)
        for one, other in zip(flipped, images, strict=True):
            assert torch.equal(one, other) or torch.equal(one, other.flip(-1))

    return dict(images=images), holds


@covers(augment.random_erasing)
def _(draw):
    images = batch(draw, FLOATS)
    return dict(images=images, probability=draw(st.sampled_from(SHARES))), alike(images)


for mix in (augment.mixup, augment.cutmix):

    @covers(mix, dict(targets="targets|images"))
    def _(draw):
        images = batch(draw, (torch.float32, torch.float64))
        targets = torch.eye(4, dtype=images.dtype)[whole(draw, (len(images),), 4)]

        def holds(mixed):
            alike(images)(mixed[0])
            is_like(mixed[1], targets.shape, targets.dtype)
            torch.testing.assert_close(mixed[1].sum(dim=-1), targets.sum(dim=-1))

        return dict(images=images, targets=targets, alpha=draw(st.sampled_from((0.2, 1, 8.0)))), holds


@covers(augment.rand_augment)
def _(draw):
    images = batch(draw, torch.uint8, least=3, channels=draw(st.sampled_from((1, 3))))
    arguments = dict(images=images, num_ops=size(draw, 0, 3), magnitude=draw(st.floats(0, 10)))
    return arguments, lambda changed: is_like(changed, images.shape, torch.uint8)


# Training


@covers(training.parameter_groups)
def _(draw):
    model = vit.VisionTransformer(vit.ViTConfig(8, 4, 1, 3, 4, 1, 2, 5))

    def holds(groups):
        assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))

    return dict(model=model, weight_decay=draw(st.floats(0, 1))), holds


@covers(training.warmup_cosine, dict(total_steps="total_steps|warmup_steps"))
def _(draw):
    warmup = size(draw, 0, 5)
    arguments = dict(step=size(draw, 0, 30), total_steps=size(draw, warmup + 1, 20), warmup_steps=warmup)

    def holds(share):
        assert 0 <= share <= 1

    return arguments, holds


def labelled(draw):
    return [
        (torch.randn(b, 4), whole(draw, (b,), 3)) for b in draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    ]


@covers(training.evaluate, free=("batches",))
def _(draw):
    batches = labelled(draw)
    n = sum(len(labels) for _, labels in batches)

    def holds(evaluation):
        is_like(evaluation.scores, (n, 3), torch.float32)
        assert 0 <= evaluation.accuracy <= 1 and evaluation.loss >= 0
        assert evaluation.confusion.sum() == n

    return dict(model=nn.Linear(4, 3), batches=batches), holds


@covers(training.keeping_modes)
def _(draw):
    model = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5)).train(draw(st.booleans()))
    model[1].train(draw(st.booleans()))

    def holds(block):
        before = [module.training for module in model.modules()]
        with block:
            model.train(not model[0].training)
        assert [module.training for module in model.modules()] == before

    return dict(model=model), holds


# Data


@covers(data.mean_and_std)
def _(draw):
    images = tensor(draw, size(draw), size(draw), size(draw), size(draw), dtype=torch.uint8)

    def holds(moments):
        for got, expected in zip(moments, ((images / 255).mean(dim=(0, 2, 3)), None), strict=True):
            is_like(got, images.shape[1:2], torch.float32)
            if expected is not None:
                torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)

    return dict(images=images), holds


@covers(data.normalise, dict(mean="mean|std|images", std="std"))
def _(draw):
    images = batch(draw, torch.uint8, least=0)
    arguments = dict(images=images, mean=torch.rand(images.shape[1]), std=torch.rand(images.shape[1]) + 0.1)
    return arguments, lambda x: (is_like(x, images.shape, torch.float32), is_finite(x))


@covers(data.split_at_random, dict(fraction="share", class_names="class"), free=("split", "class_names"))
def _(draw):
    labels = torch.tensor(draw(st.lists(st.integers(0, 2), max_size=9)) * 2, dtype=torch.int64)
    split = data.Split(torch.zeros(len(labels), 1, 2, 2, dtype=torch.uint8), labels)

    def holds(parts):
        assert len(parts[0]) + len(parts[1]) == len(labels)
        for part in parts:
            assert set(part.labels.tolist()) == set(labels.tolist())

    arguments = dict(split=split, fraction=draw(st.floats(0.01, 0.99)), seed=size(draw, 0, 9))
    return arguments | dict(class_names=("a", "b", "c")), holds


@covers(data.photograph, dict(name="photograph"))
def _(draw):
    return dict(name="portrait"), lambda picture: is_like(picture, (3, 224, 224), torch.uint8)


@covers(pictures.read_picture, free=("name", "content"))
def _(draw):
    levels = tensor(draw, size(draw), size(draw), 3, dtype=torch.uint8)
    file = Image.fromarray(levels.contiguous().numpy())
    content = plotting.io.BytesIO()
    file.save(content, draw(st.sampled_from(("PNG", "BMP", "TIFF"))))

    def holds(picture):
        assert torch.equal(pictures.to_tensor(picture), levels.permute(2, 0, 1))

    return dict(content=content.getvalue(), name="one.png"), holds


@given(content=st.binary(max_size=200), cut=st.integers(0, 80))
def test_bytes_that_are_no_picture_are_refused_by_name(content, cut):
    file = plotting.io.BytesIO()
    Image.new("RGB", (5, 4), "red").save(file, "PNG")
    for damaged in (content, file.getvalue()[:cut] + content):
        try:
            assert pictures.read_picture(damaged, "one.png").mode == "RGB"
        except ValueError as error:
            assert "one.png" in str(error)


WANTED = dict(mean="mean|std", std="std|mean", image_size="image")


@covers(pictures.as_rgb, free=("picture",))
def _(draw):
    shape = (size(draw, 1, 9), size(draw, 1, 9))
    picture = Image.new(draw(st.sampled_from(("L", "RGB", "RGBA", "P", "CMYK", "1", "I;16"))), shape)
    return dict(picture=picture), lambda made: made.mode == "RGB" and made.size == shape


@covers(preprocessing.Preprocessing, WANTED)
def _(draw):
    channels = draw(st.sampled_from((1, 3)))
    fields = dict(mean=(0.5,) * channels, std=(0.2,) * channels, image_size=(size(draw), size(draw)))
    fields |= dict(crop=draw(st.sampled_from((None, 1.0, 0.5))), interpolation="bicubic")
    return fields, lambda made: None


@covers(preprocessing.Preprocessing.__call__)
def _(draw):
    channels, shape = draw(st.sampled_from((1, 3))), (size(draw), size(draw))
    crop = draw(st.sampled_from((None, 1.0, 0.5)))
    wanted = preprocessing.Preprocessing((0.5,) * channels, (0.2,) * channels, shape, crop)
    picture = tensor(draw, 3, size(draw, 1, 9), size(draw, 1, 9), dtype=torch.uint8)
    return dict(self=wanted, picture=picture), lambda x: is_like(x, (1, channels, *shape), torch.float32)


@covers(preprocessing.Preprocessing.view)
def _(draw):
    channels, shape = draw(st.sampled_from((1, 3))), (size(draw), size(draw))
    wanted = preprocessing.Preprocessing((0.5,) * channels, (0.2,) * channels, shape)
    picture = tensor(draw, 3, size(draw, 1, 9), size(draw, 1, 9), dtype=torch.uint8)
    return dict(self=wanted, picture=picture), lambda x: is_like(x, (1, channels, *shape), torch.uint8)


@covers(preprocessing.Preprocessing.normalise)
def _(draw):
    channels = draw(st.sampled_from((1, 3)))
    wanted = preprocessing.Preprocessing((0.5,) * channels, (0.25,) * channels, (4, 4))
    images = batch(draw, torch.uint8, least=0, channels=channels)
    return dict(self=wanted, images=images), lambda x: torch.testing.assert_close(x, (images / 255 - 0.5) / 0.25)


# Other people's weights

SMALL = vit.ViTConfig(
    image_size=(8, 8), patch_size=4, channels=3, num_classes=3, dim=8, depth=1, num_heads=2, mlp_dim=5
)


@covers(
    pretrained.load_pretrained, dict(image_size="image", num_heads="num_heads|dim", resize="kernel"), free=("source",)
)
def _(draw):
    state = pretrained.to_timm(vit.VisionTransformer(SMALL))
    arguments = dict(source=state, num_heads=2, num_classes=draw(st.sampled_from((0, 3, 5))))
    arguments |= dict(image_size=(8, 12), channels=draw(st.sampled_from((1, 3))), resize="timm")

    def holds(loaded):
        c = loaded.model.config
        assert (c.num_classes, c.channels, c.image_size) == (arguments["num_classes"], arguments["channels"], (8, 12))
        is_finite(loaded.model(torch.zeros(1, c.channels, 8, 12)))

    return arguments, holds


@given(data=st.data())
def test_a_damaged_tensor_is_refused_by_name(data):
    """One tensor of a checkpoint in another shape or dtype, or with NaN: an error names it, and nothing is loaded."""
    state = pretrained.to_timm(vit.VisionTransformer(SMALL))
    model = vit.VisionTransformer(SMALL)
    before = {name: x.clone() for name, x in model.state_dict().items()}
    name = data.draw(st.sampled_from(sorted(state)))
    x = state[name]
    wrong = [x[None], x.flatten()[:1], x[:0], torch.full_like(x, torch.nan), x.long(), x.to(torch.complex64)]
    state[name] = data.draw(st.sampled_from(wrong))
    try:
        pretrained.load_weights(model, state)
    except (ValueError, TypeError) as error:
        assert name in str(error)
        for name, x in model.state_dict().items():
            assert torch.equal(x, before[name])
    else:
        assert all(x.isfinite().all() for x in model.state_dict().values()), "it fitted after all"


@given(names=st.lists(st.text(max_size=4), max_size=9), most=st.integers(1, 5))
def test_lists_of_names_are_cut(names, most):
    assert listed(names, most).count(" more") >= (len(names) > most)


@given(names=st.dictionaries(st.text(max_size=30), st.just(torch.zeros(2)), max_size=3))
def test_names_of_no_layout_are_refused(names):
    with pytest.raises(ValueError, match="no Vision Transformer in a known layout"):
        translate(names)


@covers(runtime.seed_everything)
def _(draw):
    seed = draw(st.integers(0, 2**32 - 1))

    def holds(_):
        first = torch.rand(3)
        runtime.seed_everything(seed)
        assert torch.equal(torch.rand(3), first)

    return dict(seed=seed), holds


@covers(runtime.has_bfloat16)
def _(draw):
    def holds(found):
        assert isinstance(found, bool)

    return dict(device=torch.device(draw(st.sampled_from(("cpu", "cuda", "cuda:0", "meta"))))), holds


# Figures: few examples, since each takes matplotlib a while


def drawn(result):
    plt.close("all")


@covers(plotting.show_matrix)
def _(draw):
    return dict(matrix=tensor(draw, size(draw), size(draw), dtype=NUMBERS[:-1])), drawn


@covers(plotting.show_picture)
def _(draw):
    channels = draw(st.sampled_from((1, 3)))
    picture = tensor(draw, channels, size(draw), size(draw), dtype=torch.uint8)
    return dict(picture=picture if draw(st.booleans()) else picture / 255), drawn


@covers(plotting.show_patch_grid, dict(picture="picture|image", patch_size="patch"))
def _(draw):
    p, rows, columns = size(draw), size(draw), size(draw)
    picture = tensor(draw, 3, rows * p, columns * p, dtype=torch.uint8)
    return dict(picture=picture, patch_size=p), drawn


@covers(plotting.show_mosaic)
def _(draw):
    return dict(maps=tensor(draw, size(draw), size(draw), size(draw), size(draw))), drawn


# The tests

ELSEWHERE = {
    # on files, folders and downloads: tests/test_data.py, test_load_dataset.py, test_album.py and test_pictures.py
    *("data.load_dataset", "data.load_folder", "data.picture_files", "data.digits", "data.album", "data.album_credits"),
    *("data.asset", "pictures.eight_bits", "pictures.crop_and_scale", "pictures.to_tensor"),
    # records, and what they hand on to functions with a case
    *("data.Split", "data.Split.select", "data.Dataset", "data.Dataset.with_validation", "data.Dataset.with_share"),
    *("data.Dataset.normalise", "data.Dataset.loader", "training.Evaluation"),
    # one step of rand_augment, which checks for all of them
    *("augment.operate", "augment.move", "augment.grey", *(f"augment.{name}" for name in augment.COLOURS)),
    # loops over a model and batches of the caller's: tests/test_training.py
    *("training.train_epoch", "training.on_device_of"),
    # tables and their rows: tests/test_layouts.py; whole checkpoints: tests/test_pretrained.py, and above
    *("layouts.Row", "layouts.Row.read", "layouts.Row.write", "layouts.Layout", "layouts.Layout.rows"),
    *("layouts.Layout.renamed", "layouts.read_table", "layouts.spelled_out", "layouts.Translation"),
    *("layouts.translate", "layouts.recognise", "layouts.listed"),
    *("pretrained.Pretrained", "pretrained.load_weights", "pretrained.to_timm", "pretrained.to_huggingface"),
    *("pretrained.huggingface_config", "pretrained.written", "pretrained.Checkpoint", "pretrained.open_source"),
    *("pretrained.asset", "pretrained.ours", "pretrained.our_facts", "pretrained.shape_of", "pretrained.fill"),
    *("pretrained.change", "pretrained.naming"),
    "runtime.device",  # takes nothing
    # made of those above: tests/test_plotting.py
    *("plotting.use_book_style", "plotting.label_ticks", "plotting.show_pictures", "plotting.show_maps"),
    *("plotting.panels", "plotting.draw_explanation", "plotting.fill_maps", "plotting.to_png", "plotting.show_curves"),
    *("plotting.show_spread", "plotting.show_confusion", "plotting.show_beside", "plotting.show_heads"),
}


@pytest.mark.parametrize("name", of_modules(MODULES))
@given(data=st.data())
def test_the_result_is_as_stated(name, data):
    as_stated(name, data)


@pytest.mark.parametrize("name", of_modules(MODULES))
@given(data=st.data())
def test_anything_else_is_refused_by_name(name, data):
    or_refused(name, data)


@pytest.mark.parametrize("name", of_modules(FIGURES))
@settings(max_examples=6)
@given(data=st.data())
def test_a_figure_is_drawn(name, data):
    as_stated(name, data)


@pytest.mark.parametrize("name", of_modules(FIGURES))
@settings(max_examples=12)
@given(data=st.data())
def test_what_cannot_be_drawn_is_refused_by_name(name, data):
    or_refused(name, data)
    plt.close("all")


def test_every_public_name_has_a_case():
    """names.unknown takes the package's own words; vitbook.properties takes implementations, and demands all else."""
    assert not out_of_step(f"{MODULES} {FIGURES}", ELSEWHERE)

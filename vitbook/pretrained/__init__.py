"""Weights that others have trained, in our model, and ours in their names.

Nothing is passed over: every tensor is used once, and every shape is checked.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitbook._support.json_config import from_json
from vitbook._support.names import unknown
from vitbook._support.validation import check_kind, check_sizes
from vitbook.distillation import DistilledVisionTransformer
from vitbook.embedding import LearnedPositions, resize_positions
from vitbook.encoder import LAYER_NORM_EPS
from vitbook.patches import grid_size
from vitbook.pretrained.layouts import DISTILLED, HUGGING_FACE, PATCHES, TIMM, Layout, Translation, listed, translate
from vitbook.pretrained.preprocessing import STYLES, Preprocessing
from vitbook.pretrained.published import ASSETS, PUBLISHED, imagenet_classes, published
from vitbook.pretrained.weight_files import read_file, tensors_in
from vitbook.vit import VisionTransformer, ViTConfig

CLASS, DIST, POSITIONS = "embedding.cls_token", "embedding.dist_token", "embedding.positions.pos_embed"
ROOM = 10**7  # numbers that a model may have beyond twice those of its weights: positions that are computed, above all
HEAD_DIM = {1280: 80}  # D/h by D; 64 in all published ViTs but H/14

# How each source's own code interpolates positions, in the words of `resize_positions`.
KERNELS = {
    "google": dict(mode="bilinear", align_corners=True, antialias=False),  # scipy.ndimage.zoom(order=1)
    "timm": dict(mode="bicubic", align_corners=False, antialias=True),
    "timm_npz": dict(mode="bilinear", align_corners=False, antialias=False),  # timm, where it reads Google's files
    "torchvision": dict(mode="bicubic", align_corners=True, antialias=False),
    "deit": dict(mode="bicubic", align_corners=False, antialias=False),
    "hf": dict(mode="bicubic", align_corners=False, antialias=False),
}


@dataclass(frozen=True)
class Pretrained:
    """A model with somebody's weights, in evaluation mode, and what has to be known to use it."""

    model: VisionTransformer
    preprocessing: Preprocessing
    class_names: tuple[str, ...] | None  # of the head's classes, where they are known
    layout: str  # whose names the weights came under
    notes: tuple[str, ...]  # what was dropped, made new or assumed


def load_pretrained(
    source: str | Path | Mapping[str, Tensor],
    *,
    num_classes: int | None = None,
    image_size: int | tuple[int, int] | None = None,
    channels: int | None = None,
    resize: str | None = None,
    num_heads: int | None = None,
    mirrors: Sequence[str] = (),
    progress: bool = True,
) -> Pretrained:
    """A Vision Transformer of the shape that the weights have, with the weights. On the CPU, in torch's default dtype.

    source: a file (.npz, .safetensors, .pth, .pt, .bin) of Google's, big_vision's, timm's, DeiT's, torchvision's or
        Hugging Face's; a checkpoint of ours (.json, or the folder of a training, whose best weights are taken); a name
        as "timm:vit_tiny_patch16_224.augreg_in21k_ft_in1k", a key of `vitbook.pretrained.published.PUBLISHED`, which is
        downloaded, or "vitbook:NAME", which comes with the package; or a dictionary of tensors.
    num_classes: another number than the weights' makes a new head, all zeros; 0 makes none: the model gives features.
    image_size: in pixels; for another than the weights', the positions are interpolated.
    resize: how, a key of `KERNELS`; that of the weights' own source if not given. The notes name it.
    channels: 1 or 3; for the other than the weights', the kernels of the three colours are added up, or shared out.
    num_heads: for layouts that do not tell it. Where it is not given, a head is taken to be 64 wide, and 80 of 1,280.
    mirrors: addresses of folders to be tried before the known ones; progress: whether to show a bar. For downloads.

    Differs: Hugging Face's files may want another epsilon in LayerNorm, which they do not tell; ours is 1e-6.

    Raises ValueError, with tensor, expected and got, for weights that do not fit and files that are damaged;
    FileNotFoundError and other OSErrors for files, ConnectionError for downloads, which says what to put where.
    """
    with naming(source):
        checkpoint = open_source(source, mirrors, progress)
    translation = checkpoint.translation
    config = checkpoint.config or shape_of(translation, num_heads, image_size)
    if num_heads not in (None, config.num_heads):
        raise ValueError(f"num_heads: the weights have {config.num_heads}, got {num_heads}")
    if num_classes is not None:
        check_sizes(0, num_classes=num_classes)
    keeps_head = num_classes in (None, config.num_classes)
    if translation.dropped and keeps_head and config.num_classes:
        hidden = translation.dropped[0]
        raise ValueError(
            f"{hidden}: before this head comes a hidden layer, which our model has not: ask for another num_classes"
        )
    if resize is not None:
        check_kind(str, resize=resize)
    kernel = resize or {"big_vision": "google", "vitbook": "timm"}.get(checkpoint.style, checkpoint.style)
    if kernel not in KERNELS:
        raise ValueError(unknown("kernel", kernel, KERNELS))

    with naming(source):
        check_room(config, translation.tensors)
        model = (DistilledVisionTransformer if DIST in translation.tensors else VisionTransformer)(config)
        fill(model, translation)
    notes = [*checkpoint.notes, *(f"dropped {name}" for name in translation.dropped)]
    known = isinstance(source, str) and source in PUBLISHED
    if not (known or checkpoint.config or num_heads or translation.num_heads):
        c = model.config
        notes.append(f"num_heads: {c.num_heads}, if a head is {c.dim // c.num_heads} wide: the weights do not tell")
    notes += change(model, num_classes, image_size, channels, kernel)

    pictures = STYLES[checkpoint.style] | checkpoint.pictures
    for name in ("mean", "std"):
        if len(pictures[name]) != model.config.channels:
            pictures[name] = (sum(pictures[name]) / len(pictures[name]),) * model.config.channels
    names = checkpoint.class_names if keeps_head and len(checkpoint.class_names) == config.num_classes else None
    preprocessing = Preprocessing(image_size=model.config.image_size, **pictures)
    return Pretrained(model.eval(), preprocessing, names or None, translation.layout, tuple(notes))


def load_weights(model: VisionTransformer, state: Mapping[str, Tensor]) -> None:
    """Put weights in any layout into a model of their shape, in place; on any error it stays as it was.

    Raises ValueError, with tensor, expected and got, for weights that do not fit.
    """
    state, _ = tensors_in(state)
    own = state.keys() == model.state_dict().keys()
    translation = ours(state) if own else translate(state)
    if translation.num_heads not in (None, model.config.num_heads):
        raise ValueError(f"num_heads: expected {model.config.num_heads}, got {translation.num_heads}")
    if translation.dropped and model.config.num_classes:
        raise ValueError(f"left over, a hidden layer before the head: {listed(list(translation.dropped))}")
    fill(model, translation)


def to_timm(model: VisionTransformer) -> dict[str, Tensor]:
    """The weights as timm names them: its `load_state_dict` takes them. Raises ValueError for what timm has not."""
    return written(model, TIMM)


def to_huggingface(model: VisionTransformer) -> dict[str, Tensor]:
    """The weights as Hugging Face's files name them, for a model.safetensors beside `huggingface_config` as JSON."""
    return written(model, HUGGING_FACE.renamed("hf", DISTILLED) if hasattr(model, "head_dist") else HUGGING_FACE)


def huggingface_config(model: VisionTransformer) -> dict[str, Any]:
    """What Hugging Face's config.json has to say of this model."""
    c = model.config
    family, kind = ("deit", "DeiTForImageClassificationWithTeacher"), ("vit", "ViTForImageClassification")
    model_type, architecture = family if hasattr(model, "head_dist") else kind
    sizes = dict(hidden_size=c.dim, num_hidden_layers=c.depth, num_attention_heads=c.num_heads)
    pictures = dict(image_size=list(c.image_size), patch_size=c.patch_size, num_channels=c.channels)
    labels = {"id2label": {str(k): f"LABEL_{k}" for k in range(c.num_classes)}}
    norm = dict(hidden_act="gelu", layer_norm_eps=LAYER_NORM_EPS, intermediate_size=c.mlp_dim, qkv_bias=c.qkv_bias)
    return {"model_type": model_type, "architectures": [architecture]} | sizes | pictures | norm | labels


def written(model: VisionTransformer, layout: Layout) -> dict[str, Tensor]:
    """The weights in a layout whose axes are ours."""
    if model.config.pool != "class" or not isinstance(model.embedding.positions, LearnedPositions):
        c = model.config
        raise ValueError(f"{layout.name} has pool 'class' and positions 'learned', got {c.pool!r} and {c.positions!r}")
    state, written = model.state_dict(), {}
    for row in layout.rows(model.config.depth):
        if row.ours in state:
            written |= row.write(state.pop(row.ours))
    if state:
        raise ValueError(f"{layout.name} has no place for {listed(list(state))}")
    return written


# From a source to tensors in our names


@dataclass(frozen=True)
class Checkpoint:
    """What a source holds, and what it tells besides."""

    translation: Translation
    style: str  # a key of STYLES
    config: ViTConfig | None = None  # of our own checkpoints
    pictures: dict[str, Any] = field(default_factory=dict)  # what is otherwise than in the style
    class_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@contextmanager
def naming(source: str | Path | Mapping[str, Tensor]) -> Iterator[None]:
    """Name the file or the published weights in a ValueError that does not."""
    try:
        yield
    except ValueError as error:
        if isinstance(source, Mapping) or str(source) in str(error):
            raise
        raise ValueError(f"{source}: {error}") from None


def open_source(source: str | Path | Mapping[str, Tensor], mirrors: Sequence[str], progress: bool) -> Checkpoint:
    """What `load_pretrained` is to load. The errors are its own."""
    entry, facts = None, {}
    if not isinstance(source, str | Path):
        content: Mapping = source
    elif entry := published(str(source)):
        content, facts = read_file(entry.fetch(mirrors, progress))
    else:
        path = asset(str(source)) or Path(source).expanduser()
        content, facts = read_file(path)
        entry = next((known for known in PUBLISHED.values() if known.path == path.name), None)
    state, nested = tensors_in(content)
    if facts:
        config, pictures, names = our_facts(facts, source)
        return Checkpoint(ours(state), "vitbook", config, pictures, names)
    translation = translate(state)
    if entry:
        pictures = {} if entry.crop is None else dict(crop=entry.crop)
        return Checkpoint(translation, entry.family, None, pictures, imagenet_classes())
    deit = translation.layout in ("timm", "hf") and (nested or DIST in translation.tensors)
    style = "deit" if deit else translation.layout
    note = f"mean, std, crop and interpolation are assumed to be those of {style}: the weights do not tell"
    return Checkpoint(translation, style, notes=(note,))


def asset(source: str) -> Path | None:
    """The file of "vitbook:NAME", None for other sources. Raises ValueError, with the nearest, for an unknown name."""
    family, _, name = source.partition(":")
    if family != "vitbook":
        return None
    known = sorted(path.stem for path in (ASSETS / "weights").glob("*.json"))
    if name not in known:
        raise ValueError(unknown("weights", source, [f"vitbook:{name}" for name in known]))
    return ASSETS / "weights" / f"{name}.json"


def ours(state: Mapping[str, Tensor]) -> Translation:
    """A checkpoint that is in our names already."""
    return Translation("vitbook", dict(state), {name: name for name in state}, None, ())


def our_facts(facts: dict, source: str | Path) -> tuple[ViTConfig, dict[str, Any], tuple[str, ...]]:
    """Shape, preprocessing and class names of a checkpoint of ours. Raises ValueError where it does not tell them."""
    try:
        pictures = {name: tuple(map(float, facts[name])) for name in ("mean", "std")}
        config, class_names = from_json(ViTConfig, facts["model"]), tuple(map(str, facts["class_names"]))
        if not len(pictures["mean"]) == len(pictures["std"]) == config.channels:
            raise ValueError(f"mean and std of {config.channels} channels")
        if not all(abs(m) < math.inf and 0 < s < math.inf for m, s in zip(*pictures.values(), strict=True)):
            raise ValueError(f"mean and std must be finite, std above 0, got {pictures}")
        if len(class_names) != config.num_classes:
            raise ValueError(f"{config.num_classes} classes and {len(class_names)} names")
        return config, pictures, class_names
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{source} does not tell its model, mean, std and class_names: {error!r}") from None


# From tensors to a model


def shape_of(weights: Translation, num_heads: int | None, image_size: int | tuple[int, int] | None) -> ViTConfig:
    """The shape that a model must have for these weights, by their own shapes.

    image_size: tells the grid of the patches where they make no square. Raises ValueError where the shapes make no
    sense, and where neither they nor the arguments tell.
    """

    def axes(name: str, number: int) -> tuple[int, ...]:
        shape = tuple(weights.tensors[name].shape)
        if len(shape) != number:
            raise ValueError(f"{weights.origin[name]}: expected {number} axes, got shape {shape}")
        return shape

    dim, channels, patch_size, width = axes(PATCHES, 4)
    if patch_size != width:
        raise ValueError(f"{weights.origin[PATCHES]}: expected square patches, got {patch_size}×{width}")
    if num_heads is None and weights.num_heads is None:
        head_dim = HEAD_DIM.get(dim, 64)
        if weights.layout == "vitbook" or dim % head_dim:
            wide = "" if weights.layout == "vitbook" else f", and heads {head_dim} wide do not fit"
            raise ValueError(f"these weights, {dim} wide, do not tell num_heads{wide}: name it with num_heads=")
        num_heads = dim // head_dim

    positions = axes(POSITIONS, 3)[1]
    prefix = (CLASS in weights.tensors) + (DIST in weights.tensors)
    if weights.layout == "big_vision" and math.isqrt(positions) ** 2 == positions:
        prefix = 0  # the class token has no position
    side = math.isqrt(max(positions - prefix, 0))
    rows, columns = side, side
    if side**2 != positions - prefix and isinstance(image_size, tuple) and len(image_size) == 2:
        rows, columns = grid_size(image_size, patch_size)
    if not rows or rows * columns != positions - prefix:
        raise ValueError(
            f"{weights.origin[POSITIONS]}: expected {prefix} position(s) and those of a square of patches, "
            f"got {positions}: for another grid name its image_size="
        )
    return ViTConfig(
        image_size=(rows * patch_size, columns * patch_size),
        patch_size=patch_size,
        channels=channels,
        num_classes=axes("head.weight", 2)[0] if "head.weight" in weights.tensors else 0,
        dim=dim,
        depth=sum(name.endswith("norm1.weight") for name in weights.tensors),
        num_heads=weights.num_heads or num_heads,
        mlp_dim=axes("encoder.blocks.0.mlp.fc1.weight", 2)[0],
        pool="class" if CLASS in weights.tensors else "mean",
        class_token=CLASS in weights.tensors,
        qkv_bias=any(name.endswith("qkv.bias") for name in weights.tensors),
    )


def check_room(config: ViTConfig, tensors: Mapping[str, Tensor]) -> None:
    """Raise ValueError for a model that is far larger than these weights, before it takes any memory."""
    held = sum(tensor.numel() for tensor in tensors.values())
    try:
        if config.depth > len(tensors):
            raise ValueError(f"{config.depth} blocks and {len(tensors)} tensors")
        with torch.device("meta"):
            model = VisionTransformer(config)
        needed = sum(tensor.numel() for tensor in (*model.parameters(), *model.buffers()))
        if needed > 2 * held + ROOM:
            raise ValueError(f"a model of {needed:,} numbers and weights of {held:,}")
    except (RuntimeError, OverflowError, TypeError, ValueError) as error:
        raise ValueError(f"the shape is not that of the weights: {error}") from None


@torch.no_grad()
def fill(model: VisionTransformer, weights: Translation) -> None:
    """Put every tensor in its place, or raise ValueError with all that is wrong and leave the model as it was."""
    places, tensors = model.state_dict(), dict(weights.tensors)
    if weights.layout == "big_vision" and CLASS in tensors and POSITIONS in places:
        if tensors[POSITIONS].shape[1:2] == (places[POSITIONS].shape[1] - 1,):
            tensors[POSITIONS] = F.pad(tensors[POSITIONS], (0, 0, 1, 0))  # the class token has no position
    wrong = [f"missing {name}" for name in places if name not in tensors]
    wrong += [f"left over {weights.origin[name]}" for name in tensors if name not in places]
    for name in places.keys() & tensors.keys():
        tensor, expected = tensors[name], tuple(places[name].shape)
        if tuple(tensor.shape) != expected:
            wrong.append(f"{weights.origin[name]}: expected shape {expected}, got {tuple(tensor.shape)}")
        elif tensor.is_floating_point() != places[name].is_floating_point():
            kind = "floating-point numbers" if places[name].is_floating_point() else "whole numbers"
            wrong.append(f"{weights.origin[name]}: expected {kind}, got {tensor.dtype}")
        else:
            tensors[name] = tensor.to(places[name])
            if not tensors[name].isfinite().all():
                wrong.append(f"{weights.origin[name]}: expected finite numbers, got NaN or infinity")
    if wrong:
        found = listed(sorted(wrong), most=6, between="; ")
        raise ValueError(f"these weights, in the layout {weights.layout}, do not fit the model: {found}")
    for name, place in places.items():
        place.copy_(tensors[name])


@torch.no_grad()
def change(
    model: VisionTransformer,
    num_classes: int | None,
    image_size: int | tuple[int, int] | None,
    channels: int | None,
    kernel: str,
) -> list[str]:
    """Give a model another head, image size and number of channels, in place. Returns what was done, in words.

    kernel: how positions are interpolated, a key of `KERNELS`.
    """
    before, notes = model.config, []
    asked = dict(num_classes=num_classes, image_size=image_size, channels=channels)
    config = replace(before, **{name: value for name, value in asked.items() if value is not None})
    if config.num_classes != before.num_classes:
        for name in [name for name in ("head", "head_dist") if hasattr(model, name)]:
            head = nn.Linear(config.dim, config.num_classes) if config.num_classes else nn.Identity()
            for parameter in head.parameters():
                nn.init.zeros_(parameter)
            setattr(model, name, head)
            notes.append(f"{name}: {before.num_classes} classes dropped, {config.num_classes} made new, all zeros")
    if config.channels != before.channels:
        if {config.channels, before.channels} != {1, 3}:
            raise ValueError(f"channels: the weights have {before.channels}, which can become 1 or 3, got {channels}")
        projection = next(m for m in model.embedding.patch_embed.modules() if isinstance(m, nn.Conv2d))
        weight = projection.weight.sum(dim=1, keepdim=True).expand(-1, config.channels, -1, -1) / config.channels
        projection.weight, projection.in_channels = nn.Parameter(weight.contiguous()), config.channels
        notes.append(f"patch_embed: kernels of {before.channels} channels made into {config.channels}")
    if config.image_size != before.image_size:
        positions, how = model.embedding.positions, ""
        if isinstance(positions, LearnedPositions):
            grid, rule = grid_size(config.image_size, config.patch_size), KERNELS[kernel]
            table = resize_positions(positions.pos_embed, positions.grid, grid, positions.num_prefix_tokens, **rule)
            how = f", as {kernel} does it: {', '.join([rule['mode'], *(name for name in rule if rule[name] is True)])}"
        model.resize(config.image_size)
        if isinstance(positions, LearnedPositions):
            positions.pos_embed = nn.Parameter(table)
        notes.append(f"positions: {before.image_size} pixels resized to {config.image_size}{how}")
    model.config = config
    return notes

"""A name, a file or a dictionary → a model with these weights: every tensor used once, every shape checked."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitbook._common.files import ASSETS
from vitbook._common.json_config import from_json
from vitbook._common.meta_device import shapes_alone, unfilled
from vitbook._common.suggestions import listed, unknown
from vitbook._common.validation import is_whole
from vitbook.distillation import DistilledVisionTransformer
from vitbook.finetuning import merged
from vitbook.modern import ModernConfig, ModernViT
from vitbook.patches import grid_size
from vitbook.pretrained.adapting import adapt
from vitbook.pretrained.config_files import OtherModel, Stated, read_stated
from vitbook.pretrained.hub import fetch_from_hub
from vitbook.pretrained.layouts import CLASS, DISTILLATION, GAMMA, PATCHES, POSITIONS, REGISTERS, VITBOOK, Layout
from vitbook.pretrained.preprocessing import STYLES, Preprocessing
from vitbook.pretrained.published import FAMILIES, PUBLISHED, Published, imagenet_classes
from vitbook.pretrained.translating import NOT_THE_MODEL, Translation, translate
from vitbook.pretrained.weight_files import IN_FOLDERS, Mapped, read_file, tensors_in
from vitbook.vit import VisionTransformer, ViTConfig

_ANY_SIZE = 224  # of images, in pixels, where the weights fit every size
# whose interpolation a style takes, if not its own
_KERNEL_OF = {"big_vision": "google", "vitbook": "timm", "dinov2": "hf", "dinov3": "timm", "deit3": "deit"}
_KERNEL_OF |= {"clip": "hf", "siglip": "hf"}
NOT_STATED, _HIDDEN = "the weights do not tell", "before this head comes a hidden layer, which our model lacks"
# Notes of what changes no answer: buffers, what only training needs, a head that nobody asked for, the text's half
HARMLESS = re.compile(
    r"dropped \S*(mask_token|position_ids|periods|pooler\.dense\.(weight|bias))|its SHA-256 is not published.*|"
    r"head(_dist)?: \d+ classes dropped, 0 made new.*|"
    r"dropped what is not the image tower's: \S*(text_model|text_projection|transformer|token_embedding|logit_)\S*.*|"
    rf"dropped what is not the image tower's: ({NOT_THE_MODEL.pattern})( and .*|, .*)?"
)
_SPARE = 10**7  # numbers that a model may hold beyond twice those of its weights, such as computed positions


@dataclass(frozen=True)
class OpenedWeights:
    """What a source of weights holds, read once: `load_pretrained` makes a model of it."""

    source: str  # its name, for messages; "" for a dictionary
    content: Mapping
    facts: dict[str, Any]  # beside the tensors in a checkpoint of ours; empty for all else
    published: Published | None = None
    stated: Stated = Stated()  # by files beside it
    theirs: bool = True  # whether these speak of this file for sure, whose name is then one that the library gives
    part: str = ""  # which of several models in it: what follows # in its name
    once: bool = False  # whether one model alone is made of it, which may keep its memory


@dataclass(frozen=True)
class Pretrained:
    """A model with somebody's weights, in evaluation mode, and what one has to know to use it."""

    model: VisionTransformer
    preprocessing: Preprocessing
    class_names: tuple[str, ...] | None  # of the head's classes, where they are known
    layout: str  # the library whose names the weights had
    notes: tuple[str, ...]  # what was dropped, created or assumed
    names: Layout = field(default=VITBOOK, repr=False)  # of the tensors in the source, for `to_source`
    facts: Mapping[str, Any] = field(default_factory=dict, repr=False)  # what a checkpoint of ours states
    task: str = "classes"  # what the head answers, one of `vitbook.targets.TASKS`


def load_pretrained(
    source: str | Path | Mapping[str, Tensor] | OpenedWeights,
    *,
    num_classes: int | None = None,
    image_size: int | tuple[int, int] | None = None,
    channels: int | None = None,
    resize: str | None = None,
    num_heads: int | None = None,
    activation: str | None = None,
    mirrors: Sequence[str] = (),
    progress: bool = True,
) -> Pretrained:
    """A Vision Transformer of the shape that the weights have, with the weights. On the CPU, in torch's default dtype.

    source: a file (.npz, .safetensors, or what torch.save writes, under any suffix) in the names of Google, big_vision,
        timm, torchvision, Hugging Face, or the authors of DeiT, DeiT-III, DINOv2, DINOv3, CLIP and SigLIP, of which the
        image towers are read; a folder of `save_pretrained`, timm's `save_for_hf` or OpenCLIP, or a file in one, where
        what config.json and preprocessor_config.json state is taken if it fits the file; a checkpoint of ours (.json,
        or the folder of a training run, for its best weights); a key of `published.PUBLISHED`, as
        "timm:vit_tiny_patch16_224.augreg_in21k_ft_in1k", which is downloaded; any other model of the Hugging Face Hub,
        as in `fetch_from_hub`, "hf:facebook/dinov2-small"; "vitbook:NAME", which comes with the package; a dictionary
        of tensors; or what `open_weights` has opened already. #NAME behind a file's name says which of several models
        in it, as dino.pth#teacher.
    num_classes: another number than the weights' makes a new head, all zeros; 0 makes none: the model gives features.
    image_size: in pixels; for another than the weights', the positions are interpolated.
    resize: how, a key of `KERNELS`; by default that of the weights' own source. The notes name it.
    channels: another number than the weights'. Gray gets the kernels of the colors added up, and colors get shares of
        those of gray; further channels begin with kernels of zeros. What the weights say of the same content stays.
    num_heads: for weights that do not tell. By default heads are as wide as in the family's models, 64 in most.
    activation: of the MLPs, a key of `vitbook.modern.ACTIVATIONS`, where it is not that of the family's first models:
        "gelu" for CLIP as LAION mostly trained it, "gelu_tanh" for Google's to the last digit.
    mirrors: addresses of folders to try before the known ones; progress: whether to show a bar. For downloads.

    Differs: without its config.json, a file of Hugging Face's may want another epsilon in LayerNorm than ours, 1e-6.

    Raises ValueError, with tensor, expected and got, for weights that do not fit and files that are damaged;
    FileNotFoundError and other OSErrors for files; ConnectionError, with what to put where, for downloads.
    """
    opened = source
    if not isinstance(opened, OpenedWeights):
        opened = replace(open_weights(opened, mirrors, progress), once=isinstance(source, str | Path))
    facts, entry, stated = opened.facts, opened.published, opened.stated
    with _errors_that_name(opened.source):
        tensors, nest, notes = tensors_in(opened.content, opened.part)
        asked: Any = (image_size, image_size) if is_whole(image_size) else image_size
        told = _read_facts(facts) if facts else None  # a checkpoint of ours states everything
        if told:
            weights, config = _ours(tensors), told[0]
        else:
            weights, config, stated = _shaped(tensors, num_heads, asked, stated, opened.theirs)
        style = entry.family if entry else _style(weights, nest)
        if told:
            _, preprocessing, class_names = told
        else:
            seen = {"image_size": config.sides} | STYLES[style] | ({"scale_first": False} if stated.seen else {})
            preprocessing = Preprocessing(**seen | stated.seen)
            class_names = stated.class_names or (imagenet_classes() if entry else ())
        if activation:
            settings: dict[str, Any] = vars(config) | {"activation": activation}
            config = ModernConfig(**settings)
        if num_heads not in (None, config.num_heads):
            raise ValueError(f"num_heads: the weights have {config.num_heads}, got {num_heads}")
        keeps_head = num_classes in (None, config.num_classes)
        hidden = _hidden_layer(weights)
        if hidden and keeps_head and config.num_classes:
            raise ValueError(f"{hidden[0]}: {_HIDDEN}: ask load_pretrained for another num_classes")
        if isinstance(opened.content, Mapped):  # what was laid together from several tensors is not read again
            opened.content.forget()
        model = _build(config, weights, opened.once)

    notes += [*stated.notes, *(f"dropped {name}" for name in weights.dropped)]
    if weights.beside:
        notes.append(f"dropped what is not the image tower's: {listed(weights.beside)}")
    if not (facts or entry):
        notes = _assumed(weights, config, preprocessing, style, stated, asked, num_heads, activation) + notes
    if entry and not entry.sha256:
        notes.append("its SHA-256 is not published: what came first is trusted, and nothing else from then on")
    if stated.any_size and image_size is None:  # as the library's own pipeline does it
        image_size = preprocessing.image_size
    elif preprocessing.image_size != config.sides and image_size is None:
        notes.append(f"images: {config.sides} pixels, as the positions are; stated are {preprocessing.image_size}")
    antialiased = style == "dinov2" and REGISTERS in weights.tensors  # in its second edition
    theirs = "timm" if antialiased else weights.layout.kernel or _KERNEL_OF.get(style, style)
    kernel = resize or stated.kernel or theirs
    notes += adapt(model, kernel, num_classes=num_classes, image_size=image_size, channels=channels)
    if entry and entry.crop:
        preprocessing = replace(preprocessing, crop=entry.crop)
    preprocessing = preprocessing.adapted(model.config.sides, model.config.channels)
    known = class_names if keeps_head and len(class_names) == config.num_classes else None
    if class_names and keeps_head and known is None and config.num_classes and not entry:
        notes.append(f"class names: {len(class_names)} are stated for {config.num_classes} classes, and not taken")
    task = facts.get("task", stated.task) if keeps_head else "classes"
    if task == "classes" and model.config.num_classes == 1:  # of one, a softmax would always say 100 %
        task = "labels"
    return Pretrained(model.eval(), preprocessing, known, weights.family, tuple(notes), weights.layout, facts, task)


def load_weights(model: VisionTransformer, state: Mapping[str, Tensor]) -> None:
    """Put weights in any layout into a model of their shape, in place; on any error it stays as it was.

    Raises ValueError, with tensor, expected and got, for weights that do not fit.
    """
    state, *_ = tensors_in(state)
    ours = state.keys() == model.state_dict().keys()
    weights = _ours(state) if ours else translate(state, model.config.sides)
    if weights.num_heads not in (None, model.config.num_heads):
        raise ValueError(f"num_heads: expected {model.config.num_heads}, got {weights.num_heads}")
    if (hidden := _hidden_layer(weights)) and model.config.num_classes:
        raise ValueError(f"unexpected {listed(hidden)}: {_HIDDEN}")
    _fill(model, weights)


# From a source to tensors, and what is known about them


def open_weights(
    source: str | Path | Mapping[str, Tensor], mirrors: Sequence[str] = (), progress: bool = True
) -> OpenedWeights:
    """What a source holds, for `load_pretrained`, whose arguments and errors these are."""
    if not isinstance(source, str | Path):
        return OpenedWeights("", source, {})
    name, family = str(source), str(source).partition(":")[0]
    ours = {f"vitbook:{path.stem}": path for path in sorted((ASSETS / "weights").glob("*.json"))}
    known = [*PUBLISHED, *ours]
    if family == "hf" and name not in known:
        model, at, part = name.removeprefix("hf:").partition("#")
        with _errors_that_name(name):
            return replace(open_weights(f"{fetch_from_hub(model, progress)}{at}{part}"), source=name)
    if family in (*FAMILIES, "vitbook") and name not in known:
        raise ValueError(unknown("weights", name, [key for key in known if key.startswith(f"{family}:")]))
    if f"vitbook:{name}" in ours and not Path(name).exists():
        raise ValueError(f"unknown weights {name!r}, did you mean 'vitbook:{name}'?")
    with _errors_that_name(name):
        if (entry := PUBLISHED.get(name)) is not None:
            return OpenedWeights(name, *read_file(entry.fetch(mirrors, progress), bool(entry.sha256)), entry)
        path, part = Path(ours.get(name, name)).expanduser(), ""
        if "#" in path.name and not path.exists():
            path, part = path.with_name(path.name.partition("#")[0]), path.name.partition("#")[2]
        entry = next((entry for entry in PUBLISHED.values() if entry.path == path.name), None)
        theirs = path.is_dir() or path.name in IN_FOLDERS or path.name.endswith(".index.json")
        content, facts = read_file(path)
        if theirs:
            stated = read_stated(path if path.is_dir() else path.parent)
        else:
            stated = Stated() if entry or facts else _stated_beside(path)  # which may be another model's
        return OpenedWeights(name, content, facts, entry, stated, theirs, part)


def _stated_beside(path: Path) -> Stated:
    """What the folder of a file of any name states, or a note of why that cannot be read."""
    try:
        stated = read_stated(path.parent)
    except OtherModel:
        return Stated(notes=("not read: the configuration beside it, which is of no model that is known here",))
    except (ValueError, OSError) as error:
        return Stated(notes=(f"not read: {error}",))
    said = (f"read beside it: {stated.source}",) if stated.source else ()
    return replace(stated, notes=(*stated.notes, *said))


@contextmanager
def _errors_that_name(source: str) -> Iterator[None]:
    """Name the source in a ValueError that does not."""
    try:
        yield
    except ValueError as error:
        if source in str(error):
            raise
        raise ValueError(f"{source}: {error}") from None


def _read_facts(facts: dict) -> tuple[ViTConfig, Preprocessing, tuple[str, ...]]:
    """Shape, preprocessing and class names, as a checkpoint of ours states them."""
    if isinstance(facts.get("model"), dict) and "widths" in facts["model"]:
        raise ValueError("expected a Vision Transformer, got a convolutional network")
    try:
        if facts.get("task") == "masks":  # the head beside the backbone is no classifier
            facts = facts | {"model": facts["model"] | {"num_classes": 0}, "class_names": []}
        kind = ModernConfig if "registers" in facts["model"] else ViTConfig
        config, class_names = from_json(kind, facts["model"]), tuple(map(str, facts["class_names"]))
        moments = {name: tuple(map(float, facts[name])) for name in ("mean", "std")}
        if (len(moments["mean"]), len(class_names)) != (config.channels, config.num_classes):
            raise ValueError(f"expected {config.channels} channels and {config.num_classes} names")
        return config, Preprocessing(image_size=config.sides, **STYLES["vitbook"] | moments), class_names
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"the checkpoint does not tell its model, mean, std and class_names: {type(error).__name__} {error}"
        ) from None


def _style(weights: Translation, nest: str) -> str:
    """Whose preprocessing to assume. DeiT's files have timm's names, and keep their tensors under "model".

    Of SigLIP 2, only files of variable resolution are told apart from SigLIP's.
    """
    if weights.layout.kernel == "siglip2":
        return "siglip2"
    name, distilled = weights.family, DISTILLATION in weights.tensors
    deit = (name == "timm" and nest == "model") or (name in ("timm", "hf") and distilled)
    return "deit" if deit else name


def _assumed(
    weights: Translation,
    config: ViTConfig,
    preprocessing: Preprocessing,
    style: str,
    stated: Stated,
    asked: tuple[int, int] | None,
    num_heads: int | None,
    activation: str | None,
) -> list[str]:
    """What was assumed of weights, in words: what neither they state nor the files beside them."""
    notes, c = [], ModernConfig(**vars(config))
    if not stated.seen:
        notes.append(f"mean, std, crop and interpolation are assumed to be those of {style}")
        if style == "siglip":
            notes.append(f"interpolation: {preprocessing.interpolation}; SigLIP 2's is bilinear")
    if not (num_heads or weights.num_heads or "num_heads" in stated.model):
        notes.append(f"num_heads: {c.num_heads}, if a head is {c.dim // c.num_heads} wide")
    rows, columns = (side // c.patch_size for side in c.sides)
    others = any(rows * columns % side == 0 for side in range(2, rows))  # grids of as many patches
    settled = weights.layout.kernel == "siglip2" or POSITIONS not in weights.tensors or "image_size" in stated.model
    settled = settled or weights.layout.name == "torchvision"  # whose class takes one number
    if rows == columns and others and not settled and asked != c.sides:
        notes.append(f"image_size: {c.sides}, if the patches fill a square")
    if stated.model:
        return [f"{note}: {NOT_STATED}" for note in notes]
    if weights.layout.name == "clip" and not activation:
        notes.append(f"activation: {c.activation}; OpenAI's have quick_gelu, most of LAION's gelu")
    elif weights.layout.name == "siglip" and weights.layout.kernel == "timm" and not activation:
        notes.append(f"activation: {c.activation}; of timm's SigLIP, some have gelu and some gelu_tanh")
    elif c.swiglu and weights.layout.name == "timm":
        notes.append("activation: silu, as in DINOv2; that of the gates is gelu in timm unless it was told")
    elif weights.layout.name in ("timm", "deit3", "hf", "clip", "vitbook") and not activation:
        notes.append(f"activation: {c.activation}")
    if weights.family in ("timm", "deit3", "dinov3") or c.embedding_norm and weights.layout.tower in ("", "visual."):
        how = "the class token's" if c.pool == "class" else "the mean of the patches"
        notes.append(f"pooling: {how}, and norms before each branch, as in most models of these names")
    if "gamma_1" in weights.origin.get(GAMMA, "") and weights.layout.name == "deit3":
        notes.append("positions: those in the file alone, as in DeiT-III; RoPE-ViT with absolute positions turns, too")
    return [f"{note}: {NOT_STATED}" for note in notes]


def _hidden_layer(weights: Translation) -> list[str]:
    """What was dropped that stood before a head."""
    return [name for name in weights.dropped if "pre_logits" in name or "pooler" in name]


def _ours(state: Mapping[str, Tensor]) -> Translation:
    """Weights that have our names already, LoRA merged in; of a pretrained model around a backbone, the backbone's."""
    plain = merged(state)
    inside = [name for name in plain if name.startswith("backbone.")] or list(plain)
    origin = {name.removeprefix("backbone."): name for name in inside}
    tensors = {name: plain[theirs] for name, theirs in origin.items()}
    return Translation(VITBOOK, "vitbook", tensors, origin, beside=tuple(name for name in plain if name not in inside))


# From tensors to a model


class _DistilledModernViT(DistilledVisionTransformer, ModernViT):
    """DeiT with another activation or epsilon than ours: blocks of the one, tokens and heads of the other."""


def _shaped(
    tensors: dict[str, Tensor], num_heads: int | None, asked: tuple[int, int] | None, stated: Stated, theirs: bool
) -> tuple[Translation, ViTConfig, Stated]:
    """Weights in our names, the shape of their model, and what is stated of them.

    theirs: whether it is stated of them for sure; else a note is all that is left of what does not fit.
    """
    try:
        weights = translate(tensors, stated.model.get("image_size", asked))
        return weights, _config(weights, num_heads, asked, stated), stated
    except ValueError as error:
        if theirs or not stated.model:
            raise
        return _shaped(tensors, num_heads, asked, Stated(notes=(f"not read: {error}",)), True)


def _config(
    weights: Translation, num_heads: int | None, image_size: tuple[int, int] | None, stated: Stated
) -> ViTConfig:
    """The shape of the model, from the shapes of the tensors and what is stated.

    The patches are those of the stated size of images, else of image_size, if they are as many as positions, else of a
    square.
    """
    tensors, told = weights.tensors, dict(stated.model)
    sides = told.pop("image_size", image_size)

    def shape(name: str, axes: int) -> tuple[int, ...]:
        if tensors[name].ndim != axes:
            raise ValueError(f"{weights.origin[name]}: expected {axes} axes, got shape {tuple(tensors[name].shape)}")
        return tuple(tensors[name].shape)

    dim, channels, patch_size, width = shape(PATCHES, 4)
    if patch_size != width or not patch_size:
        raise ValueError(f"{weights.origin[PATCHES]}: expected square patches, got {patch_size}×{width}")
    registers = shape(REGISTERS, 3)[1] if REGISTERS in tensors else 0
    prefix = (CLASS in tensors) + (DISTILLATION in tensors) + registers

    def grid_of(size: Any) -> tuple[int, int]:
        return (0, 0) if size is None or any(side % patch_size for side in size) else grid_size(size, patch_size)

    if POSITIONS not in tensors:  # they are angles, which fit any grid
        rows, columns = grid_of(stated.model.get("image_size")) if sides else (0, 0)
        rows, columns = (rows, columns) if rows * columns else (_ANY_SIZE // patch_size,) * 2
    else:
        count = shape(POSITIONS, 3)[1] - prefix
        rows, columns = grid_of(sides)
        if rows * columns != count:
            rows = columns = math.isqrt(max(count, 0))
        if not rows or rows * columns != count:
            expected = f"expected {prefix} position(s) and those of a square of patches, got {count + prefix}"
            raise ValueError(f"{weights.origin[POSITIONS]}: {expected}: for another grid name its image_size=")
    num_heads, head_dim = weights.num_heads or num_heads or told.get("num_heads"), weights.layout.head_dim.get(dim, 64)
    if not num_heads and (weights.layout.name == "vitbook" or dim % head_dim):
        raise ValueError(f"these weights, {dim} wide, do not tell num_heads: name it with num_heads=")
    hidden = shape("encoder.blocks.0.mlp.fc1.weight", 2)[0]
    swiglu = hidden == 2 * shape("encoder.blocks.0.mlp.fc2.weight", 2)[1]  # gates and what they let through
    shapes: dict[str, Any] = dict(
        image_size=(rows * patch_size, columns * patch_size),
        patch_size=patch_size,
        channels=channels,
        num_classes=shape("head.weight", 2)[0] if "head.weight" in tensors else 0,
        dim=dim,
        depth=sum(name.endswith("norm1.weight") for name in tensors),
        num_heads=num_heads or dim // head_dim,
        mlp_dim=hidden // 2 if swiglu else hidden,
        pool="class" if CLASS in tensors and "fc_norm.weight" not in tensors else "mean",  # timm's default with fc_norm
        class_token=CLASS in tensors,
        qkv_bias="encoder.blocks.0.attn.qkv.bias" in tensors,
    )
    later = dict(registers=registers, swiglu=swiglu, layer_scale=1.0 if GAMMA in tensors else None)
    later |= dict(attention_pool="pooling.probe" in tensors, fc_norm="fc_norm.weight" in tensors)
    later |= dict(class_and_mean="head.weight" in tensors and shape("head.weight", 2)[1] == 2 * dim)
    shapes |= {name: value for name, value in later.items() if value} | weights.layout.settings
    if weights.layout.kernel == "timm" and (patch_size == 14 or (patch_size == 16 and dim < 1152)):
        shapes["activation"] = "gelu"  # of timm's SigLIPs, those of patches of 32 and the newest have the tanh form
    heads = {"num_heads": weights.num_heads} if weights.num_heads else {}
    for name, value in (shapes | {"swiglu": swiglu} | heads).items():
        if name in ("dim", "depth", "patch_size", "swiglu", *heads) and told.get(name, value) != value:
            raise ValueError(f"{stated.source}: {name} is {told[name]} there, {value} in the weights")
    plain = {known.name: known.default for known in fields(ModernConfig)}
    shapes |= {name: value for name, value in told.items() if name in shapes or value != plain[name]}
    if shapes["pool"] == "class" and not shapes["class_token"]:
        raise ValueError(f"{stated.source}: the class token is pooled there, and the weights have none")
    plain = {known.name for known in fields(ViTConfig)}
    return (ViTConfig if shapes.keys() <= plain else ModernConfig)(**shapes)


def _build(config: ViTConfig, weights: Translation, keep: bool) -> VisionTransformer:
    """A model of this shape with the weights. One far larger than they are is refused before it takes any memory.

    keep: whether their memory, which may be a file's, becomes the model's.
    """
    tensors = weights.tensors
    modern, distilled = isinstance(config, ModernConfig), DISTILLATION in tensors
    kind: type[Any] = ModernViT if modern else VisionTransformer
    kind = (_DistilledModernViT if modern else DistilledVisionTransformer) if distilled else kind
    try:
        if config.depth > len(tensors):
            raise ValueError(f"{config.depth} blocks and {len(tensors)} tensors")
        # To compute positions without numbers would import torch's compiler, for seconds: they are counted here.
        computed = config.positions == "sincos_2d"
        with shapes_alone():
            outline = kind(replace(config, positions="none") if computed else config)
        needed = sum(tensor.numel() for tensor in (*outline.parameters(), *outline.buffers()))
        needed += computed * math.prod(outline.embedding.grid) * config.dim
        if needed > 2 * (held := sum(tensor.numel() for tensor in tensors.values())) + _SPARE:
            raise ValueError(f"a model of {needed:,} numbers and weights of {held:,}")
    except (RuntimeError, OverflowError, TypeError, ValueError) as error:
        raise ValueError(f"the shape is not that of the weights: {error}") from None
    with unfilled():
        model = kind(config)
    _fill(model, weights, keep)
    return model


@torch.no_grad()
def _fill(model: VisionTransformer, weights: Translation, keep: bool = False) -> None:
    """Put every tensor in its place, or raise ValueError with all that is wrong and leave the model as it was."""
    places, tensors, origin = model.state_dict(), weights.tensors, weights.origin
    wrong = [f"missing {name}" for name in places.keys() - tensors.keys()]
    wrong += [f"unexpected {origin[name]}" for name in tensors.keys() - places.keys()]
    for name in places.keys() & tensors.keys():
        tensor, place = tensors[name], places[name]
        if tensor.shape != place.shape:
            wrong.append(f"{origin[name]}: expected shape {tuple(place.shape)}, got {tuple(tensor.shape)}")
        elif tensor.is_floating_point() != place.is_floating_point():
            wrong.append(f"{origin[name]}: expected {place.dtype}, got {tensor.dtype}")
        elif not all(end.isfinite() for end in tensor.to(place.dtype).aminmax()):
            wrong.append(f"{origin[name]}: expected finite numbers, got NaN or infinity")
    if wrong:
        named = listed(sorted(wrong), most=6, between="; ")
        raise ValueError(f"these weights, in the layout {weights.layout.name}, do not fit the model: {named}")
    if keep:
        kept = {name: tensors[name].to(place.dtype).contiguous() for name, place in places.items()}
        model.load_state_dict(kept, assign=True)
    for name, place in places.items() if not keep else ():
        place.copy_(tensors[name])

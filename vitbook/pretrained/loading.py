"""A name, a file or a dictionary → a model with these weights: every tensor used once, every shape checked."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitbook._common.files import ASSETS
from vitbook._common.json_config import from_json
from vitbook._common.meta_device import shapes_alone
from vitbook._common.suggestions import listed, unknown
from vitbook.distillation import DistilledVisionTransformer
from vitbook.finetuning import merged
from vitbook.modern import ModernConfig, ModernViT
from vitbook.patches import grid_size
from vitbook.pretrained.adapting import adapt
from vitbook.pretrained.hub import fetch_from_hub
from vitbook.pretrained.layouts import CLASS, DISTILLATION, PATCHES, POSITIONS, REGISTERS, VITBOOK, Layout
from vitbook.pretrained.preprocessing import STYLES, Preprocessing
from vitbook.pretrained.published import FAMILIES, PUBLISHED, Published, imagenet_classes
from vitbook.pretrained.translating import Translation, translate
from vitbook.pretrained.weight_files import read_file, tensors_in
from vitbook.vit import VisionTransformer, ViTConfig

_ANY_SIZE = 224  # of images, in pixels, where the weights fit every size
# whose interpolation a style takes, if not its own
_KERNEL_OF = {"big_vision": "google", "vitbook": "timm", "dinov2": "hf", "dinov3": "timm", "deit3": "deit"}
_KERNEL_OF |= {"clip": "hf", "siglip": "hf"}
NOT_STATED, _HIDDEN = "the weights do not tell", "before this head comes a hidden layer, which our model lacks"
_SPARE = 10**7  # numbers that a model may hold beyond twice those of its weights, such as computed positions


@dataclass(frozen=True)
class OpenedWeights:
    """What a source of weights holds, read once: `load_pretrained` makes a model of it."""

    source: str  # its name, for messages; "" for a dictionary
    content: Mapping
    facts: dict[str, Any]  # beside the tensors in a checkpoint of ours; empty for all else
    published: Published | None = None


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

    source: a file (.npz, .safetensors, .pth, .pt, .bin) in the names of Google, big_vision, timm, torchvision, Hugging
        Face, or the authors of DeiT, DeiT-III, DINOv2, DINOv3, CLIP and SigLIP, of which the image towers are read; a
        checkpoint of ours (.json, or the folder of a training run, for its best weights); a key of
        `published.PUBLISHED`, as "timm:vit_tiny_patch16_224.augreg_in21k_ft_in1k", which is downloaded; any other model
        of the Hugging Face Hub, as in `fetch_from_hub`, "hf:facebook/dinov2-small"; "vitbook:NAME", which comes with
        the package; a dictionary of tensors; or what `open_weights` has opened already.
    num_classes: another number than the weights' makes a new head, all zeros; 0 makes none: the model gives features.
    image_size: in pixels; for another than the weights', the positions are interpolated.
    resize: how, a key of `KERNELS`; by default that of the weights' own source. The notes name it.
    channels: another number than the weights'. Gray gets the kernels of the colors added up, and colors get shares of
        those of gray; further channels begin with kernels of zeros. What the weights say of the same content stays.
    num_heads: for layouts that do not show it. By default heads are as wide as in the family's models, 64 in most.
    activation: of the MLPs, a key of `vitbook.modern.ACTIVATIONS`, where it is not that of the family's first models:
        "gelu" for CLIP as LAION mostly trained it, "gelu_tanh" for Google's to the last digit.
    mirrors: addresses of folders to try before the known ones; progress: whether to show a bar. For downloads.

    Differs: Hugging Face's files may want another epsilon in LayerNorm, which they do not state; ours is 1e-6.

    Raises ValueError, with tensor, expected and got, for weights that do not fit and files that are damaged;
    FileNotFoundError and other OSErrors for files; ConnectionError, with what to put where, for downloads.
    """
    opened = source if isinstance(source, OpenedWeights) else open_weights(source, mirrors, progress)
    facts, entry = opened.facts, opened.published
    with _errors_that_name(opened.source):
        tensors, nest = tensors_in(opened.content)
        weights = _ours(tensors) if facts else translate(tensors)
        style = entry.family if entry else _style(weights, nest)
        if facts:  # a checkpoint of ours states everything
            config, preprocessing, class_names = _read_facts(facts)
        else:
            config = _config(weights, num_heads, image_size)
            preprocessing = Preprocessing(image_size=config.sides, **STYLES[style])
            class_names = imagenet_classes() if entry else ()
        if activation:
            settings: dict[str, Any] = vars(config) | {"activation": activation}
            config = ModernConfig(**settings)
        if num_heads not in (None, config.num_heads):
            raise ValueError(f"num_heads: the weights have {config.num_heads}, got {num_heads}")
        keeps_head = num_classes in (None, config.num_classes)
        hidden = _hidden_layer(weights)
        if hidden and keeps_head and config.num_classes:
            raise ValueError(f"{hidden[0]}: {_HIDDEN}: ask for another num_classes")
        model = _build(config, weights)

    notes = [f"dropped {name}" for name in weights.dropped]
    if weights.beside:
        notes.append(f"dropped what is not the image tower's: {listed(weights.beside)}")
    if not (facts or entry):
        notes.insert(0, f"mean, std, crop and interpolation are assumed to be those of {style}: {NOT_STATED}")
        if not (num_heads or weights.num_heads):
            wide = config.dim // config.num_heads
            notes.append(f"num_heads: {config.num_heads}, if a head is {wide} wide: {NOT_STATED}")
        if weights.layout.name == "clip" and not activation:
            assumed = vars(config)["activation"]
            notes += [f"activation: {assumed}; OpenAI's have quick_gelu, most of LAION's gelu: {NOT_STATED}"]
        if style == "siglip":
            notes.append(f"interpolation: {preprocessing.interpolation}; SigLIP 2's is bilinear: {NOT_STATED}")
    antialiased = style == "dinov2" and REGISTERS in weights.tensors  # in its second edition
    kernel = resize or ("timm" if antialiased else weights.layout.kernel or _KERNEL_OF.get(style, style))
    notes += adapt(model, kernel, num_classes=num_classes, image_size=image_size, channels=channels)
    if entry and entry.crop:
        preprocessing = replace(preprocessing, crop=entry.crop)
    preprocessing = preprocessing.adapted(model.config.sides, model.config.channels)
    known = class_names if keeps_head and len(class_names) == config.num_classes else None
    return Pretrained(model.eval(), preprocessing, known, weights.layout.name, tuple(notes), weights.layout, facts)


def load_weights(model: VisionTransformer, state: Mapping[str, Tensor]) -> None:
    """Put weights in any layout into a model of their shape, in place; on any error it stays as it was.

    Raises ValueError, with tensor, expected and got, for weights that do not fit.
    """
    state, _ = tensors_in(state)
    weights = _ours(state) if state.keys() == model.state_dict().keys() else translate(state)
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
            return OpenedWeights(name, *read_file(entry.fetch(mirrors, progress)), entry)
        path = Path(ours.get(name, name)).expanduser()
        entry = next((entry for entry in PUBLISHED.values() if entry.path == path.name), None)
        return OpenedWeights(name, *read_file(path), entry)


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


def _style(weights: Translation, nest: str | None) -> str:
    """Whose preprocessing to assume. DeiT's files have timm's names, and keep their tensors under "model".

    Of SigLIP 2, only files of variable resolution are told apart from SigLIP's.
    """
    if weights.layout.kernel == "siglip2":
        return "siglip2"
    name, distilled = weights.layout.name, DISTILLATION in weights.tensors
    deit = (name == "timm" and nest == "model") or (name in ("timm", "hf") and distilled)
    return "deit" if deit else name


def _hidden_layer(weights: Translation) -> list[str]:
    """What was dropped that stood before a head."""
    return [name for name in weights.dropped if "pre_logits" in name or "pooler" in name]


def _ours(state: Mapping[str, Tensor]) -> Translation:
    """Weights that have our names already, LoRA merged in; of a pretrained model around a backbone, the backbone's."""
    plain = merged(state)
    inside = [name for name in plain if name.startswith("backbone.")] or list(plain)
    origin = {name.removeprefix("backbone."): name for name in inside}
    tensors = {name: plain[theirs] for name, theirs in origin.items()}
    return Translation(VITBOOK, tensors, origin, beside=tuple(name for name in plain if name not in inside))


# From tensors to a model


def _config(weights: Translation, num_heads: int | None, image_size: int | tuple[int, int] | None) -> ViTConfig:
    """The shape of the model, from the shapes of the tensors; image_size gives a grid of patches that is not square."""
    tensors = weights.tensors

    def shape(name: str, axes: int) -> tuple[int, ...]:
        if tensors[name].ndim != axes:
            raise ValueError(f"{weights.origin[name]}: expected {axes} axes, got shape {tuple(tensors[name].shape)}")
        return tuple(tensors[name].shape)

    dim, channels, patch_size, width = shape(PATCHES, 4)
    if patch_size != width or not patch_size:
        raise ValueError(f"{weights.origin[PATCHES]}: expected square patches, got {patch_size}×{width}")
    registers = shape(REGISTERS, 3)[1] if REGISTERS in tensors else 0
    prefix = (CLASS in tensors) + (DISTILLATION in tensors) + registers
    if POSITIONS not in tensors:  # they are angles, which fit any grid
        rows = columns = _ANY_SIZE // patch_size
    else:
        positions = shape(POSITIONS, 3)[1]
        rows = columns = math.isqrt(max(positions - prefix, 0))
        if rows * columns != positions - prefix and isinstance(image_size, tuple):
            rows, columns = grid_size(image_size, patch_size)
        if not rows or rows * columns != positions - prefix:
            expected = f"expected {prefix} position(s) and those of a square of patches, got {positions}"
            raise ValueError(f"{weights.origin[POSITIONS]}: {expected}: for another grid name its image_size=")
    num_heads, head_dim = weights.num_heads or num_heads, weights.layout.head_dim.get(dim, 64)
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
        pool="class" if CLASS in tensors else "mean",
        class_token=CLASS in tensors,
        qkv_bias="encoder.blocks.0.attn.qkv.bias" in tensors,
    )
    scaled = 1.0 if "encoder.blocks.0.attn.proj.gamma" in tensors else None
    later = dict(registers=registers, swiglu=swiglu, layer_scale=scaled, attention_pool="pooling.probe" in tensors)
    shapes |= {name: value for name, value in later.items() if value} | weights.layout.settings
    plain = {known.name for known in fields(ViTConfig)}
    return (ViTConfig if shapes.keys() <= plain else ModernConfig)(**shapes)


def _build(config: ViTConfig, weights: Translation) -> VisionTransformer:
    """A model of this shape with the weights. One far larger than they are is refused before it takes any memory."""
    tensors = weights.tensors
    kind: type[Any] = ModernViT if isinstance(config, ModernConfig) else VisionTransformer
    kind = DistilledVisionTransformer if DISTILLATION in tensors else kind
    try:
        if kind is DistilledVisionTransformer and isinstance(config, ModernConfig):
            raise ValueError("a distillation token goes with none of the later parts")
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
    model = kind(config)
    _fill(model, weights)
    return model


@torch.no_grad()
def _fill(model: VisionTransformer, weights: Translation) -> None:
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
        elif not tensor.to(place.dtype).isfinite().all():
            wrong.append(f"{origin[name]}: expected finite numbers, got NaN or infinity")
    if wrong:
        named = listed(sorted(wrong), most=6, between="; ")
        raise ValueError(f"these weights, in the layout {weights.layout.name}, do not fit the model: {named}")
    for name, place in places.items():
        place.copy_(tensors[name])

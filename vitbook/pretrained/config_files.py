"""What a library's own files beside weights state of them: `save_pretrained`, timm's `save_for_hf`, OpenCLIP."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vitbook._common.files import read_json
from vitbook._common.suggestions import listed
from vitbook.pretrained.image_processors import cropped, moments, seen_by_transformers
from vitbook.pretrained.published import imagenet_classes
from vitbook.pretrained.refused_formats import named

ACTIVATION = {"gelu": "gelu", "gelu_python": "gelu", "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh"}
ACTIVATION |= {"gelu_fast": "gelu_tanh", "gelu_accurate": "gelu_tanh", "gelu_tanh": "gelu_tanh", "swish": "silu"}
ACTIVATION |= {"quick_gelu": "quick_gelu", "quickgelu": "quick_gelu", "relu": "relu", "silu": "silu"}
# What configs of transformers leave out where it is as their classes have it, by model_type
_DEFAULTS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("vit", "vit_mae", "deit", "ijepa"), dict(layer_norm_eps=1e-12)),
    **dict.fromkeys(("vit_msn", "dinov2", "dinov2_with_registers"), dict(layer_norm_eps=1e-6)),
    "dinov3_vit": dict(layer_norm_eps=1e-5, num_attention_heads=6, rope_theta=100.0),
}
for name in ("clip", "chinese_clip", "metaclip_2", "altclip"):
    _DEFAULTS[f"{name}_vision_model"] = dict(layer_norm_eps=1e-5, hidden_act="quick_gelu")
for name in ("siglip", "siglip2"):
    _DEFAULTS[f"{name}_vision_model"] = dict(layer_norm_eps=1e-6, hidden_act="gelu_pytorch_tanh")
_BOTH_TOWERS = ("clip", "siglip", "siglip2", "chinese_clip", "metaclip_2", "altclip")  # with text towers beside
# of timm's models, what neither their tensors nor their family tell
_ARCHITECTURES: dict[str, dict[str, Any]] = {
    r"_clip_": dict(norm_eps=1e-5),
    r"_clip_quickgelu_": dict(activation="quick_gelu"),
    r"patch32_siglip|giantopt_patch16_siglip|so400m_patch16_siglip|large_patch16_siglip_(gap_)?512": dict(
        activation="gelu_tanh"
    ),
    r"giantopt_patch16_siglip|vit_base_patch16_gap_224": dict(num_heads=16),
    r"^test_vit2?$": dict(num_heads=2),
    r"giant_patch14_(reg\d_)?(dinov2|tipsv2)": dict(swiglu=True),
    r"huge_plus_patch16_dinov3": dict(num_heads=20),
}
# of timm's arguments, those that tensors show, that only training knows, or that are read below
_ARGUMENTS = set(
    "img_size patch_size in_chans num_classes global_pool embed_dim depth num_heads mlp_ratio qkv_bias init_values "
    "class_token no_embed_class reg_tokens pre_norm final_norm fc_norm act_layer drop_rate pos_drop_rate "
    "patch_drop_rate proj_drop_rate attn_drop_rate drop_path_rate weight_init fix_init dynamic_img_size "
    "dynamic_img_pad proj_bias".split()
)
# of OpenCLIP's image towers the same, and what they leave out of their layers where it is as its classes have it
_OF_TOWERS = set(
    "layers width head_width mlp_ratio patch_size image_size ls_init_value patch_dropout no_ln_pre pos_embed_type "
    "pool_type attentional_pool attn_pooler_queries attn_pooler_heads output_tokens norm_kwargs act_kwargs "
    "timm_model_name timm_model_pretrained timm_pool timm_proj timm_proj_bias timm_drop timm_drop_path".split()
)
_OF_LAYERS: dict[str, dict[str, Any]] = {"norm_kwargs": {"eps": 1e-5}, "act_kwargs": {"approximate": "none"}}
# problem_type of transformers: what it makes of a head's numbers, as its pipeline does
_TASKS = {"single_label_classification": "classes", "multi_label_classification": "labels", "regression": "number"}
_POOLS = {"token": "class", "avg": "mean"}


class OtherModel(ValueError):
    """A configuration of a model that is not read here."""


@dataclass(frozen=True)
class Stated:
    """What is stated, each part of it empty where nothing is."""

    source: str = ""  # the files that state it, for messages
    model: Mapping[str, Any] = field(default_factory=dict)  # fields of `ModernConfig`
    seen: Mapping[str, Any] = field(default_factory=dict)  # arguments of `Preprocessing`
    class_names: tuple[str, ...] = ()
    task: str = "classes"  # what the head answers, one of `vitbook.targets.TASKS`
    kernel: str = ""  # how the library interpolates positions, a key of `KERNELS`
    any_size: bool = False  # whether the library's model takes images of the size that `seen` has
    notes: tuple[str, ...] = ()  # what could not be read


def read_stated(folder: Path) -> Stated:
    """What the files in a folder state. Raises ValueError, with the file, for other families and for nonsense."""
    for name, read in (("config.json", _of_a_config), ("open_clip_config.json", _of_openclip)):
        if (config := read_json(folder / name)) is not None:
            with _errors_in(folder / name):
                stated = read(config)
            if stated:
                return _with_processor(stated, folder) if "model_type" in config else stated
    return Stated()


@contextmanager
def _errors_in(path: Path) -> Iterator[None]:
    """Name the file in an error of what reads its contents."""
    try:
        yield
    except (TypeError, KeyError, AttributeError, OverflowError, ValueError) as error:
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__} "
        raise (OtherModel if isinstance(error, OtherModel) else ValueError)(f"{path}: {kind}{error}") from None


def _with_processor(stated: Stated, folder: Path) -> Stated:
    """The same with what the image processor in a folder of transformers states."""
    for name in ("preprocessor_config.json", "processor_config.json"):
        config = read_json(folder / name) or {}
        if processor := config.get("image_processor") if name.startswith("processor") else config:
            with _errors_in(folder / name):
                seen, notes = seen_by_transformers(processor)
            return replace(stated, source=f"config.json and {name}", seen=seen, notes=(*stated.notes, *notes))
    return stated


def _of_a_config(config: dict) -> Stated | None:
    """What a config.json states: timm's names an architecture, that of transformers a model_type; others nothing."""
    if "architecture" in config:
        return _of_timm(config)
    if "model_type" not in config:
        return None
    kind, tower = str(config["model_type"]), config
    if kind in _BOTH_TOWERS:
        tower = config.get("vision_config") or {}
        kind = str(tower.get("model_type") or f"{kind}_vision_model")
    if kind not in _DEFAULTS:
        raise OtherModel(f"this is {kind!r} of transformers; known are {', '.join(_DEFAULTS)}")
    tower = {"num_attention_heads": 12, "hidden_act": "gelu", **_DEFAULTS[kind], **tower}
    model = dict(num_heads=_whole(tower, "num_attention_heads"), norm_eps=float(tower["layer_norm_eps"]))
    if not (tower.get("use_swiglu_ffn") or tower.get("use_gated_mlp")):
        model |= dict(activation=_activation(tower["hidden_act"]))
    elif kind == "dinov3_vit" and tower["hidden_act"] != "silu":
        raise ValueError(f"hidden_act {tower['hidden_act']!r} of a gated MLP: ours has silu")
    if kind == "dinov3_vit":
        model |= dict(rotary_base=float((tower.get("rope_parameters") or tower)["rope_theta"]))
    model |= _sizes(tower, "image_size")
    model |= _shapes(tower, dim="hidden_size", depth="num_hidden_layers")
    if (problem := config.get("problem_type") or "single_label_classification") not in _TASKS:
        raise ValueError(f"problem_type {problem!r}: known are {', '.join(_TASKS)}")
    names, notes = _labels(config.get("id2label") or {})
    task, any_size = _TASKS[problem], kind.startswith("dinov")
    return Stated("config.json", model, class_names=names, task=task, any_size=any_size, notes=notes)


def _labels(labels: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of classes 0 … K − 1, none where they are transformers' own, and a note of what names other classes."""
    classes = [str(k) for k in range(len(labels))] if isinstance(labels, dict) else []
    if not classes and labels:
        return (), (f"class names: expected id2label by class, got {type(labels).__name__}: not taken",)
    if labels.keys() != {*classes}:
        return (), (f"class names: expected id2label of 0 … {len(classes) - 1}, got {listed(labels)}: not taken",)
    names = tuple(str(labels[k]) for k in classes)
    return () if all(re.fullmatch(r"LABEL_\d+", name) for name in names) else names, ()


def _of_timm(config: dict) -> Stated:
    """What timm's config.json states. An architecture's name stands for its settings, as in timm itself."""
    name = str(config["architecture"]).partition(".")[0]
    arguments, cfg = config.get("model_args") or {}, config.get("pretrained_cfg") or config
    other = "" if name.startswith("eva_large_patch14") else named("architectures", [name])  # plain but for its name
    if other or not re.match(r"(vit|deit3?|flexivit|eva_large|test_vit\d?)(_|$)", name):
        raise OtherModel(f"timm's {name} is {other or 'no plain Vision Transformer'}, which is not read")
    model: dict[str, Any] = {}
    for pattern, settings in _ARCHITECTURES.items():
        model |= settings if re.search(pattern, name) else {}
    model = ({} if model.get("swiglu") or "_dinov3" in name else {"activation": "gelu"}) | model
    defaults = [None, False]  # of all arguments that are not read, but pos_embed
    told = {key: value for key, value in arguments.items() if value != "learn" or key != "pos_embed"}
    if unread := [key for key, value in told.items() if key not in _ARGUMENTS and value not in defaults]:
        raise ValueError(f"model_args: what {', '.join(map(repr, unread))} would change is not known here")
    model |= dict(dim=_whole(config, "num_features")) if config.get("num_features") is not None else {}
    if arguments.get("num_heads") is not None:
        model |= dict(num_heads=_whole(arguments, "num_heads"))
    if arguments.get("act_layer") is not None:
        model |= dict(activation=_activation(arguments["act_layer"]))
    pool = config.get("global_pool") or arguments.get("global_pool")
    if pool not in (*_POOLS, "map", "", None):
        raise ValueError(f"global_pool {pool!r}: known are {', '.join(_POOLS)} and map")
    model |= dict(pool=_POOLS[pool]) if pool in _POOLS else {}
    size = arguments.get("img_size") or (cfg.get("input_size") or [None])[1:]
    model |= _sizes({"img_size": size}, "img_size") if size else {}
    names = config.get("label_names") or cfg.get("label_names") or ()
    classes = config.get("num_classes") or cfg.get("num_classes")
    if not names and classes == 1000 and str(cfg.get("tag", "")).endswith("in1k"):
        names = imagenet_classes()
    if isinstance(described := config.get("label_descriptions"), dict) and names:
        names = [described.get(name, name) for name in names]
    seen: dict[str, Any] = {}
    notes: tuple[str, ...] = ()
    if "mean" in cfg and "std" in cfg:
        crop, mode = float(cfg.get("crop_pct") or 0.875), cfg.get("crop_mode") or "center"
        seen = moments(cfg, "mean", "std") | cropped(crop, squeeze=mode == "squash")
        notes = () if mode in ("center", "squash") else (f"crop_mode {mode!r} is not known: center is assumed",)
    return Stated("config.json", model, seen, tuple(map(str, names)), kernel="timm", notes=notes)


def _of_openclip(config: dict) -> Stated:
    """What OpenCLIP's open_clip_config.json states of its image tower."""
    whole, cfg = config["model_cfg"], config.get("preprocess_cfg") or {}
    tower, seen, notes = whole["vision_cfg"], {}, ()
    if unread := [key for key, value in tower.items() if value and key not in _OF_TOWERS]:
        raise ValueError(f"vision_cfg: what {', '.join(map(repr, unread))} would change is not known here")
    if "mean" in cfg and "std" in cfg:
        mode, kernel = cfg.get("resize_mode") or "shortest", cfg.get("interpolation")
        both = moments(cfg, "mean", "std") | {"interpolation": "bilinear" if kernel == "bilinear" else "bicubic"}
        seen = both | cropped(1.0, squeeze=mode == "squash")
        if mode not in ("shortest", "squash"):
            notes = (f"resize_mode {mode!r} is not read: the middle of an image is cut out",)
    if name := tower.get("timm_model_name"):
        pool = {"global_pool": tower.get("timm_pool")}
        base = _of_timm({"architecture": name, "img_size": tower.get("image_size")} | pool)
        return Stated("open_clip_config.json", base.model, seen, kernel="timm", notes=notes)
    if (pool := tower.get("pool_type", "tok")) != "tok" or tower.get("attentional_pool"):
        raise ValueError(f"pool_type {pool!r}: of OpenCLIP's towers, those are read that give the class token")
    norm, act = ({**plain} | (tower.get(key) or {}) for key, plain in _OF_LAYERS.items())
    if norm.keys() != {"eps"} or act not in ({"approximate": "none"}, {"approximate": "tanh"}):
        raise ValueError(f"norm_kwargs {norm} and act_kwargs {act}: known are eps, and approximate none or tanh")
    plain = "gelu_tanh" if act["approximate"] == "tanh" else "gelu"
    model = dict(num_heads=_whole(tower, "width") // int(tower.get("head_width", 64)), norm_eps=float(norm["eps"]))
    model |= dict(activation="quick_gelu" if whole.get("quick_gelu") else plain) | _sizes(tower, "image_size")
    model |= _shapes(tower, dim="width", **{} if isinstance(tower.get("layers"), list) else {"depth": "layers"})
    return Stated("open_clip_config.json", model, seen, kernel="hf", notes=notes)


def _sizes(config: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The size of images, height and width."""
    size = config.get(key)
    if size is None:
        return {}
    sides = tuple(size) if isinstance(size, list | tuple) else (size, size)
    if len(sides) != 2 or not all(isinstance(side, int) and side > 0 for side in sides):
        raise ValueError(f"{key}: expected height and width, got {size!r}")
    return dict(image_size=sides)


def _shapes(config: Mapping[str, Any], **names: str) -> dict[str, int]:
    """The width, the depth and the side of patches, where they are given, by their names there."""
    side = config.get("patch_size")
    if isinstance(side, list):
        if len({*side}) != 1:
            raise ValueError(f"patch_size: expected square patches, got {side}")
        config = {**config, "patch_size": side[0]}
    names |= {"patch_size": "patch_size"}
    return {ours: _whole(config, theirs) for ours, theirs in names.items() if config.get(theirs) is not None}


def _whole(config: Mapping[str, Any], key: str) -> int:
    value = config[key]
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{key}: expected a whole number above 0, got {value!r}")
    return value


def _activation(name: Any) -> str:
    if name not in ACTIVATION:
        raise ValueError(f"activation {name!r}: known are {', '.join(ACTIVATION)}")
    return ACTIVATION[name]

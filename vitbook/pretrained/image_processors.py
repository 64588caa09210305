"""What libraries' files state of an image's way into a model → arguments of `Preprocessing`."""

from collections.abc import Mapping
from typing import Any

from vitbook.pretrained.preprocessing import INTERPOLATIONS, STYLES

_HALF, _IMAGENET, _OPENAI = (
    dict(image_mean=list(STYLES[style]["mean"]), image_std=list(STYLES[style]["std"]))
    for style in ("hf", "torchvision", "clip")
)
_SQUARE, _SHORT = {"height": 224, "width": 224}, {"shortest_edge": 224}
_CLIP = dict(size=_SHORT, default_to_square=False, crop_size=224, do_center_crop=True, resample=3) | _OPENAI
# What files of transformers' processors leave out where it is as their classes have it, by what comes before
# ImageProcessor or FeatureExtractor in their names. Where a size is one number, default_to_square says of what.
CLASSES: dict[str, dict[str, Any]] = {
    "ViT": dict(size=_SQUARE, resample=2) | _HALF,
    "DeiT": dict(size={"height": 256, "width": 256}, crop_size=224, do_center_crop=True, resample=3) | _HALF,
    **dict.fromkeys(("CLIP", "ChineseCLIP", "Bit"), _CLIP),
    "Siglip": dict(size=_SQUARE, default_to_square=False, resample=3) | _HALF,
    "Siglip2": dict(patch_size=16, max_num_patches=256, resample=2) | _HALF,
    "ConvNext": dict(size={"shortest_edge": 384}, default_to_square=False, crop_pct=0.875, resample=3) | _HALF,
    "DINOv3ViT": dict(size=_SQUARE, resample=2) | _IMAGENET,
}
_PLAIN = dict(do_resize=True, do_rescale=True, do_normalize=True, rescale_factor=1 / 255, default_to_square=True)
_SUFFIXES = ("Fast", "Pil", "ImageProcessor", "FeatureExtractor")
# Keys that are read here, and those that change no number of an image in colors
_READ = set(
    "do_resize do_rescale do_normalize do_center_crop rescale_factor image_mean image_std resample interpolation size "
    "crop_size default_to_square image_processor_type feature_extractor_type patch_size max_num_patches".split()
)
_READ |= set(
    "do_convert_rgb do_reduce_labels reduce_labels processor_class auto_map data_format input_data_format "
    "return_tensors device disable_grouping image_seq_length _valid_processor_keys".split()
)


def seen_by_transformers(processor: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What an image processor of transformers does to an image, and notes of what in it is not done here.

    What it leaves out is as its class has it, if it names one of `CLASSES`. Raises ValueError, with the key, for
    moments that neither states.
    """
    kind = name = str(processor.get("image_processor_type") or processor.get("feature_extractor_type") or "")
    for suffix in _SUFFIXES:
        kind = kind.removesuffix(suffix)
    stated = {key: value for key, value in processor.items() if value is not None or key.startswith("do_")}
    p: dict[str, Any] = _PLAIN | CLASSES.get(kind, {}) | stated
    unread = [key for key, value in stated.items() if value and key not in _READ | CLASSES.get(kind, {}).keys()]
    notes = [f"{key} of the image processor is not read" for key in unread]
    if name and kind not in CLASSES:
        notes.append(f"the image processor {name} is not known, nor what its file leaves out")
    scale = 255 * float(p["rescale_factor"]) if p["do_rescale"] else 255.0  # of levels from 0 to 1
    p |= {} if p["do_normalize"] else {"image_mean": 0, "image_std": 1}
    if missing := [key for key in ("image_mean", "image_std") if key not in p]:
        raise ValueError(f"{missing[0]}: expected a number for each channel, got nothing")
    seen = moments(p, "image_mean", "image_std")
    seen |= {name: tuple(moment / scale for moment in seen[name]) for name in ("mean", "std")}
    resample = p.get("resample", p.get("interpolation"))
    if isinstance(resample, int) and 0 <= resample < len(INTERPOLATIONS):
        seen |= dict(interpolation=INTERPOLATIONS[resample])
    elif str(resample).lower() in INTERPOLATIONS:
        seen |= dict(interpolation=str(resample).lower())
    size, cut = _edges(p.get("size"), p["default_to_square"]), _edges(p.get("crop_size"), True)
    if not p["do_resize"]:
        return seen, (*notes, "the image processor does not resize")
    if not size:
        return seen, (*notes, *([] if "patch_size" in p else ["the image processor states no size"]))
    cut = cut if p.get("do_center_crop") else {}
    if kind == "ConvNext":
        cut = _edges(size["shortest_edge"], True)
        small = cut["height"] < 384  # others are squeezed
        size = _edges(int(cut["height"] / p["crop_pct"]), False) if small else cut
    squeeze, short = "height" in size, size.get("shortest_edge") or min(size.values())
    sides = (cut or size) if "height" in (cut or size) else {"height": short, "width": short}
    height, width = sides["height"], sides["width"]
    if squeeze and cut and size["height"] * width != size["width"] * height:
        notes.append(f"size {size} and crop_size {cut} of the image processor have other proportions")
    if min(height, width) > short:
        notes.append(f"crop_size {cut} of the image processor exceeds its size {size}: there a black border is added")
    if not squeeze and not cut:
        notes.append("the image processor keeps an image's proportions: here its middle is cut out")
    seen |= dict(image_size=(height, width)) | cropped(min(min(height, width) / short, 1.0), squeeze)
    return seen, tuple(notes)


def cropped(crop: float, squeeze: bool) -> dict[str, Any]:
    """The arguments of `Preprocessing` for what is scaled, or squeezed, and cut."""
    if squeeze:
        return dict(crop=None) if crop == 1 else dict(crop=crop, squeeze=True)
    return dict(crop=crop, scale_first=True)


def moments(config: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Mean and standard deviation by these names, and how to interpolate where that has a name, too."""
    both = (config[name] if isinstance(config[name], list) else [config[name]] * 3 for name in names)
    given = {"interpolation": config["interpolation"]} if isinstance(config.get("interpolation"), str) else {}
    return dict(zip(("mean", "std"), (tuple(map(float, moment)) for moment in both), strict=True)) | given


def _edges(size: Any, square: bool) -> dict[str, int]:
    """A size of transformers, in any of the ways it was written. square: what one number means."""
    if isinstance(size, dict):
        return {key: int(value) for key, value in size.items() if key in ("height", "width", "shortest_edge") and value}
    if isinstance(size, list | tuple) and len(size) == 2:
        return dict(height=int(size[0]), width=int(size[1]))
    if not isinstance(size, int):
        return {}
    return dict(height=size, width=size) if square else dict(shortest_edge=size)

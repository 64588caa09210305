"""Anybody's model under its name, built and examined in the process that `examine_by_name` starts for it."""

import importlib
import importlib.util
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import vitbook
from vitbook.data import load_dataset
from vitbook.pretrained import load_pretrained
from vitbook.pretrained.published import PUBLISHED
from vitbook.vit import CONFIGS, VisionTransformer, create_vit
from vitbook_workshop.faults.compare_with_reference import compare
from vitbook_workshop.faults.diagnose_on_data import examine_on_data
from vitbook_workshop.faults.diagnosis import examine
from vitbook_workshop.faults.findings import Finding

WEIGHTS = (".json", ".npz", ".safetensors", ".pth", ".pt", ".bin")
IMAGE_SHAPE = (3, 224, 224)  # where nobody says which
_LIBRARIES = {"vitbook"} | {name.partition(":")[0] for name in PUBLISHED}


def examine_here(tell: Callable[..., None], **asked: Any) -> None:
    """Build the model that was asked for, and examine it; tell of it."""
    try:
        findings = _findings(**asked, progress=lambda doing: tell(doing=doing))
        tell(findings=[vars(finding) for finding in findings])
    except (ValueError, OSError) as error:  # why there is no model to examine
        tell(error=str(error))
    except Exception as error:
        tell(error=_with_line("the examination stops with", error))


def _findings(
    target, arguments, image_shape, num_classes, trained, export, like, like_arguments, data, progress
) -> list[Finding]:
    progress("building the model")
    model, loaded = _model(target, arguments)
    if isinstance(model, VisionTransformer) and not image_shape:
        image_shape, num_classes = (model.config.channels, *model.config.image_size), model.config.num_classes
    dataset = None
    if data:
        progress(f"reading {data}")
        side = (image_shape or IMAGE_SHAPE)[1] if os.path.isdir(data) else None
        dataset = load_dataset(data, image_size=side, progress=False)
        image_shape = tuple(dataset.train.images.shape[1:])
    image_shape, num_classes = _sizes(model, image_shape, num_classes)
    options = dict(untrained=not (trained or loaded), export=export, progress=progress)
    findings = examine(model, image_shape, num_classes, **options)
    if like:
        progress(f"comparing with {like}")
        reference, _ = _model(like, _fitting(like, image_shape, num_classes) | (like_arguments or {}))
        findings.append(compare(model, reference, image_shape, num_classes, like))
    if dataset:
        findings += examine_on_data(model, dataset, progress=progress)
    return findings


def _fitting(target: str, image_shape: tuple[int, int, int], num_classes: int) -> dict[str, Any]:
    """Arguments that give a model of a library the sizes of the model that it is compared with."""
    channels, *size = image_shape
    if target in CONFIGS:
        return dict(channels=channels, image_size=tuple(size), num_classes=num_classes)
    if target.startswith("timm:") and target not in PUBLISHED:
        return dict(in_chans=channels, img_size=tuple(size), num_classes=num_classes)
    if target.startswith("transformers:"):
        return dict(num_channels=channels, image_size=tuple(size), num_labels=num_classes)
    return {}


def _model(target: str, arguments: dict[str, Any]) -> tuple[nn.Module, bool]:
    """The model of this name, which gives logits, and whether it is one of trained weights."""
    model, loaded = _built(target, arguments)
    if any(base.__module__.startswith("transformers.") for base in type(model).__mro__):
        model.register_forward_hook(lambda model, images, output: getattr(output, "logits", output))
    return model, loaded


def _built(target: str, arguments: dict[str, Any]) -> tuple[nn.Module, bool]:
    place, colon, name = target.rpartition(":")
    if target in CONFIGS:
        return create_vit(target, **arguments), False
    if place in ("timm", "transformers") and target not in PUBLISHED:
        try:
            if place == "timm":
                return importlib.import_module("timm").create_model(name, **arguments), False
            library = importlib.import_module("transformers")
            config = getattr(library, f"{name}Config")(**arguments)
            return getattr(library, f"{name}ForImageClassification")(config), False
        except Exception as error:
            raise ValueError(_with_line(f"building {name} of {place} stops with", error)) from None
    if place in _LIBRARIES or os.path.isdir(target) or target.endswith(WEIGHTS):
        if arguments:
            raise ValueError("--args are for what builds a model; these are weights")
        return load_pretrained(target).model, True
    if not (colon and place and name):
        raise ValueError("expected package.module:build, model.py:ViT, timm:NAME, a size as vit_ti_16, or weights")
    try:
        made = _module(place)
    except (Exception, SystemExit) as error:
        raise ValueError(_with_line(f"importing {place} stops with", error)) from None
    for part in name.split("."):
        if not hasattr(made, part):
            raise ValueError(f"{place} has no {name}")
        made = getattr(made, part)
    if not isinstance(made, nn.Module):
        if not callable(made):
            raise ValueError(f"{name} is of type {type(made).__name__}; expected what builds a torch.nn.Module")
        try:
            made = made(**arguments)
        except (Exception, SystemExit) as error:
            raise ValueError(_with_line(f"building it with {json.dumps(arguments)} stops with", error)) from None
    if not isinstance(made, nn.Module):
        raise ValueError(f"{name} returns an object of type {type(made).__name__}; expected a torch.nn.Module")
    return made, False


def _module(place: str) -> Any:
    """The module in a file or of a dotted name. What stands beside it can be imported."""
    if not place.endswith(".py"):
        sys.path.insert(0, os.getcwd())
        return importlib.import_module(place)
    path = Path(place).resolve()
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location("diagnosed", path)  # whatever it is called, even torch.py
    module = sys.modules["diagnosed"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _sizes(model: nn.Module, image_shape: list[int] | None, num_classes: int | None) -> tuple[tuple[int, ...], int]:
    """The shape of its images and the number of its classes, which its logits tell."""
    shape, errors = tuple(image_shape or IMAGE_SHAPE), []
    if image_shape and num_classes:
        return shape, num_classes
    device = next((parameter.device for parameter in model.parameters()), "cpu")
    for batch in (2, 1):
        try:
            with torch.no_grad(), torch.random.fork_rng():
                logits = model.eval()(torch.randn(batch, *shape, device=device))
        except Exception as error:
            errors.append(_with_line("", error))
            continue
        if isinstance(logits, Tensor) and logits.ndim == 2:
            return shape, num_classes or logits.shape[1]
        got = f"the shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else f"a {type(logits).__name__}"
        errors.append(f"logits (B, K) should come out, got {got}")
    raise ValueError(
        f"images {shape} do not go through: {errors[0].strip()}. --image-shape C H W and --num-classes K help"
    )


def _with_line(what: str, error: BaseException) -> str:
    """An error in one line, with the last line of the user's own code on its way."""
    libraries = (
        str(Path(vitbook.__file__).parent),
        str(Path(__file__).parents[1]),
        str(Path(torch.__file__).parents[1]),
        "<frozen",
        str(Path(os.__file__).parent),
    )
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(libraries)]
    line = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return " ".join(f"{what} {type(error).__name__}: {error}".split()) + line

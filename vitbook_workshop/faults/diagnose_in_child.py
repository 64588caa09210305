"""Anybody's model under its name, built and examined in the process that `examine_by_name` starts for it."""

import importlib
import importlib.util
import inspect
import itertools
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from vitbook._common.suggestions import listed
from vitbook.data import load_dataset
from vitbook.pretrained import load_pretrained
from vitbook.pretrained.published import PUBLISHED
from vitbook.pretrained.weight_files import read_file, tensors_in
from vitbook.vit import CONFIGS, VisionTransformer, create_vit
from vitbook_workshop.faults.compare_with_reference import compare
from vitbook_workshop.faults.diagnose_on_data import examine_on_data
from vitbook_workshop.faults.diagnosis import ask_all, repeatable
from vitbook_workshop.faults.findings import EXAMINATION_ENDS, Finding
from vitbook_workshop.faults.model_under_test import ModelUnderTest
from vitbook_workshop.faults.model_wrapper import Instead, fits, inner, is_lazy
from vitbook_workshop.faults.whose_error import arose_here, in_one_line, with_place_here

WEIGHTS = (".json", ".npz", ".safetensors", ".pth", ".pt", ".bin")
# tried in this order where nobody says which; the usual ones
IMAGE_SHAPES = [(3, 224, 224), (3, 32, 32), (1, 28, 28), (3, 64, 64), (3, 28, 28), (1, 32, 32), (3, 96, 96)]
IMAGE_SHAPES += [(3, 128, 128), (3, 256, 256), (3, 384, 384), (1, 224, 224)]
_LIBRARIES = {"vitbook"} | {name.partition(":")[0] for name in PUBLISHED}


def examine_here(tell: Callable[..., None], **asked: Any) -> None:
    """Build the model, which `examine_by_name` was asked for, and examine it; tell of each finding."""
    os.environ["TORCHDYNAMO_DISABLE"] = "1"  # what is compiled is examined as it was written
    told = itertools.count()

    def found(finding: Finding) -> None:
        tell(**{f"finding {next(told)}": vars(finding)})

    try:
        _examine(**asked, progress=lambda doing: tell(doing=doing), found=found)
    except (ValueError, OSError) as error:  # why there is no model to examine
        tell(error=str(error))
    except (Exception, SystemExit) as error:
        if not arose_here(error):
            tell(error=f"it stops with {in_one_line(error)}")
        found(Finding(*EXAMINATION_ENDS, "ERROR", f"could not look inside: {with_place_here(error)}"))


def _examine(
    target, arguments, image_shape, num_classes, weights, trained, overfit, export, like, like_arguments, data,
    progress, found,
) -> None:  # fmt: skip
    progress("building the model")
    model, loaded, notes = _model(target, arguments, weights)
    if isinstance(model, VisionTransformer) and not image_shape:
        image_shape, num_classes = (model.config.channels, *model.config.image_size), model.config.num_classes
    dataset = None
    if data:
        progress(f"reading {data}")
        side = (image_shape or IMAGE_SHAPES[0])[1] if os.path.isdir(data) else None
        dataset = load_dataset(data, image_size=side, progress=False)
        image_shape = tuple(dataset.train.images.shape[1:])
    progress("running the model")
    with repeatable():
        if not image_shape:
            image_shape = _usual_shape(model)
            notes.append(f"as no --image-shape was given, it was asked with {'×'.join(map(str, image_shape))}")
        tested = ModelUnderTest(
            model, tuple(image_shape), num_classes, untrained=not (trained or loaded), overfit=overfit, export=export
        )
        if not tested.batch and not num_classes:
            raise ValueError(f"images {tuple(image_shape)} do not go through: {tested.error}")
        tested.notes[:0] = notes
        if like:  # before all that takes long
            reference, *_ = _model(
                like, _fitting(like, tested.image_shape, tested.num_classes) | (like_arguments or {})
            )
            reference = ModelUnderTest(reference, tested.image_shape).model  # however its logits come
        findings = ask_all(tested, progress, None if data else found)
    model, image_shape, num_classes = tested.model, tested.image_shape, tested.num_classes
    if dataset:
        of_data = examine_on_data(model, dataset, progress=progress)
        again = {finding.name for finding in of_data}
        for finding in [*(finding for finding in findings if finding.name not in again), *of_data]:
            found(finding)
    if like:
        progress(f"comparing with {like}")
        found(compare(model, reference, image_shape, num_classes, like))


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


def _model(target: str, arguments: dict[str, Any], weights: str = "") -> tuple[nn.Module, bool, list[str]]:
    """The model of this name, whether it is one of trained weights, and notes of how it was found."""
    place, colon, name = target.rpartition(":")
    if not _is_weights(target):
        model, notes = _built(target, place, name, arguments)
        if weights:
            _load(model, weights)
        return model, bool(weights), notes
    if arguments or weights:
        raise ValueError("--args and --weights are for what builds a model; these are weights")
    return load_pretrained(target).model, True, []


def _is_weights(target: str) -> bool:
    place = target.rpartition(":")[0]
    if target in CONFIGS or place in ("timm", "transformers"):
        return target in PUBLISHED
    return place in _LIBRARIES or os.path.isdir(target) or target.endswith(WEIGHTS)


def _built(target: str, place: str, name: str, arguments: dict[str, Any]) -> tuple[nn.Module, list[str]]:
    """What is built by the code that the name leads to. What asks for CUDA gets the CPU."""
    if target in CONFIGS:
        return create_vit(target, **arguments), []
    if place in ("timm", "transformers"):
        try:
            if place == "timm":
                return importlib.import_module("timm").create_model(name, **arguments), []
            library = importlib.import_module("transformers")
            config = getattr(library, f"{name}Config")(**arguments)
            return getattr(library, f"{name}ForImageClassification")(config), []
        except Exception as error:
            raise ValueError(f"building {name} of {place} stops with {in_one_line(error)}") from None
    if not (place and name):
        raise ValueError("expected package.module:build, model.py:ViT, timm:NAME, a size as vit_ti_16, or weights")
    with Instead(None, cpu=True):
        try:
            made = module_at(place)
        except (Exception, SystemExit) as error:
            raise ValueError(f"importing {place} stops with {in_one_line(error)}") from None
        known = [key for key, value in vars(made).items() if getattr(value, "__module__", "") == made.__name__]
        for part in name.split("."):
            if not hasattr(made, part):
                raise ValueError(f"{place} has no {name}" + (f"; it has {listed(known, 8)}" if known else ""))
            made = getattr(made, part)
        if isinstance(made, nn.Module):
            return made, []
        if not callable(made):
            raise ValueError(f"{name} is of type {type(made).__name__}; expected what builds a torch.nn.Module")
        _expect_arguments(name, made, arguments)
        try:
            made = made(**arguments)
        except (Exception, SystemExit) as error:
            raise ValueError(f"building it with {json.dumps(arguments)} stops with {in_one_line(error)}") from None
    return _the_module_in(made, name)


def _expect_arguments(name: str, build: Callable, arguments: dict[str, Any]) -> None:
    """Raises ValueError where `build` lacks arguments, or takes none of that name."""
    try:
        takes = inspect.signature(build)
    except (TypeError, ValueError):
        return
    try:
        takes.bind(**arguments)
    except TypeError:
        several = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
        known = {key: one for key, one in takes.parameters.items() if one.kind not in several}
        lacks = [key for key, one in known.items() if one.default is one.empty and key not in arguments]
        needs = ", ".join(f'"{key}": …' for key in lacks)
        said = [f"needs {' and '.join(lacks)}: --args '{{{needs}}}'"] * bool(lacks)
        said += [f"takes no {key}" for key in arguments if key not in known]
        raise ValueError(f"{name} {', and '.join(said) or takes}; its signature is {name}{takes}") from None


def _the_module_in(made: Any, name: str) -> tuple[nn.Module, list[str]]:
    """What `name` has built, also where it returns other things beside it."""
    if isinstance(made, nn.Module):
        return made, []
    of = f"{name} returns an object of type {type(made).__name__}"
    parts = made.values() if isinstance(made, dict) else made if isinstance(made, tuple | list) else []
    modules = [part for part in parts if isinstance(part, nn.Module)]
    modules = [m for m in modules if any(True for _ in m.parameters())] or modules  # a loss has none
    kinds = " and ".join(type(module).__name__ for module in modules)
    if len(modules) > 1:
        raise ValueError(f"{of} with {kinds}; expected one torch.nn.Module")
    if not modules:
        raise ValueError(f"{of}; expected a torch.nn.Module")
    return modules[0], [f"{of}, of which the {kinds} is examined"]


def _load(model: nn.Module, path: str) -> None:
    """Put a state_dict into a model. Raises ValueError with all that does not fit."""
    content = read_file(Path(path))[0]
    nests = ("state_dict", "model_state_dict", "model", "net")
    tensors = tensors_in(next((content[nest] for nest in nests if isinstance(content.get(nest), dict)), content))[0]
    model, _ = inner(model)
    places = model.state_dict()
    for prefix in ("module.", "_orig_mod.", "model.", "net."):  # what wraps a model when it is saved
        if all(key.startswith(prefix) for key in tensors) and not any(key.startswith(prefix) for key in places):
            tensors = {key.removeprefix(prefix): tensor for key, tensor in tensors.items()}
    wrong = [f"{word} {listed(keys)}" for word, keys in (
        ("missing", [key for key in places if key not in tensors]),
        ("unexpected", [key for key in tensors if key not in places]),
    ) if keys]  # fmt: skip
    wrong += [
        f"{key} should have the shape {tuple(place.shape)}, got {tuple(tensors[key].shape)}"
        for key, place in places.items()
        if key in tensors and not is_lazy(place) and place.shape != tensors[key].shape
    ]
    if wrong:
        raise ValueError(f"{path} does not fit the model: {listed(wrong, between='; ')}")
    model.load_state_dict(tensors)


def module_at(place: str) -> Any:
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


def _usual_shape(model: nn.Module) -> tuple[int, int, int]:
    """The first of the usual shapes of images that a model takes; the first of all if none."""
    for shape in IMAGE_SHAPES:
        if fits(model, shape):
            return shape
    return IMAGE_SHAPES[0]

"""Anybody's model under its name, examined in a process of its own, with a limit of time.

That process runs the code that the name leads to. It tells what it sees as lines of JSON.
"""

import importlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import vitbook
from vitbook.diagnosis import Finding, examine
from vitbook.pretrained import load_pretrained
from vitbook.pretrained.published import PUBLISHED
from vitbook.vit import VisionTransformer

WEIGHTS = (".json", ".npz", ".safetensors", ".pth", ".pt", ".bin")
IMAGE_SHAPE = (3, 224, 224)  # where nobody says which
_LIBRARIES = {"vitbook"} | {name.partition(":")[0] for name in PUBLISHED}

_RUN = """
import json, sys
asked = json.loads(sys.argv.pop())
sys.path[:] = asked.pop("path")
from vitbook.diagnosis.target import work
work(asked)
"""


def examine_target(
    target: str,
    arguments: dict[str, Any] | None = None,
    image_shape: tuple[int, int, int] | None = None,
    num_classes: int | None = None,
    *,
    trained: bool = False,
    export: bool = False,
    timeout: float = 120,
    progress: Callable[[str], None] | None = None,
) -> tuple[list[Finding], str]:
    """What `examine` finds, and what the code printed meanwhile.

    target: "package.module:build", "model.py:ViT", the folder of a training run, a file of weights, or a name that
    `load_pretrained` knows; arguments: what to build the model with; image_shape: (C, H, W), (3, 224, 224) if neither
    given nor known; num_classes: as many as there are logits if not given; trained: whether the model has been trained,
    as weights have; timeout: in seconds; progress: is called with what is done now.

    Raises ValueError, in one line, where there is no model to examine or no end to it.
    """
    asked = dict(target=target, arguments=arguments or {}, image_shape=image_shape, num_classes=num_classes)
    asked |= dict(trained=trained, export=export, path=sys.path)
    command = [sys.executable, "-P", "-c", _RUN, json.dumps(asked)]
    findings, error, doing, late = [], "", "starting Python", threading.Event()
    with tempfile.TemporaryFile() as printed:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=printed)
        limit = threading.Timer(timeout, lambda: (late.set(), process.kill()))
        limit.start()
        try:
            for line in process.stdout:
                if not line.endswith(b"\n"):  # killed while it spoke
                    break
                said = json.loads(line)
                doing, error = said.get("doing", doing), said.get("error", error)
                findings = [Finding(**fields) for fields in said.get("findings", [])]
                if progress and "doing" in said:
                    progress(doing)
        finally:
            limit.cancel()
            if sys.exc_info()[0]:
                process.kill()
            process.wait()
            process.stdout.close()
        printed.seek(0)
        head = printed.read(2000).decode(errors="replace").strip()
    if late.is_set() and not findings:
        raise ValueError(f"{target}: stopped after {timeout:g} s, at: {doing}. --timeout gives it more")
    if error or not findings:
        last = head.splitlines()[-1:] or ["nothing was said"]
        died = f"Python itself stopped at: {doing} (exit status {process.returncode}; {last[0]})"
        raise ValueError(f"{target}: {error or died}")
    return findings, head


# The process beside


class _Unfit(Exception):
    """Why there is no model to examine."""


def work(asked: dict[str, Any]) -> None:
    """Build the model and examine it; tell of it on what was standard output, line by line."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever the code prints

    def tell(**facts: object) -> None:
        print(json.dumps(facts), file=channel, flush=True)

    try:
        findings = _findings(**asked, progress=lambda doing: tell(doing=doing))
        tell(findings=[vars(finding) for finding in findings])
    except (_Unfit, ValueError, OSError) as error:
        tell(error=str(error))
    except Exception as error:
        tell(error=_with_line("the examination stops with", error))
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0)  # nothing that the code registered, and no thread of it, keeps the process


def _findings(target, arguments, image_shape, num_classes, trained, export, progress) -> list[Finding]:
    progress("building the model")
    model, loaded = _model(target, arguments)
    if any(base.__module__.startswith("transformers.") for base in type(model).__mro__):
        model.register_forward_hook(lambda model, images, output: getattr(output, "logits", output))
    if not isinstance(model, VisionTransformer):
        image_shape, num_classes = _sizes(model, image_shape, num_classes)
    return examine(model, image_shape, num_classes, untrained=not (trained or loaded), export=export, progress=progress)


def _model(target: str, arguments: dict[str, Any]) -> tuple[nn.Module, bool]:
    """The model of this name, and whether it is one of trained weights."""
    place, colon, name = target.rpartition(":")
    if place in _LIBRARIES or os.path.isdir(target) or target.endswith(WEIGHTS):
        if arguments:
            raise _Unfit("--args are for what builds a model; these are weights")
        return load_pretrained(target).model, True
    if not (colon and place and name):
        raise _Unfit("expected package.module:build, model.py:ViT, or weights; what comes after the colon builds it")
    try:
        made = _module(place)
    except (Exception, SystemExit) as error:
        raise _Unfit(_with_line(f"importing {place} stops with", error)) from None
    for part in name.split("."):
        if not hasattr(made, part):
            raise _Unfit(f"{place} has no {name}")
        made = getattr(made, part)
    if not isinstance(made, nn.Module):
        if not callable(made):
            raise _Unfit(f"{name} is of type {type(made).__name__}; expected what builds a torch.nn.Module")
        try:
            made = made(**arguments)
        except (Exception, SystemExit) as error:
            raise _Unfit(_with_line(f"building it with {json.dumps(arguments)} stops with", error)) from None
    if not isinstance(made, nn.Module):
        raise _Unfit(f"{name} returns an object of type {type(made).__name__}; expected a torch.nn.Module")
    return made, False


def _module(place: str) -> Any:
    """The module in a file or of a dotted name. What stands beside it can be imported."""
    if not place.endswith(".py"):
        sys.path.insert(0, os.getcwd())
        return importlib.import_module(place)
    path = Path(place).resolve()
    if not path.is_file():
        raise FileNotFoundError("there is no such file")
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
    raise _Unfit(f"images {shape} do not go through: {errors[0].strip()}. --image-shape C H W and --num-classes K help")


def _with_line(what: str, error: BaseException) -> str:
    """An error in one line, with the last line of the user's own code on its way."""
    libraries = (
        str(Path(vitbook.__file__).parent),
        str(Path(torch.__file__).parents[1]),
        "<frozen",
        str(Path(os.__file__).parent),
    )
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(libraries)]
    line = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return " ".join(f"{what} {type(error).__name__}: {error}".split()) + line

"""Whose error it is that ends a question, this package's or the model's, which is anybody's; said in one line."""

import os
import traceback
from pathlib import Path

import torch

import vitbook

_HERE = f"{Path(__file__).parents[1]}{os.sep}"
_PYTHON = (f"{Path(torch.__file__).parent}{os.sep}", f"{Path(os.__file__).parent}{os.sep}", "<frozen")
_PASSED_ON = ("__torch_dispatch__", "__torch_function__")  # what fails there fails for what the model gives it


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    """The way to an error, but for Python's own modules and torch's."""

    def counts(frame: traceback.FrameSummary) -> bool:
        installed = "-packages" in frame.filename and not frame.filename.startswith(_PYTHON[0])
        return installed or not frame.filename.startswith(_PYTHON)

    return [frame for frame in traceback.extract_tb(error.__traceback__) if counts(frame)]


def arose_here(error: BaseException) -> bool:
    """Whether an error arises in the code that asks, and not in what it asks of the model, its gradients included."""
    whole = traceback.extract_tb(error.__traceback__)
    if any(frame.name == "_engine_run_backward" for frame in whole):
        return False
    if whole[-1].filename.startswith(_HERE) and whole[-1].name != "__torch_function__":
        return True
    frames = [frame for frame in _frames(error) if frame.name not in _PASSED_ON]
    return not frames or frames[-1].filename.startswith(_HERE)


def with_place_here(error: BaseException) -> str:
    """An error of this package's in one line, with the place and the versions that a report of it needs."""
    *_, place = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(_HERE)]
    at = f"{Path(place.filename).name}, line {place.lineno}, vitbook {vitbook.__version__}, torch {torch.__version__}"
    return f"{_said(error)} ({at}); this is a mistake of vitbook's, not of the model"


def in_one_line(error: BaseException) -> str:
    """An error in one line, with the last line of the user's own code on its way."""
    own = (_HERE, f"{Path(vitbook.__file__).parent}{os.sep}")
    frames = [f for f in _frames(error) if not f.filename.startswith(own) and "-packages" not in f.filename]
    return _said(error) + (f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else "")


def _said(error: BaseException) -> str:
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) < 300 else f"{text[:300]} …"

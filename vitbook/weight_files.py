"""Files of weights of every kind: tensors by name out, and nothing run that a file brings along."""

import pickle
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from vitbook.checkpoint import load_checkpoint

SUFFIXES = (".npz", ".safetensors", ".pth", ".pt", ".bin")  # besides .json, a checkpoint of ours
NESTS = ("model", "state_dict")  # under which key of a dictionary training code keeps a model's tensors


def read_file(path: Path) -> tuple[Mapping, dict]:
    """What a file of weights holds, and the facts of a checkpoint of ours. Runs no code that a file brings along.

    Raises FileNotFoundError or another OSError for a file that cannot be opened, ValueError for one that is no such
    file, is damaged, or holds more than tensors.
    """
    if path.is_dir():
        path = path / "best.json"
    path.open("rb").close()  # what cannot be opened is an OSError of one kind, whatever would have read it
    try:
        if path.suffix == ".json":
            return load_checkpoint(path)
        if path.suffix == ".safetensors":
            return load_file(path), {}
        if path.suffix == ".npz" and zipfile.is_zipfile(path):
            with np.load(path, allow_pickle=False) as arrays:
                return dict(arrays), {}
        if path.suffix in SUFFIXES[2:]:
            return torch.load(path, map_location="cpu", weights_only=True), {}
    except (FileNotFoundError, PermissionError):
        raise
    except Exception as error:  # a damaged file can fail anywhere in its decoder, and in any way
        code = re.search(r"GLOBAL ([\w.]+)", str(error))
        reason = f"to read it would run {code[1]}" if code else type(error).__name__
        if not isinstance(error, pickle.UnpicklingError):
            reason = (str(error) or reason).splitlines()[0]
        raise ValueError(f"{path} holds no weights that can be read: {reason}") from None
    raise ValueError(f"{path} should be a file of weights, {', '.join(SUFFIXES)} or .json, and is none")


def tensors_in(content: Mapping) -> tuple[dict[str, Tensor], bool]:
    """The tensors of what a file holds, and whether they were nested in what training code keeps beside them.

    Of big_vision's names, params/… alone are a model's. Raises ValueError for what is no tensor.
    """
    nest = next((key for key in NESTS if isinstance(content, Mapping) and isinstance(content.get(key), Mapping)), None)
    content = content if nest is None else content[nest]
    if not isinstance(content, Mapping):
        raise ValueError(f"weights must be tensors by name, got {type(content).__name__}")
    if any(str(name).startswith("params/") for name in content):
        content = {name: value for name, value in content.items() if not str(name).startswith(("opt/", "chrono/"))}
    state = {}
    for name, value in content.items():
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            value = torch.from_numpy(value)
        if not isinstance(value, Tensor):
            got = getattr(value, "dtype", type(value).__name__)
            raise ValueError(f"{name}: expected a tensor of floating-point numbers, got {got}")
        state[name] = value
    return state, nest is not None

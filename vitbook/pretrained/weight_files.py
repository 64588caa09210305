"""Files of weights of every kind: tensors by name out, and nothing run that a file brings along."""

import pickle
import re
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from vitbook.checkpoint import load_checkpoint

SUFFIXES = (".npz", ".safetensors", ".pth", ".pt", ".bin")  # besides .json, a checkpoint of ours
UNPACKED = 20  # times its own size that a zipped file may come to: numbers hardly shrink, and bombs burst
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
        check_size(path)
        if path.suffix == ".json":
            return load_checkpoint(path)
        if path.suffix == ".safetensors":
            return load_file(path), {}
        if path.suffix == ".npz" and zipfile.is_zipfile(path):
            with np.load(path, allow_pickle=False) as arrays:
                return dict(arrays), {}
        if path.suffix in SUFFIXES[2:]:
            if tarfile.is_tarfile(path):
                raise ValueError("a .tar of an early torch, of which older versions of torch run code")
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


def check_size(path: Path) -> None:
    """Raise ValueError for a zipped file that unpacks to far more than it is."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
        if unpacked > UNPACKED * path.stat().st_size:
            raise ValueError(f"{path.stat().st_size:,} bytes that unpack to {unpacked:,}")


def tensors_in(content: Mapping) -> tuple[dict[str, Tensor], bool]:
    """The tensors of what a file holds, and whether they were nested in what training code keeps beside them.

    Of big_vision's names, params/… alone are a model's. Raises ValueError for what is no tensor, and for tensors that
    show few numbers many times, and so promise far more than there are.
    """
    nest = next((key for key in NESTS if isinstance(content, Mapping) and isinstance(content.get(key), Mapping)), None)
    content = content if nest is None else content[nest]
    if not isinstance(content, Mapping):
        raise ValueError(f"weights must be tensors by name, got {type(content).__name__}")
    if any(str(name).startswith("params/") for name in content):
        content = {name: value for name, value in content.items() if not str(name).startswith(("opt/", "chrono/"))}
    state = {}
    for name, value in content.items():
        if isinstance(value, np.ndarray) and value.dtype in (np.float16, np.float32, np.float64):
            value = torch.from_numpy(value)
        if not isinstance(value, Tensor):
            got = getattr(value, "dtype", type(value).__name__)
            raise ValueError(f"{name}: expected a tensor of floating-point numbers, got {got}")
        if value.layout is not torch.strided or value.is_quantized or value.is_meta or not isinstance(name, str):
            kind = "meta" if value.is_meta else f"{value.layout}, {value.dtype}"
            raise ValueError(f"{name!r}: expected a name and a tensor with all of its numbers, got {kind}")
        state[name] = value
    held = {value.untyped_storage().data_ptr(): value.untyped_storage().nbytes() for value in state.values()}
    claimed = sum(value.numel() * value.element_size() for value in state.values())
    if claimed > 2 * sum(held.values()):
        raise ValueError(f"weights of {claimed:,} bytes share {sum(held.values()):,} among them")
    return state, nest is not None

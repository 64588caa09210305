"""File → tensors by name. Nothing that a file contains is ever executed."""

import os
import pickle
import re
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from vitbook._common.files import refuse_pipes
from vitbook.checkpoint import load_checkpoint

_SUFFIXES = (".npz", ".safetensors", ".pth", ".pt", ".bin")  # besides .json, a checkpoint of ours
_MAX_EXPANSION = 20  # times its own size that a zip may unpack to: weights hardly compress, a zip bomb does
_NESTS = ("model", "state_dict", "model_state_dict")  # the keys under which training code keeps a model's tensors


def read_file(path: Path) -> tuple[Mapping, dict]:
    """The contents of a file of weights, and the facts beside them in a checkpoint of ours.

    path: of a file, or of a folder: of a training run, for its best weights, or one with a model.safetensors. Damage is
    noticed where the format has a checksum: a zip's CRCs (.npz, and what torch has written since 1.6), the SHA-256 of
    our checkpoints. Older pickles and .safetensors have none. Raises OSError for a file that cannot be opened,
    ValueError for one that is damaged, of another kind, or holds more than tensors.
    """
    if path.is_dir():
        theirs = path / "model.safetensors"  # as `save_pretrained` of transformers writes it
        path = theirs if theirs.exists() else path / "best.json"
    refuse_pipes(path)
    try:
        if path.suffix == ".json":
            return load_checkpoint(path)
        with path.open("rb") as file:  # one kind of OSError for what cannot be opened, whatever would have read it
            zipped = zipfile.is_zipfile(file)
            if zipped:
                _check_zip(file)
            if path.suffix == ".safetensors":
                return load_file(path), {}  # mapped into memory, which takes a path
            file.seek(0)
            if path.suffix == ".npz" and zipped:
                with np.load(file, allow_pickle=False) as arrays:
                    return dict(arrays), {}
            if path.suffix in _SUFFIXES[2:]:
                if tarfile.is_tarfile(file):
                    raise ValueError("a .tar of an early torch, of which older versions of torch run code")
                file.seek(0)
                return torch.load(file, map_location="cpu", weights_only=True), {}
    except (FileNotFoundError, PermissionError):
        raise
    except Exception as error:  # a damaged file can fail anywhere in its decoder, and in any way
        code = re.search(r"GLOBAL ([\w.]+)", str(error))
        reason = f"to read it would run {code[1]}" if code else type(error).__name__
        if not isinstance(error, pickle.UnpicklingError):
            reason = (str(error) or reason).splitlines()[0]
        raise ValueError(f"{path} holds no weights that can be read: {reason}") from None
    raise ValueError(f"{path} should be a file of weights, {', '.join(_SUFFIXES)} or .json, and is none")


def _check_zip(file: BinaryIO) -> None:
    """Raise ValueError for a zip that unpacks to far more than it is, or is damaged, which torch does not look for."""
    with zipfile.ZipFile(file) as archive:
        members, packed = archive.infolist(), file.seek(0, os.SEEK_END)
        if (unpacked := sum(member.file_size for member in members)) > _MAX_EXPANSION * packed:
            raise ValueError(f"{packed:,} bytes that unpack to {unpacked:,}")
        # A comment that seems longer hides the members after it; of a member that seems a folder, torch reads nothing.
        if any(member.comment or member.external_attr & 0x10 for member in members) or archive.testzip():
            raise ValueError("it is damaged: its contents are not those that its CRCs were made of")


def tensors_in(content: Mapping) -> tuple[dict[str, Tensor], str | None]:
    """The tensors of a file's contents, and the key under which they were nested, as training code keeps them.

    Of big_vision's names, only params/… belong to the model. Raises ValueError for what is no tensor, and for tensors
    that repeat a few stored numbers, and so claim far more than there are.
    """
    if not isinstance(content, Mapping):
        raise ValueError(f"weights must be tensors by name, got {type(content).__name__}")
    nest = next((key for key in _NESTS if isinstance(content.get(key), Mapping)), None)
    content = content[nest] if nest else content
    if any(str(name).startswith("params/") for name in content):
        content = {name: value for name, value in content.items() if not str(name).startswith(("opt/", "chrono/"))}
    tensors = {name: _as_tensor(name, value) for name, value in content.items()}
    stored = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors.values()}
    claimed = sum(t.numel() * t.element_size() for t in tensors.values())
    if claimed > 2 * sum(stored.values()):
        raise ValueError(f"weights of {claimed:,} bytes share {sum(stored.values()):,} among them")
    return tensors, nest


def _as_tensor(name: str, value: object) -> Tensor:
    if isinstance(value, np.ndarray) and value.dtype in (np.float16, np.float32, np.float64):
        value = torch.from_numpy(value)
    if not isinstance(value, Tensor) or not isinstance(name, str):
        got = getattr(value, "dtype", type(value).__name__)
        raise ValueError(f"{name!r}: expected a tensor of floating-point numbers under a name, got {got}")
    if value.layout is not torch.strided or value.is_quantized or value.is_meta:
        raise ValueError(f"{name}: expected a tensor with all of its numbers, got {value.layout} on {value.device}")
    return value

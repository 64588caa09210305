"""File or folder → tensors by name. Nothing that a file contains is ever executed.

For safetensors and npz, that holds by their format; for pickles, by `torch.load(weights_only=True)`, which before torch
2.10 could be made to run code (CVE-2026-24747): there, strangers' pickles are refused.
"""

import json
import mmap
import os
import pickle
import re
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from vitbook._common.files import read_whole, refuse_pipes
from vitbook._common.suggestions import listed
from vitbook.checkpoint import load_checkpoint
from vitbook.pretrained.layouts import LAYOUTS, PATCHES
from vitbook.pretrained.refused_formats import named

KINDS = "safetensors, npz, and what torch.save writes"
# The files of weights in folders of transformers, timm and OpenCLIP, the best first; beside a run of ours, its best
IN_FOLDERS = ("model.safetensors", "open_clip_model.safetensors", "pytorch_model.bin", "open_clip_pytorch_model.bin")
_INDICES = tuple(f"{name}.index.json" for name in IN_FOLDERS)
_SAFE_PICKLES = (2, 10)  # the first torch that reads strangers' pickles safely
_MAX_EXPANSION = 20  # times its own size that a zip may unpack to: weights hardly compress, a zip bomb does
_MEAN = re.compile(r"(.*[._])?ema(_.*)?")  # the key of a mean of weights over training
_ANCHORS = tuple({row.theirs[0] for layout in LAYOUTS for row in layout.rows(0) if row.ours == PATCHES})


def read_file(path: Path, trusted: bool = False) -> tuple[Mapping, dict]:
    """The contents of a file of weights, and the facts beside them in a checkpoint of ours.

    path: of a file, whose beginning says of which kind it is, or of a folder, as `file_in` reads it; trusted: whether
    the file is one whose SHA-256 was published. Damage is noticed where the format has a checksum: a zip's CRCs (.npz,
    and what torch has written since 1.6), the SHA-256 of our checkpoints. Older pickles and safetensors have none.
    Raises OSError for a file that cannot be opened, ValueError for one that is damaged, of another kind, or holds more
    than tensors, and for a pickle that is not trusted where torch is older than 2.10.
    """
    path = file_in(path) if path.is_dir() else path
    refuse_pipes(path)
    try:
        _check_name(path)
        if path.name.endswith(".index.json"):
            return _shards(path), {}
        if path.suffix == ".json":
            return load_checkpoint(path)
        with path.open("rb") as file:  # one kind of OSError for what cannot be opened, whatever would have read it
            return _contents(path, file, trusted), {}
    except (FileNotFoundError, PermissionError):
        raise
    except Exception as error:  # a damaged file can fail anywhere in its decoder, and in any way
        reason = (str(error) or type(error).__name__).splitlines()[0]
        if isinstance(error, pickle.UnpicklingError):
            reason = _would_import(str(error))
        raise ValueError(f"{path} holds no weights that can be read: {reason}") from None


def file_in(folder: Path) -> Path:
    """The file of weights in a folder of transformers, timm, OpenCLIP, or of a run of ours.

    Raises FileNotFoundError, with what is there and what was expected, and ValueError where that tells what it is.
    """
    for name in (*IN_FOLDERS, *_INDICES, "best.json"):
        if (folder / name).exists():
            return folder / name
    there = sorted(one.name for one in folder.iterdir())
    inside = sorted({found.parent.name for name in IN_FOLDERS for found in folder.glob(f"*/{name}")})
    expected = f"expected {', '.join(IN_FOLDERS)} or best.json, got {listed(there) or 'nothing'}"
    if (what := named("folders", there, re.fullmatch)) or inside:
        what = f"weights are in {listed(inside)}: name one of these" if inside else f"the folder is {what}"
        raise ValueError(f"{folder}: {what}; {expected}")
    raise FileNotFoundError(f"no weights in {folder}: {expected}")


def _check_name(path: Path) -> None:
    """Raise ValueError, with the file to name, for those of a run of ours that are not meant to be named."""
    if path.name == "last.json":
        raise ValueError("it is what a run is resumed from; its weights to use are in best.json")
    run = re.fullmatch(r"(.+)-[0-9a-f]{12}\.safetensors", path.name)
    if run and path.with_name(f"{run[1]}.json").exists():
        best = run[1].replace("last", "best")
        raise ValueError(f"it has the tensors of {run[1]}.json; name {best}.json, which states the rest")


def _shards(index: Path) -> dict:
    """The tensors of all the files that an index names."""
    files = sorted(set(json.loads(read_whole(index))["weight_map"].values()))
    parts = [read_file(index.with_name(Path(file).name))[0] for file in files]
    return {name: tensor for part in parts for name, tensor in part.items()}


def _contents(path: Path, file: BinaryIO, trusted: bool) -> Mapping:
    """What a file holds. Weights are mapped into memory where the format allows it."""
    beginning = file.read(64)
    if beginning[8:9] == b"{" and int.from_bytes(beginning[:8], "little") <= path.stat().st_size:
        return _mapped(load_file(path), file)  # which has checked it
    kind = named("beginnings", [beginning.decode("latin-1")], re.match)
    if kind and not beginning.startswith((b"\x80\x02", b"\x80\x03", b"\x80\x04")):
        raise ValueError(f"it is {kind}")
    zipped = zipfile.is_zipfile(file)
    if zipped:
        names = _check_zip(file)
        if kind := named("members", names):
            raise ValueError(f"it is {kind}")
        if not any(name.endswith("data.pkl") for name in names):
            file.seek(0)
            with np.load(file, allow_pickle=False) as arrays:
                return dict(arrays)
    file.seek(0)
    if tarfile.is_tarfile(file):
        raise ValueError("a .tar of an early torch, of which older versions of torch run code")
    file.seek(0)
    if not zipped and not beginning.startswith(b"\x80"):
        raise ValueError(f"expected {KINDS}")
    if not trusted and tuple(map(int, re.findall(r"\d+", torch.__version__)[:2])) < _SAFE_PICKLES:
        raise ValueError(
            f"it is a pickle, and torch {torch.__version__} can be made to run what it contains (CVE-2026-24747): "
            "install torch 2.10 or later, or get the weights as safetensors"
        )
    return torch.load(file, map_location="cpu", weights_only=True)


class Mapped(dict):
    """The tensors of a file of safetensors as memory that the file's own pages fill, each when it is read."""

    memory: mmap.mmap

    def forget(self) -> None:
        """Let go of the pages that were read, where the system can: what is needed again is read again."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self.memory.madvise(mmap.MADV_DONTNEED)


def _mapped(tensors: dict[str, Tensor], file: BinaryIO) -> Mapped:
    """The same tensors, which torch has mapped to another place, where their pages can be let go of."""
    file.seek(0)
    begin = 8 + int.from_bytes(file.read(8), "little")
    header, mapped = json.loads(file.read(begin - 8)), Mapped(tensors)
    mapped.memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    for name, t in tensors.items():
        if count := t.numel():
            start = begin + header[name]["data_offsets"][0]
            mapped[name] = torch.frombuffer(mapped.memory, dtype=t.dtype, offset=start, count=count).view(t.shape)
    return mapped


def _would_import(message: str) -> str:
    """What stands in a pickle besides tensors, in words."""
    name = re.search(r"(?:GLOBAL|[Uu]nsupported (?:class|global)|Type) :?<?(?:class ')?([\w.]+\.\w+)", message)
    if not name:
        return "UnpicklingError"
    return f"to read it would run {named('objects', [name[1]]).format(name[1])}"


def _check_zip(file: BinaryIO) -> list[str]:
    """The members of a zip. Raises ValueError for one that unpacks to far more than it is, or is damaged."""
    with zipfile.ZipFile(file) as archive:
        members, packed = archive.infolist(), file.seek(0, os.SEEK_END)
        if (unpacked := sum(member.file_size for member in members)) > _MAX_EXPANSION * packed:
            raise ValueError(f"{packed:,} bytes that unpack to {unpacked:,}")
        # A comment that seems longer hides the members after it; of a member that seems a folder, torch reads nothing.
        if any(member.comment or member.external_attr & 0x10 for member in members) or archive.testzip():
            raise ValueError("it is damaged: its contents are not those that its CRCs were made of")
        return archive.namelist()


def tensors_in(content: Mapping, part: str = "") -> tuple[dict[str, Tensor], str, list[str]]:
    """The tensors of a file's contents, the keys under which they were nested, and what was chosen or left out.

    part: which of several, by its keys or by what its tensors' names begin with, with dots between. Without it, of two
    the mean over training is taken, as timm does. Of big_vision's names, only params/… belong to the model. Raises
    ValueError for what is no tensor, for several models of which none is the mean, and for tensors that repeat a few
    stored numbers, and so claim far more than there are.
    """
    if not isinstance(content, Mapping):
        raise ValueError(f"weights must be tensors by name, got {type(content).__name__}")
    notes, found = [], dict(_models_in(content))
    within = [nest for nest in found if f"{nest}.".startswith(f"{part}.")]
    if part in found or part and len(within) == 1:
        nest = part if part in found else within[0]
    elif part:
        named = [begun for nest, inside in found.items() if (begun := _begun(inside, part.removeprefix(f"{nest}.")))]
        if len(named) != 1:
            raise ValueError(f"#{part}: there are {listed(map(repr, _parts(found))) or listed(content)}")
        return tensors_in(named[0])
    elif len(found) > 1:
        nest, *more = [key for key in found if _MEAN.fullmatch(key)] or [""]
        if more or not nest:
            named = " and ".join(map(repr, found))
            raise ValueError(f"there are {len(found)} models, {named}: say which, as #{next(filter(None, found))}")
        others = listed(key for key in found if key != nest)
        notes.append(f"{nest} was taken, the mean over training, as timm does, and not {others}")
    else:
        nest = next(iter(found), "")
    content = found.get(nest, content)
    if any(str(name).startswith("params/") for name in content):
        content = {name: value for name, value in content.items() if not str(name).startswith(("opt/", "chrono/"))}
    tensors = {name: _as_tensor(name, value) for name, value in content.items()}
    stored = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors.values()}
    claimed = sum(t.numel() * t.element_size() for t in tensors.values())
    if claimed > 2 * sum(stored.values()):
        raise ValueError(f"weights of {claimed:,} bytes share {sum(stored.values()):,} among them")
    return tensors, nest, notes


def _models_in(content: Mapping, nest: str = "", depth: int = 3) -> Iterator[tuple[str, Mapping]]:
    """What is nested in a file's contents and has patches of an image, by its keys with dots between."""
    if any(str(name).endswith(_ANCHORS) for name, value in content.items() if not isinstance(value, Mapping)):
        yield nest, content
    for key, value in content.items() if depth else ():
        if isinstance(value, Mapping):
            yield from _models_in(value, f"{nest}.{key}".strip("."), depth - 1)


def _begun(content: Mapping, part: str) -> dict[str, object]:
    """What is there under names that begin with a part, without that beginning."""
    return {name[len(part) + 1 :]: value for name, value in content.items() if str(name).startswith(f"{part}.")}


def _parts(found: Mapping[str, Mapping]) -> list[str]:
    """The models in what `_models_in` has found, as they can be named: by keys, and by what their names begin with."""
    parts = []
    for nest, content in found.items():
        patches = [name for name in map(str, content) if name.endswith(_ANCHORS)]
        begins = [min((name.removesuffix(one) for one in _ANCHORS), key=len).strip("./") for name in patches]
        parts += [f"{nest}.{begin}".strip(".") for begin in dict.fromkeys(begins)]
    return [part for part in parts if part]


def _as_tensor(name: str, value: object) -> Tensor:
    if isinstance(value, np.ndarray):
        if value.dtype in (np.float16, np.float32, np.float64):
            value = torch.from_numpy(value)
        elif value.dtype in (np.dtype("V2"),) or value.dtype.name == "bfloat16":  # as numpy stores JAX's bfloat16
            value = torch.from_numpy(value.view(np.int16)).view(torch.bfloat16)
    if not isinstance(value, Tensor) or not isinstance(name, str):
        got = getattr(value, "dtype", type(value).__name__)
        raise ValueError(f"{name!r}: expected a tensor of floating-point numbers under a name, got {got}")
    if type(value) not in (Tensor, torch.nn.Parameter):
        kind = f"{type(value).__module__}.{type(value).__name__}"
        raise ValueError(f"{name}: expected a plain tensor, got {named('objects', [kind]).format(kind)}")
    if value.layout is not torch.strided or value.is_quantized or value.is_meta:
        got = "quantized ones" if value.is_quantized else f"{value.layout} on {value.device}"
        raise ValueError(f"{name}: expected a tensor with all of its numbers, got {got}")
    return value

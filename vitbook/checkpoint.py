"""Tensors and a few facts about them on the disk: safetensors beside JSON. Loading one never executes code.

A checkpoint called "last" is `last.json`, which holds the facts, and names the file with the tensors and its SHA-256.
The JSON is replaced in one step, after that file is whole: whatever interrupts the writing, there is always one whole
checkpoint, the old or the new.
"""

import hashlib
import json
from pathlib import Path

import torch
from safetensors.torch import load, save
from torch import Tensor

from vitbook._support.files import remove, remove_parts, write_whole

TENSORS, SHA256 = "tensors", "sha256"  # the keys in the JSON that name the file, and say what is in it


def save_checkpoint(folder: Path, name: str, tensors: dict[str, Tensor], facts: dict) -> Path:
    """Write tensors and facts as checkpoint `name`, replacing an older one of that name. Returns the path of the JSON.

    facts: anything JSON can hold. Raises OSError where the disk is full or may not be written to; the older checkpoint
    is then still whole.
    """
    folder.mkdir(parents=True, exist_ok=True)
    copies = {key: t.detach().cpu().clone(memory_format=torch.contiguous_format) for key, t in tensors.items()}
    content = save(copies)  # it takes no two tensors that share their memory, as tied weights do
    digest = hashlib.sha256(content).hexdigest()
    file = f"{name}-{digest[:12]}.safetensors"  # another content, another file: the old one stays while this is written
    write_whole(folder / file, content)
    document = json.dumps({TENSORS: file, SHA256: digest, **facts}, indent=2) + "\n"
    write_whole(folder / f"{name}.json", document.encode())
    remove_leftovers(folder / f"{name}.json")
    return folder / f"{name}.json"


def remove_leftovers(path: Path) -> None:
    """Delete the files of tensors of a checkpoint, by the path of its JSON, that it does not name.

    These are older ones, and what a process was writing, or about to delete, when it was killed.
    """
    named = json.loads(path.read_text(encoding="utf-8"))[TENSORS]
    tensors = f"{path.stem}-{'[0-9a-f]' * 12}.safetensors"
    for file in path.parent.glob(tensors):
        if file.name != named:
            remove(file)
    remove_parts(path.parent, tensors)
    remove_parts(path.parent, path.name)


def load_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict]:
    """The tensors and facts of a checkpoint, by the path of its JSON. On the CPU.

    Raises FileNotFoundError for a file that is not there, ValueError for one that is no checkpoint or is damaged.
    """
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        file, digest = path.with_name(Path(facts.pop(TENSORS)).name), facts.pop(SHA256)  # always beside the JSON
        content = file.read_bytes()
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} should be the JSON of a checkpoint, with {TENSORS} and {SHA256}: {error!r}") from None
    if hashlib.sha256(content).hexdigest() != digest:
        raise ValueError(f"{file} is damaged: its SHA-256 is not the one that {path.name} names")
    try:
        return load(content), facts
    except Exception as error:  # what was made to be no such file can fail in any way
        raise ValueError(f"{file} is no safetensors file: {error!r}") from None


def with_prefix(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors, each name behind `prefix.`."""
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def without_prefix(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Those tensors whose name is behind `prefix.`, without it."""
    return {name.removeprefix(f"{prefix}."): t for name, t in tensors.items() if name.startswith(f"{prefix}.")}


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """A copy of an optimiser's state as named tensors: parameter number, then what is kept of it, as "3.exp_avg"."""
    state = optimizer.state_dict()["state"]
    return {
        f"{i}.{name}": torch.as_tensor(kept).clone() for i, all_kept in state.items() for name, kept in all_kept.items()
    }


def load_optimizer_tensors(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Put back what `optimizer_tensors` gave, into an optimiser over the same parameters."""
    parameters = dict(enumerate(p for group in optimizer.param_groups for p in group["params"]))
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        number, _, kept = name.partition(".")
        parameter = parameters[int(number)]
        if tensor.shape == parameter.shape:  # it has to lie in memory as the parameter does, also in channels_last
            tensor = torch.empty_like(parameter, dtype=tensor.dtype, device=tensor.device).copy_(tensor)
        state.setdefault(int(number), {})[kept] = tensor
    optimizer.load_state_dict(optimizer.state_dict() | {"state": state})

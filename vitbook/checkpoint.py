"""A training run's state on the disk: tensors as safetensors beside facts as JSON. Loading one never executes code.

A checkpoint called "last" is `last.json`, which holds the facts and names the file with the tensors and its SHA-256.
The JSON is replaced in one step, after that file is whole: whatever interrupts the writing, there is always one whole
checkpoint, the old or the new.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.optim import Optimizer

from vitbook._common.files import read_whole, remove, remove_parts, write_whole

TENSORS, SHA256 = "tensors", "sha256"  # the keys in the JSON that name the file, and say what is in it


def save_checkpoint(folder: Path, name: str, tensors: dict[str, Tensor], facts: dict) -> Path:
    """Write tensors and facts as checkpoint `name`, replacing an older one of that name. Returns the path of the JSON.

    facts: anything JSON can hold. Raises OSError where the disk is full or may not be written to; the older checkpoint
    is then still whole.
    """
    # ignite.handlers.Checkpoint writes pickles, does not wait for the disk, and after a resume forgets older files.
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


def load_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict]:
    """The tensors and facts of a checkpoint, by the path of its JSON. On the CPU.

    Raises FileNotFoundError for a missing file, ValueError for one that is no checkpoint or is damaged.
    """
    document = read_whole(path)
    try:
        facts = json.loads(document)
        file, digest = path.with_name(Path(facts.pop(TENSORS)).name), facts.pop(SHA256)  # always beside the JSON
        content = read_whole(file)
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} must be the JSON of a checkpoint, with {TENSORS} and {SHA256}: {error!r}") from None
    if hashlib.sha256(content).hexdigest() != digest:
        raise ValueError(f"{file} is damaged: its SHA-256 is not the one that {path.name} names")
    try:
        return load(content), facts
    except Exception as error:  # a file made to deceive can fail in any way
        raise ValueError(f"{file} is no safetensors file: {error!r}") from None


def remove_leftovers(path: Path) -> None:
    """Delete the files of tensors of a checkpoint, by the path of its JSON, that it does not name.

    These are older ones, and what a process was writing, or about to delete, when it was killed.
    """
    named = json.loads(path.read_bytes())[TENSORS]
    tensors = f"{path.stem}-{'[0-9a-f]' * 12}.safetensors"
    for file in path.parent.glob(tensors):
        if file.name != named:
            remove(file)
    remove_parts(path.parent, tensors)
    remove_parts(path.parent, path.name)


# What changes from step to step

State = Mapping[str, nn.Module | Optimizer | Tensor | None]  # by name; None for what a run does without


def state_tensors(state: State) -> dict[str, Tensor]:
    """A run's state as named tensors: "model.head.weight", "optimizer.3.exp_avg", "curve"."""
    tensors = {}
    for name, part in state.items():
        if isinstance(part, Tensor):
            tensors[name] = part
        elif part is not None:
            own = _optimizer_tensors(part) if isinstance(part, Optimizer) else part.state_dict()
            tensors |= {f"{name}.{key}": tensor for key, tensor in own.items()}
    return tensors


def load_state_tensors(state: State, tensors: dict[str, Tensor]) -> None:
    """Put back what `state_tensors` gave, into a state of the same parts."""
    for name, part in state.items():
        own = {key.removeprefix(f"{name}."): t for key, t in tensors.items() if key.startswith(f"{name}.")}
        if isinstance(part, Tensor):
            part.copy_(tensors[name])
        elif isinstance(part, Optimizer):
            _load_optimizer_tensors(part, own)
        elif part is not None:
            part.load_state_dict(own)


def _optimizer_tensors(optimizer: Optimizer) -> dict[str, Tensor]:
    """A copy of an optimizer's state: parameter number, then what is kept of it, as "3.exp_avg"."""
    state = optimizer.state_dict()["state"]
    return {f"{i}.{name}": torch.as_tensor(t).clone() for i, kept in state.items() for name, t in kept.items()}


def _load_optimizer_tensors(optimizer: Optimizer, tensors: dict[str, Tensor]) -> None:
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        number, _, kept = name.partition(".")
        parameter = parameters[int(number)]
        if tensor.shape == parameter.shape:  # it has to lie in memory as the parameter does, also in channels_last
            tensor = torch.empty_like(parameter, dtype=tensor.dtype, device=tensor.device).copy_(tensor)
        state.setdefault(int(number), {})[kept] = tensor
    optimizer.load_state_dict(optimizer.state_dict() | {"state": state})


def difference(name: str, theirs: Any, ours: Any) -> str:
    """Where two facts differ: "config.epochs is 20 there, 30 here"."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in theirs | ours:
            if theirs.get(key) != ours.get(key):
                return difference(f"{name}.{key}", theirs.get(key), ours.get(key))
    return f"{name} is {theirs} there, {ours} here"

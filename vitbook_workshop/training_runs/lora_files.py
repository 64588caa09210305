"""LoRA alone in a file, in the names of the library peft: read onto a model here, and written for one there."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from vitbook._common.files import read_json, write_whole
from vitbook._common.suggestions import listed
from vitbook.finetuning import LoRALinear, freeze
from vitbook.pretrained.layouts import LAYOUTS, Layout, Row
from vitbook.pretrained.weight_files import read_file
from vitbook.vit import VisionTransformer

CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"
TRANSFORMERS = next(layout for layout in LAYOUTS if layout.block == "vit.layers.{i}.")  # in memory, since version 5
_BASE, _PARTS = "base_model.model.", (".lora_A.weight", ".lora_B.weight")
# What would compute something else than is read here, by what it is where it does not
_PLAIN: dict[str, Any] = dict(peft_type="LORA", use_dora=False, fan_in_fan_out=False, lora_bias=False, bias="none")
_PLAIN |= dict(use_rslora=False, alpha_pattern={}, rank_pattern={})


@torch.no_grad()
def load_adapter(model: VisionTransformer, folder: Path) -> None:
    """Put an adapter on a model in place: a `LoRALinear` for each map that it changes, and its head, if it has one.

    Where they change queries and values apart, the one map that gives both here gets both, one A below the other. All
    else of the model is frozen. Raises ValueError, with the folder, for an adapter of another kind or for another
    model, which stays as it was, and OSError for files.
    """
    config, older = read_json(folder / CONFIG) or {}, folder / "adapter_model.bin"
    tensors = read_file(older if older.exists() else folder / TENSORS)[0]
    try:
        if unread := [
            f"{key} {config.get(key)!r}" for key, plain in _PLAIN.items() if config.get(key) not in (plain, None)
        ]:
            raise ValueError(f"expected a plain LoRA of peft, got {listed(unread)}")
        state = {name.removeprefix(_BASE): tensor for name, tensor in tensors.items()}
        names = {re.sub(r"lora_[AB]\.", "", name) for name in state}
        layouts = [{name: row for row in one.rows(model.config.depth) for name in row.theirs} for one in LAYOUTS]
        rows = min(layouts, key=lambda rows: len(names - rows.keys()))
        if lacking := names - rows.keys():
            raise ValueError(
                f"an adapter for another model: one of {model.config.depth} blocks has no {listed(lacking)}"
            )
        whole = {rows[name].ours: rows[name].read(state) for name in names & state.keys()}
        if whole and (
            whole.keys() != {"head.weight", "head.bias"} or whole["head.weight"].shape[1:] != (model.config.dim,)
        ):
            raise ValueError(f"an adapter for another model, which replaces {listed(whole)}")
        changed = {rows[name].ours: rows[name] for name in names - state.keys()}
        adapted = {name: _adapted(row, model, config.get("lora_alpha", 8), state) for name, row in changed.items()}
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from None
    freeze(model)
    for name, linear in adapted.items():
        parent, _, child = name.removesuffix(".weight").rpartition(".")
        setattr(model.get_submodule(parent), child, linear)
    if whole:
        model.head = nn.Linear(model.config.dim, len(whole["head.bias"])).to(next(model.parameters()))
        model.head.load_state_dict({name.removeprefix("head."): tensor for name, tensor in whole.items()})
        model.config = replace(model.config, num_classes=len(whole["head.bias"]))


def _adapted(row: Row, model: nn.Module, alpha: float, state: Mapping[str, Tensor]) -> LoRALinear:
    """The map of a row with what an adapter adds to it."""
    linear = model.get_submodule(row.ours.removesuffix(".weight"))
    if type(linear) is not nn.Linear:
        raise ValueError(f"{row.ours} belongs to a {type(linear).__name__}, which takes no adapter")
    modules = [name.removesuffix(".weight") for name in row.theirs]
    columns, rows = linear.in_features, linear.out_features // len(modules)
    pairs: dict[int, tuple[Tensor, Tensor]] = {}
    for k, name in enumerate(modules):
        a, b = (state.get(name + part) for part in _PARTS)
        if a is not None and b is not None and a.shape[1:] == (columns,) and b.shape == (rows, len(a)):
            pairs[k] = a, b
        elif a is not None or b is not None:
            got = " and ".join("nothing" if one is None else str(tuple(one.shape)) for one in (a, b))
            raise ValueError(f"an adapter for another model: {name} maps {columns} to {rows} numbers, got {got}")
    every = [a for a, _ in pairs.values()]
    shared = all(torch.equal(every[0], a) for a in every)
    a, first = every[0] if shared else torch.cat(every), 0
    b = a.new_zeros(linear.out_features, len(a))
    for k, (part, theirs) in pairs.items():
        b[k * rows : (k + 1) * rows, first : first + len(part)] = theirs * (alpha / len(part))
        first += 0 if shared else len(part)
    if len(a) > min(columns, linear.out_features):  # as many rows as there are columns say the same
        a, b = torch.eye(columns).to(a), b @ a
    adapted = LoRALinear(linear, len(a), alpha=len(a))
    adapted.lora_a.copy_(a)
    adapted.lora_b.copy_(b)
    return adapted


@torch.no_grad()
def save_adapter(
    model: VisionTransformer, folder: Path, base: str | None = None, layout: Layout = TRANSFORMERS
) -> None:
    """Write a model's LoRA and its head as peft does: adapter_config.json and adapter_model.safetensors in a folder.

    base: the folder or id of the model that it belongs to; layout: the names that its library has in memory. Raises
    ValueError for a model without LoRA, and for maps that the layout has no names for.
    """
    found = {f"{name}.weight": part for name, part in model.named_modules() if isinstance(part, LoRALinear)}
    rows = {row.ours: row for row in layout.rows(model.config.depth)}
    if nowhere := found.keys() - rows.keys():
        raise ValueError(f"{layout.name} has no names for LoRA of {listed(sorted(nowhere))}")
    ranks = {(len(part.lora_a), part.lora_scale.item()) for part in found.values()}
    if len(ranks) != 1:
        raise ValueError(f"expected LoRA of one rank, got {listed(sorted(ranks)) or 'none'}")
    tensors: dict[str, Tensor] = {}
    rank, scale = ranks.pop()
    for name, part in found.items():
        for theirs, b in zip(rows[name].theirs, part.lora_b.chunk(len(rows[name].theirs)), strict=True):
            module = _BASE + theirs.removesuffix(".weight")
            tensors |= dict(
                zip((module + _PARTS[0], module + _PARTS[1]), (part.lora_a.clone(), b.clone()), strict=True)
            )
    targets = sorted({name.removesuffix(_PARTS[0]).rpartition(".")[2] for name in tensors if name.endswith(_PARTS[0])})
    heads = [rows[f"head.{kind}"] for kind in ("weight", "bias") if isinstance(model.head, nn.Linear)]
    for row in heads:
        tensors |= {_BASE + name: t for name, t in row.write(model.get_parameter(row.ours)).items()}
    config = _PLAIN | dict(base_model_name_or_path=base, r=rank, lora_alpha=scale * rank, target_modules=targets)
    config |= dict(modules_to_save=[row.theirs[0].removesuffix(".weight") for row in heads[:1]], inference_mode=True)
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / TENSORS, save({name: t.cpu().contiguous() for name, t in tensors.items()}, {"format": "pt"}))
    write_whole(folder / CONFIG, (json.dumps(config, indent=2) + "\n").encode())

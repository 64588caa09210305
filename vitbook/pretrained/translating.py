"""A checkpoint in some library's names → the same tensors in ours, and back: by its table in `layouts`.

Which table it is, its names tell: the one that accounts for most of them.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vitbook._common.suggestions import listed
from vitbook.pretrained.layouts import CLASS, LAYOUTS, PATCHES, POSITIONS, REGISTERS, Layout, Row
from vitbook.vit import VisionTransformer

# Families without a table, by what only their names contain; the first that matches is named in the error.
_OTHER_FAMILIES = {
    "a Swin Transformer": r"layers\.\d+\.blocks\.\d+\.",
    "a masked autoencoder with its decoder": r"\bdecoder",
    "CLIP with a ResNet": r"visual\.(layer1|attnpool)\b",
    "a NaFlex model of timm": r"\bembeds\.proj\b",
    "a big_vision model with all blocks in one array": r"encoderblock/",
    "a BEiT or an EVA": r"relative_position|\.[qv]_bias\b|rope\.freqs",
    "a ResNet": r"layer1\.0\.conv1|stages\.0\.layers\.0\.layer\.0\.convolution",
}


@dataclass(frozen=True)
class Translation:
    """A checkpoint in our names and axes, and what is known about it."""

    layout: Layout
    tensors: dict[str, Tensor]  # by our names
    origin: dict[str, str]  # their names, by ours
    num_heads: int | None = None  # where the layout shows it
    dropped: tuple[str, ...] = ()  # their names of what our model has no place for
    beside: tuple[str, ...] = ()  # their names of what is outside the image tower


def translate(state: Mapping[str, Tensor]) -> Translation:
    """A checkpoint's tensors by our names, each of them used once.

    Raises ValueError, with their names, for an unknown layout, for missing and unexpected tensors, and for other axes.
    """
    layout, rows = _recognize(state)
    rows = [row for row in rows if not row.optional or any(name in state for name in row.theirs)]
    state = dict(state) | _key_biases(state, rows) | _masked_biases(state)
    wanted = dict.fromkeys(name for row in rows for name in row.theirs)
    tower = "" if layout.tower is None else layout.prefix + layout.tower
    beside = tuple(name for name in state if not name.startswith(tower) and name not in wanted)
    state = {name: tensor for name, tensor in state.items() if name not in beside}
    wrong = {"missing": [n for n in wanted if n not in state], "unexpected": [n for n in state if n not in wanted]}
    if any(wrong.values()):
        named = "; ".join(f"{problem} {listed(names)}" for problem, names in wrong.items() if names)
        raise ValueError(f"these weights, in the layout {layout.name}, do not fit: {named}{_resemblance(state)}")
    tensors, origin, heads = {}, {}, set()
    for row in [row for row in rows if row.ours]:
        origin[row.ours] = ", ".join(row.theirs)
        try:
            tensors[row.ours] = row.read(state)
        except (RuntimeError, IndexError):
            shapes = ", ".join(str(tuple(state[name].shape)) for name in row.theirs)
            flat = row.ours == PATCHES and state[row.theirs[0]].ndim == 2
            why = ": flattened patches, as in NaFlex files, of which Hugging Face's are read" if flat else ""
            raise ValueError(
                f"{origin[row.ours]}: expected axes {row.axes or 'that agree'}, got {shapes}{why}"
            ) from None
        if "h" in (axes := row.axes.split()):
            heads.add(state[row.theirs[0]].shape[axes.index("h")])
    heads |= _heads_by_rotation(state, layout, tensors)
    if len(heads) > 1:
        raise ValueError(f"expected the same number of heads in every tensor, got {sorted(heads)}")
    for name in layout.zeros:
        if (weight := tensors.get(name.replace(".bias", ".weight"))) is not None:
            tensors[name], origin[name] = weight.new_zeros(weight.shape[:1]), "nothing"
    if POSITIONS in tensors and tensors[POSITIONS].ndim == 3:  # what has no position gets a row of zeros
        table, registers = tensors[POSITIONS], tensors.get(REGISTERS)
        first = int(CLASS in tensors and layout.class_position)
        zeros = int(CLASS in tensors and not first) + (0 if registers is None else sum(registers.shape[1:2]))
        rows_of_zeros = table.new_zeros(1, zeros, table.shape[2])
        tensors[POSITIONS] = torch.cat([table[:, :first], rows_of_zeros, table[:, first:]], dim=1)
    names = (name for row in rows if not row.ours for name in row.theirs)
    dropped = tuple(name for name in names if not name.endswith((".bias_mask", ".periods")))  # which were used
    return Translation(layout, tensors, origin, next(iter(heads), None), dropped, beside)


def untranslate(model: VisionTransformer, layout: Layout) -> dict[str, Tensor]:
    """A model's weights in the names and axes of a layout. Raises ValueError for what has no name there."""
    ours, theirs = {name: tensor.detach() for name, tensor in model.state_dict().items()}, {}
    if (table := ours.get(POSITIONS)) is not None:  # where theirs has no position, ours is part of the token
        for name, first in ((REGISTERS, int(CLASS in ours)), (CLASS, 0)):
            if name in ours and not (name == CLASS and layout.class_position):
                rest = first + ours[name].shape[1]
                ours[name] = ours[name] + table[:, first:rest]
                table = torch.cat([table[:, :first], table[:, rest:]], dim=1)
        ours[POSITIONS] = table
    nowhere = [name for name in layout.zeros if name in ours and ours.pop(name).any()]
    rows = {row.ours: row for row in layout.rows(model.config.depth)}
    for row in rows.values():
        if row.ours in ours:
            for name, tensor in row.write(ours[row.ours], model.config.num_heads).items():
                theirs[name] = torch.cat([theirs[name], tensor]) if name in theirs else tensor
            if row.ours.endswith("attn.qkv.bias") and len(row.theirs) == 3 and not layout.key_bias:
                nowhere += [row.ours] if theirs.pop(row.theirs[1]).any() else []
    if nowhere := [*nowhere, *(name for name in ours if name not in rows)]:
        raise ValueError(f"{layout.name} has no place for {listed(nowhere)}")
    return theirs


def _key_biases(state: Mapping[str, Tensor], rows: list[Row]) -> dict[str, Tensor]:
    """Zeros for the biases of keys that a family lacks, where those of its queries are there."""
    pairs = [row.theirs[:2] for row in rows if row.ours.endswith("attn.qkv.bias") and len(row.theirs) == 3]
    return {key: torch.zeros_like(state[query]) for query, key in pairs if query in state and key not in state}


def _masked_biases(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """DINOv3's biases, as it uses them: times a mask, which is 0 for keys."""
    biases = {}
    for name, mask in state.items():
        bias = state.get(name.removesuffix("_mask"))
        if name.endswith(".bias_mask") and bias is not None:
            if mask.shape != bias.shape:
                raise ValueError(f"{name}: expected shape {tuple(bias.shape)}, got {tuple(mask.shape)}")
            biases[name.removesuffix("_mask")] = bias * mask
    return biases


def _heads_by_rotation(state: Mapping[str, Tensor], layout: Layout, tensors: dict[str, Tensor]) -> set[int]:
    """The number of heads, where DINOv3's own periods of rotation are there: one for each four numbers of a head."""
    name = f"{layout.prefix}rope_embed.periods"
    if name not in state:
        return set()
    periods = state[name].double().flatten()
    expected = float(layout.settings["rotary_base"]) ** (torch.arange(len(periods), dtype=torch.float64) / len(periods))
    if not len(periods) or not torch.allclose(periods, expected, rtol=0.01):
        raise ValueError(f"{name}: expected {listed(expected.tolist())}, got {listed(periods.tolist())}")
    return {sum(tensors[PATCHES].shape[:1]) // (4 * len(periods))}


def _recognize(state: Mapping[str, Tensor]) -> tuple[Layout, list[Row]]:
    """The layout that accounts for most of a checkpoint's names and asks for fewest others, and its rows.

    Of two with the same names, the one whose patches are flattened or not, as here, and in which the patches that have
    a position fill a square.
    """
    candidates = []
    for layout in LAYOUTS:
        patches = next(row for row in layout.rows(0) if row.ours == PATCHES)
        anchor, flat = patches.theirs[0], "(p q c)" in patches.axes
        for prefix in {name.removesuffix(anchor) for name in state if name.endswith(anchor)}:
            found = replace(layout, prefix=prefix)
            block = re.escape(prefix + layout.block).replace(r"\{i\}", r"(\d+)")
            depth = len({match[1] for name in state if (match := re.match(block, name))})
            rows = found.rows(max(depth, 1))
            wanted = [name for row in rows for name in row.theirs if name in state or not row.optional]
            fit = sum(1 if name in state else -1 for name in wanted)
            alike = flat == (state[prefix + anchor].ndim == 2)
            candidates.append((fit, alike, _is_square(state, found), found, rows))
    if not candidates:
        known, names = ", ".join(dict.fromkeys(layout.name for layout in LAYOUTS)), listed(state) or "nothing"
        raise ValueError(f"no Vision Transformer in a known layout ({known}): got {names}{_resemblance(state)}")
    return max(candidates, key=lambda candidate: candidate[:3])[3:]


def _is_square(state: Mapping[str, Tensor], layout: Layout) -> bool:
    """Whether the positions, without that of the class token if it has one, are those of a square of patches."""
    names = {row.ours: row.theirs[0] for row in layout.rows(0)}
    table = state.get(names.get(POSITIONS) or "")
    patches = table.shape[-2] - int(layout.class_position) if table is not None and table.ndim > 1 else 0
    return patches > 0 and math.isqrt(patches) ** 2 == patches


def _resemblance(state: Iterable[str]) -> str:
    """Which other family a checkpoint's names are like, for the end of an error message."""
    names = "\n".join(state)
    family = next((family for family, pattern in _OTHER_FAMILIES.items() if re.search(pattern, names)), None)
    return f"; by its names this is {family}, which has no table here" if family else ""

"""A checkpoint in some library's names → the same tensors in ours, and back: by its table in `layouts`.

Which table it is, its names tell: the one that accounts for most of them.
"""

import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vitbook._common.suggestions import listed
from vitbook.pretrained.layouts import CLASS, DISTILLATION, GAMMA, LAYOUTS, PATCHES, POSITIONS, REGISTERS, Layout, Row
from vitbook.pretrained.refused_formats import named
from vitbook.vit import VisionTransformer

# Names beside a model's that belong to its training or its preprocessing, and that nothing here needs
NOT_THE_MODEL = re.compile(
    r"(.*\.)?(n_averaged|num_batches_tracked|(pixel_|image_)?(mean|std)|total_(ops|params))|(criterion|loss\w*|"
    r"metrics?|\w*_(loss|acc|accuracy|metrics?))\..*|\w*(loss_fn)\..*"
)


@dataclass(frozen=True)
class Translation:
    """A checkpoint in our names and axes, and what is known about it."""

    layout: Layout
    family: str  # whose preprocessing and guesses are taken
    tensors: dict[str, Tensor]  # by our names
    origin: dict[str, str]  # their names, by ours
    num_heads: int | None = None  # where the layout shows it
    dropped: tuple[str, ...] = ()  # their names of what our model has no place for
    beside: tuple[str, ...] = ()  # their names of what is outside the image tower


def translate(state: Mapping[str, Tensor], sides: tuple[int, int] | None = None) -> Translation:
    """A checkpoint's tensors by our names, each of them used once.

    sides: height and width of images in pixels, where they are known: of their patches are the positions, if they fit.

    Raises ValueError, with their names, for an unknown layout, for missing and unexpected tensors, and for other axes.
    """
    state = _plainly_named(state)
    layout, rows = _recognize(state, sides)
    biasless = _biasless_heads(rows, state)
    layout = replace(layout, zeros=(*layout.zeros, *biasless))
    rows = [row for row in rows if _asked_for(row, state) and row.ours not in biasless]
    state = dict(state) | _key_biases(state, rows) | _masked_biases(state)
    wanted = dict.fromkeys(name for row in rows for name in row.theirs)
    tower = layout.prefix + (layout.tower or "")
    outside = [name for name in state if name not in wanted]
    beside = [name for name in outside if not name.startswith(tower) or NOT_THE_MODEL.fullmatch(name)]
    beside.sort(key=lambda name: bool(NOT_THE_MODEL.fullmatch(name)))  # what may matter comes first
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
    if REGISTERS in tensors and not tensors[REGISTERS].numel():  # DINOv3 without registers has a table of no rows
        del tensors[REGISTERS]
    for name in layout.zeros:
        if (weight := tensors.get(name.replace(".bias", ".weight"))) is not None:
            tensors[name], origin[name] = weight.new_zeros(weight.shape[:1]), "nothing"
    if POSITIONS in tensors and tensors[POSITIONS].ndim == 3:  # what has no position gets a row of zeros
        table, (first, rest) = tensors[POSITIONS], _prefix(layout, tensors)
        rows_of_zeros = table.new_zeros(1, rest, table.shape[2])
        tensors[POSITIONS] = torch.cat([table[:, :first], rows_of_zeros, table[:, first:]], dim=1) if rest else table
    names = (name for row in rows if not row.ours for name in row.theirs)
    dropped = tuple(name for name in names if not name.endswith((".bias_mask", ".periods")))  # which were used
    return Translation(
        layout, _family(layout, tensors), tensors, origin, next(iter(heads), None), dropped, tuple(beside)
    )


def _asked_for(row: Row, state: Mapping[str, Tensor]) -> bool:
    """Whether a row of a layout is one of this checkpoint's."""
    there = any(name in state for name in row.theirs)
    instead = row.unless in state
    return (there and not instead) if row.optional else (there or not instead)


def _biasless_heads(rows: list[Row], state: Mapping[str, Tensor]) -> list[str]:
    """Our names of the biases that heads lack, which are then of zeros."""
    theirs = {row.ours: row.theirs[0] for row in rows}
    pairs = [(f"{head}.bias", theirs.get(f"{head}.weight")) for head in ("head", "head_dist")]
    return [bias for bias, weight in pairs if weight in state and bias in theirs and theirs[bias] not in state]


def _plainly_named(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors without what torch.compile adds to names, and with Flax's slashes where Flax wrote dots."""
    flax = any(name.endswith(".kernel") for name in state) and not any("/" in name for name in state)
    plain = {name.replace(".", "/") if flax else name.replace("_orig_mod.", ""): t for name, t in state.items()}
    if len(plain) < len(state):
        raise ValueError("two tensors have the same name but for _orig_mod., which torch.compile adds")
    return plain


def _prefix(layout: Layout, tensors: Mapping[str, Tensor]) -> tuple[int, int]:
    """How many of the tokens before the patches have a position in the layout's table, and how many have none."""
    tokens, registers = (CLASS in tensors) + (DISTILLATION in tensors), tensors.get(REGISTERS)
    every = tokens + (0 if registers is None else sum(registers.shape[1:2]))
    first = {"class": tokens, "all": every, "none": 0}[layout.positioned]
    return first, every - first


def _family(layout: Layout, tensors: Mapping[str, Tensor]) -> str:
    """The layout's own name; of what timm has one class for, the family that the tensors show."""
    if layout.name != "timm" or CLASS not in tensors:
        return layout.name
    if GAMMA in tensors and layout.positioned == "none" and REGISTERS not in tensors:
        return "deit3"
    return "dinov2" if GAMMA in tensors or REGISTERS in tensors else "timm"


def untranslate(model: VisionTransformer, layout: Layout) -> dict[str, Tensor]:
    """A model's weights in the names and axes of a layout. Raises ValueError for what has no name there."""
    ours, theirs = {name: tensor.detach() for name, tensor in model.state_dict().items()}, {}
    if (table := ours.get(POSITIONS)) is not None:  # where theirs has no position, ours is part of the token
        kept = {"class": (CLASS,), "all": (CLASS, REGISTERS), "none": ()}[layout.positioned]
        for name, first in ((REGISTERS, int(CLASS in ours)), (CLASS, 0)):
            if name in ours and name not in kept:
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


def _recognize(state: Mapping[str, Tensor], sides: tuple[int, int] | None) -> tuple[Layout, list[Row]]:
    """The layout that accounts for most of a checkpoint's names and asks for fewest others, and its rows.

    Of several with the same names, the one whose patches are flattened or not, as here, and in which the patches that
    have a position are those of the images, or fill a square. Raises ValueError for none, and for two image towers.
    """
    candidates = []
    for layout in LAYOUTS:
        patches = next(row for row in layout.rows(0) if row.ours == PATCHES)
        anchor, flat = patches.theirs[0], "(p q c)" in patches.axes
        for prefix in sorted({name.removesuffix(anchor) for name in state if name.endswith(anchor)}):
            found = replace(layout, prefix=prefix)
            block = re.escape(prefix + layout.block).replace(r"\{i\}", r"(\d+)")
            depth = len({match[1] for name in state if (match := re.match(block, name))})
            rows = found.rows(max(depth, 1))
            wanted = {name for row in rows if _asked_for(row, state) for name in row.theirs}
            missing = [name for name in wanted if name not in state]
            fit = sum(name in state for name in wanted) - len(missing)
            alike = flat == (state[prefix + anchor].ndim == 2)
            score = (fit, alike, _fits(state, found, state[prefix + anchor], sides))
            candidates.append((score, prefix + anchor, missing, found, rows))
    if not candidates:
        known, names = ", ".join(dict.fromkeys(layout.name for layout in LAYOUTS)), listed(state) or "nothing"
        raise ValueError(f"no Vision Transformer in a known layout ({known}): got {names}{_resemblance(state)}")
    whole = dict.fromkeys(anchor for _, anchor, missing, *_ in candidates if not missing)
    if len(whole) > 1:
        words = [re.split("[./]", anchor) for anchor in whole]
        same = len(os.path.commonprefix([one[::-1] for one in words]))
        towers = [".".join(one[:-same]) for one in words]
        named, one = " and ".join(repr(tower) for tower in towers), next(filter(None, towers))
        raise ValueError(f"there are {len(whole)} image towers, {named}: say which, as #{one} behind the file's name")
    return max(candidates, key=lambda candidate: candidate[0])[3:]


def _fits(state: Mapping[str, Tensor], layout: Layout, patches: Tensor, sides: tuple[int, int] | None) -> int:
    """How well the positions fit patches: 2 for those of the images, 1 for those of a square, 0 for neither."""
    theirs = {row.ours: row.theirs[0] for row in layout.rows(0)}
    table = state.get(theirs.get(POSITIONS) or "")
    if table is None or table.ndim < 2:
        return 0
    ours = {name: state[theirs[name]] for name in (CLASS, DISTILLATION, REGISTERS) if theirs.get(name) in state}
    count = table.shape[-2] - _prefix(layout, ours)[0]
    if sides is not None and patches.ndim == 4:
        side = patches.shape[0 if "/" in theirs[PATCHES] else -1]
        if side and not any(s % side for s in sides) and count == math.prod(s // side for s in sides):
            return 2
    return int(count > (layout.positioned == "none" and CLASS in ours) and math.isqrt(count) ** 2 == count)


def _resemblance(state: Iterable[str]) -> str:
    """Which other family a checkpoint's names are like, for the end of an error message."""
    family = named("families", ["\n".join(state)])
    return f"; by its names this is {family}, which has no table here" if family else ""

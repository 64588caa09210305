"""How other libraries name and order the tensors of a Vision Transformer: a table for each, ours beside theirs.

The tables stand in assets/layouts.toml. A new library is a new table there and an entry in `LAYOUTS`; under the same
name a line in `STYLES` (`preprocessing`) and one in `KERNELS` (`adapting`), or in `_KERNEL_OF` (`loading`) where it
interpolates positions as another does; in `config_files`, what its configuration says; in assets/published_weights.toml
the sizes that are known by name. `translating` recognizes it by the names of its tensors.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import torch
from einops import rearrange
from torch import Tensor

from vitbook._common.files import ASSETS, read_table

_OUR_BLOCK = "encoder.blocks.{i}."
CLASS, DISTILLATION = "embedding.cls_token", "embedding.dist_token"  # our names
REGISTERS = "embedding.register_tokens"
POSITIONS, PATCHES = "embedding.positions.pos_embed", "embedding.patch_embed.proj.weight"
GAMMA = "encoder.blocks.0.attn.proj.gamma"


@dataclass(frozen=True)
class Row:
    """One tensor of ours, and the one or several of theirs that hold its numbers."""

    ours: str  # "" for what our model has no place for
    theirs: tuple[str, ...]
    axes: str = ""  # their axes -> ours, as einops writes it; empty where they are the same
    optional: bool = False
    unless: str = ""
    share: tuple[int, int] = (0, 1)  # which part of theirs is ours, and of how many laid end to end

    def read(self, state: Mapping[str, Tensor]) -> Tensor:
        """Our tensor, made of theirs."""
        parts = [state[name] for name in self.theirs]
        x = torch.stack(parts) if len(parts) > 1 else parts[0][None]  # an error unless all have the same shape
        if self.axes:
            theirs, ours = self.axes.split(" -> ")
            sides = _patch_sides(x.shape[-1]) if "(p q c)" in theirs else {}
            x = rearrange(x, f"n {theirs} -> n {ours}", **sides)
        part, of = self.share
        return x.flatten(0, 1).chunk(of)[part]

    def write(self, tensor: Tensor, num_heads: int = 1) -> dict[str, Tensor]:
        """Their tensors, made of ours; of a tensor that several of ours share, our part. num_heads: h of the axes."""
        parts = tensor.chunk(len(self.theirs))
        if self.axes:
            theirs, ours = self.axes.split(" -> ")
            h = {"h": num_heads} if "h" in theirs.split() else {}
            parts = [rearrange(part, f"{ours} -> {theirs}", **h) for part in parts]
        return {name: part.clone() for name, part in zip(self.theirs, parts, strict=True)}


@dataclass(frozen=True)
class Names:
    """A line of a table. {weight,bias} stands for two names.

    Several of theirs for one of ours, such as queries, keys and values, are laid end to end, and one of theirs for
    several of ours holds them so.
    """

    ours: str  # "" for what our model has no place for
    theirs: str
    axes: str = ""  # theirs -> ours, as einops writes it; empty where they are the same
    optional: bool = False  # whether it may be missing
    unless: str = ""  # theirs that may stand in its place


@dataclass(frozen=True)
class Layout:
    """A library's names: of the tensors outside the blocks, and of those in block i, which begin with `block`."""

    name: str
    outside: tuple[Names, ...]
    block: str
    inside: tuple[Names, ...]  # our names begin with _OUR_BLOCK
    positioned: str = "class"  # which tokens before the patches have a position: those but registers, "all", or "none"
    settings: dict[str, Any] = field(default_factory=dict)  # fields of ModernConfig that no tensor shows
    zeros: tuple[str, ...] = ()  # biases of ours that it lacks
    key_bias: bool = True  # whether keys have one, where they are apart from queries and values
    # D/h by D, where it is not 64
    head_dim: Mapping[int, int] = field(default_factory=lambda: {1152: 72, 1280: 80, 1408: 88, 1664: 104})
    tower: str | None = None  # what the image tower's names begin with, where a text tower may stand beside it
    prefix: str = ""  # what all names of a file begin with
    kernel: str = ""  # how its library interpolates positions, a key of KERNELS, where that is not the family's way

    def rows(self, depth: int) -> list[Row]:
        """Every tensor of a model of `depth` blocks, those outside first."""
        rows = list(_rows(self.outside, "", self.prefix))
        for i in range(depth):
            rows += _rows(self.inside, _OUR_BLOCK.format(i=i), self.prefix + self.block.format(i=i))
        return rows

    def renamed(self, name: str, words: dict[str, str], **changes: Any) -> "Layout":
        """The same layout with other words in their names, replaced one after the other. changes: other fields."""

        def in_other_words(text: str) -> str:
            for old, new in words.items():
                text = text.replace(old, new)
            return text

        outside, inside = (
            tuple(replace(names, theirs=in_other_words(names.theirs)) for names in table)
            for table in (self.outside, self.inside)
        )
        return replace(self, name=name, outside=outside, block=in_other_words(self.block), inside=inside, **changes)


def _rows(table: tuple[Names, ...], ours_begins: str, theirs_begins: str) -> Iterator[Row]:
    for line in table:
        left, right = _expand(line.ours), _expand(line.theirs)
        shares = max(len(left) // len(right), 1)
        for k, name in enumerate(left):
            names = tuple(theirs_begins + theirs for theirs in right[k % len(right) :: len(left)])
            ours = ours_begins + name if name else ""
            unless = theirs_begins + line.unless if line.unless else ""
            yield Row(ours, names, line.axes, line.optional, unless, (k // len(right), shares))


def _nowhere(theirs: str) -> Names:
    """What our model has no place for."""
    return Names("", theirs, optional=True)


def _patch_sides(numbers: int) -> dict[str, int]:
    """Side and channels of square patches that are laid out as so many numbers: colors, if that comes out even."""
    colors = math.isqrt(numbers // 3)
    return dict(p=colors, c=3) if 3 * colors**2 == numbers else dict(p=math.isqrt(numbers), c=1)


def _expand(name: str) -> list[str]:
    """ "a.{b,c}" is "a.b" and "a.c"; the last braces vary fastest."""
    parts = [part.split(",") for part in re.split(r"[{}]", name)]
    return ["".join(chosen) for chosen in product(*parts)]


# The layouts


def _tables() -> dict[str, Layout]:
    """Those of the file, by their names there."""
    found: dict[str, Layout] = {}
    for key, table in read_table(ASSETS / "layouts.toml").items():
        start = found[table.pop("like")] if "like" in table else Layout("", (), "", ())
        for part in {"outside", "inside", "more"} & table.keys():
            lines = table[part]
            table[part] = found[lines].inside if isinstance(lines, str) else tuple(map(_names, lines))
        if more := table.pop("more", ()):
            table["outside"] = start.outside + more
        if "head_dim" in table:  # TOML's keys are words
            table["head_dim"] = {int(dim): width for dim, width in table["head_dim"].items()}
        found[key] = replace(start, **table | {"zeros": tuple(table.get("zeros", start.zeros))})
    return found


def _names(line: list[Any]) -> Names:
    """A line of the file: ours, theirs, axes where they are given, and other fields by their names."""
    words: list[Any] = [word for word in line if isinstance(word, str)]
    return Names(*words, **line[-1] if isinstance(line[-1], dict) else {})


def _as_ours(table: tuple[Names, ...]) -> tuple[Names, ...]:
    """A table's left column on both sides."""
    return tuple(replace(names, theirs=names.ours) for names in table)


TABLES = _tables()
GOOGLE, BIG_VISION, TIMM = TABLES["GOOGLE"], TABLES["BIG_VISION"], TABLES["TIMM"]
TORCHVISION, HUGGING_FACE = TABLES["TORCHVISION"], TABLES["HUGGING_FACE"]
CLIP, CLIP_TEXT = TABLES["CLIP"], TABLES["CLIP_TEXT"]  # the image tower, and the text tower
VITBOOK = Layout("vitbook", _as_ours(TIMM.outside), _OUR_BLOCK, _as_ours(TIMM.inside))

PUBLISHED_TORCHVISION = TORCHVISION.renamed("torchvision", {"mlp.0": "mlp.linear_1", "mlp.3": "mlp.linear_2"})
LAYOUTS = [GOOGLE, BIG_VISION, TIMM, *(replace(TIMM, positioned=which) for which in ("none", "all"))]
LAYOUTS += [TORCHVISION, PUBLISHED_TORCHVISION, VITBOOK]

# Hugging Face's library has other names in memory than in its files.
_IN_MEMORY = {
    "attention.attention.{query,key,value}": "attention.{q_proj,k_proj,v_proj}",
    "attention.output.dense": "attention.o_proj",
    "intermediate.dense": "mlp.fc1",
    "output.dense": "mlp.fc2",
}
_VIT_IN_MEMORY = {"encoder.layer.": "layers."} | _IN_MEMORY
_MSN = {"vit.encoder.": "encoder."}  # as transformers writes ViTMSN with a head
DISTILLED = {"vit.": "deit.", "classifier": "cls_classifier", "distillation_cls_": "distillation_"}
_SIMILAR = [HUGGING_FACE.renamed("hf", {"vit.": root}) for root in ("vit.", "", "ijepa.")]
_SIMILAR += [HUGGING_FACE.renamed("hf", DISTILLED)]
# with a distillation token and one head, which does not see it: to us, a register
_UNTAUGHT = {"embedding.dist_token": REGISTERS}
_ONE_HEAD = tuple(replace(names, ours=_UNTAUGHT.get(names.ours, names.ours)) for names in _SIMILAR[-1].outside)
_SIMILAR += [replace(_SIMILAR[-1], outside=_ONE_HEAD, positioned="all").renamed("hf", {"cls_classifier": "classifier"})]
LAYOUTS += [layout.renamed("hf", words) for layout in _SIMILAR for words in ({}, _VIT_IN_MEMORY, _MSN)]

# DINOv2 and v3, each with an MLP and with SwiGLU
_GATED = {"mlp.fc1": "mlp.weights_in", "mlp.fc2": "mlp.weights_out"}
_GATED_IN_MEMORY = {"mlp.fc1": "mlp.{gate_proj,up_proj}", "mlp.fc2": "mlp.down_proj"}
for root in ("", "dinov2.", "dinov2_with_registers."):
    for words in ({}, _GATED, _IN_MEMORY, _IN_MEMORY | _GATED_IN_MEMORY):
        LAYOUTS += [TABLES["DINOV2"].renamed("dinov2", words | {"dinov2.": root})]
# DINOv2's own files, whose names are timm's but for the registers
_HUB = TIMM.renamed("dinov2", {"reg_token": "register_tokens"}, head_dim={})
_HUB = replace(_HUB, outside=(*_HUB.outside, _nowhere("mask_token")))
LAYOUTS += [_HUB, _HUB.renamed("dinov2", {"mlp.fc1": "mlp.w12", "mlp.fc2": "mlp.w3"})]
# DeiT-III has timm's names, and no position for the class token; in its authors' files γ is named as here.
_DEIT3 = tuple(
    replace(line, optional=line.optional and line.ours != CLASS) for line in TIMM.outside if line.ours != REGISTERS
)
_DEIT3_WORDS = {"ls1.gamma": "gamma_1", "ls2.gamma": "gamma_2"}
LAYOUTS += [replace(TIMM, outside=_DEIT3).renamed("deit3", _DEIT3_WORDS, positioned="none")]
for layout, words in (
    (TABLES["DINOV3_HUB"], {"mlp.fc1": "mlp.{w1,w2}", "mlp.fc2": "mlp.w3"}),
    (TABLES["DINOV3_TIMM"], {"mlp.fc1": "mlp.{fc1_g,fc1_x}"}),
    (TABLES["DINOV3"], {"mlp.up_": "mlp.{gate_,up_}"}),
    (TABLES["DINOV3"].renamed("dinov3", {"layer.": "model.layer."}), {"mlp.up_": "mlp.{gate_,up_}"}),
):
    LAYOUTS += [layout, layout.renamed("dinov3", words)]

LAYOUTS += [CLIP, CLIP.renamed("clip", {"vision_model.": ""}, tower=None), TABLES["CLIP_HUB"], TABLES["CLIP_TIMM"]]
LAYOUTS += [CLIP.renamed("clip", {"encoder.layers.": "encoder.layer."})]  # as transformers writes AltCLIP
# SigLIP 2 of variable resolution ("NaFlex") at Hugging Face: patches are cut out, and flattened, before the model.
_SIGLIP, _PATCH = TABLES["SIGLIP"], "vision_model.embeddings.patch_embedding"
_FLATTENED = (
    Names(PATCHES, f"{_PATCH}.weight", "D (p q c) -> D c p q"),
    Names(PATCHES.replace("weight", "bias"), f"{_PATCH}.bias"),
    *(names for names in _SIGLIP.outside if not names.theirs.startswith(_PATCH)),
)
for siglip in (_SIGLIP, replace(_SIGLIP, outside=_FLATTENED, kernel="siglip2")):
    LAYOUTS += [siglip, siglip.renamed("siglip", {"vision_model.": ""}, tower=None)]
    dropped = (_nowhere(line.theirs) if line.ours.startswith("pooling.") else line for line in siglip.outside)
    head = Names("head.{weight,bias}", "classifier.{weight,bias}")  # a classifier sees the mean of the patches
    LAYOUTS += [replace(siglip, outside=(*dropped, head))]
LAYOUTS += [TABLES["SIGLIP_TIMM"], TABLES["SIGLIP_BIG_VISION"]]

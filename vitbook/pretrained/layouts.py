"""How other libraries name and lay out the tensors of a Vision Transformer: a table for each, theirs beside ours.

A line of a table: our name, their name, and, where their axes are ordered otherwise, how einops brings them into our
order. {weight,bias} stands for two names; three of theirs for one of ours are queries, keys and values, laid end to
end. A name with ? need not be there; a line that begins with - names what our model has no place for.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

import torch
from einops import rearrange
from torch import Tensor

OUR_BLOCK = "encoder.blocks.{i}."
PATCHES = "embedding.patch_embed.proj.weight"  # ours; whoever has this one has a Vision Transformer


@dataclass(frozen=True)
class Row:
    """One tensor of ours, and the one or three of theirs that hold its numbers."""

    ours: str
    theirs: tuple[str, ...]
    axes: str = ""  # their axes and ours, as einops writes it; empty where they are the same
    optional: bool = False

    @property
    def their_axes(self) -> list[str]:
        """Names of the axes of each of theirs, where they are not ours."""
        return self.axes.partition(" -> ")[0].split()

    def read(self, state: Mapping[str, Tensor]) -> Tensor:
        """Our tensor, made of theirs. Raises ValueError where theirs have other axes, or queries and keys differ."""
        parts = [state[name] for name in self.theirs]
        for name, part in zip(self.theirs, parts, strict=True):
            if self.axes and part.ndim != len(self.their_axes):
                raise ValueError(f"{name}: expected axes ({', '.join(self.their_axes)}), got shape {tuple(part.shape)}")
            if part.shape != parts[0].shape:
                expected = f"{tuple(parts[0].shape)} as {self.theirs[0]}"
                raise ValueError(f"{name}: expected shape {expected}, got {tuple(part.shape)}")
        if self.axes:
            parts = [rearrange(part, self.axes) for part in parts]
        return torch.cat(parts) if len(parts) > 1 else parts[0]

    def write(self, tensor: Tensor) -> dict[str, Tensor]:
        """Their tensors, made of ours; for rows whose axes are the same."""
        return {name: part.clone() for name, part in zip(self.theirs, tensor.chunk(len(self.theirs)), strict=True)}


@dataclass(frozen=True)
class Layout:
    """A library's names: of the tensors outside the blocks, and of those in block i, which begin with `block`."""

    name: str
    outside: str  # a table
    block: str
    inside: str  # a table; ours begin with OUR_BLOCK

    def rows(self, depth: int, prefix: str = "") -> list[Row]:
        """Every tensor of a model of `depth` blocks, those outside first. prefix: what all their names begin with."""
        rows = list(read_table(self.outside, "", prefix))
        for i in range(depth):
            rows += read_table(self.inside, OUR_BLOCK.format(i=i), prefix + self.block.format(i=i))
        return rows

    def renamed(self, name: str, changes: dict[str, str]) -> "Layout":
        """The same layout in other words, replaced one after the other."""
        parts = [self.outside, self.block, self.inside]
        for old, new in changes.items():
            parts = [part.replace(old, new) for part in parts]
        return Layout(name, *parts)


def read_table(table: str, ours_begins: str, theirs_begins: str) -> Iterator[Row]:
    """The rows of a table, a line at a time."""
    for line in filter(None, map(str.strip, table.splitlines())):
        ours, theirs, *axes = re.split(r"\s{2,}", line)
        left, right = spelled_out(ours.rstrip("?")), spelled_out(theirs)
        for k, name in enumerate(left):
            names = tuple(theirs_begins + theirs for theirs in right[k :: len(left)])
            if ours == "-":
                yield from (Row("-", (dropped,), optional=True) for dropped in names)
            else:
                yield Row(ours_begins + name, names, "".join(axes), ours.endswith("?"))


def spelled_out(name: str) -> list[str]:
    """ "a.{b,c}" is "a.b" and "a.c"; the last braces turn quickest."""
    parts = [part.split(",") for part in re.split(r"[{}]", name)]
    return ["".join(chosen) for chosen in product(*parts)]


# The layouts: ours, theirs, and their axes as ours

# Google's .npz files of Dosovitskiy et al. 2021 and Steiner et al. 2022, written by Flax. D width, h heads of width d,
# p×q patches of c channels, f the MLP's hidden width, k classes.
GOOGLE = Layout(
    "google",
    """
    embedding.cls_token                 cls
    embedding.positions.pos_embed       Transformer/posembed_input/pos_embedding
    embedding.patch_embed.proj.weight   embedding/kernel                              p q c D -> D c p q
    embedding.patch_embed.proj.bias     embedding/bias
    norm.{weight,bias}                  Transformer/encoder_norm/{scale,bias}
    -                                   pre_logits/{kernel,bias}
    head.weight?                        head/kernel                                   D k -> k D
    head.bias?                          head/bias
    """,
    "Transformer/encoderblock_{i}/",
    """
    norm1.{weight,bias}   LayerNorm_0/{scale,bias}
    attn.qkv.weight       MultiHeadDotProductAttention_1/{query,key,value}/kernel     D h d -> (h d) D
    attn.qkv.bias         MultiHeadDotProductAttention_1/{query,key,value}/bias       h d -> (h d)
    attn.proj.weight      MultiHeadDotProductAttention_1/out/kernel                   h d D -> D (h d)
    attn.proj.bias        MultiHeadDotProductAttention_1/out/bias
    norm2.{weight,bias}   LayerNorm_2/{scale,bias}
    mlp.fc1.weight        MlpBlock_3/Dense_0/kernel                                   D f -> f D
    mlp.fc1.bias          MlpBlock_3/Dense_0/bias
    mlp.fc2.weight        MlpBlock_3/Dense_1/kernel                                   f D -> D f
    mlp.fc2.bias          MlpBlock_3/Dense_1/bias
    """,
)

# Google's later code. Positions leave out the class token, which is not always there: then patches are averaged.
BIG_VISION = GOOGLE.renamed(
    "big_vision",
    {
        "embedding.cls_token ": "embedding.cls_token?",
        "Transformer/posembed_input/": "",
        "LayerNorm_2": "LayerNorm_1",
        "MultiHeadDotProductAttention_1": "MultiHeadDotProductAttention_0",
        "MlpBlock_3": "MlpBlock_0",
    },
)

# timm, and DeiT's own files, which are made with it. Distilled models have a second token and a second head.
TIMM = Layout(
    "timm",
    """
    embedding.cls_token                        cls_token
    embedding.dist_token?                      dist_token
    embedding.positions.pos_embed              pos_embed
    embedding.patch_embed.proj.{weight,bias}   patch_embed.proj.{weight,bias}
    norm.{weight,bias}                         norm.{weight,bias}
    head.{weight,bias}?                        head.{weight,bias}
    head_dist.{weight,bias}?                   head_dist.{weight,bias}
    """,
    "blocks.{i}.",
    """
    norm1.{weight,bias}       norm1.{weight,bias}
    attn.qkv.weight           attn.qkv.weight
    attn.qkv.bias?            attn.qkv.bias
    attn.proj.{weight,bias}   attn.proj.{weight,bias}
    norm2.{weight,bias}       norm2.{weight,bias}
    mlp.fc1.{weight,bias}     mlp.fc1.{weight,bias}
    mlp.fc2.{weight,bias}     mlp.fc2.{weight,bias}
    """,
)

TORCHVISION = Layout(
    "torchvision",
    """
    embedding.cls_token                        class_token
    embedding.positions.pos_embed              encoder.pos_embedding
    embedding.patch_embed.proj.{weight,bias}   conv_proj.{weight,bias}
    norm.{weight,bias}                         encoder.ln.{weight,bias}
    -                                          heads.pre_logits.{weight,bias}
    head.{weight,bias}?                        heads.head.{weight,bias}
    """,
    "encoder.layers.encoder_layer_{i}.",
    """
    norm1.{weight,bias}       ln_1.{weight,bias}
    attn.qkv.{weight,bias}    self_attention.in_proj_{weight,bias}
    attn.proj.{weight,bias}   self_attention.out_proj.{weight,bias}
    norm2.{weight,bias}       ln_2.{weight,bias}
    mlp.fc1.{weight,bias}     mlp.0.{weight,bias}
    mlp.fc2.{weight,bias}     mlp.3.{weight,bias}
    """,
)

# Hugging Face's files; its library of today says it otherwise in memory, and translates.
HUGGING_FACE = Layout(
    "hf",
    """
    embedding.cls_token                        vit.embeddings.cls_token
    embedding.dist_token?                      vit.embeddings.distillation_token
    embedding.positions.pos_embed              vit.embeddings.position_embeddings
    embedding.patch_embed.proj.{weight,bias}   vit.embeddings.patch_embeddings.projection.{weight,bias}
    norm.{weight,bias}                         vit.layernorm.{weight,bias}
    -                                          vit.pooler.dense.{weight,bias}
    head.{weight,bias}?                        classifier.{weight,bias}
    head_dist.{weight,bias}?                   distillation_classifier.{weight,bias}
    """,
    "vit.encoder.layer.{i}.",
    """
    norm1.{weight,bias}       layernorm_before.{weight,bias}
    attn.qkv.weight           attention.attention.{query,key,value}.weight
    attn.qkv.bias?            attention.attention.{query,key,value}.bias
    attn.proj.{weight,bias}   attention.output.dense.{weight,bias}
    norm2.{weight,bias}       layernorm_after.{weight,bias}
    mlp.fc1.{weight,bias}     intermediate.dense.{weight,bias}
    mlp.fc2.{weight,bias}     output.dense.{weight,bias}
    """,
)
IN_MEMORY = {
    "encoder.layer.": "layers.",
    "attention.attention.{query,key,value}": "attention.{q_proj,k_proj,v_proj}",
    "attention.output.dense": "attention.o_proj",
    "intermediate.dense": "mlp.fc1",
    "output.dense": "mlp.fc2",
}
DISTILLED = {"vit.": "deit.", "  classifier": "  cls_classifier"}

VITBOOK = Layout(
    "vitbook",
    re.sub(r"(\S+?)(\??) .*", r"\1\2  \1", TIMM.outside),
    OUR_BLOCK,
    re.sub(r"(\S+?)(\??) .*", r"\1\2  \1", TIMM.inside),
)

LAYOUTS = [GOOGLE, BIG_VISION, TIMM, TORCHVISION, VITBOOK]
LAYOUTS += [
    TORCHVISION.renamed("torchvision", {"mlp.0": "mlp.linear_1", "mlp.3": "mlp.linear_2"})
]  # the published files
for root in ({}, {"vit.": ""}, DISTILLED):  # with a head; without one; with two
    LAYOUTS += [HUGGING_FACE.renamed("hf", root), HUGGING_FACE.renamed("hf", IN_MEMORY | root)]


# From their names to ours


@dataclass(frozen=True)
class Translation:
    """A checkpoint in our names and axes, and what there is to know about it."""

    layout: str
    tensors: dict[str, Tensor]  # by our names
    origin: dict[str, str]  # their names, for our names
    num_heads: int | None  # where the layout tells
    dropped: tuple[str, ...]  # their names for what our model has no place for


def translate(state: Mapping[str, Tensor]) -> Translation:
    """A checkpoint's tensors by our names, each of them used once.

    Raises ValueError, with their names, for a checkpoint of no known layout, for tensors that are missing or left over,
    and for those with other axes than the layout says.
    """
    layout, rows = recognise(state)
    present = [row for row in rows if not row.optional or any(name in state for name in row.theirs)]
    wanted = [name for row in present for name in row.theirs]
    missing, left = [name for name in wanted if name not in state], [name for name in state if name not in set(wanted)]
    if missing or left:
        found = [f"{what} {listed(names)}" for what, names in (("missing", missing), ("left over", left)) if names]
        raise ValueError(f"these weights, in the layout {layout.name}, do not fit: {'; '.join(found)}")
    kept = [row for row in present if row.ours != "-"]
    tensors = {row.ours: row.read(state) for row in kept}
    heads = {
        row.theirs[0]: state[row.theirs[0]].shape[row.their_axes.index("h")] for row in kept if "h" in row.their_axes
    }
    first = next(iter(heads), "")
    for name in heads:
        if heads[name] != heads[first]:
            raise ValueError(f"{name}: expected {heads[first]} heads as {first}, got {heads[name]}")
    return Translation(
        layout.name,
        tensors,
        {row.ours: ", ".join(row.theirs) for row in kept},
        heads.get(first),
        tuple(row.theirs[0] for row in present if row.ours == "-"),
    )


def recognise(state: Mapping[str, Tensor]) -> tuple[Layout, list[Row]]:
    """The layout that accounts for most of a checkpoint's names, and its rows. Raises ValueError where none does."""
    candidates = []
    for layout in LAYOUTS:
        anchor = next(row for row in layout.rows(0) if row.ours == PATCHES).theirs[0]
        for prefix in {name.removesuffix(anchor) for name in state if name.endswith(anchor)}:
            block = re.escape(prefix + layout.block).replace(r"\{i\}", r"(\d+)")
            depth = len({match[1] for name in state if (match := re.match(block, name))})
            rows = layout.rows(max(depth, 1), prefix)
            candidates.append((sum(name in state for row in rows for name in row.theirs), layout, rows))
    if not candidates:
        known = ", ".join(dict.fromkeys(layout.name for layout in LAYOUTS))
        raise ValueError(f"no Vision Transformer in a known layout ({known}): found {listed(list(state)) or 'nothing'}")
    return max(candidates, key=lambda candidate: candidate[0])[1:]


def listed(names: list[str], most: int = 4, between: str = ", ") -> str:
    """The first of some names, and how many more there are."""
    return between.join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")

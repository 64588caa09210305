"""A figure that answers: point at a patch and see what it attends to. One string of HTML, without server or network.

`explore` makes the page. `explain_file` answers one question about one image file, behind `vitbook explain`.
"""

import base64
import copy
import io
import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib import resources
from pathlib import Path
from string import Template
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, UInt8
from PIL import Image, ImageColor
from torch import Tensor

from vitbook._support.files import write_whole
from vitbook.attention_maps import gradient_weighted_attention, recorded_attention, rollout
from vitbook.training import keeping_modes
from vitbook.vit import VisionTransformer

LEVELS = 128  # steps between 0 and the largest weight of a row
MAX_BYTES = 300_000
MAX_SIDE = 256  # pixels of an image's longer side
TOP = 5  # how many patches are named in words
# matplotlib's viridis at 0, 1/16, …, 1, which is straight enough in between
COLORS = (
    *("#440154", "#48186a", "#472d7b", "#424086", "#3b528b", "#33638d", "#2c728e", "#26828e", "#21918c"),
    *("#1fa088", "#28ae80", "#3fbc73", "#5ec962", "#84d44b", "#addc30", "#d8e219", "#fde725"),
)


@dataclass(frozen=True)
class Explorer:
    """The figure: shown where it is a cell's last line, or kept as a page of its own by `save`."""

    html: str = field(repr=False)
    about: str

    def _repr_html_(self) -> str:
        return self.html

    def save(self, path: str | Path) -> None:
        """Write it as a page that any browser opens, whole or not at all."""
        page = Template(_asset("explorer-page.html")).substitute(about=escape(self.about), explorer=self.html)
        write_whole(Path(path), page.encode())


def explore(
    model: VisionTransformer,
    images: UInt8[Tensor, "B C H W"],
    prepare: Callable[[Tensor], Tensor],
    *,
    titles: Sequence[str] = (),
    class_names: Sequence[str] = (),
    layers: Sequence[int] = (),
    heads: Sequence[int] = (),
    max_bytes: int | None = MAX_BYTES,
) -> Explorer:
    """What every token of some images attends to, to be explored by mouse, touch, keyboard and screen reader.

    images: grayscale or RGB, of any size that the patches divide. Where it is not the model's, positions are resized in
        a copy of the model, and the figure says so.
    prepare: makes the model's input of them, such as `Dataset.normalize`.
    titles: of the images; class_names: of the model's classes.
    layers, heads: those to choose from, all if not given, counted from 0, or from −1 at the end. The mean of heads is
        there only where all of them are. Rollout and, for a model with classes, gradient-weighted attention for the
        likeliest one go through all blocks and heads.
    max_bytes: how large the HTML may be; None for any size. 300 kB hold two images of 8×8 patches with 6 blocks of 4
        heads. A weight is kept as one of 129 levels between 0 and the largest of its row, which is exact in float32.

    Raises ValueError for images, titles, names, layers and heads that do not fit, and where max_bytes is exceeded.
    """
    if images.ndim != 4 or images.shape[1] not in (1, 3) or images.dtype != torch.uint8 or not len(images):
        got = f"{images.dtype} {tuple(images.shape)}"
        raise ValueError(f"images must be uint8 (B, 1, H, W) or (B, 3, H, W), got {got}")
    model, note = resized_model(model, tuple(images.shape[2:]))
    weights, rolled, relevance, logits = observe_attention(model, prepare(images))
    num_layers, _, num_heads, tokens, _ = weights.shape
    layers = [number_in("layer", n, num_layers) for n in layers or range(num_layers)]
    heads = [number_in("head", n, num_heads) for n in heads or range(num_heads)]
    rows, columns = model.embedding.grid
    prefix = tokens - rows * columns

    maps = [weights[layer, :, head] for layer in layers for head in heads] + [rolled]  # each (B, T, T)
    views = [dict(name=f"Block {n}", says=f"Block {n}, {{head}}: what {{query}} attends to") for n in layers]
    through = f"through all {num_layers} blocks" if num_layers > 1 else "through the only block"
    views.append(dict(name="Rollout", says=f"Rollout: what has reached {{query}} {through}"))
    if relevance is not None:
        maps.append(relevance)
        views.append(dict(name="Gradient-weighted", says=f"What counts for {{class}} at {{query}}, {through}"))
    every_head = sorted(heads) == list(range(num_heads)) and num_heads > 1
    tops, codes = _quantized(torch.stack(maps, dim=1))
    facts = dict(
        grid=(rows, columns),
        prefix=prefix,
        names=["class token", "distillation token"][:prefix]
        + [f"row {i}, column {j}" for i, j in np.ndindex(rows, columns)],
        views=views,
        layers=len(layers),
        heads=[f"mean of {num_heads} heads"] * every_head + [f"head {head}" for head in heads],
        stored=len(heads),
        images=_describe(images, titles, logits, class_names),
        query=0 if prefix else rows // 2 * columns + columns // 2,  # at first, as is the last block
        top=TOP,
        colors=COLORS,
        levels=LEVELS,
        note=note,
        weights=base64.b64encode(zlib.compress(tops.tobytes() + codes.tobytes(), 9)).decode(),
    )
    html = _html(images[0], tops[0], codes[0], facts)
    if max_bytes is not None and (size := len(html.encode())) > max_bytes:
        raise ValueError(f"the figure has {size:,} bytes, over {max_bytes:,}: take fewer images, layers or heads")
    about = f"blocks: {num_layers}, heads: {num_heads}, patches: {rows}×{columns}, images: {len(images)}"
    return Explorer(html, f"Attention, {about}")


def number_in(name: str, number: int, count: int) -> int:
    """The number of a block or head, counted from 0; −1 is the last. Raises ValueError where there is no such one."""
    if not -count <= number < count:
        raise ValueError(f"{name} must lie in 0 … {count - 1}, or -{count} … -1 from the end, got {number}")
    return number % count


def resized_model(model: VisionTransformer, image_size: tuple[int, int]) -> tuple[VisionTransformer, str]:
    """The model itself, or a copy with positions resized to these images, and what was done, in words."""
    if model.config.image_size == image_size:
        return model, ""
    resized = copy.deepcopy(model)
    resized.resize(image_size)
    old, new = ("×".join(map(str, m.embedding.grid)) for m in (model, resized))
    return resized, f"Positions were resized from {old} to {new} patches."


class Observed(NamedTuple):
    """What attends to what, on the CPU. For a model without classes, relevance and logits are None."""

    weights: Float[Tensor, "L B h T T"]
    rollout: Float[Tensor, "B T T"]
    relevance: Float[Tensor, "B T T"] | None  # `gradient_weighted_attention` for the likeliest class, as shares
    logits: Float[Tensor, "B K"] | None


@torch.inference_mode(False)
@torch.enable_grad()
def observe_attention(model: VisionTransformer, inputs: Float[Tensor, "B C H W"]) -> Observed:
    """What attends to what in evaluation. Relevance is without what each token starts with, its own."""
    inputs = inputs.detach().to(next(model.parameters()).device).clone()  # a tensor made for inference has no graph
    inputs.requires_grad_()  # so that there is a graph also where the model's parameters are frozen
    with keeping_modes(model), recorded_attention(model) as recorded:
        logits = model.eval().forward(inputs)  # not as compiled: the weights would have no graph
    weights = _finite("attention weights", torch.stack(recorded))
    if not model.config.num_classes:
        return Observed(weights, rollout(weights), None, None)
    likeliest, logits = logits.amax(dim=-1), _finite("logits", logits)
    relevance = _finite("gradient-weighted attention", gradient_weighted_attention(recorded, likeliest))
    relevance = relevance - torch.eye(relevance.shape[-1])
    relevance = relevance / relevance.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
    return Observed(weights, rollout(weights), relevance, logits)


def _finite(name: str, values: Tensor) -> Tensor:
    """Values in float32 on the CPU. Raises ValueError where some are not finite, which no page could show."""
    values = values.detach().float().cpu()
    if not values.isfinite().all():
        raise ValueError(f"some of this model's {name} are not finite")
    return values


def _quantized(weights: Float[Tensor, "*rows T"]) -> tuple[np.ndarray, np.ndarray]:
    """Weights ≥ 0 as top · code / LEVELS: the largest of each row, float32 (…), and codes, uint8 (…, T)."""
    tops = weights.amax(dim=-1)
    codes = (weights / tops[..., None].clamp(min=torch.finfo(weights.dtype).tiny) * LEVELS).round()
    return tops.numpy().astype("<f4"), codes.numpy().astype(np.uint8)


def _describe(images: Tensor, titles: Sequence[str], logits: Tensor | None, class_names: Sequence[str]) -> list[dict]:
    """Each image's address and title, and, where there are logits, the likeliest class and its probability."""
    titles = _named("titles", titles, len(images), "image")
    described = [dict(src=_address(_pillow(image)), title=title) for image, title in zip(images, titles, strict=True)]
    if logits is not None:
        class_names = _named("class_names", class_names, logits.shape[1], "class")
        shares, likeliest = (values.tolist() for values in logits.softmax(dim=-1).max(dim=-1))
        for image, k, share in zip(described, likeliest, shares, strict=True):
            image |= dict(guess=class_names[k], share=round(share, 4))
    return described


def _named(argument: str, names: Sequence[str], count: int, one: str) -> Sequence[str]:
    """The given names, or numbers in place of none. Raises ValueError for too many or too few."""
    if len(names) not in (0, count):
        raise ValueError(f"{argument} must be {count}, one for each {one}, got {len(names)}")
    return names or [f"{one} {i}" for i in range(count)]


def _html(image: UInt8[Tensor, "C H W"], tops: np.ndarray, codes: np.ndarray, facts: dict) -> str:
    """The figure: the facts, what makes a figure of them, and its first view in words for where no scripts run."""
    names, prefix, query, stored = (facts[name] for name in ("names", "prefix", "query", "stored"))
    last = slice((facts["layers"] - 1) * stored, facts["layers"] * stored)  # the heads of the last block
    heads = tops[last, query, None].astype(np.float64) * codes[last, query] / LEVELS  # (h, T)
    row = heads.mean(axis=0) if len(facts["heads"]) > stored else heads[0]
    top = [prefix + int(i) for i in np.argsort(-row[prefix:], kind="stable")[:TOP]] + list(range(prefix))
    says = facts["views"][facts["layers"] - 1]["says"]
    return Template(_asset("explorer.html")).substitute(
        says=escape(says.format(query="the " * bool(prefix) + names[query], head=facts["heads"][0])),
        still=_still(_pillow(image), row[prefix:].reshape(facts["grid"])),
        rows="".join(f'<tr><th scope="row">{names[i]}</th><td>{100 * row[i]:.1f}\u00a0%</td></tr>' for i in top),
        off=2 * LEVELS,
        css=_asset("explorer.css"),
        js=_asset("explorer.js"),
        facts=json.dumps(facts, ensure_ascii=False, separators=(",", ":")).replace("<", r"\u003c"),
    )


def _still(image: Image.Image, weights: np.ndarray) -> str:
    """An image and the map of its patches, (rows, columns), side by side."""
    width, height = round(200 * image.width / image.height), 200
    shares = weights / max(weights.max(), np.finfo(np.float64).tiny)
    colors = np.array([ImageColor.getrgb(color) for color in COLORS], np.uint8)
    painted = Image.fromarray(colors[((len(COLORS) - 1) * shares).round().astype(int)])
    both = Image.new("RGB", (2 * width + 8, height), "white")
    both.paste(image.convert("RGB").resize((width, height)), (0, 0))
    both.paste(painted.resize((width, height), Image.Resampling.NEAREST), (width + 8, 0))
    return _address(both, 2 * MAX_SIDE)


def _address(image: Image.Image, max_side: int = MAX_SIDE) -> str:
    """An image as a data: address: PNG where it is small, JPEG of at most max_side pixels else."""
    file, kind = io.BytesIO(), "png" if max(image.size) <= 64 else "jpeg"
    image.thumbnail((max_side, max_side))
    image.save(file, kind, optimize=kind == "png", quality=85)
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"


def _pillow(image: UInt8[Tensor, "C H W"]) -> Image.Image:
    """A grayscale or RGB image for Pillow."""
    return Image.fromarray(image.cpu().permute(1, 2, 0).squeeze(-1).numpy())


def _asset(name: str) -> str:
    """A text file of the package."""
    return resources.files("vitbook.explorer").joinpath(name).read_text(encoding="utf-8")

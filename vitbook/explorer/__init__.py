"""A figure that answers: point at a patch and see what it attends to. One string of HTML, without server or network."""

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

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vitbook._support.files import write_whole
from vitbook._support.images import to_tensor
from vitbook._support.validation import check_kind
from vitbook.attention_maps import check_number, gradient_weighted_attention, recorded_attention, rollout
from vitbook.training import keeping_modes
from vitbook.vit import VisionTransformer

LEVELS = 128  # steps between 0 and the largest weight of a row
MAX_BYTES = 300_000
MAX_SIDE = 256  # pixels of a picture's longer side
TOP = 5  # so many patches are named in words
# matplotlib's viridis at 0, 1/16, …, 1, which is straight enough in between
COLOURS = (
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
        page = Template(read_asset("explorer-page.html")).substitute(about=escape(self.about), explorer=self.html)
        write_whole(Path(path), page.encode())


def explore(
    model: VisionTransformer,
    images: Tensor,
    prepare: Callable[[Tensor], Tensor],
    *,
    titles: Sequence[str] = (),
    class_names: Sequence[str] = (),
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    max_bytes: int | None = MAX_BYTES,
) -> Explorer:
    """What every token of some pictures attends to, to be explored by mouse, touch, keyboard and screen reader.

    images: uint8 (B, C, H, W), C 1 or 3, of any size that the patches divide: where it is not the model's, positions
        are resized in a copy of the model, and the figure says so; prepare: makes the model's input of them, such as
        `Dataset.normalise`.
    titles: of the pictures; class_names: of what the model may say.
    layers, heads: those to choose from, all if not given, counted from 0, or from −1 at the end; the mean of heads is
        there only where all of them are. Rollout, and for a model with classes gradient-weighted attention for the
        likeliest one, are always there, and go through all blocks and heads.
    max_bytes: how large the HTML may be; None for any size.

    Each weight is kept as one of 129 levels between 0 and the largest of its row, so that it is off by at most 1/256 of
    that; the largest itself is exact in float32. A weight takes about 0.75 bytes deflated, one in base64: 300 kB hold
    two pictures of 8×8 patches with 6 blocks of 4 heads, or nine with one of the blocks.

    Raises ValueError for pictures, titles, names, layers and heads that do not fit, and where max_bytes is exceeded.
    """
    check_pictures(images, titles)
    model, note = resized_model(model, tuple(images.shape[2:]))
    weights, rolled, relevance, scores = observe_attention(model, prepare(images))
    num_layers, _, num_heads, tokens, _ = weights.shape
    layers = chosen_numbers("layer", layers, num_layers)
    heads = chosen_numbers("head", heads, num_heads)
    grid = model.embedding.grid
    num_prefix_tokens = tokens - grid[0] * grid[1]

    maps = [weights[layer, :, head] for layer in layers for head in heads] + [rolled]  # each (B, T, T)
    views = [
        dict(name=f"Block {layer}", says=f"Block {layer}, {{head}}: what {{query}} attends to") for layer in layers
    ]
    through = f"through all {num_layers} blocks" if num_layers > 1 else "through the only block"
    views.append(dict(name="Rollout", says=f"Rollout: what has reached {{query}} {through}"))
    if relevance is not None:
        maps.append(relevance)
        views.append(dict(name="Gradient-weighted", says=f"What counts for {{class}} at {{query}}, {through}"))
    every_head = sorted(heads) == list(range(num_heads)) and num_heads > 1
    tops, codes = quantise_rows(torch.stack(maps, dim=1))
    facts = dict(
        grid=grid,
        prefix=num_prefix_tokens,
        names=token_names(grid, num_prefix_tokens),
        views=views,
        layers=len(layers),
        heads=[f"mean of {num_heads} heads"] * every_head + [f"head {head}" for head in heads],
        stored=len(heads),
        pictures=describe_pictures(images, titles, scores, class_names),
        query=0 if num_prefix_tokens else grid[0] // 2 * grid[1] + grid[1] // 2,  # at first, as is the last block
        top=TOP,
        colours=COLOURS,
        levels=LEVELS,
        note=note,
        weights=base64.b64encode(zlib.compress(tops.tobytes() + codes.tobytes(), 9)).decode(),
    )
    last = slice((len(layers) - 1) * len(heads), len(layers) * len(heads))
    query = facts["query"]
    shown = tops[0, last, query, None].astype(np.float64) * codes[0, last, query] / LEVELS  # (heads, T)
    html = figure_html(images[0], shown.mean(axis=0) if every_head else shown[0], facts)
    size = len(html.encode())
    if max_bytes is not None and size > max_bytes:
        raise ValueError(f"the figure has {size:,} bytes, over {max_bytes:,}: take fewer pictures, layers or heads")
    counts = dict(blocks=num_layers, heads=num_heads, patches=f"{grid[0]}×{grid[1]}", pictures=len(images))
    return Explorer(html, "Attention, " + ", ".join(f"{name}: {count}" for name, count in counts.items()))


def check_pictures(images: Tensor, titles: Sequence[str]) -> None:
    """Raise ValueError unless these are pictures, uint8 (B, 1 or 3, H, W), each with its title or none with one."""
    if images.ndim != 4 or images.shape[1] not in (1, 3) or images.dtype != torch.uint8 or not len(images):
        expected = "uint8 (B, 1, H, W) or (B, 3, H, W)"
        raise ValueError(f"images must be {expected}, got {images.dtype} {tuple(images.shape)}")
    if titles and len(titles) != len(images):
        raise ValueError(f"titles must be {len(images)}, one for each picture, got {len(titles)}")


def chosen_numbers(name: str, numbers: Sequence[int] | None, count: int) -> list[int]:
    """The numbers of blocks or heads, all where None. Raises ValueError for those that there are not, and for none."""
    found = list(range(count)) if numbers is None else [check_number(name, number, count) for number in numbers]
    if not found:
        raise ValueError(f"at least one {name} is needed, got {numbers}")
    return found


def resized_model(model: VisionTransformer, image_size: tuple[int, int]) -> tuple[VisionTransformer, str]:
    """The model itself, or a copy with positions resized to these pictures, and what was done, in words."""
    check_kind(VisionTransformer, model=model)
    if model.config.image_size == image_size:
        return model, ""
    old = model.embedding.grid
    model = copy.deepcopy(model)
    model.resize(image_size)
    new = model.embedding.grid
    return model, f"Positions were resized from {old[0]}×{old[1]} to {new[0]}×{new[1]} patches."


@torch.inference_mode(False)
@torch.enable_grad()
def observe_attention(model: VisionTransformer, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """What attends to what in evaluation, on the CPU: weights, rollout, relevance, scores.

    (B, C, H, W) → (L, B, h, T, T), (B, T, T), (B, T, T), (B, K). Relevance is `gradient_weighted_attention` for the
    likeliest class without what each token starts with, its own, each row as shares of its sum; it and the scores are
    None for a model without classes.
    """
    inputs = inputs.detach().to(next(model.parameters()).device).clone()  # a tensor made for inference has no graph
    inputs.requires_grad_()  # so that there is a graph also where the model's parameters are frozen
    with keeping_modes(model), recorded_attention(model) as recorded:
        scores = model.eval().forward(inputs)  # not as compiled: the weights would have no graph
    weights = finite("attention weights", torch.stack(recorded))
    if not model.config.num_classes:
        return weights, rollout(weights), None, None
    likeliest, scores = scores.amax(dim=-1), finite("scores", scores)
    relevance = finite("gradient-weighted attention", gradient_weighted_attention(recorded, likeliest))
    relevance = relevance - torch.eye(relevance.shape[-1])
    relevance = relevance / relevance.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
    return weights, rollout(weights), relevance, scores


def finite(name: str, values: Tensor) -> Tensor:
    """Values of any shape in float32 on the CPU. Raises ValueError where some are not finite."""
    values = values.detach().float().cpu()
    if not values.isfinite().all():
        raise ValueError(f"some of this model's {name} are not finite")
    return values


def quantise_rows(weights: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Weights as top · code / LEVELS. (…, T) ≥ 0 → the largest of each row, float32 (…), and codes, uint8 (…, T)."""
    tops = weights.amax(dim=-1)
    codes = (weights / tops[..., None].clamp(min=torch.finfo(weights.dtype).tiny) * LEVELS).round()
    return tops.numpy().astype("<f4"), codes.numpy().astype(np.uint8)


def token_names(grid: tuple[int, int], num_prefix_tokens: int) -> list[str]:
    """What the tokens are called, in their order."""
    prefix = ["class token", "distillation token"][:num_prefix_tokens]
    return prefix + [f"row {row}, column {column}" for row in range(grid[0]) for column in range(grid[1])]


def describe_pictures(
    images: Tensor, titles: Sequence[str], scores: Tensor | None, class_names: Sequence[str]
) -> list[dict[str, str | float]]:
    """Each picture's address and title, and, where there are scores (B, K), the likeliest class and its share."""
    titles = titles or [f"picture {i}" for i in range(len(images))]
    pictures = [dict(src=data_address(image), title=title) for image, title in zip(images, titles, strict=True)]
    if scores is None:
        return pictures
    if class_names and len(class_names) != scores.shape[1]:
        raise ValueError(f"class_names must be {scores.shape[1]}, one for each class, got {len(class_names)}")
    shares, classes = scores.softmax(dim=-1).max(dim=-1)
    guesses = [class_names[k] if class_names else f"class {k}" for k in classes.tolist()]
    for picture, guess, share in zip(pictures, guesses, shares.tolist(), strict=True):
        picture |= dict(guess=guess, share=round(share, 4))
    return pictures


def data_address(image: Tensor, max_side: int = MAX_SIDE) -> str:
    """A picture as a data: address: PNG where it is small, JPEG of at most max_side pixels else. uint8 (C, H, W)."""
    picture, file = picture_of(image), io.BytesIO()
    if max(picture.size) <= 64:
        picture.save(file, "PNG", optimize=True)
        return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
    picture.thumbnail((max_side, max_side))
    picture.save(file, "JPEG", quality=85)
    return f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"


def picture_of(image: Tensor) -> Image.Image:
    """uint8 (1, H, W) or (3, H, W) as a picture."""
    return Image.fromarray(image.cpu().permute(1, 2, 0).squeeze(-1).numpy())


def figure_html(image: Tensor, row: np.ndarray, facts: dict) -> str:
    """The figure's HTML: the facts, what makes a figure of them, and one row of weights (T,) for where scripts rest."""
    names, first = facts["names"], facts["prefix"]
    patches = row[first:]
    top = [first + int(i) for i in np.argsort(-patches, kind="stable")[:TOP]] + list(range(first))
    says = facts["views"][facts["layers"] - 1]["says"]
    return Template(read_asset("explorer.html")).substitute(
        says=escape(says.format(query="the " * bool(first) + names[facts["query"]], head=facts["heads"][0])),
        still=still_picture(image, patches.reshape(facts["grid"])),
        rows="".join(f'<tr><th scope="row">{names[i]}</th><td>{100 * row[i]:.1f}\u00a0%</td></tr>' for i in top),
        off=2 * LEVELS,
        css=read_asset("explorer.css"),
        js=read_asset("explorer.js"),
        facts=json.dumps(facts, ensure_ascii=False, separators=(",", ":")).replace("<", r"\u003c"),
    )


def still_picture(image: Tensor, weights: np.ndarray, height: int = 200) -> str:
    """A picture and the map of its patches side by side, as the address of a picture. (C, H, W), (rows, columns)."""
    picture = picture_of(image).convert("RGB")
    width = round(height * picture.width / picture.height)
    places = np.linspace(0, 1, len(COLOURS))
    colours = np.array([[int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in COLOURS])
    shares = weights / max(weights.max(), np.finfo(np.float64).tiny)
    painted = np.stack([np.interp(shares, places, channel) for channel in colours.T], axis=-1).round().astype(np.uint8)
    both = Image.new("RGB", (2 * width + 8, height), "white")
    both.paste(picture.resize((width, height)), (0, 0))
    both.paste(Image.fromarray(painted).resize((width, height), Image.Resampling.NEAREST), (width + 8, 0))
    return data_address(to_tensor(both), 2 * MAX_SIDE)


def read_asset(name: str) -> str:
    """A text file of the package."""
    return resources.files("vitbook.explorer").joinpath(name).read_text(encoding="utf-8")

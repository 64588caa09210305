"""One image file explained in one figure: what a token of it attends to. Behind `vitbook explain`."""

import io
import math
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from vitbook._common.files import write_whole
from vitbook._common.images import read_image, to_tensor
from vitbook.attention_maps import patch_map, recorded_attention, rollout
from vitbook.pretrained import Preprocessing, Pretrained
from vitbook.pretrained.adapting import adapt
from vitbook.training import keeping_modes
from vitbook_workshop.commands import plain
from vitbook_workshop.live.your_model import explore, resized_model
from vitbook_workshop.training_runs.trained_models import said_by, task_of

_MOST = 2**28  # attention weights of all heads that are kept at once; to follow them takes up to half a minute


@dataclass(frozen=True)
class Explanation:
    """What one token, the query, attends to in an image."""

    image: UInt8[Tensor, "C H W"]  # as the model saw it
    query: int | None  # the number of the patch that asks; None for the class token
    rollout: Float[Tensor, "rows columns"]  # how much of each patch has reached the query through all blocks
    layer: int
    heads: dict[int, Float[Tensor, "rows columns"]]  # what the query attends to in that layer, by head
    guess: tuple[str, float] | None  # as in `said_by`; None for a model that names nothing
    resized: str  # that positions were resized, in words; "" where they were not


def explain_image(
    weights: Pretrained,
    file: Path,
    layer: int = -1,
    head: int | None = None,
    query: tuple[int, int] | None = None,
    size: tuple[int, ...] = (),
) -> Explanation:
    """What a model attends to in an image file, which it sees as its weights want to see it.

    layer, head: from 0, or from −1 at the end; every head if None.
    query: row and column of a patch, from 0; the class token if None.
    size: height and width in pixels, or one number for both, to which the image is scaled, and the positions with it;
        the model's own if empty.

    Raises ValueError for a layer, head or patch that there is not, for None as the query of a model without class
    token, for a size that patches do not divide or that makes too many of them, for a file that is no image, and where
    a model's attention or logits are not finite.
    """
    preprocessing = at_size(weights, size)
    _check_tokens(weights, preprocessing.image_size)
    model, resized = resized_model(weights.model, preprocessing.image_size)
    grid, prefix = model.embedding.grid, len(model.embedding.prefix_tokens)
    if query is None and not prefix:
        raise ValueError("this model has no class token whose attention could be shown: name a patch as query")
    patch, token = None, 0
    if query is not None:
        patch = _number_in("row", query[0], grid[0]) * grid[1] + _number_in("column", query[1], grid[1])
        token = prefix + patch
    pixels = preprocessing.view(read_image(file))
    inputs = preprocessing.normalize(pixels).to(next(model.parameters()).device)
    with torch.no_grad(), keeping_modes(model), recorded_attention(model) as recorded:
        logits = model.eval()(inputs).float().cpu()
    attention = torch.stack(recorded).float().cpu()
    if not (attention.isfinite().all() and logits.isfinite().all()):
        raise ValueError("some of this model's attention weights or logits are not finite")
    rolled = rollout(attention)
    layer = _number_in("layer", layer, len(attention))
    heads = range(attention.shape[2]) if head is None else [_number_in("head", head, attention.shape[2])]
    maps = {head: patch_map(attention[layer, 0, head], grid, token, prefix) for head in heads}
    guess = said_by(weights, logits[0])[0] if task_of(weights) else None
    return Explanation(pixels[0], patch, patch_map(rolled[0], grid, token, prefix), layer, maps, guess, resized)


def write_figure(explanation: Explanation, path: Path) -> None:
    """The image, the rollout and the heads of an `Explanation` as a PNG, written whole or not at all.

    Raises ValueError where the path does not end in .png.
    """
    from vitbook.plotting import draw_explanation  # matplotlib takes a second to import, and only this needs it

    if path.suffix.lower() != ".png":
        raise ValueError(f"the figure is a PNG, and its path must end in .png, got {path}")
    e, file = explanation, io.BytesIO()
    titles = [f"block {e.layer}, head {head}" for head in e.heads]
    draw_explanation(e.image, e.rollout, list(e.heads.values()), titles, query=e.query).savefig(file, format="png")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, file.getvalue())


def write_page(weights: Pretrained, file: Path, path: Path, size: tuple[int, ...] = ()) -> None:
    """The page in which to explore an image file, all layers, heads and queries; size as in `explain_image`.

    A model that answers with anything but classes has no head there. Raises ValueError as `packed_model`, such as for
    a model that is too large.
    """
    image, model, class_names = to_tensor(read_image(file)), weights.model, list(map(plain, weights.class_names or ()))
    if task_of(weights) != "classes":
        model, class_names = deepcopy(model), []
        adapt(model, "timm", num_classes=0)
    page = explore(model, image[None], at_size(weights, size), titles=[plain(file.name)], class_names=class_names)
    path.parent.mkdir(parents=True, exist_ok=True)
    page.save(path)


def at_size(weights: Pretrained, size: tuple[int, ...]) -> Preprocessing:
    """What the weights want an image to look like, at this height and width, or the model's own."""
    if len(size) > 2 or min(size, default=1) < 1:
        raise ValueError(f"size must be height and width in pixels, or one number for both, got {size}")
    image_size = (size[0], size[-1]) if size else weights.model.config.image_size
    return replace(weights.preprocessing, image_size=image_size)


def _check_tokens(weights: Pretrained, image_size: tuple[int, int]) -> None:
    """Raise ValueError where the attention between all patches would take more than `_MOST` numbers."""
    c = weights.model.config
    maps, patches = c.depth * c.num_heads, math.prod(image_size) // c.patch_size**2
    if maps * patches**2 > _MOST:
        side = c.patch_size * math.isqrt(math.isqrt(_MOST // maps))
        needs = f"{patches:,} patches, whose attention in {maps} heads takes {4 * maps * patches**2 / 2**30:,.0f} GiB"
        height, width = image_size
        raise ValueError(f"size {height}×{width} makes {needs}, and the most is 1 GiB: up to {side}×{side} fits")


def _number_in(name: str, number: int, count: int) -> int:
    """The number of a block or head, counted from 0; −1 is the last. Raises ValueError where there is no such one."""
    if not -count <= number < count:
        raise ValueError(f"{name} must lie in 0 … {count - 1}, or -{count} … -1 from the end, got {number}")
    return number % count

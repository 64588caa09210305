"""What a model attends to in a picture file, found and drawn: behind `vitbook explain`."""

from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from vitbook._support.files import write_whole
from vitbook._support.images import read_picture
from vitbook.attention_maps import check_number, class_map, patch_map
from vitbook.explorer import explore, observe_attention, resized_model
from vitbook.pretrained import Pretrained


@dataclass(frozen=True)
class Explanation:
    """What one token, the query, attends to in a picture."""

    picture: Tensor  # uint8 (C, H, W), as the model saw it
    query: int | None  # the number of the patch that asks; None for the class token
    rollout: Tensor  # (rows, columns): how much of each patch has reached the query through all blocks
    layer: int
    heads: dict[int, Tensor]  # (rows, columns) by head: what the query attends to in that layer
    guess: tuple[str, float] | None  # the likeliest class and its probability; None for a model without classes
    resized: str  # that positions were resized, in words; "" where they were not


def explain_picture(
    weights: Pretrained,
    image: Path,
    layer: int = -1,
    head: int | None = None,
    query: tuple[int, int] | None = None,
    size: tuple[int, ...] = (),
) -> Explanation:
    """What a model attends to in a picture file, of which it sees what its weights want to see.

    layer, head: from 0, or from −1 at the end; every head if None.
    query: row and column of a patch, from 0; the class token if None.
    size: height and width in pixels, or one number for both, to which the picture is scaled, and the positions with it;
        the model's own if empty.

    Raises ValueError for a layer, head or patch that there is not, for None as the query of a model without class
    token, for a size that patches do not divide, and for a file that is no picture.
    """
    if len(size) > 2 or min(size, default=1) < 1:
        raise ValueError(f"size must be height and width in pixels, or one number for both, got {size}")
    image_size = (size[0], size[-1]) if size else weights.model.config.image_size
    model, resized = resized_model(weights.model, image_size)
    grid, num_prefix_tokens = model.embedding.grid, len(model.embedding.prefix_tokens)
    patch = None
    if query is not None:
        row, column = (check_number(*one) for one in zip(("row", "column"), query, grid, strict=True))
        patch = row * grid[1] + column
    preprocessing = replace(weights.preprocessing, image_size=image_size)
    pixels = preprocessing.view(read_picture(image.read_bytes(), str(image)))
    attention, rolled, _, scores = observe_attention(model, preprocessing.normalise(pixels))

    def shown(attention: Tensor) -> Tensor:
        """(1, T, T) → (rows, columns)"""
        if patch is None:
            return class_map(attention, grid, num_prefix_tokens)[0]
        return patch_map(attention, grid, num_prefix_tokens + patch, num_prefix_tokens)[0]

    layer = check_number("layer", layer, len(attention))
    heads = range(attention.shape[2]) if head is None else [check_number("head", head, attention.shape[2])]
    maps = {head: shown(attention[layer, :, head]) for head in heads}
    guess = None
    if scores is not None:
        share, best = scores[0].softmax(dim=0).max(dim=0)
        guess = weights.class_names[best] if weights.class_names else f"class {best}", share.item()
    return Explanation(pixels[0], patch, shown(rolled), layer, maps, guess, resized)


def write_explanation(explanation: Explanation, path: Path) -> None:
    """The picture, the rollout and the heads of an `Explanation` as a PNG, written whole or not at all.

    Raises ValueError where the path does not end in .png.
    """
    from vitbook import plotting  # matplotlib takes a second to import, and only this needs it

    if path.suffix.lower() != ".png":
        raise ValueError(f"the figure is a PNG, and its path must end in .png, got {path}")
    titles = [f"block {explanation.layer}, head {head}" for head in explanation.heads]
    heads = list(explanation.heads.values())
    figure = plotting.draw_explanation(explanation.picture, explanation.rollout, heads, titles, query=explanation.query)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, plotting.to_png(figure))


def write_explorer(weights: Pretrained, explanation: Explanation, path: Path) -> None:
    """The page in which to explore an explained picture, all its layers, heads and queries."""
    page = explore(
        weights.model,
        explanation.picture[None],
        weights.preprocessing.normalise,
        class_names=weights.class_names or (),
        max_bytes=None,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    page.save(path)

"""The figure `ask` for a model and images of one's own."""

import copy
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image
from torch import Tensor

from vitbook._common.validation import check_kind
from vitbook.pretrained import Preprocessing, Pretrained
from vitbook.vit import VisionTransformer
from vitbook_workshop.live import figure_data, figures


def explore(
    model: VisionTransformer,
    images: UInt8[Tensor, "B C H W"],
    prepare: Preprocessing,
    *,
    titles: Sequence[str] = (),
    class_names: Sequence[str] = (),
) -> figures.LiveFigure:
    """The figure of `figures.ask` for your own model and images. `save` writes it as a page; a notebook has a still.

    model: a `VisionTransformer`, a `ModernViT` or a `DistilledVisionTransformer`, with classes or without. Of what
        holds one, such as a `TwoTowers` or a `MaskedAutoencoder`, its `image` or `backbone`.
    images: grayscale or RGB; the page scales them as `prepare` does, and a reader can add more.
    prepare: what the model wants an image to look like. Where its image_size is not the model's, positions are resized
        in a copy of the model, and the figure says so.
    titles: of the images; class_names: of the model's classes.

    Raises ValueError for images, titles and names that do not fit, and for a model as `packed_model`;
    TypeError where `prepare` is anything else, such as a function, which no page could run.
    """
    check_kind(Preprocessing, prepare=prepare)
    if images.ndim != 4 or images.shape[1] not in (1, 3) or images.dtype != torch.uint8 or not len(images):
        got = f"{images.dtype} {tuple(images.shape)}"
        raise ValueError(f"images must be uint8 (B, 1, H, W) or (B, 3, H, W), got {got}")
    figure_data.check_model(model)
    model, note = resized_model(model, prepare.image_size)
    titles = _named("titles", titles, len(images), "image")
    class_names = _named("class_names", class_names, model.config.num_classes, "class")
    photographs = [
        figure_data.photograph(f"image-{i}", title, note, Image.fromarray(_pixels(image)))
        for i, (image, title) in enumerate(zip(images, titles, strict=True))
    ]
    return figures.ask(Pretrained(model, prepare, tuple(class_names), "vitbook", ()), photographs)


def _pixels(image: UInt8[Tensor, "C H W"]) -> np.ndarray:
    """An image as Pillow takes it: (H, W, 3), of gray (H, W)."""
    return image.cpu().permute(1, 2, 0).squeeze(-1).numpy()


def _named(argument: str, names: Sequence[str], count: int, one: str) -> Sequence[str]:
    """The given names, or numbers in place of none. Raises ValueError for too many or too few."""
    if len(names) not in (0, count):
        raise ValueError(f"{argument} must be {count}, one for each {one}, got {len(names)}")
    return names or [f"{one} {i}" for i in range(count)]


def resized_model(model: VisionTransformer, image_size: tuple[int, int]) -> tuple[VisionTransformer, str]:
    """The model itself, or a copy with positions resized to these images, and what was done, in words."""
    if model.config.image_size == image_size:
        return model, ""
    resized = copy.deepcopy(model)
    resized.resize(image_size)
    old, new = ("×".join(map(str, m.embedding.grid)) for m in (model, resized))
    return resized, f"Positions were resized from {old} to {new} patches."

"""What a model says of each pixel of a photograph, in two files: a mask to compute with, and an overlay to look at."""

import io
import math
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from PIL import Image
from torch import Tensor

from vitbook._common.files import write_whole
from vitbook._common.images import Pixels, read_pixels, scaled
from vitbook.pretrained import Pretrained
from vitbook.runtime import device


def segmented(weights: Pretrained, file: Path, folder: Path, top: int = 3) -> list[tuple[str, float]]:
    """The classes of most pixels of an image file, and their shares of it; two files say which pixels these are.

    NAME_mask.png has a palette, in which the place of a pixel is the number of its class; NAME_overlay.png has the same
    colors over the photograph. Both have as many pixels as that. The last row says where they are. Raises ValueError
    where they are there already, and as `read_pixels`.
    """
    places = {name: folder / f"{file.stem}_{name}.png" for name in ("mask", "overlay")}
    if there := [place for place in places.values() if place.exists()]:
        raise ValueError(f"{there[0]} is there already: delete it, or name another folder for {file} with --masks")
    pixels = read_pixels(file)
    mask = pixel_classes(weights, pixels)
    folder.mkdir(parents=True, exist_ok=True)
    picture = Image.fromarray(mask).convert("P")
    picture.putpalette(palette().tobytes())
    over = overlay(np.asarray(pixels)[..., :3], mask)
    for place, image in zip(places.values(), (picture, Image.fromarray(over)), strict=True):
        content = io.BytesIO()
        image.save(content, "PNG")
        write_whole(place, content.getvalue())
    share = np.bincount(mask.ravel(), minlength=len(weights.class_names or ())) / mask.size
    best = np.argsort(-share, kind="stable")[:top].tolist()
    rows = [((weights.class_names or ())[k], float(share[k])) for k in best if share[k]]
    return [*rows, (f"drawn in {places['overlay']}", math.nan)]


@torch.no_grad()
def pixel_classes(weights: Pretrained, pixels: Pixels) -> UInt8[np.ndarray, "H W"]:
    """The class of each pixel of an image of any proportions.

    The model sees squares as high as the shorter side, as many as cover the image, evenly spaced; where they overlap,
    the mean of their logits counts. These are stretched to the image's own pixels.
    """
    height, width, _ = np.asarray(pixels).shape
    side, short = weights.model.config.sides[0], min(height, width)
    logits, seen = torch.zeros(0), torch.zeros(0)
    for left in np.linspace(0, max(height, width) - short, -(-max(height, width) // short)):
        box = (left, 0.0, left + short, float(short)) if width >= height else (0.0, left, float(short), left + short)
        tile = weights.preprocessing.normalize(torch.from_numpy(scaled(pixels, box, side, "BICUBIC"))[None])
        answer = weights.model(tile.to(device()))[0].float().cpu()
        if not len(logits):
            rows, columns = (round(side * length / short) for length in (height, width))
            logits, seen = torch.zeros(len(answer), rows, columns), torch.zeros(rows, columns)
        start = round(side * left / short)
        start = min(start, max(logits.shape[1:]) - side)
        there = (slice(None), slice(start, start + side)) if width >= height else (slice(start, start + side), ...)
        logits[(slice(None), *there)] += answer
        seen[there] += 1
    return _stretched_classes(logits / seen, height, width)


def _stretched_classes(logits: Float[Tensor, "K rows columns"], height: int, width: int) -> UInt8[np.ndarray, "H W"]:
    """The class of the highest logit after bilinear interpolation, one class at a time to save memory."""
    best, classes = torch.full((height, width), -torch.inf), torch.zeros(height, width, dtype=torch.uint8)
    for k, plane in enumerate(logits):
        wide = F.interpolate(plane[None, None], (height, width), mode="bilinear", align_corners=False)[0, 0]
        higher = wide > best
        best[higher], classes[higher] = wide[higher], k
    return classes.numpy()


def overlay(shown: UInt8[np.ndarray, "H W 3"], mask: UInt8[np.ndarray, "H W"]) -> UInt8[np.ndarray, "H W 3"]:
    """An image under the colors of its pixels' classes, with a white line between them, whatever the colors are."""
    over = shown // 2 + (palette() // 2)[mask]  # in whole numbers: a camera's image of floats would be large
    over[1:][mask[1:] != mask[:-1]] = 255
    over[:, 1:][mask[:, 1:] != mask[:, :-1]] = 255
    return over


def palette() -> UInt8[np.ndarray, "256 3"]:
    """A color for each class, as in Pascal VOC: the bits of its number, three at a time, become high bits."""
    numbers = np.arange(256)
    colors = np.zeros((256, 3), np.uint8)
    for place in range(3):
        bits = (numbers[:, None] >> (3 * place + np.arange(3))) & 1
        colors |= (bits << (7 - place)).astype(np.uint8)
    return colors

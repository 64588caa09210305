"""Image → what a model was trained to see: size, crop, mean and standard deviation. Every source has its own."""

import math
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch
from jaxtyping import Float, UInt8
from PIL import Image
from torch import Tensor

from vitbook._common.images import Pixels, center_crop, to_rgb, to_tensor
from vitbook._common.validation import check_choice, in_words
from vitbook.data import normalize

_MAX_PIXELS = 100_000_000  # to which an image is scaled before its middle is cut out

INTERPOLATIONS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")  # by Pillow's numbers

# What each source's own evaluation does to an image, as arguments of `Preprocessing`.
_HALF = dict(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
_IMAGENET = dict(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
_OPENAI = dict(mean=(0.48145466, 0.4578275, 0.40821073), std=(0.26862954, 0.26130258, 0.27577711))
STYLES = {
    "google": dict(**_HALF, crop=None, interpolation="bilinear"),
    "big_vision": dict(**_HALF, crop=0.875, interpolation="bilinear"),
    "timm": dict(**_HALF, crop=0.9, interpolation="bicubic", scale_first=True),
    "hf": dict(**_HALF, crop=None, interpolation="bilinear"),
    "torchvision": dict(**_IMAGENET, crop=0.875, interpolation="bilinear"),
    "deit": dict(**_IMAGENET, crop=0.875, interpolation="bicubic"),
    "deit3": dict(**_IMAGENET, crop=1.0, interpolation="bicubic", scale_first=True),
    "dinov2": dict(**_IMAGENET, crop=0.875, interpolation="bicubic"),
    "dinov3": dict(**_IMAGENET, crop=None, interpolation="bilinear"),
    "clip": dict(**_OPENAI, crop=1.0, interpolation="bicubic", scale_first=True),
    "siglip": dict(**_HALF, crop=None, interpolation="bicubic"),
    "siglip2": dict(**_HALF, crop=None, interpolation="bilinear"),
    "vitbook": dict(**_HALF, crop=1.0, interpolation="bicubic"),
}


@dataclass(frozen=True)
class Preprocessing:
    """What weights want an image to look like: its `view`, normalized.

    With a `crop` below 1, the image is scaled until the middle, this share of its shorter side, has the model's size,
    and that is cut out, as in torchvision and timm; with `squeeze`, it first gets the model's proportions. With 1, the
    middle in these proportions is cut out and scaled, as in our training runs, unless `scale_first`. With None, all of
    it is squeezed. One channel is gray; of more than three, an image is an array (H, W, C), and crop is 1. Raises
    ValueError for values out of range.
    """

    mean: tuple[float, ...]  # of each channel, in units of white = 1
    std: tuple[float, ...]
    image_size: tuple[int, int]  # height and width in pixels
    crop: float | None = 1.0  # share of the side that is seen; None for all of it, squeezed
    interpolation: str = "bicubic"  # one of Pillow's
    scale_first: bool = False  # with a crop of 1 too
    squeeze: bool = False  # before the middle is cut out

    def __post_init__(self):
        channels, finite = {len(self.mean), len(self.std)}, all(map(math.isfinite, (*self.mean, *self.std)))
        if len(channels) != 1 or channels & {0, 2} or not finite or min(self.std) <= 0:
            many = "a finite number for each of 1, 3 or more channels"
            raise ValueError(f"mean and std must be {many}, std above 0, got {self.mean} and {self.std}")
        check_choice("interpolation", self.interpolation, INTERPOLATIONS)
        if self.crop is not None and not 0 < self.crop <= 1:
            raise ValueError(f"crop must be None or a share, above 0 and at most 1, got {self.crop}")

    def __call__(self, image: Pixels | UInt8[Tensor, "3 rows columns"]) -> Float[Tensor, "1 channels height width"]:
        return self.normalize(self.view(image))

    @property
    def moments(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation as tensors, (C,) and (C,)."""
        return torch.tensor(self.mean), torch.tensor(self.std)

    def normalize(self, images: UInt8[Tensor, "*batch channels h w"]) -> Float[Tensor, "*batch channels h w"]:
        """As `vitbook.data.normalize`, with this mean and standard deviation."""
        return normalize(images, *self.moments)

    def view(self, image: Pixels | UInt8[Tensor, "3 rows columns"]) -> UInt8[Tensor, "1 channels height width"]:
        """What the model sees of an image, in its size."""
        if isinstance(image, np.ndarray) or len(self.mean) > 3:
            channels = image.shape[2] if isinstance(image, np.ndarray) else 3
            if channels != len(self.mean):
                raise ValueError(f"image must have the model's {len(self.mean)} channels, got {channels}")
            return to_tensor(center_crop(cast(Pixels, image), *self.image_size))[None]
        if isinstance(image, Tensor) and image.dtype == torch.uint8 and image.shape[:-2] == (3,) and image.numel():
            image = Image.fromarray(image.cpu().permute(1, 2, 0).numpy())
        if not isinstance(image, Image.Image) or not image.width * image.height:
            got = f"{image.height}×{image.width}" if isinstance(image, Image.Image) else in_words(image)
            raise ValueError(f"image must be a PIL image or uint8 (3, H, W) with at least one pixel, got {got}")
        image, (height, width) = to_rgb(image), self.image_size
        method = Image.Resampling[self.interpolation.upper()]
        if self.crop is None:
            image = image.resize((width, height), method)
        elif self.crop == 1 and not self.scale_first:
            image = cast(Image.Image, center_crop(image, height, width, method))
        else:  # the libraries scale to whole pixels first, rounded down, where ImageOps.cover rounds
            rows, columns = (int(side / self.crop + 1e-6) for side in self.image_size)
            if not self.squeeze and rows * image.width >= columns * image.height:
                columns = image.width * rows // image.height
            elif not self.squeeze:
                rows = image.height * columns // image.width
            if rows * columns > _MAX_PIXELS:
                sizes = f"{image.height}×{image.width}, would first be scaled to {rows:,}×{columns:,}"
                raise ValueError(f"image, {sizes}: expected at most {_MAX_PIXELS:,} pixels")
            left, top = round((columns - width) / 2), round((rows - height) / 2)
            image = image.resize((columns, rows), method).crop((left, top, left + width, top + height))
        if len(self.mean) == 1:
            image = image.convert("L").convert("RGB")
        return to_tensor(image)[None, : len(self.mean)]

    def adapted(self, image_size: tuple[int, int], channels: int) -> "Preprocessing":
        """The same for another image size and number of channels: gray and colors get the mean of all.

        Of more than three channels it prepares the first, red, green and blue; the others are the caller's.
        """
        mean, std = self.mean, self.std
        if channels in (1, 3) and channels != len(mean):
            mean, std = ((sum(moment) / len(moment),) * channels for moment in (mean, std))
        return replace(self, image_size=image_size, mean=mean, std=std)

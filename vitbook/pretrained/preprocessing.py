"""From a picture to what a model was trained to see: size, view, mean and deviation. Every source has its own."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from PIL import Image
from torch import Tensor

from vitbook._support.images import as_rgb, crop_and_scale, to_tensor
from vitbook._support.validation import check_kind, check_lengths, check_numbers, check_sizes
from vitbook.data import normalise

MAX_PIXELS = 100_000_000  # to which a picture is scaled before its middle is cut out

# What each source's own evaluation does to a picture, in the words of `Preprocessing`.
HALF = dict(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
IMAGENET = dict(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
STYLES = {
    "google": dict(**HALF, crop=None, interpolation="bilinear"),
    "big_vision": dict(**HALF, crop=0.875, interpolation="bilinear"),
    "timm": dict(**HALF, crop=0.9, interpolation="bicubic"),
    "hf": dict(**HALF, crop=None, interpolation="bilinear"),
    "torchvision": dict(**IMAGENET, crop=0.875, interpolation="bilinear"),
    "deit": dict(**IMAGENET, crop=0.875, interpolation="bicubic"),
    "vitbook": dict(**HALF, crop=1.0, interpolation="bicubic"),
}


@dataclass(frozen=True)
class Preprocessing:
    """What weights want a picture to look like: a call makes one a batch of one. → float32 (1, C, H, W).

    That is its `view`, then `normalise`. A picture is a PIL image or uint8 (3, H, W). With a `crop` below 1, it is
    scaled so that the middle of this share of the shorter side has the model's size, and that is cut out, as in
    torchvision and timm; with 1, the middle in the model's proportions is cut out and scaled, as for our trainings;
    with None, the whole is squeezed. One channel is grey.

    Raises ValueError for values out of range, and for what is no such picture.
    """

    mean: tuple[float, ...]  # of each channel, in units of white = 1
    std: tuple[float, ...]
    image_size: tuple[int, int]  # height and width in pixels
    crop: float | None = 1.0  # share of the side that is seen; None for all of it, squeezed
    interpolation: str = "bicubic"  # or "bilinear"

    def __post_init__(self):
        for name, values in (("mean", self.mean), ("std", self.std)):
            check_kind(Sequence, **{name: values})
            for value in values:
                check_numbers(**{name: value})
        check_lengths(2, image_size=self.image_size)
        check_sizes(image_size=min(self.image_size))
        finite = all(abs(value) < math.inf for value in (*self.mean, *self.std))
        if len(self.mean) != len(self.std) or len(self.mean) not in (1, 3) or not finite or min(self.std) <= 0:
            raise ValueError(f"mean and std must be 1 or 3 finite numbers, std above 0, got {self.mean} and {self.std}")
        if self.crop is not None:
            check_numbers(crop=self.crop)
        if self.crop is not None and not 0 < self.crop <= 1:
            raise ValueError(f"crop must be None or a share, above 0 and at most 1, got {self.crop}")
        if not isinstance(self.interpolation, str) or self.interpolation not in ("bilinear", "bicubic"):
            raise ValueError(f"interpolation must be bilinear or bicubic, got {self.interpolation!r}")

    def __call__(self, picture: Image.Image | Tensor) -> Tensor:
        return self.normalise(self.view(picture))

    def normalise(self, images: Tensor) -> Tensor:
        """As `vitbook.data.normalise`, with this mean and std. uint8 (B, C, H, W) → float32 (B, C, H, W)."""
        return normalise(images, torch.tensor(self.mean), torch.tensor(self.std))

    def view(self, picture: Image.Image | Tensor) -> Tensor:
        """What is seen of a picture, in the model's size. → uint8 (1, C, H, W)."""
        if isinstance(picture, Tensor):
            if picture.dtype != torch.uint8 or picture.ndim != 3 or picture.shape[0] != 3 or not picture.numel():
                got = f"{picture.dtype} of shape {tuple(picture.shape)}"
                raise ValueError(f"picture must be a PIL image or uint8 (3, H, W) with at least one pixel, got {got}")
            picture = Image.fromarray(picture.cpu().permute(1, 2, 0).numpy())
        check_kind(Image.Image, picture=picture)
        if not (picture.width and picture.height):
            raise ValueError(f"picture must have at least one pixel, got {picture.height}×{picture.width}")
        picture = as_rgb(picture)
        (height, width), method = self.image_size, Image.Resampling[self.interpolation.upper()]
        if self.crop is None:
            picture = picture.resize((width, height), method)
        elif self.crop == 1:
            picture = crop_and_scale(picture, height, width, method)
        else:
            rows, columns = (int(side / self.crop + 1e-6) for side in self.image_size)
            if rows * picture.width >= columns * picture.height:
                whole = (picture.width * rows // picture.height, rows)
            else:
                whole = (columns, picture.height * columns // picture.width)
            if whole[0] * whole[1] > MAX_PIXELS:
                sides = f"{picture.height}×{picture.width}, would first be scaled to {whole[1]:,}×{whole[0]:,}"
                raise ValueError(f"picture, {sides}: expected at most {MAX_PIXELS:,} pixels")
            left, top = round((whole[0] - width) / 2), round((whole[1] - height) / 2)
            picture = picture.resize(whole, method).crop((left, top, left + width, top + height))
        if len(self.mean) == 1:
            picture = picture.convert("L").convert("RGB")
        return to_tensor(picture)[None, : len(self.mean)]

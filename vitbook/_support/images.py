"""Picture files of any kind as one kind of tensor: upright, red, green and blue, 0 to 255."""

import io

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

# What cameras, browsers and scanners write. Other formats stay closed: to open one, EPS, means to run a program.
FORMATS = ("BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")


def read_picture(content: bytes, name: str) -> Image.Image:
    """A file's bytes as an upright RGB picture, whatever it was.

    Grey and 16-bit levels, palettes and CMYK become red, green and blue; what is transparent comes to lie on white; a
    picture that its EXIF note calls turned is turned; of several frames the first is taken. Raises ValueError with the
    file's `name` for anything that cannot be read as a picture to its end.
    """
    try:
        return as_rgb(Image.open(io.BytesIO(content), formats=FORMATS))
    except Exception as error:  # a damaged file can fail anywhere in its decoder, and in any way
        reason = "its format is unknown" if isinstance(error, Image.UnidentifiedImageError) else error
        raise ValueError(f"{name} is no picture that can be read: {reason}") from None


def as_rgb(picture: Image.Image) -> Image.Image:
    """Any picture as an upright RGB one, as in `read_picture`. Raises ValueError for floating-point levels."""
    picture = ImageOps.exif_transpose(picture)
    if picture.mode == "F":
        raise ValueError("its levels are floating-point numbers, and nothing says which is white")
    if picture.mode.startswith("I"):
        picture = eight_bits(picture)
    if picture.has_transparency_data:
        picture = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture)
    return picture.convert("RGB")


def eight_bits(picture: Image.Image) -> Image.Image:
    """A picture of 16-bit grey levels with 8-bit ones: white was 65,535 and is 255."""
    levels = np.asarray(picture)
    if levels.min() < 0 or levels.max() > 65_535:
        raise ValueError(f"grey levels should lie in 0 … 65,535, lie in {levels.min():,} … {levels.max():,}")
    return Image.fromarray(((levels.astype(np.uint32) + 128) // 257).astype(np.uint8))


def crop_and_scale(
    picture: Image.Image, height: int, width: int, method: Image.Resampling = Image.Resampling.BICUBIC
) -> Image.Image:
    """The middle of a picture, as much as fits in these proportions, scaled to height × width pixels."""
    return ImageOps.fit(picture, (width, height), method)


def to_tensor(picture: Image.Image | np.ndarray) -> Tensor:
    """An RGB picture, or its pixels, uint8 (H, W, 3), as a tensor. uint8 (3, H, W)."""
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1).contiguous()

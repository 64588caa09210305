"""Image files of any kind as one kind of image: upright, red, green and blue, 0 to 255."""

import io
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

# What cameras, browsers and scanners write. Other formats stay closed: to open one, EPS, means to run a program.
FORMATS = ("BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")


def read_image(path: Path) -> Image.Image:
    """An image file as an upright RGB image, as in `decode_image`.

    Raises ValueError, with the path, for what is no image file; OSError for what cannot be opened.
    """
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} must be an image file, got a folder, pipe, socket or device")  # a pipe would block
    return decode_image(path.read_bytes(), str(path))


def decode_image(content: bytes, name: str) -> Image.Image:
    """A file's bytes as an upright RGB image; of several frames, the first.

    Grayscale, 16-bit levels, palettes and CMYK become red, green and blue. What is transparent is laid on white. The
    orientation that EXIF states is applied; damaged EXIF is ignored. Raises ValueError with the file's `name` for
    anything that cannot be decoded to its end.
    """
    try:
        return to_rgb(Image.open(io.BytesIO(content), formats=FORMATS))
    except Exception as error:  # a damaged file can fail anywhere in its decoder, and in any way
        reason = "its format is unknown" if isinstance(error, Image.UnidentifiedImageError) else str(error)
        raise ValueError(f"{name} cannot be read as an image: {reason}") from None


def to_rgb(image: Image.Image) -> Image.Image:
    """Any image as an upright RGB image without EXIF, as in `decode_image`. Raises ValueError for float levels."""
    image.load()
    image = _upright(image)
    if image.mode == "F":
        raise ValueError("its levels are floating-point numbers, and nothing says which is white")
    if image.mode.startswith("I"):
        image = _eight_bits(image)
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    image = image.convert("RGB")
    image.info = {}  # EXIF would turn the image a second time
    return image


def center_crop(
    image: Image.Image, height: int, width: int, method: Image.Resampling = Image.Resampling.BICUBIC
) -> Image.Image:
    """The middle of an image, as much as fits in these proportions, scaled to height × width pixels."""
    return ImageOps.fit(image, (width, height), method)


def to_tensor(image: Image.Image | np.ndarray) -> Tensor:
    """An RGB image, or its pixels, uint8 (H, W, 3), as a tensor. uint8 (3, H, W)."""
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()


def _upright(image: Image.Image) -> Image.Image:
    """The image turned as its EXIF says, or as it is where the EXIF is damaged."""
    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # damaged EXIF can fail in any way; the pixels are whole
        return image


def _eight_bits(image: Image.Image) -> Image.Image:
    """16-bit gray levels, white = 65,535, as 8-bit ones, white = 255."""
    levels = np.asarray(image)
    if levels.min() < 0 or levels.max() > 65_535:
        raise ValueError(f"gray levels must lie in 0 … 65,535, lie in {levels.min():,} … {levels.max():,}")
    return Image.fromarray(((levels.astype(np.uint32) + 128) // 257).astype(np.uint8))

"""Image files of any kind as one kind: upright, red, green and blue, 0 to 255; or of more channels than these."""

import io
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import IO, cast

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image, ImageOps
from torch import Tensor

# What cameras, browsers and scanners write. Other formats stay closed: to open one, EPS, means to run a program.
FORMATS = ("AVIF", "BMP", "GIF", "HEIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
_SUFFIXES = {".avif": "AVIF", ".heic": "HEIF", ".heif": "HEIF", ".npy": "NumPy"}  # not known to every Pillow
_BRANDS = {b"avif": "AVIF", b"avis": "AVIF", **dict.fromkeys((b"heic", b"heix", b"hevc", b"mif1", b"msf1"), "HEIF")}
_NUMPY = b"\x93NUMPY"  # how NumPy's files begin
_WHITES = (255, 4095, 65_535)  # of 8, 12 and 16 bits
_TELL_TURN = {"exif", "Raw profile type exif", "xmp", "XML:com.adobe.xmp"}  # where Pillow looks for an orientation

Channels = UInt8[np.ndarray, "_ _ _"]  # (H, W, C), C more than three
Pixels = Image.Image | Channels
Box = tuple[float, float, float, float]  # left, top, right and bottom, in pixels


def looks_like_image(path: Path) -> bool:
    """Whether a file's name ends like an image's."""
    suffix = path.suffix.lower()
    return suffix in _SUFFIXES or Image.registered_extensions().get(suffix) in FORMATS


def read_image(path: Path) -> Image.Image:
    """An image file as an upright RGB image, as in `decode_image`.

    Raises ValueError, with the path, for what is no image file; OSError for what cannot be opened.
    """
    return decode_image(image_content(path), str(path))


def read_pixels(path: Path) -> Pixels:
    """An image file as in `decode_pixels`; errors are those of `read_image`."""
    return decode_pixels(image_content(path), str(path))


def image_content(path: Path) -> bytes:
    """The bytes of a file. Raises ValueError for a folder, pipe, socket or device."""
    _check_file(path)
    return path.read_bytes()


def _check_file(path: Path) -> None:
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} must be an image file, got a folder, pipe, socket or device")  # a pipe would block


def decode_image(content: bytes, name: str) -> Image.Image:
    """A file's bytes as an upright RGB image; of several frames, the first.

    Grayscale, 16-bit levels, palettes and CMYK become red, green and blue. What is transparent is laid on white. The
    orientation that EXIF, or else XMP, states is applied; damaged EXIF is ignored. Gray levels of 16 or 32 bits that
    stay below 256 or 4,096 are taken for those of 8 or 12 bits, with a warning. Raises ValueError with the file's
    `name` for anything that cannot be decoded to its end, and for more than three channels.
    """
    pixels = decode_pixels(content, name)
    if isinstance(pixels, np.ndarray):
        raise ValueError(f"{name} has {pixels.shape[2]} channels, and a photograph has 1 or 3")
    return pixels


def decode_pixels(content: bytes, name: str) -> Pixels:
    """As `decode_image`; but of more than three channels, in TIFF or NumPy's .npy, all: uint8 (H, W, C).

    An array is (H, W), (H, W, C) or (C, H, W), its shortest axis being the channels, of whole numbers.
    """
    try:
        if content.startswith(_NUMPY):
            return _from_array(np.load(io.BytesIO(content), allow_pickle=False))
        image = open_image(io.BytesIO(content))
        return _from_array(_all_samples(content)) if image is None else to_rgb(image)
    except Exception as error:  # a damaged file can fail anywhere in its decoder, and in any way
        reason = "its format is unknown" if isinstance(error, Image.UnidentifiedImageError) else str(error)
        raise ValueError(f"{name} cannot be read as an image: {reason}") from None


def open_image(file: io.BufferedIOBase) -> Image.Image | None:
    """An image whose pixels are not decoded yet; None for a TIFF of more channels than Pillow has.

    Raises ValueError where a decoder is not installed, and what Pillow raises.
    """
    head = file.read(12)
    file.seek(0)
    kind = _BRANDS.get(head[8:]) if head[4:8] == b"ftyp" else None
    if kind == "HEIF":
        try:
            from pi_heif import register_heif_opener  # pyright: ignore[reportMissingImports]
        except ModuleNotFoundError:
            raise ValueError('HEIC needs pi_heif, which is not installed: pip install "vitbook[images]"') from None
        register_heif_opener()
    Image.init()
    if kind and kind not in Image.OPEN:
        raise ValueError(f"this Pillow was built without {kind}; newer ones have it")
    known = [name for name in FORMATS if name in Image.OPEN]
    if head[:4] not in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"):
        return Image.open(cast(IO[bytes], file), formats=known)
    try:
        image = Image.open(cast(IO[bytes], file), formats=known)
    except Image.UnidentifiedImageError:
        return None
    tags = getattr(image, "tag_v2", {})
    samples, of_light = tags.get(277, 1), tags.get(262) in (1, 2)
    alpha = samples == 4 and tags.get(262) == 2 and tags.get(338) in ((1,), (2,))
    return None if samples > 3 and of_light and not alpha else image


def decode_reduced(content: bytes, name: str, least: int) -> tuple[Pixels, tuple[int, int]]:
    """As `decode_pixels`, and the height and width that the upright image has.

    Of a JPEG, every second, fourth or eighth pixel, as long as `least` are left along its shorter side.
    """
    try:
        image = None if content.startswith(_NUMPY) else open_image(io.BytesIO(content))
        turn = 1 if image is None else _turn(image)
    except Exception:  # what is wrong, the other way says
        image, turn = None, 1
    if image is None or image.format != "JPEG":
        pixels = decode_pixels(content, name)
        return pixels, np.asarray(pixels).shape[:2]
    width, height = image.size[::-1] if turn > 4 else image.size
    shrink = max(by for by in (1, 2, 4, 8) if by * least <= max(height, least) and by * least <= max(width, least))
    image.draft(image.mode, (image.width // shrink, image.height // shrink))
    try:
        return to_rgb(image), (height, width)
    except Exception as error:
        raise ValueError(f"{name} cannot be read as an image: {error}") from None


def image_facts(path: Path) -> tuple[int, int, int]:
    """Height and width of the upright image, and channels; of most files the header alone is read.

    Errors are those of `read_image`.
    """
    _check_file(path)
    with path.open("rb") as file:
        numpy = file.read(6) == _NUMPY
        file.seek(0)
        try:
            image = None if numpy else open_image(file)
            if image is not None:
                height, width = image.size if _turn(image) > 4 else image.size[::-1]
                return height, width, 3
        except Exception:  # what is wrong, decoding says
            pass
    rows, columns, channels = np.asarray(read_pixels(path)).shape
    return rows, columns, channels


def read_crop(
    path: Path, choose: Callable[[int, int], Box], side: int, kernel: str, size: int | None = None
) -> UInt8[np.ndarray, "C side side"]:
    """A rectangle of an image file, scaled to a square of `side` pixels.

    choose: says which, for the height and width of the upright image. Of a JPEG, no more is decoded than that takes:
    every second, fourth or eighth pixel, such that the rectangle is still at least twice as large as the square, and
    no row below it. kernel: Pillow's name for the weights; size: of the file, in bytes, as it was. Raises ValueError
    where that has changed, and as `read_image`.
    """
    content = _as_listed(path, size)
    try:
        image = None if content.startswith(_NUMPY) else open_image(io.BytesIO(content))
        turn = 1 if image is None else _turn(image)
    except Exception:  # what is wrong, the other way says
        image, turn = None, 1
    if image is None or image.format != "JPEG":
        pixels = decode_pixels(content, str(path))
        levels = np.asarray(pixels)
        return scaled(pixels, choose(*levels.shape[:2]), side, kernel)
    there = image.size
    width, height = there[::-1] if turn > 4 else there
    left, top, right, bottom = choose(height, width)
    wanted = min(right - left, bottom - top) / (2 * side)
    shrink = max(by for by in (1, 2, 4, 8) if by <= max(wanted, 1))
    if shrink > 1:
        image.draft(image.mode, (there[0] // shrink, there[1] // shrink))
    last = math.ceil(bottom * image.height / height) + 4 if turn == 1 else image.height  # what the kernel reaches
    if not _decoded_to(image, last):
        image = Image.open(io.BytesIO(content), formats=("JPEG",))
        image.draft(image.mode, (there[0] // shrink, there[1] // shrink))
    try:
        image.load()
        image = image if image.mode == "RGB" and turn == 1 else to_rgb(image)
    except Exception as error:
        raise ValueError(f"{path} cannot be read as an image: {error}") from None
    across, down = image.width / width, image.height / height
    return scaled(image, (left * across, top * down, right * across, bottom * down), side, kernel)


def read_levels(path: Path, size: int | None = None) -> UInt8[np.ndarray, "H W"]:
    """The number that a PNG stores for each pixel, as a mask has it: of a palette, the place in it, and no color.

    size: as in `read_crop`. Raises ValueError for another format, for colors, for levels above 255, and as there.
    """
    content = _as_listed(path, size)
    try:
        image = Image.open(io.BytesIO(content), formats=("PNG",))
        stretched = {"L;2": 85, "L;4": 17}.get(image.tile[0][3], 1)  # pyright: ignore (Pillow makes them 0 … 255)
        levels = np.asarray(image)
    except Exception:  # as in `decode_pixels`
        raise ValueError(f"{path} cannot be read as a mask, which is a whole PNG") from None
    if levels.ndim != 2:
        raise ValueError(f"{path} must have one level a class, in gray or a palette, and has colors ({image.mode})")
    if levels.max() > 255:
        raise ValueError(f"{path} has level {levels.max()}: classes are levels below 255")
    return levels.astype(np.uint8) // np.uint8(stretched)


def _as_listed(path: Path, size: int | None) -> bytes:
    """The bytes of a file. Raises ValueError where they are not as many as they were."""
    content = image_content(path)
    if size is not None and len(content) != size:
        raise ValueError(f"{path} has changed since it was listed: it had {size:,} bytes, now it has {len(content):,}")
    return content


def _turn(image: Image.Image) -> int:
    """What EXIF, or else XMP, says of how an image lies, 1 to 8; from 5 on, height and width change places."""
    if _TELL_TURN.isdisjoint(image.info) or 274 in getattr(image, "tag_v2", {}):  # of a TIFF, its size says it already
        return 1
    turn = image.getexif().get(274, 1)
    return turn if turn in range(1, 9) else 1


def _decoded_to(image: Image.Image, row: int) -> bool:
    """Decode a JPEG down to a row, and say whether that went well. What lies below is then black.

    Pillow has no call for that, but the rows that it reads are those of the tile. In the end its decoder says that
    some are left, with the same error as for a damaged file; but then the last row is black.
    """
    name, (left, top, right, bottom), *how = image.tile[0]  # pyright: ignore[reportAttributeAccessIssue]
    if row >= bottom:
        return True
    image.tile = [(name, (left, top, right, row), *how)]  # pyright: ignore[reportAttributeAccessIssue]
    try:
        image.load()
    except OSError:
        pass
    return not image.tile and any(image.crop((0, row - 1, right, row)).getbbox() or ())  # pyright: ignore


def scaled(pixels: Pixels, box: Box, side: int, kernel: str) -> UInt8[np.ndarray, "C side side"]:
    """A rectangle scaled to a square."""
    bands = [pixels] if isinstance(pixels, Image.Image) else map(Image.fromarray, np.moveaxis(pixels, 2, 0))
    parts = [np.asarray(band.resize((side, side), Image.Resampling[kernel], box=box)) for band in bands]
    levels = np.stack(parts) if isinstance(pixels, np.ndarray) else parts[0].transpose(2, 0, 1)
    return np.ascontiguousarray(levels)


def _all_samples(content: bytes) -> np.ndarray:
    """The first page of a TIFF, as it is stored."""
    try:
        import tifffile  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError:
        raise ValueError('this TIFF needs tifffile, which is not installed: pip install "vitbook[images]"') from None
    with tifffile.TiffFile(io.BytesIO(content)) as file:
        page = file.pages.first
        levels = page.asarray()
    return _positive(levels) if page.photometric == 0 else levels


def _positive(levels: np.ndarray) -> np.ndarray:
    """Levels of a TIFF in which 0 is white (PhotometricInterpretation 0), such that 0 is black."""
    if levels.dtype.kind not in "iu" or levels.min() < 0:
        return levels  # which are refused
    black = next((white for white in _WHITES if levels.max() <= white), 2**32 - 1)
    return (black - levels.astype(np.int64)).astype(levels.dtype if levels.dtype.kind == "u" else np.int64)


def _from_array(levels: np.ndarray) -> Pixels:
    """Whole numbers as an image. Raises ValueError for other shapes and types."""
    if levels.dtype == bool:
        levels = levels * np.uint8(255)
    if levels.dtype.kind not in "iu":
        raise ValueError(f"its levels are {levels.dtype}, and nothing says which is white")
    if levels.ndim == 3 and levels.shape[0] < levels.shape[2]:
        levels = levels.transpose(1, 2, 0)
    if levels.ndim == 2:
        levels = levels[..., None]
    if levels.ndim != 3 or not levels.size or levels.shape[2] == 2:
        raise ValueError(f"an array must be (H, W), or (H, W, C) of 1, 3 or more channels, got {levels.shape}")
    if levels.dtype != np.uint8:
        levels = _eight_bits(levels)
    if levels.shape[2] > 3:
        return np.ascontiguousarray(levels)
    return Image.fromarray(np.ascontiguousarray(levels.squeeze(2) if levels.shape[2] == 1 else levels)).convert("RGB")


def to_rgb(image: Image.Image) -> Image.Image:
    """Any image as an upright RGB image without EXIF, as in `decode_image`.

    Raises ValueError for float levels, and for 16-bit colors of which only 12 bits are used: Pillow keeps 8 of 16.
    """
    wide = any(str(tile[3]).count(";16") for tile in getattr(image, "tile", ()))
    tags = getattr(image, "tag_v2", {})
    negative = tags.get(262) == 0  # which Pillow turns around for up to 8 bits alone
    image.load()
    image = _upright(image)
    if image.mode == "F":
        raise ValueError("its levels are floating-point numbers, and nothing says which is white")
    if image.mode.startswith("I"):
        levels = np.asarray(image)
        image = Image.fromarray(_eight_bits(_positive(levels) if negative else levels))
    elif wide and max(np.asarray(image.convert("RGB")).max(), 1) < 16:
        raise ValueError("its colors of 16 bits stay below 4,096: scale them to 0 … 65,535")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    image = image.convert("RGB")
    image.info = {}  # EXIF would turn the image a second time
    return image


def center_crop(image: Pixels, height: int, width: int, method: Image.Resampling = Image.Resampling.BICUBIC) -> Pixels:
    """The middle of an image, as much as fits in these proportions, scaled to height × width pixels."""
    if isinstance(image, Image.Image):
        return ImageOps.fit(image, (width, height), method)
    bands = [ImageOps.fit(Image.fromarray(band), (width, height), method) for band in np.moveaxis(image, 2, 0)]
    return np.stack([np.asarray(band) for band in bands], axis=2)


def to_tensor(image: Pixels) -> Tensor:
    """An RGB image, or pixels, uint8 (H, W, C), as a tensor. uint8 (C, H, W)."""
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()


def _upright(image: Image.Image) -> Image.Image:
    """The image turned as its EXIF or XMP says, or as it is where the EXIF is damaged."""
    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # damaged EXIF can fail in any way; the pixels are whole
        return image


def _eight_bits(levels: np.ndarray) -> UInt8[np.ndarray, "..."]:
    """Whole levels, of which 65,535 is white, as 8-bit ones; white is 4,095 or 255 where none is above it."""
    if levels.min() < 0 or levels.max() > 65_535:
        raise ValueError(f"gray levels must lie in 0 … 65,535, lie in {levels.min():,} … {levels.max():,}")
    white = next(white for white in _WHITES if levels.max() <= white)
    if white < 65_535 and levels.max():
        bits = f"{8 * levels.dtype.itemsize}-bit levels that stay below {white + 1:,}"
        warnings.warn(f"{bits} are taken for {white.bit_length()}-bit ones: white is {white:,}", stacklevel=2)
    return ((levels.astype(np.int64) * 255 + white // 2) // white).astype(np.uint8)

"""Whatever kind of file an image comes in, it is the same image; and what is no image is named."""

import io
import os
import struct
import sys
import zlib

import numpy as np
import pytest
from PIL import Image, PngImagePlugin, TiffImagePlugin, features

from vitbook._common.images import (
    center_crop,
    decode_image,
    decode_pixels,
    decode_reduced,
    image_facts,
    read_crop,
    read_image,
    to_rgb,
)

RED, GREEN, BLUE, WHITE, BLACK = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255), (0, 0, 0)
LOSSY = 6  # levels by which JPEG and WEBP may be off


def quarters(mode: str = "RGB") -> Image.Image:
    """Red, green over blue, white, in 64×32 pixels: no turn or flip leaves it as it is."""
    image = Image.new("RGB", (64, 32), WHITE)
    for color, (x, y) in ((RED, (0, 0)), (GREEN, (32, 0)), (BLUE, (0, 16))):
        image.paste(color, (x, y, x + 32, y + 16))
    return image.convert(mode)


def file(image: Image.Image, kind: str, **options) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def corners(image: Image.Image) -> list[tuple[int, int, int]]:
    """The color in the middle of each quarter: above left, above right, below left, below right."""
    assert image.mode == "RGB"
    width, height = image.size
    return [image.getpixel((width * x // 4, height * y // 4)) for y in (1, 3) for x in (1, 3)]


def assert_near(got, expected, tolerance: int) -> None:
    assert np.abs(np.array(got) - np.array(expected)).max() <= tolerance, f"expected {expected}, got {got}"


@pytest.mark.parametrize(
    ("mode", "kind", "tolerance"),
    [
        *[("RGB", kind, 0) for kind in ("PNG", "BMP", "TIFF", "GIF")],
        *[("P", "PNG", 0), ("P", "GIF", 0), ("RGBA", "PNG", 0)],
        *[("RGB", "JPEG", LOSSY), ("RGB", "WEBP", LOSSY), ("CMYK", "JPEG", LOSSY)],
    ],
)
def test_colors_are_what_they_were(mode, kind, tolerance):
    got = decode_image(file(quarters(mode), kind), "it")
    assert got.size == (64, 32)
    assert_near(corners(got), [RED, GREEN, BLUE, WHITE], tolerance)


@pytest.mark.parametrize(("mode", "kind"), [("L", "PNG"), ("1", "PNG"), ("LA", "PNG")])
def test_gray_becomes_three_equal_channels(mode, kind):
    image = Image.new("L", (24, 16), 0)
    image.paste(255, (12, 0, 24, 16))
    assert corners(decode_image(file(image.convert(mode), kind), "it")) == [BLACK, WHITE, BLACK, WHITE]


def test_sixteen_bits_become_eight():
    levels = np.array([[0, 128, 129, 257], [32_768, 65_278, 65_407, 65_535]], dtype=np.uint16)
    got = np.asarray(decode_image(file(Image.fromarray(levels), "PNG"), "it"))
    assert got[..., 0].tolist() == [[0, 0, 1, 1], [128, 254, 255, 255]]
    assert (got == got[..., :1]).all()


@pytest.mark.parametrize(
    ("dtype", "kind", "white", "bits"),
    [
        (np.uint16, "PNG", 4095, 12),
        (np.uint16, "PNG", 255, 8),
        (np.int32, "TIFF", 255, 8),
        (np.int32, "TIFF", 4095, 12),
    ],
)
def test_fewer_bits_than_the_file_has_are_scaled_and_said(dtype, kind, white, bits):
    levels = np.array([[0, white // 2, white]], dtype=dtype)
    with pytest.warns(UserWarning, match=f"are taken for {bits}-bit ones: white is {white:,}"):
        got = np.asarray(decode_image(file(Image.fromarray(levels), kind), "it"))
    assert got[0, :, 0].tolist() == [0, 127, 255]


def wide_png(level: int) -> bytes:
    """A PNG of four pixels with red, green and blue of 16 bits, which Pillow reads and does not write."""
    chunks = ((b"IHDR", struct.pack(">IIBBBBB", 2, 2, 16, 2, 0, 0, 0)), (b"IDAT", None), (b"IEND", b""))
    rows = zlib.compress(b"".join(b"\0" + struct.pack(">6H", *[level] * 6) for _ in range(2)))
    parts = [(name, rows if data is None else data) for name, data in chunks]
    packed = [struct.pack(">I", len(d)) + n + d + struct.pack(">I", zlib.crc32(n + d)) for n, d in parts]
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


def test_colors_of_twelve_bits_are_refused_of_which_eight_would_be_lost():
    assert np.asarray(decode_image(wide_png(65_535), "it")).min() == 255
    with pytest.raises(ValueError, match="its colors of 16 bits stay below 4,096"):
        decode_image(wide_png(4095), "it")


@pytest.mark.parametrize("layout", ["last", "first"])
def test_an_array_keeps_all_its_channels(layout):
    levels = np.arange(5 * 8 * 9, dtype=np.uint8).reshape(8, 9, 5)
    content = io.BytesIO()
    np.save(content, levels if layout == "last" else levels.transpose(2, 0, 1))
    assert (decode_pixels(content.getvalue(), "it") == levels).all()
    assert center_crop(levels, 4, 4).shape == (4, 4, 5)
    with pytest.raises(ValueError, match="it has 5 channels, and a photograph has 1 or 3"):
        decode_image(content.getvalue(), "it")


def test_what_is_no_array_of_levels_is_named():
    for array, why in ((np.ones((4, 4)), "its levels are float64"), (np.ones((4, 4, 2), int), "1, 3 or more channels")):
        content = io.BytesIO()
        np.save(content, array)
        with pytest.raises(ValueError, match=why):
            decode_image(content.getvalue(), "it")


def test_gray_and_color_arrays_are_photographs():
    for array in (np.full((6, 5), 7, np.uint8), np.full((6, 5, 1), 7, np.uint8), np.full((6, 5, 3), 7, np.uint8)):
        content = io.BytesIO()
        np.save(content, array)
        assert decode_image(content.getvalue(), "it").getpixel((0, 0)) == (7, 7, 7)


def test_a_tiff_of_more_channels_is_never_cut_to_three_in_silence(monkeypatch):
    """Pillow opens it as RGB, and drops the rest; of RGBA it says so."""
    tags = TiffImagePlugin.ImageFileDirectory_v2()
    tags[338] = 0  # what the fourth is, nobody says
    monkeypatch.setitem(sys.modules, "tifffile", None)
    with pytest.raises(ValueError, match=r'needs tifffile, which is not installed: pip install "vitbook\[images\]"'):
        decode_image(file(Image.new("RGBX", (4, 4), (1, 2, 3, 4)), "TIFF", tiffinfo=tags), "it")
    assert decode_image(file(Image.new("RGBA", (4, 4), (9, 9, 9, 255)), "TIFF"), "it").getpixel((0, 0)) == (9, 9, 9)


@pytest.mark.parametrize("channels", [4, 5])
def test_a_tiff_that_tifffile_wrote_keeps_all_its_channels(channels):
    tifffile = pytest.importorskip("tifffile")
    levels = np.arange(6 * 7 * channels, dtype=np.uint8).reshape(6, 7, channels)
    content = io.BytesIO()
    tifffile.imwrite(content, levels, photometric="minisblack", planarconfig="contig")
    assert (decode_pixels(content.getvalue(), "it") == levels).all()


@pytest.mark.parametrize(("order", "bits"), [("<", 8), ("<", 16), (">", 8), (">", 16)])  # of "> 16", Pillow reads none
def test_a_tiff_in_which_zero_is_white_is_no_negative(order, bits):
    tifffile = pytest.importorskip("tifffile")
    content, white = io.BytesIO(), 2**bits - 1
    levels = np.array([[0, white // 4, white]] * 2, f"u{bits // 8}")
    tifffile.imwrite(content, levels, photometric="miniswhite", byteorder=order)
    got = np.asarray(decode_image(content.getvalue(), "it"))[0, :, 0]
    assert got.tolist() == pytest.approx([255, 255 * 3 / 4, 0], abs=1)


@pytest.mark.parametrize(("kind", "black"), [("u2", 255), ("u2", 4095), ("i2", 4095)])
def test_zero_is_white_also_where_fewer_bits_are_used(kind, black):
    tifffile = pytest.importorskip("tifffile")
    content = io.BytesIO()
    tifffile.imwrite(content, np.array([[0, black // 4, black]] * 2, kind), photometric="miniswhite")
    with pytest.warns(UserWarning, match="are taken for"):
        got = np.asarray(decode_image(content.getvalue(), "it"))[0, :, 0]
    assert got.tolist() == pytest.approx([255, 255 * 3 / 4, 0], abs=1)


@pytest.mark.skipif(not features.check("avif"), reason="this Pillow was built without it")
def test_avif_is_read_like_any_other():
    assert_near(corners(decode_image(file(quarters(), "AVIF"), "it")), [RED, GREEN, BLUE, WHITE], LOSSY)


def test_what_heic_needs_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pi_heif", None)
    with pytest.raises(ValueError, match=r'pi_heif, which is not installed: pip install "vitbook\[images\]"'):
        decode_image(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "photo.heic")


def test_what_is_transparent_lies_on_white():
    image = quarters("RGBA")
    image.paste((0, 0, 0, 0), (0, 0, 32, 16))
    image.paste((0, 0, 0, 128), (32, 0, 64, 16))
    assert_near(corners(decode_image(file(image, "PNG"), "it")), [WHITE, (127, 127, 127), BLUE, WHITE], 1)
    palette = quarters("P")
    red = palette.getpixel((0, 0))
    for kind in ("PNG", "GIF"):
        assert corners(decode_image(file(palette, kind, transparency=red), "it")) == [WHITE, GREEN, BLUE, WHITE]
    assert corners(decode_image(file(Image.new("L", (24, 16), 7), "PNG", transparency=7), "it")) == [WHITE] * 4


TURNS = {  # EXIF's orientation → where the corners of the stored image are to be seen
    1: [RED, GREEN, BLUE, WHITE],
    2: [GREEN, RED, WHITE, BLUE],
    3: [WHITE, BLUE, GREEN, RED],
    6: [BLUE, RED, WHITE, GREEN],
    8: [GREEN, WHITE, RED, BLUE],
}


def turned(turn: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = turn, "a maker of cameras"
    return exif


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.parametrize("turn", TURNS)
def test_an_image_is_turned_once_as_its_exif_says(kind, turn):
    got = decode_image(file(quarters(), kind, exif=turned(turn)), "it")
    assert got.size == ((32, 64) if turn > 4 else (64, 32))
    assert_near(corners(got), TURNS[turn], LOSSY)
    assert corners(to_rgb(got)) == corners(got), "once"


XMP = b"""<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
<rdf:Description xmlns:tiff="http://ns.adobe.com/tiff/1.0/" tiff:Orientation="6"/></rdf:RDF></x:xmpmeta>"""


def stating(where: str) -> dict:
    """What `save` takes to state a quarter of a turn in EXIF, in XMP, or in a PNG's text."""
    if where == "text":
        text = PngImagePlugin.PngInfo()
        text.add_itxt("XML:com.adobe.xmp", XMP.decode())
        return {"pnginfo": text}
    return {"EXIF": {"exif": turned(6)}, "XMP": {"xmp": XMP}, "tag": {"tiffinfo": {700: XMP}}}[where]


@pytest.mark.parametrize(
    ("kind", "where"),
    [*[(kind, "EXIF") for kind in ("JPEG", "PNG", "TIFF", "WEBP")], ("JPEG", "XMP"), ("PNG", "text"), ("TIFF", "tag")],
)
def test_however_a_file_is_read_it_is_turned_as_often(tmp_path, kind, where):
    path, content = tmp_path / "it", file(quarters(), kind, **stating(where))
    path.write_bytes(content)
    upright = decode_image(content, "it")
    turn = upright.height > upright.width  # some releases of Pillow see no XMP in a JPEG
    assert turn or where == "XMP"
    crop = read_crop(path, lambda height, width: (0, 0, width, height), 32, "BILINEAR")
    assert_near(corners(Image.fromarray(crop.transpose(1, 2, 0))), TURNS[6] if turn else TURNS[1], LOSSY)
    assert image_facts(path) == (upright.height, upright.width, 3)
    assert decode_reduced(content, "it", 8)[1] == (upright.height, upright.width)


@pytest.mark.filterwarnings("ignore")  # Pillow's, over what it could not read
def test_damaged_exif_leaves_an_image_readable_however_often(tmp_path):
    """As training, prediction and explanation read it: from the file, then once more by the preprocessing."""
    exif = turned(6).tobytes().removeprefix(b"Exif\0\0")
    content = file(quarters(), "JPEG", exif=turned(6))
    start, seen = content.index(exif), set()
    for at in range(start, start + len(exif)):
        (tmp_path / "damaged").write_bytes(content[:at] + b"\xff" + content[at + 1 :])
        image = read_image(tmp_path / "damaged")
        assert image.tobytes() == to_rgb(image).tobytes()
        assert decode_reduced((tmp_path / "damaged").read_bytes(), "it", 8)[1] == (image.height, image.width)
        seen.add(image.size)
    assert seen == {(64, 32), (32, 64)}, "the orientation counts where it can be read"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "its format is unknown"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n", "its format is unknown"),
        (file(quarters(), "JPEG")[:-40], "truncated"),
        (file(Image.new("F", (2, 2), 0.5), "TIFF"), "floating-point"),
        (file(Image.new("I", (2, 2), 70_000), "TIFF"), "gray levels must lie in 0 … 65,535, lie in 70,000 … 70,000"),
    ],
    ids=["empty", "program", "cut JPEG", "floats", "32 bits"],
)
def test_what_is_no_image_is_named(tmp_path, content, why):
    (tmp_path / "file.png").write_bytes(content)
    with pytest.raises(ValueError, match=f"file.png cannot be read as an image: .*{why}"):
        read_image(tmp_path / "file.png")


def test_what_is_no_file_is_named(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe.png")
    for path in (tmp_path, tmp_path / "pipe.png"):
        with pytest.raises(ValueError, match=f"{path.name} must be an image file, got a folder, pipe, socket or dev"):
            read_image(path)
    with pytest.raises(FileNotFoundError, match="nowhere.png"):
        read_image(tmp_path / "nowhere.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(ValueError, match="it cannot be read .*exceeds limit"):
        decode_image(file(quarters(), "PNG"), "it")


@pytest.mark.parametrize("size", [(90, 30), (30, 90), (60, 30), (400, 300)])
def test_the_middle_is_taken_and_scaled(size):
    """Of an image twice as wide as high, as much as fits."""
    width, height = min(size[0], 2 * size[1]), min(size[0] // 2, size[1])
    left, top = (size[0] - width) // 2, (size[1] - height) // 2
    image = Image.new("RGB", size, RED)
    image.paste(BLUE, (left, top, left + width, top + height))
    got = center_crop(image, 8, 16)
    assert got.size == (16, 8) and corners(got) == [BLUE] * 4

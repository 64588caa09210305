"""Whatever kind of file a picture comes in, it is the same picture; and what is no picture is named."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from vitbook._support.images import crop_and_scale, read_picture, to_tensor

RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)
LOSSY = 6  # levels by which JPEG and WEBP may be off


def quarters(mode: str = "RGB") -> Image.Image:
    """Red, green over blue, white, in 64×32 pixels: no turn or flip leaves it as it is."""
    picture = Image.new("RGB", (64, 32), WHITE)
    for colour, (x, y) in ((RED, (0, 0)), (GREEN, (32, 0)), (BLUE, (0, 16))):
        picture.paste(colour, (x, y, x + 32, y + 16))
    return picture.convert(mode)


def file(picture: Image.Image, kind: str, **options) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def corners(picture: Image.Image) -> list[tuple[int, int, int]]:
    """The colour in the middle of each quarter: above left, above right, below left, below right."""
    assert picture.mode == "RGB"
    width, height = picture.size
    return [picture.getpixel((width * x // 4, height * y // 4)) for y in (1, 3) for x in (1, 3)]


def assert_near(got, expected, tolerance: int) -> None:
    assert np.abs(np.array(got) - np.array(expected)).max() <= tolerance, f"expected {expected}, got {got}"


@pytest.mark.parametrize(
    ("mode", "kind", "tolerance"),
    [
        *[("RGB", kind, 0) for kind in ("PNG", "BMP", "TIFF", "PPM", "GIF", "JPEG2000")],
        *[("P", kind, 0) for kind in ("PNG", "GIF", "BMP", "TIFF")],
        *[("RGBA", kind, 0) for kind in ("PNG", "TIFF")],
        *[("RGB", kind, LOSSY) for kind in ("JPEG", "WEBP")],
        *[("CMYK", kind, LOSSY) for kind in ("JPEG", "TIFF")],
        ("YCbCr", "JPEG", LOSSY),
    ],
)
def test_colours_are_what_they_were(mode, kind, tolerance):
    got = read_picture(file(quarters(mode), kind), "it")
    assert got.size == (64, 32)
    assert_near(corners(got), [RED, GREEN, BLUE, WHITE], tolerance)


@pytest.mark.parametrize(("mode", "kind"), [("L", "PNG"), ("L", "JPEG"), ("1", "PNG"), ("L", "GIF"), ("LA", "PNG")])
def test_grey_becomes_three_equal_channels(mode, kind):
    picture = Image.new("L", (24, 16), 0)
    picture.paste(255, (12, 0, 24, 16))
    black, white = (0, 0, 0), (255, 255, 255)
    assert corners(read_picture(file(picture.convert(mode), kind), "it")) == [black, white, black, white]


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "PPM"])
def test_sixteen_bits_become_eight(kind):
    levels = np.array([[0, 128, 129, 257], [32_768, 65_278, 65_407, 65_535]], dtype=np.uint16)
    try:
        written = file(Image.fromarray(levels), kind)
    except OSError as error:
        pytest.skip(f"this Pillow does not write them: {error}")
    got = np.asarray(read_picture(written, "it"))
    assert got[..., 0].tolist() == [[0, 0, 1, 1], [128, 254, 255, 255]]
    assert (got == got[..., :1]).all()


def test_what_is_transparent_lies_on_white():
    picture = quarters("RGBA")
    picture.paste((0, 0, 0, 0), (0, 0, 32, 16))
    picture.paste((0, 0, 0, 128), (32, 0, 64, 16))
    assert_near(corners(read_picture(file(picture, "PNG"), "it")), [WHITE, (127, 127, 127), BLUE, WHITE], 1)


@pytest.mark.parametrize("kind", ["PNG", "GIF"])
def test_a_transparent_colour_of_a_palette_lies_on_white(kind):
    picture = quarters("P")
    red = picture.getpixel((0, 0))
    assert corners(read_picture(file(picture, kind, transparency=red), "it")) == [WHITE, GREEN, BLUE, WHITE]


def test_a_transparent_grey_lies_on_white():
    picture = Image.new("L", (24, 16), 7)
    assert corners(read_picture(file(picture, "PNG", transparency=7), "it")) == [WHITE] * 4


TURNS = {  # EXIF's orientation → where the corners of the stored picture are to be seen
    1: [RED, GREEN, BLUE, WHITE],
    2: [GREEN, RED, WHITE, BLUE],
    3: [WHITE, BLUE, GREEN, RED],
    4: [BLUE, WHITE, RED, GREEN],
    5: [RED, BLUE, GREEN, WHITE],
    6: [BLUE, RED, WHITE, GREEN],
    7: [WHITE, GREEN, BLUE, RED],
    8: [GREEN, WHITE, RED, BLUE],
}


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("turn", TURNS)
def test_a_picture_is_turned_as_its_exif_note_says(kind, turn):
    exif = Image.Exif()
    exif[0x0112] = turn
    got = read_picture(file(quarters(), kind, exif=exif), "it")
    assert got.size == ((32, 64) if turn > 4 else (64, 32))
    assert_near(corners(got), TURNS[turn], LOSSY)


def test_of_several_frames_the_first_is_taken():
    frames = [Image.new("RGB", (24, 16), colour) for colour in (GREEN, RED)]
    assert corners(read_picture(file(frames[0], "GIF", save_all=True, append_images=frames[1:]), "it")) == [GREEN] * 4


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "its format is unknown"),
        (b"\x89PNG\r\n\x1a\n", "."),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n", "its format is unknown"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "its format is unknown"),
        (file(quarters(), "PNG")[:-40], "."),
        (file(quarters(), "JPEG")[:-40], "truncated"),
        (file(Image.new("F", (2, 2), 0.5), "TIFF"), "floating-point"),
        (file(Image.new("I", (2, 2), 70_000), "TIFF"), "grey levels should lie in 0 … 65,535, lie in 70,000 … 70,000"),
    ],
    ids=["empty", "header", "program", "drawing", "cut PNG", "cut JPEG", "floats", "32 bits"],
)
def test_what_is_no_picture_is_named(content, why):
    with pytest.raises(ValueError, match=f"some/file.png is no picture that can be read: .*{why}"):
        read_picture(content, "some/file.png")


def test_a_picture_too_large_to_be_one_is_named(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(ValueError, match="it is no picture .*exceeds limit"):
        read_picture(file(quarters(), "PNG"), "it")


@pytest.mark.parametrize("seed", range(3))
def test_a_damaged_file_is_a_picture_or_named(seed):
    random = np.random.RandomState(seed)
    for kind in ("PNG", "JPEG", "GIF", "BMP", "WEBP", "PPM"):
        whole = np.frombuffer(file(quarters(), kind), np.uint8)
        for _ in range(20):
            damaged = whole.copy()
            damaged[random.randint(0, len(whole), 3)] = random.randint(0, 256, 3)
            try:
                assert read_picture(damaged.tobytes(), "it").mode == "RGB"
            except ValueError as error:
                assert str(error).startswith("it is no picture that can be read: ")


@pytest.mark.parametrize("size", [(90, 30), (30, 90), (60, 30), (400, 300)])
def test_the_middle_is_taken_and_scaled(size):
    """Of a picture twice as wide as high, as much as fits."""
    width, height = min(size[0], 2 * size[1]), min(size[0] // 2, size[1])
    left, top = (size[0] - width) // 2, (size[1] - height) // 2
    picture = Image.new("RGB", size, RED)
    picture.paste(BLUE, (left, top, left + width, top + height))
    got = crop_and_scale(picture, 8, 16)
    assert got.size == (16, 8)
    assert corners(got) == [BLUE] * 4


def test_the_tensor_has_the_channels_first():
    pixels = np.arange(2 * 4 * 3, dtype=np.uint8).reshape(2, 4, 3)
    for picture in (pixels, Image.fromarray(pixels)):
        got = to_tensor(picture)
        assert got.dtype == torch.uint8 and got.is_contiguous()
        assert got.tolist() == pixels.transpose(2, 0, 1).tolist()

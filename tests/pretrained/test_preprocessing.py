"""A picture becomes what each source's own evaluation makes of it."""

import io

import numpy as np
import pytest
import torch
from on_a_gpu import OnAGpu
from PIL import Image
from torch.testing import assert_close

from vitbook._support.images import crop_and_scale, read_picture
from vitbook.data import photograph
from vitbook.pretrained.preprocessing import STYLES, Preprocessing

PORTRAIT = photograph("portrait")  # 224×224
CHINA = photograph("china")  # 427×640


def pil(picture: torch.Tensor) -> Image.Image:
    return Image.fromarray(picture.permute(1, 2, 0).numpy())


def normalised(picture: Image.Image, style: dict) -> torch.Tensor:
    """(x/255 − mean)/std, a channel at a time."""
    pixels = np.asarray(picture).astype(np.float64) / 255
    return torch.from_numpy((pixels - style["mean"]) / style["std"]).permute(2, 0, 1)[None].float()


@pytest.mark.parametrize("picture", [PORTRAIT, CHINA, CHINA.mT], ids=["square", "wide", "high"])
@pytest.mark.parametrize(
    ("family", "scaled"), [("torchvision", 128), ("deit", 128), ("timm", 124), ("big_vision", 128)]
)
def test_scale_and_crop_as_in_torchvision_and_timm(family, scaled, picture):
    """Resize(scaled), of the shorter side, then CenterCrop(112)."""
    style, image = STYLES[family], pil(picture)
    method = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}[style["interpolation"]]
    short, long = min(image.size), int(scaled * max(image.size) / min(image.size))
    image = image.resize((scaled, long) if image.width == short else (long, scaled), method)
    left, top = int(round((image.width - 112) / 2.0)), int(round((image.height - 112) / 2.0))
    expected = normalised(image.crop((left, top, left + 112, top + 112)), style)
    assert_close(Preprocessing(image_size=(112, 112), **style)(picture), expected)


def test_with_all_of_the_side_it_is_what_our_trainings_see():
    expected = normalised(crop_and_scale(pil(CHINA), 96, 112), STYLES["vitbook"])
    assert_close(Preprocessing(image_size=(96, 112), **STYLES["vitbook"])(CHINA), expected)


def test_a_view_of_other_proportions_is_in_the_middle():
    """The middle of a ramp is grey, whichever side is the longer one."""
    ramp = torch.linspace(0, 255, 640).to(torch.uint8).expand(3, 400, 640)
    for size in ((40, 80), (80, 40), (64, 64)):
        for picture in (ramp, ramp.mT):
            seen = Preprocessing((0.5,) * 3, (0.5,) * 3, size, 0.8)(picture)
            assert seen.shape == (1, 3, *size) and abs(seen.mean()) < 0.02


def test_without_a_crop_the_whole_is_squeezed():
    style = STYLES["google"]
    expected = normalised(pil(CHINA).resize((112, 96), Image.Resampling.BILINEAR), style)
    assert_close(Preprocessing(image_size=(96, 112), **style)(CHINA), expected)


def test_hugging_faces_own_processor_agrees():
    transformers = pytest.importorskip("transformers")
    theirs = transformers.ViTImageProcessorPil(size={"height": 96, "width": 96})
    expected = torch.from_numpy(np.stack(theirs(pil(CHINA), return_tensors="np")["pixel_values"]))
    assert_close(Preprocessing(image_size=(96, 96), **STYLES["hf"])(CHINA), expected, rtol=0, atol=1e-6)


def test_a_picture_may_be_a_tensor_or_a_pillow_image_of_any_mode():
    preprocessing = Preprocessing(image_size=(32, 32), **STYLES["timm"])
    expected = preprocessing(PORTRAIT)
    assert expected.shape == (1, 3, 32, 32) and expected.dtype == torch.float32
    assert torch.equal(preprocessing(pil(PORTRAIT)), expected)
    assert torch.equal(preprocessing(PORTRAIT.as_subclass(OnAGpu)), expected)
    assert torch.equal(preprocessing(pil(PORTRAIT).convert("RGBA")), expected)
    assert preprocessing(pil(PORTRAIT).convert("L")).shape == (1, 3, 32, 32)


@pytest.mark.parametrize("mode", ["I;16", "RGBA"])
def test_a_pillow_image_is_seen_as_its_file_would_be(mode):
    picture = pil(PORTRAIT).convert("RGBA")
    if mode == "RGBA":
        picture.putalpha(picture.getchannel("R"))
    else:
        picture = Image.fromarray(np.asarray(picture.convert("L")).astype(np.uint16) * 257)
    assert picture.mode == mode
    file = io.BytesIO()
    picture.save(file, "PNG")
    preprocessing = Preprocessing(image_size=(32, 32), **STYLES["timm"])
    seen = preprocessing(picture)
    assert torch.equal(seen, preprocessing(read_picture(file.getvalue(), "it")))
    assert 0.1 < seen.std() and (seen < 0.95).double().mean() > 0.5, "not all white"


def test_one_channel_is_grey():
    got = Preprocessing((0.3,), (0.2,), (224, 224))(PORTRAIT)
    expected = (torch.from_numpy(np.asarray(pil(PORTRAIT).convert("L")).copy()) / 255 - 0.3) / 0.2
    assert_close(got[0, 0], expected)
    assert got.shape == (1, 1, 224, 224)


def test_every_setting_has_an_effect():
    one = Preprocessing((0.5, 0.5, 0.5), (0.5, 0.5, 0.5), (32, 40), 1.0, "bicubic")
    others = [dict(mean=(0.5, 0.5, 0.4)), dict(std=(0.5, 0.5, 0.4)), dict(image_size=(40, 32)), dict(crop=0.5)]
    others += [dict(crop=None), dict(interpolation="bilinear")]
    for change in others:
        got = Preprocessing(**vars(one) | change)(CHINA)
        assert got.shape != one(CHINA).shape or not torch.allclose(got, one(CHINA)), change


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(mean=(0.5, 0.5)), "mean and std must be 1 or 3 finite numbers"),
        (dict(mean=(0.5, np.nan, 0.5)), r"got \(0.5, nan, 0.5\)"),
        (dict(mean=(0.5, 0.5, -np.inf)), r"got \(0.5, 0.5, -inf\)"),
        (dict(std=(0.5, np.nan, 0.5)), r"and \(0.5, nan, 0.5\)"),
        (dict(std=(0.5, np.inf, 0.5)), r"and \(0.5, inf, 0.5\)"),
        (dict(std=(0.5, 0.5, 0.0)), "std above 0, got"),
        (dict(crop=1.5), "crop must be None or a share, above 0 and at most 1, got 1.5"),
        (dict(crop=0), "got 0"),
        (dict(interpolation="nearest"), "interpolation must be bilinear or bicubic, got 'nearest'"),
    ],
)
def test_impossible_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        Preprocessing(**dict(image_size=(32, 32), **STYLES["timm"]) | settings)


@pytest.mark.parametrize("picture", [PORTRAIT.float(), PORTRAIT[None], PORTRAIT[:1]])
def test_other_tensors_are_named(picture):
    with pytest.raises(
        ValueError, match=r"must be a PIL image or uint8 \(3, H, W\) with at least one pixel, got torch"
    ):
        Preprocessing(image_size=(32, 32), **STYLES["timm"])(picture)


@pytest.mark.parametrize("size", [(1, 5000), (5000, 1)])
def test_a_line_that_would_first_become_a_huge_picture_is_refused(size):
    strip = Image.new("RGB", size)
    with pytest.raises(ValueError, match="would first be scaled to .*1,280,000.*: expected at most 100,000,000 pixels"):
        Preprocessing(image_size=(224, 224), **STYLES["torchvision"])(strip)
    assert Preprocessing(image_size=(224, 224), **STYLES["vitbook"])(strip).shape == (1, 3, 224, 224)


@pytest.mark.parametrize("crop", [None, 0.5, 1.0])
def test_a_picture_without_pixels_is_named(crop):
    preprocessing = Preprocessing(image_size=(4, 4), mean=(0.5,) * 3, std=(0.5,) * 3, crop=crop)
    for shape in ((3, 0, 5), (3, 5, 0)):
        with pytest.raises(ValueError, match=r"at least one pixel, got torch.uint8 of shape \(3, "):
            preprocessing(torch.zeros(shape, dtype=torch.uint8))
    with pytest.raises(ValueError, match="at least one pixel, got 5×0"):
        preprocessing(Image.new("RGB", (0, 5)))

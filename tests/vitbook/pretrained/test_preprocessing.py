"""An image becomes what each source's own evaluation makes of it; timm's and torchvision's own are in test_peers.py."""

import numpy as np
import pytest
import torch
from on_a_gpu import OnAGpu
from PIL import Image
from torch.testing import assert_close

from vitbook._common.images import center_crop
from vitbook.data import photograph
from vitbook.pretrained.preprocessing import STYLES, Preprocessing

PORTRAIT, CHINA = photograph("portrait"), photograph("china")  # 224×224, 427×640
SMALL = Preprocessing(image_size=(32, 32), **STYLES["timm"])


def pil(image: torch.Tensor) -> Image.Image:
    return Image.fromarray(image.permute(1, 2, 0).numpy())


def normalized(image: Image.Image, style: dict) -> torch.Tensor:
    """(x/255 − mean)/std, a channel at a time."""
    pixels = np.asarray(image).astype(np.float64) / 255
    return torch.from_numpy((pixels - style["mean"]) / style["std"]).permute(2, 0, 1)[None].float()


@pytest.mark.parametrize("photo", [PORTRAIT, CHINA, CHINA.mT], ids=["square", "wide", "high"])
@pytest.mark.parametrize(("name", "scaled"), [("torchvision", 128), ("deit", 128), ("timm", 124), ("big_vision", 128)])
def test_scale_and_crop_as_in_torchvision_and_timm(name, scaled, photo):
    """Resize(scaled), of the shorter side, then CenterCrop(112)."""
    style, image = STYLES[name], pil(photo)
    short, long = min(image.size), int(scaled * max(image.size) / min(image.size))
    size = (scaled, long) if image.width == short else (long, scaled)
    image = image.resize(size, Image.Resampling[style["interpolation"].upper()])
    left, top = int(round((image.width - 112) / 2.0)), int(round((image.height - 112) / 2.0))
    expected = normalized(image.crop((left, top, left + 112, top + 112)), style)
    assert_close(Preprocessing(image_size=(112, 112), **style)(photo), expected)


def test_without_a_margin_it_is_what_our_training_runs_see_and_without_a_crop_all_of_it():
    cropped = normalized(center_crop(pil(CHINA), 96, 112), STYLES["vitbook"])
    squeezed = normalized(pil(CHINA).resize((112, 96), Image.Resampling.BILINEAR), STYLES["google"])
    assert_close(Preprocessing(image_size=(96, 112), **STYLES["vitbook"])(CHINA), cropped)
    assert_close(Preprocessing(image_size=(96, 112), **STYLES["google"])(CHINA), squeezed)


def test_hugging_faces_own_processor_agrees():
    transformers = pytest.importorskip("transformers")
    theirs = transformers.ViTImageProcessorPil(size={"height": 96, "width": 96})
    expected = torch.from_numpy(np.stack(theirs(pil(CHINA), return_tensors="np")["pixel_values"]))
    assert_close(Preprocessing(image_size=(96, 96), **STYLES["hf"])(CHINA), expected, rtol=0, atol=1e-6)


def test_an_image_may_be_a_tensor_or_a_pillow_image():
    expected = SMALL(PORTRAIT)
    assert expected.shape == (1, 3, 32, 32) and expected.dtype == torch.float32
    for same in (pil(PORTRAIT), PORTRAIT.as_subclass(OnAGpu), pil(PORTRAIT).convert("RGBA")):
        assert torch.equal(SMALL(same), expected)


def test_one_channel_is_gray():
    got = Preprocessing((0.3,), (0.2,), (224, 224))(PORTRAIT)
    expected = (torch.from_numpy(np.asarray(pil(PORTRAIT).convert("L")).copy()) / 255 - 0.3) / 0.2
    assert_close(got, expected[None, None])


@pytest.mark.door
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(mean=(0.5, 0.5)), "mean and std must be a finite number for each of 1, 3 or more channels"),
        (dict(mean=(0.5, np.nan, 0.5)), r"got \(0.5, nan, 0.5\)"),
        (dict(std=(0.5, np.inf, 0.5)), r"and \(0.5, inf, 0.5\)"),
        (dict(std=(0.5, 0.5, 0.0)), "std above 0, got"),
        (dict(crop=1.5), "crop must be None or a share, above 0 and at most 1, got 1.5"),
        (dict(crop=0), "got 0"),
    ],
)
def test_impossible_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        Preprocessing(**vars(SMALL) | settings)


@pytest.mark.door
@pytest.mark.parametrize("image", [PORTRAIT.float(), PORTRAIT[None], PORTRAIT[:1], PORTRAIT[:, :0], "portrait.jpg"])
def test_what_is_no_image_is_named(image):
    with pytest.raises(ValueError, match=r"image must be a PIL image or uint8 \(3, H, W\) with at least one pixel"):
        SMALL(image)


@pytest.mark.parametrize("size", [(1, 5000), (5000, 1)])
def test_a_line_that_would_first_become_a_huge_image_is_refused(size):
    strip = Image.new("RGB", size)
    with pytest.raises(ValueError, match="would first be scaled to .*1,280,000.*: expected at most 100,000,000 pixels"):
        Preprocessing(image_size=(224, 224), **STYLES["torchvision"])(strip)
    assert Preprocessing(image_size=(224, 224), **STYLES["vitbook"])(strip).shape == (1, 3, 224, 224)

"""What an image processor's file states and leaves out is that of its class in transformers."""

import json
import re

import pytest
import torch
from PIL import Image

from vitbook.data import photograph
from vitbook.pretrained.image_processors import CLASSES, seen_by_transformers
from vitbook.pretrained.preprocessing import Preprocessing

CHINA = Image.fromarray(photograph("china").permute(1, 2, 0).numpy())
HALF = dict(image_mean=[0.5] * 3, image_std=[0.5] * 3)
SQUARE, SHORT = dict(height=24, width=24), dict(shortest_edge=32)


@pytest.mark.parametrize("name", sorted(CLASSES.keys() - {"DINOv3ViT"}))  # which needs torchvision
def test_defaults_are_those_of_the_class(name):
    transformers = pytest.importorskip("transformers")
    theirs = getattr(transformers, f"{name}ImageProcessorPil")()
    stated = json.loads(theirs.to_json_string())
    left_out = {key: value for key, value in stated.items() if key in ("image_processor_type", "patch_size")}
    assert seen_by_transformers(left_out) == seen_by_transformers(stated)


@pytest.mark.parametrize(
    ("name", "stated"),
    [
        ("CLIPFeatureExtractor", HALF | dict(size=24, crop_size=24)),
        ("BitImageProcessorFast", HALF | dict(size=24, crop_size=24)),
        ("CLIPImageProcessor", dict(size=SHORT, crop_size=SQUARE)),
        ("DeiTImageProcessor", dict(size=SQUARE, do_center_crop=None)),
        ("ViTFeatureExtractor", dict(size=24)),
        ("ViTImageProcessor", dict(size=SQUARE)),
        ("SiglipImageProcessor", dict(size=SQUARE)),
        ("DeiTImageProcessor", dict(size=dict(height=32, width=32), crop_size=SQUARE)),
        ("ConvNextImageProcessor", dict(size=dict(shortest_edge=24), crop_pct=0.5)),
        ("ConvNextImageProcessor", dict(size=384)),
    ],
    ids=str,
)
def test_an_image_is_theirs_whatever_their_file_leaves_out(name, stated):
    transformers = pytest.importorskip("transformers")
    kind = name.replace("FeatureExtractor", "ImageProcessor").removesuffix("Fast")
    expected = getattr(transformers, f"{kind}Pil").from_dict(stated)(CHINA, return_tensors="np")["pixel_values"]
    key = "feature_extractor_type" if name.endswith("Extractor") else "image_processor_type"
    seen, notes = seen_by_transformers(stated | {key: name})
    got, expected = Preprocessing(**seen)(CHINA), torch.as_tensor(expected)
    shifted = (got[..., :-1] - expected[..., 1:]).abs().max() < 1e-5  # transformers cuts an odd margin further left
    assert (shifted or (got - expected).abs().max() < 1e-5) and not notes


@pytest.mark.parametrize(
    ("stated", "note"),
    [
        (dict(size=SQUARE, do_flip_channel_order=True), "do_flip_channel_order of the image processor is not read"),
        (dict(size=SQUARE, crop_pct=0.9), "crop_pct of the image processor is not read"),
        (
            dict(image_processor_type="CLIPImageProcessor", size=dict(shortest_edge=20), crop_size=SQUARE),
            "crop_size {'height': 24, 'width': 24} .* exceeds its size {'shortest_edge': 20}: .* a black border",
        ),
        (
            dict(image_processor_type="LevitImageProcessor"),
            "LevitImageProcessor is not known, nor what its file leaves",
        ),
        (dict(size=SHORT), "keeps an image's proportions: here its middle is cut out"),
        (dict(size=SQUARE, do_resize=False), "does not resize"),
    ],
    ids=str,
)
def test_what_is_not_done_as_there_is_said(stated, note):
    assert any(re.search(note, one) for one in seen_by_transformers(HALF | stated)[1])

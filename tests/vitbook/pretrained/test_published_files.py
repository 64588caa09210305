"""Files as they are published on the Hugging Face Hub, beside the library transformers.

    VITBOOK_PUBLISHED=1 python -m pytest tests/vitbook/pretrained/test_published_files.py

downloads some six gigabytes and needs sentencepiece; .github/workflows/weekly.yml does it.
"""

import os

import pytest
import torch
from PIL import Image, ImageOps
from torch.testing import assert_close

from vitbook._common.files import ASSETS
from vitbook._common.images import read_image
from vitbook.pretrained import load_pretrained
from vitbook_workshop.training_runs.trained_models import classifier

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.skipif("VITBOOK_PUBLISHED" not in os.environ, reason="VITBOOK_PUBLISHED=1 downloads files")
PHOTO = ASSETS / "album" / "bird_kingfisher.jpg"
WORDS = ["a photo of a kingfisher", "a photo of a moose", "a photo of a bridge"]


@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("openai/clip-vit-base-patch32", None),
        ("laion/CLIP-ViT-B-32-laion2B-s34B-b79K", None),
        ("google/siglip-base-patch16-224", None),
        ("google/siglip2-base-patch16-224", None),
        ("google/siglip2-base-patch16-naflex", None),
        ("timm/ViT-B-16-SigLIP", "google/siglip-base-patch16-224"),  # the same weights in OpenCLIP's names
    ],
)
def test_words_for_a_photograph(name, theirs, tmp_path):
    file = tmp_path / "square.png"
    with Image.open(PHOTO) as photo:
        side = min(photo.size)  # in a square, NaFlex sees as many patches of its width as of its height
        ImageOps.fit(photo, (side, side)).save(file)
    said = transformers.pipeline("zero-shot-image-classification", model=theirs or name)(
        str(file), candidate_labels=WORDS, hypothesis_template="{}"
    )
    ours = classifier(f"hf:{name}", names=WORDS)(file)
    assert ours[0][0] == WORDS[0]
    assert dict(ours) == pytest.approx({one["label"]: one["score"] for one in said}, abs=1e-3)


def test_features_of_a_photograph():
    name, photo = "facebook/dinov2-small", read_image(PHOTO)
    weights, processor = load_pretrained(f"hf:{name}"), transformers.AutoImageProcessor.from_pretrained(name)
    images = processor(photo, return_tensors="pt").pixel_values
    assert_close(weights.preprocessing(photo).reshape(images.shape), images, rtol=0, atol=1e-4)
    with torch.no_grad():
        theirs = transformers.AutoModel.from_pretrained(name).eval()(images).last_hidden_state
        assert_close(weights.model.tokens(images), theirs, rtol=0, atol=1e-3)

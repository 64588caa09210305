"""The models of other libraries, with random weights, pass clean. `make peers` runs these."""

import sys
from pathlib import Path

import pytest

from vitbook_workshop.faults.diagnosis import examine

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks"))  # for the fixture `torchvision`
pytest_plugins = ["shared_fixtures"]
pytestmark = [pytest.mark.peers, pytest.mark.door, pytest.mark.usefixtures("torchvision")]

SIDE, K = 32, 10
SMALL = dict(img_size=SIDE, patch_size=8, embed_dim=48, depth=3, num_heads=3, num_classes=K)
OF_TIMM = {
    "vit_tiny_patch16_224": SMALL,
    "vit_tiny_patch16_224, mean": SMALL | {"global_pool": "avg"},
    "vit_small_patch14_reg4_dinov2": SMALL,
    "vit_giant_patch14_dinov2": SMALL | {"mlp_ratio": 4.0},  # SwiGLU
    "vit_medium_patch16_gap_256": SMALL,
    "vit_base_patch16_siglip_224": SMALL,  # attention pooling
    "vit_base_patch16_clip_quickgelu_224": SMALL,
    "vit_srelpos_small_patch16_224": SMALL,
    "deit_tiny_distilled_patch16_224": SMALL,
    "deit3_small_patch16_224": SMALL,
    "beit_base_patch16_224": SMALL,
    "eva02_tiny_patch14_224": SMALL,  # rotary, SwiGLU
    "cait_xxs24_224": SMALL,
    "xcit_nano_12_p8_224": SMALL,
    "swin_tiny_patch4_window7_224": dict(img_size=56, num_classes=K, embed_dim=24, depths=(2, 2), num_heads=(2, 4)),
}
AS_THEY_ARE = ("crossvit_9_240", "gcvit_xxtiny", "hiera_tiny_224", "davit_tiny", "edgenext_xx_small")
OF_VIT_PYTORCH = {
    "vit.ViT": dict(pool="cls"),
    "vit.ViT, mean": dict(pool="mean"),
    "simple_vit.SimpleViT": {},
    "simple_vit_with_register_tokens.SimpleViT": {},
    "simple_vit_with_patch_dropout.SimpleViT": {},
    "vit_for_small_dataset.ViT": {},
    "parallel_vit.ViT": {},
    "deepvit.DeepViT": {},
}


def accused(model, side: int = SIDE) -> dict[str, str]:
    findings = examine(model, (3, side, side), K)
    return {finding.name: finding.details for finding in findings if finding.result == "FAILED"}


@pytest.mark.parametrize("name", OF_TIMM)
def test_timm(name):
    timm = pytest.importorskip("timm", reason="make peers installs it")
    model = timm.create_model(name.partition(",")[0], **OF_TIMM[name])
    assert not accused(model, OF_TIMM[name]["img_size"])


@pytest.mark.parametrize("name", AS_THEY_ARE)
def test_timm_of_several_sizes(name):
    model = pytest.importorskip("timm", reason="make peers installs it").create_model(name, num_classes=K)
    assert not accused(model, model.default_cfg["input_size"][1])


@pytest.mark.parametrize("name", OF_VIT_PYTORCH)
def test_vit_pytorch(name):
    module, _, kind = name.partition(",")[0].partition(".")
    library = pytest.importorskip(f"vit_pytorch.{module}", reason="make peers installs it")
    sizes = dict(image_size=SIDE, patch_size=8, num_classes=K, dim=48, depth=3, heads=3, mlp_dim=96, dim_head=16)
    if name == "deepvit.DeepViT":
        del sizes["dim_head"]
    assert not accused(getattr(library, kind)(**sizes | OF_VIT_PYTORCH[name]))


def test_torchvision(torchvision):
    make = torchvision.models.vision_transformer.VisionTransformer
    assert not accused(make(SIDE, 8, 3, 3, 48, 96, num_classes=K))

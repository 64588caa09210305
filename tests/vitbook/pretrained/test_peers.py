"""timm and torchvision themselves beside ours: logits, images, positions. `make peers` runs these."""

from functools import partial

import foreign
import numpy as np
import pytest
import torch
from foreign import DEPTH, HIDDEN, SIDE, D, H, K, P, images, shaken
from PIL import Image
from torch import nn
from torch.testing import assert_close

from vitbook.data import photograph
from vitbook.positions import resize_positions
from vitbook.pretrained import KERNELS, load_pretrained, to_source, to_timm
from vitbook.pretrained.preprocessing import STYLES, Preprocessing

pytest_plugins = ["shared_fixtures"]
pytestmark = pytest.mark.peers
CHINA = Image.fromarray(photograph("china").permute(1, 2, 0).numpy())  # 640 wide, 427 high


@pytest.fixture(scope="module")
def timm(torchvision):  # which it imports
    return pytest.importorskip("timm", reason="timm is not installed; make peers installs it")


def timms(timm, side: int = SIDE, distilled: bool = False) -> nn.Module:
    """timm's model in the sizes of foreign.py."""
    plain, deit = timm.models.vision_transformer.VisionTransformer, timm.models.deit.VisionTransformerDistilled
    sizes = dict(embed_dim=D, depth=DEPTH, num_heads=H, mlp_ratio=HIDDEN / D, num_classes=K)
    return shaken((deit if distilled else plain)(img_size=side, patch_size=P, **sizes))


@torch.no_grad()
def same_logits(ours: nn.Module, theirs: nn.Module, side: int = SIDE) -> None:
    assert_close(ours.double()(images(side=side)), theirs(images(side=side)), rtol=0, atol=1e-6)


@pytest.mark.usefixtures("double")
class TestLogits:
    def test_torchvision(self, torchvision):
        cls = torchvision.models.vision_transformer.VisionTransformer
        theirs = shaken(cls(SIDE, P, DEPTH, num_heads=H, hidden_dim=D, mlp_dim=HIDDEN, num_classes=K))
        same_logits(load_pretrained(theirs.state_dict(), num_heads=H).model, theirs)

    @pytest.mark.parametrize("distilled", [False, True])
    def test_timm(self, timm, distilled):
        theirs, others = timms(timm, distilled=distilled), timms(timm, distilled=distilled)
        ours = load_pretrained(theirs.state_dict(), num_heads=H).model
        same_logits(ours, theirs)
        others.load_state_dict(to_timm(ours))
        same_logits(ours, others)

    @pytest.mark.parametrize(
        ("family", "settings"),
        [
            ("deit3", dict(no_embed_class=True, init_values=0.1)),
            ("dinov2", dict(init_values=0.1, num_classes=0)),
            ("dinov2", dict(no_embed_class=True, init_values=0.1, reg_tokens=2, num_classes=0)),
            ("clip", dict(pre_norm=True, norm_eps=1e-5)),
            ("siglip", dict(class_token=False, global_pool="map", num_classes=0, act_layer="gelu_tanh")),
        ],
        ids=["deit3", "dinov2", "dinov2 with registers", "clip", "siglip"],
    )
    def test_timms_later_towers(self, timm, family, settings):
        """Read, compared, and written so that timm reads them."""
        eps = settings.pop("norm_eps", 1e-6)
        sizes = dict(img_size=SIDE, patch_size=P, embed_dim=D, depth=DEPTH, num_heads=H, mlp_ratio=HIDDEN / D)
        sizes |= dict(num_classes=K, norm_layer=partial(nn.LayerNorm, eps=eps)) | settings
        theirs, others = (shaken(timm.models.vision_transformer.VisionTransformer(**sizes)) for _ in range(2))
        ours = load_pretrained(theirs.state_dict(), num_heads=H)
        assert ours.layout == family
        same_logits(ours.model, theirs)
        others.load_state_dict(to_source(ours))
        same_logits(ours.model, others)

    @pytest.mark.parametrize("gated", [False, True])
    @pytest.mark.parametrize("biased", [False, True])
    def test_timms_dinov3(self, timm, biased, gated):
        """With the settings of its `vit_small_patch16_dinov3`, and the class token for an answer, as DINOv3 has it."""
        make = timm.models.eva.vit_small_plus_patch16_dinov3 if gated else timm.models.eva.vit_small_patch16_dinov3
        sizes = dict(img_size=SIDE, patch_size=P, embed_dim=D, depth=DEPTH, num_heads=H, mlp_ratio=HIDDEN / D)
        theirs, others = (shaken(make(**sizes, qkv_bias=biased, global_pool="token", num_classes=0)) for _ in range(2))
        ours = load_pretrained(theirs.state_dict(), num_heads=H, image_size=SIDE)
        assert ours.layout == "dinov3"
        x = images(side=SIDE)
        assert_close(ours.model.tokens(x), theirs.forward_features(x), rtol=0, atol=1e-5)  # their angles are float32
        assert_close(ours.model(x), theirs(x), rtol=0, atol=1e-5)
        others.load_state_dict(to_source(ours))
        assert all(torch.equal(tensor, theirs.state_dict()[name]) for name, tensor in others.state_dict().items())

    @pytest.mark.parametrize("side", [SIDE, 2 * SIDE])
    def test_timm_and_we_read_googles_file_alike(self, timm, side, tmp_path):
        """Also for larger images, for which timm has a rule of its own for positions."""
        file, theirs = tmp_path / "google.npz", timms(timm, side)
        np.savez(file, **foreign.google())
        theirs.load_pretrained(str(file))
        larger = {} if side == SIDE else dict(image_size=side, resize="timm_npz")
        same_logits(load_pretrained(file, **larger).model, theirs, side)


def test_torchvisions_own_preprocessing(torchvision):
    from torchvision.transforms._presets import ImageClassification

    theirs = ImageClassification(crop_size=112, resize_size=128)(CHINA)
    assert_close(Preprocessing(image_size=(112, 112), **STYLES["torchvision"])(CHINA)[0], theirs)


@pytest.mark.parametrize(("style", "name"), [("timm", "vit_tiny_patch16_224"), ("deit", "deit_tiny_patch16_224")])
def test_timms_own_preprocessing(timm, style, name):
    """timm's crop for DeiT is its own, 0.9; ours is that of DeiT's code, 224 of 256."""
    listed, ours = timm.get_pretrained_cfg(name), STYLES[style]
    assert (listed.mean, listed.std, listed.interpolation) == (ours["mean"], ours["std"], ours["interpolation"])
    assert ours["crop"] == (224 / 256 if style == "deit" else listed.crop_pct)
    given = dict(mean=listed.mean, std=listed.std, interpolation=listed.interpolation, crop_pct=ours["crop"])
    theirs = timm.data.create_transform((3, 112, 112), **given)(CHINA)
    assert_close(Preprocessing(image_size=(112, 112), **ours)(CHINA)[0], theirs)


@pytest.mark.parametrize(
    ("style", "name"),
    [
        ("deit3", "deit3_small_patch16_224.fb_in22k_ft_in1k"),
        ("clip", "vit_base_patch32_clip_224.openai"),
        ("siglip", "vit_base_patch16_siglip_224.webli"),
    ],
)
def test_timms_settings_of_the_later_towers(timm, style, name):
    """timm lists SigLIP with a crop of 0.9; OpenCLIP and Hugging Face squeeze all of an image."""
    listed, ours = timm.get_pretrained_cfg(name), STYLES[style]
    assert (listed.mean, listed.std, listed.interpolation) == (ours["mean"], ours["std"], ours["interpolation"])
    if style == "siglip":
        return
    given = dict(mean=ours["mean"], std=ours["std"], interpolation="bicubic", crop_pct=1.0)
    theirs = timm.data.create_transform((3, 112, 112), **given)(CHINA)
    assert_close(Preprocessing(image_size=(112, 112), **ours)(CHINA)[0], theirs)


@pytest.mark.parametrize("side", [3, 6, 9])
def test_positions_are_resized_as_each_library_does_it(timm, torchvision, side):
    table = torch.randn(1, 1 + 5 * 5, D)
    theirs = timm.layers.resample_abs_pos_embed(table, [side, side])
    assert_close(resize_positions(table, (5, 5), (side, side), **KERNELS["timm"]), theirs)
    state = {"encoder.pos_embedding": table}
    theirs = torchvision.models.vision_transformer.interpolate_embeddings(side * P, P, state)["encoder.pos_embedding"]
    assert_close(resize_positions(table, (5, 5), (side, side), **KERNELS["torchvision"]), theirs)

"""What chapters 13 and 25 say of other libraries, "In your library", as those that are installed do it."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

pytest_plugins = ["shared_fixtures"]
pytestmark = pytest.mark.peers
SHAPE = (2, 3, 17, 17)  # of one block's weights


@pytest.fixture
def timm(torchvision):
    return pytest.importorskip("timm")


@pytest.fixture
def transformers(torchvision):
    return pytest.importorskip("transformers")


def small(timm, **changes):
    sizes = dict(img_size=32, patch_size=8, embed_dim=48, depth=3, num_heads=3, num_classes=5)
    return timm.create_model("vit_tiny_patch16_224", **sizes | changes)


@torch.no_grad()
def test_transformers_gives_no_weights_unless_attention_is_eager(transformers):
    sizes = dict(hidden_size=48, num_hidden_layers=3, num_attention_heads=3, intermediate_size=96)
    model = transformers.ViTModel(transformers.ViTConfig(**sizes, image_size=32, patch_size=8)).eval()
    images = torch.randn(2, 3, 32, 32)
    assert model(images, output_attentions=True).attentions == ()
    model.set_attn_implementation("eager")
    weights = model(images, output_attentions=True).attentions
    assert [tuple(w.shape) for w in weights] == [SHAPE] * 3
    assert_close(torch.stack(weights).sum(dim=-1), torch.ones(3, *SHAPE[:-1]))


@torch.no_grad()
def test_timm_gives_no_weights_unless_the_fused_kernel_is_off(timm):
    from timm.utils import AttentionExtract

    model, images = small(timm).eval(), torch.randn(2, 3, 32, 32)
    assert AttentionExtract(model, method="hook")(images) == {}
    for block in model.blocks:
        block.attn.fused_attn = False
    weights = AttentionExtract(model, method="hook")(images)
    assert [tuple(w.shape) for w in weights.values()] == [SHAPE] * 3
    assert_close(torch.stack(list(weights.values())).sum(dim=-1), torch.ones(3, *SHAPE[:-1]))


@torch.no_grad()
def test_timm_leaves_patches_out_in_training_alone(timm):
    model, seen = small(timm, patch_drop_rate=0.5), []
    model.blocks[0].register_forward_hook(lambda module, given, z: seen.append(z.shape[1]))
    for training in (True, False):
        model.train(training)(torch.randn(2, 3, 32, 32))
    assert seen == [1 + 8, 1 + 16]
    assert any(name.startswith("naflexvit_") for name in timm.list_models())


def test_torchs_nested_tensor_is_a_packed_row():
    first, second = torch.randn(4, 48), torch.randn(7, 48)
    images = torch.nested.nested_tensor([first, second], layout=torch.jagged)
    images = torch.nn.Linear(48, 48)(torch.nn.LayerNorm(48)(images)).detach()
    q = images.unflatten(-1, (3, 16)).transpose(1, 2)
    together = F.scaled_dot_product_attention(q, q, q).transpose(1, 2).unbind()
    for got, image in zip(together, images.unbind(), strict=True):
        alone = image.unflatten(-1, (3, 16)).transpose(0, 1)
        assert_close(got, F.scaled_dot_product_attention(alone, alone, alone).transpose(0, 1))


@torch.no_grad()
def test_naflex_takes_padded_patches_and_looks_at_no_padding(transformers):
    sizes = dict(hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=3)
    config = transformers.Siglip2VisionConfig(**sizes, patch_size=8, num_patches=16)
    model = transformers.Siglip2VisionModel(config).eval()
    patches, mask = torch.randn(2, 16, 3 * 8 * 8), torch.ones(2, 16, dtype=torch.long)
    mask[1, 8:] = 0
    about = dict(pixel_attention_mask=mask, spatial_shapes=torch.tensor([[4, 4], [2, 4]]))
    features = model(pixel_values=patches, **about).pooler_output
    patches[1, 8:] = 99.0
    assert_close(model(pixel_values=patches, **about).pooler_output, features)

"""What chapters 4, 6 and 7 say of torch, timm, transformers and torchvision. `make peers` runs these."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from vitbook.multihead import MultiHeadSelfAttention

pytest_plugins = ["shared_fixtures"]
pytestmark = pytest.mark.peers
D, H, P, SIDE = 24, 3, 8, 32
PLACES = (SIDE // P) ** 2


@pytest.fixture(scope="module")
def timm(torchvision):  # which it imports
    return pytest.importorskip("timm", reason="timm is not installed; make peers installs it")


def timms(timm, **options) -> nn.Module:
    sizes = dict(img_size=SIDE, patch_size=P, embed_dim=D, depth=1, num_heads=H, num_classes=5)
    return timm.models.vision_transformer.VisionTransformer(**sizes | options).eval()


def hugging_faces(**options) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    sizes = dict(hidden_size=D, num_hidden_layers=1, num_attention_heads=H, intermediate_size=D)
    config = transformers.ViTConfig(**sizes, image_size=SIDE, patch_size=P)
    return transformers.ViTForImageClassification._from_config(config, **options).eval()


@torch.no_grad()
def test_what_torchs_layer_returns():
    layer, x = nn.MultiheadAttention(D, H, batch_first=True), torch.randn(2, 5, D)
    assert layer.in_proj_weight.shape == (3 * D, D)
    each = layer(x, x, x, average_attn_weights=False)[1]
    assert each.shape == (2, H, 5, 5)
    assert_close(layer(x, x, x)[1], each.mean(dim=1))
    assert layer(x, x, x, need_weights=False)[1] is None
    q, k, v = torch.randn(3, 2, H, 5, D // H)
    assert_close(F.scaled_dot_product_attention(q, k, v), (q @ k.mT / (D // H) ** 0.5).softmax(dim=-1) @ v)


@torch.no_grad()
def test_where_timms_attention_can_be_seen(timm):
    attn, ours, x, seen = timms(timm).blocks[0].attn, MultiHeadSelfAttention(D, H), torch.randn(2, 5, D), []
    ours.load_state_dict(attn.state_dict())
    output, weights = ours.attend(x)
    attn.attn_drop.register_forward_hook(lambda layer, got, gave: seen.append(gave))
    assert attn.fused_attn
    assert_close(attn(x), output)
    assert not seen
    attn.fused_attn = False
    assert_close(attn(x), output)
    assert_close(seen, [weights])


@torch.no_grad()
def test_where_transformers_attention_can_be_seen():
    images = torch.randn(2, 3, SIDE, SIDE)
    names = set(dict(hugging_faces().vit.layers[0].attention.named_children()))
    assert {"q_proj", "k_proj", "v_proj", "o_proj"} <= names
    assert hugging_faces()(images, output_attentions=True).attentions == ()
    seen = hugging_faces(attn_implementation="eager")(images, output_attentions=True).attentions
    assert [weights.shape for weights in seen] == [(2, H, 1 + PLACES, 1 + PLACES)]


@torch.no_grad()
def test_timms_tokens_before_the_patches_and_its_other_sizes(timm):
    plain, registers = timms(timm), timms(timm, reg_tokens=4)
    assert plain.cls_token.shape == (1, 1, D) and plain.cls_token.abs().max() < 1e-5
    assert registers.reg_token.shape == (1, 4, D) and registers.num_prefix_tokens == 5
    assert registers.pos_embed.shape[1] == 5 + PLACES
    assert timms(timm, reg_tokens=4, no_embed_class=True).pos_embed.shape[1] == PLACES

    wide = torch.randn(2, 3, SIDE, 2 * SIDE)
    with pytest.raises(AssertionError):
        plain(wide)
    dynamic = timms(timm, dynamic_img_size=True)
    assert dynamic(wide).shape == timms(timm, img_size=(SIDE, 2 * SIDE))(wide).shape == (2, 5)
    assert dynamic.pos_embed.shape[1] == 1 + PLACES, "as before"
    plain.set_input_size(img_size=(SIDE, 2 * SIDE))
    assert plain.pos_embed.shape[1] == 1 + 2 * PLACES and plain(wide).shape == (2, 5)
    plain.set_input_size(patch_size=(2 * P, 2 * P))
    assert plain.patch_embed.proj.weight.shape == (D, 3, 2 * P, 2 * P) and plain(wide).shape == (2, 5)


@torch.no_grad()
def test_the_other_sizes_of_transformers_and_torchvision(torchvision):
    wide, theirs = torch.randn(2, 3, SIDE, 2 * SIDE), hugging_faces()
    assert theirs.vit.embeddings.cls_token.shape == (1, 1, D)
    assert theirs.vit.embeddings.position_embeddings.shape == (1, 1 + PLACES, D)
    with pytest.raises(ValueError, match="match"):
        theirs(wide)
    assert theirs(wide, interpolate_pos_encoding=True).logits.shape == (2, 2)

    vit = torchvision.models.vision_transformer
    theirs = vit.VisionTransformer(SIDE, P, 1, num_heads=H, hidden_dim=D, mlp_dim=D, num_classes=5).eval()
    assert theirs.class_token.shape == (1, 1, D) and theirs.encoder.pos_embedding.shape == (1, 1 + PLACES, D)
    with pytest.raises(AssertionError):
        theirs(wide)
    weights = vit.interpolate_embeddings(2 * SIDE, P, theirs.state_dict())
    assert weights["encoder.pos_embedding"].shape == (1, 1 + 4 * PLACES, D)


def test_timm_changes_the_patch_size_as_chapter_6_does(timm):
    weight = torch.randn(5, 3, 4, 4)
    enlarge = F.interpolate(torch.eye(16).view(16, 1, 4, 4), size=(8, 8), mode="bilinear").flatten(1)  # (16, 64)
    ours = (weight.reshape(-1, 16) @ torch.linalg.pinv(enlarge).T).view(5, 3, 8, 8)
    theirs = timm.layers.resample_patch_embed(weight, [8, 8], interpolation="bilinear")
    assert_close(theirs, ours, rtol=0, atol=1e-5)
    larger = timms(timm, img_size=2 * SIDE, patch_size=2 * P)
    loaded = timm.models.vision_transformer.checkpoint_filter_fn(timms(timm).state_dict(), larger)
    assert loaded["patch_embed.proj.weight"].shape == (D, 3, 2 * P, 2 * P)

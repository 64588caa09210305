"""Masked autoencoders: equal to the authors' model in transformers, and blind to what is hidden."""

import pytest
import small_models
import torch
from small_models import backbone, shake
from torch.testing import assert_close

from vitbook.mae import MaskedAutoencoder, masked_loss, paint, patch_targets, pretrain, random_masking
from vitbook.patches import patchify
from vitbook.vit import VisionTransformer, ViTConfig

THEIR_NAMES = {
    "norm1": "layernorm_before",
    "norm2": "layernorm_after",
    "attn.proj": "attention.o_proj",
    "mlp.fc1": "mlp.fc1",
    "mlp.fc2": "mlp.fc2",
}


def small(**changes) -> MaskedAutoencoder:
    return shake(MaskedAutoencoder(backbone(**changes), dim=8, depth=2, num_heads=2, ratio=0.6)).double().eval()


@torch.no_grad()
@pytest.mark.parametrize("normalized", [False, True])
def test_the_authors_model_paints_the_same_and_has_the_same_loss(normalized):
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTMAEConfig(
        hidden_size=12, num_hidden_layers=3, num_attention_heads=3, intermediate_size=20, image_size=12, patch_size=4,
        decoder_hidden_size=8, decoder_num_hidden_layers=2, decoder_num_attention_heads=2, decoder_intermediate_size=32,
        layer_norm_eps=1e-6, mask_ratio=0.66, norm_pix_loss=normalized,
    )  # fmt: skip
    theirs = transformers.ViTMAEForPreTraining(config).double().eval()
    for parameter in theirs.parameters():
        parameter.normal_(0.1, 0.3)
    vit = VisionTransformer(
        ViTConfig(image_size=12, patch_size=4, num_classes=0, dim=12, depth=3, num_heads=3, mlp_dim=20)
    )
    ours = MaskedAutoencoder(vit, dim=8, depth=2, num_heads=2, ratio=0.66).double().eval()
    with_their_weights(ours, theirs)
    images, noise = torch.randn(2, 3, 12, 12).double(), torch.rand(2, 9).double()
    expected = theirs(images, noise=noise)
    predicted, hidden = ours(images, noise)
    in_our_order = expected.logits.unflatten(-1, (4, 4, 3)).movedim(-1, -3).flatten(-3)
    assert_close(predicted, in_our_order)
    assert torch.equal(hidden, expected.mask.bool())
    assert_close(masked_loss(predicted, patch_targets(images, 4, normalized), hidden), expected.loss)


def with_their_weights(ours: MaskedAutoencoder, theirs) -> None:
    embeddings, decoder = theirs.vit.embeddings, theirs.decoder
    copy(ours.backbone.embedding.patch_embed.proj, embeddings.patch_embeddings.projection)
    ours.backbone.embedding.cls_token.copy_(embeddings.cls_token)
    ours.backbone.embedding.positions.pos_embed.copy_(embeddings.position_embeddings)
    copy(ours.backbone.norm, theirs.vit.layernorm)
    copy(ours.embed, decoder.decoder_embed)
    ours.mask_token.copy_(decoder.mask_token)
    ours.positions.pos_embed.copy_(decoder.decoder_pos_embed)
    copy(ours.norm, decoder.decoder_norm)
    for tensor, other in zip(ours.to_pixels.parameters(), decoder.decoder_pred.parameters(), strict=True):
        tensor.copy_(other.unflatten(0, (4, 4, 3)).movedim(2, 0).flatten(0, 2))  # numbers of a patch: channels first
    layers = [*theirs.vit.layers, *decoder.decoder_layers]
    for block, layer in zip([*ours.backbone.encoder.blocks, *ours.decoder.blocks], layers, strict=True):
        for name, their_name in THEIR_NAMES.items():
            copy(block.get_submodule(name), layer.get_submodule(their_name))
        qkv = [layer.attention.q_proj, layer.attention.k_proj, layer.attention.v_proj]
        block.attn.qkv.weight.copy_(torch.cat([linear.weight for linear in qkv]))
        block.attn.qkv.bias.copy_(torch.cat([linear.bias for linear in qkv]))


def copy(module: torch.nn.Module, other: torch.nn.Module) -> None:
    module.load_state_dict(other.state_dict())


def test_the_patches_with_the_least_noise_stay_in_order_of_their_noise():
    noise = torch.tensor([[0.9, 0.2, 0.5, 0.1]])
    visible, restore, hidden = random_masking(torch.arange(4.0).view(1, 4, 1), 0.5, noise)
    assert visible.flatten().tolist() == [3, 1]
    assert restore.tolist() == [[3, 1, 2, 0]]
    assert hidden.tolist() == [[True, False, True, False]]


def test_every_patch_is_hidden_as_often_as_the_ratio_says():
    *_, hidden = random_masking(torch.zeros(4000, 8, 1), 0.75)
    assert hidden.sum(dim=1).unique().tolist() == [6]
    assert_close(hidden.double().mean(dim=0), torch.full((8,), 0.75).double(), rtol=0, atol=0.03)


@pytest.mark.parametrize("ratio", [0, 1, 0.05, 0.95, -1, 2])
def test_a_ratio_that_hides_all_or_nothing_is_refused(ratio):
    with pytest.raises(ValueError, match=f"ratio must hide some of 9 patches and leave some, got {ratio}"):
        random_masking(torch.zeros(1, 9, 2), ratio)


@pytest.mark.parametrize("changes", [{}, {"pool": "mean", "class_token": False}])
@torch.no_grad()
def test_what_is_hidden_changes_nothing_that_is_painted(changes):
    model, images, noise = small(**changes), small_models.images().double(), torch.rand(2, 6)
    predicted, hidden = model(images, noise)
    others = paint(images, torch.randn_like(predicted), hidden, 4)
    assert small_models.differ(others, images)
    assert_close(model(others, noise)[0], predicted)


@torch.no_grad()
def test_the_encoder_is_the_backbone_on_the_visible_patches():
    model, images = small(), small_models.images().double()
    z, restore, hidden = model.encode(images)
    embedded = model.backbone.embedding(images)
    for i in range(2):
        places = restore[i].argsort()[: (~hidden[i]).sum()]
        alone = torch.cat([embedded[i, :1], embedded[i, 1:][places]])[None]
        assert_close(z[[i]], model.backbone.norm(model.backbone.encoder(alone)))


@torch.no_grad()
def test_painting_leaves_what_is_visible():
    images, hidden = small_models.images(), torch.tensor([[True, False, True, True, False, True]] * 2)
    painted = paint(images, torch.zeros(2, 6, 48), hidden, 4)
    assert_close(patchify(painted, 4)[~hidden], patchify(images, 4)[~hidden], rtol=0, atol=0)
    assert not patchify(painted, 4)[hidden].any()


def test_normalized_targets_have_mean_0_and_variance_1_in_every_patch():
    targets = patch_targets(5 + 3 * small_models.images(), 4, normalized=True)
    assert_close(targets.mean(dim=-1), torch.zeros(2, 6), rtol=0, atol=1e-6)
    assert_close(targets.var(dim=-1), torch.ones(2, 6), rtol=0, atol=1e-5)
    assert not patch_targets(torch.full((1, 3, 8, 12), 7.0), 4, normalized=True).any()  # a flat patch


def test_pretraining_learns_to_fill_in_what_the_visible_patches_give_away():
    vit = VisionTransformer(
        ViTConfig(
            image_size=8, patch_size=2, channels=1, num_classes=0, dim=16, depth=1, num_heads=2, mlp_dim=32,
            positions="sincos_2d",
        )
    )  # fmt: skip
    model = MaskedAutoencoder(vit, dim=16, depth=1, num_heads=2)
    flat = torch.randn(128, 1, 1, 1).expand(-1, -1, 8, 8)
    losses = pretrain(model, flat, epochs=15, batch_size=32, learning_rate=1e-2)
    assert len(losses) == 15
    assert losses[-1] < 0.4 * losses[0]
    assert all(p.grad is not None for name, p in model.named_parameters() if "head" not in name)

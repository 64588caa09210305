"""The model's modules, called with wrong ranks, widths, types and sizes: an error, never a silently wrong result.

At the doors the error says what was expected; inside the house it is torch's own.
"""

from pathlib import Path

import pytest
import torch
from small_models import GRID, HEADS, HEIGHT, WIDTH, B, C, D, N, P, S, T, images, small_config

from vitbook.attention import attention, attention_weights, fused_attention, gaussian_attention, quickest_attention
from vitbook.cnn import CNNConfig
from vitbook.data import load_folder
from vitbook.embedding import ImageEmbedding
from vitbook.multihead import HeadShapedAttention, MultiHeadSelfAttention
from vitbook.patches import HybridEmbedding, PatchEmbedding, conv_stem, patchify, unpatchify
from vitbook.positions import POSITIONS, resize_positions, sincos_positions, sincos_positions_2d
from vitbook.transformer import MultiHeadCrossAttention
from vitbook.vit import VisionTransformer, create_vit

pytestmark = pytest.mark.door

LOUD = (ValueError, TypeError, RuntimeError, IndexError, KeyError, NotImplementedError, ZeroDivisionError)


def rand(*shape: int) -> torch.Tensor:
    return torch.randn(*shape)


def model(**changes) -> VisionTransformer:
    return VisionTransformer(small_config(**changes))


def patch_embedding(size: int = P, channels: int = C, dim: int = D) -> PatchEmbedding:
    return PatchEmbedding(size, channels, dim)


def embedding(patch_embed=None, **settings) -> ImageEmbedding:
    return ImageEmbedding(patch_embed or patch_embedding(), (HEIGHT, WIDTH), D, **settings)


def hybrid() -> HybridEmbedding:
    return HybridEmbedding(conv_stem(C, (6,)), 6, 2, D, patch_size=2)


# Doors: what was wrong, and what the error has to say

DOORS = [
    (lambda: create_vit("vit_b16"), "unknown model 'vit_b16', did you mean 'vit_b_16'"),
    (lambda: create_vit("resnet"), "unknown model 'resnet'. There are vit_ti_16, .*vit_cifar"),
    (lambda: create_vit("vit_digits", num_class=3), "unknown field 'num_class', did you mean 'num_classes'"),
    (lambda: create_vit("vit_b_16", image_size=(224, 230)), "image 224×230 is not divisible by patch size 16"),
    (lambda: create_vit("vit_digits", positions="sincos"), "learned, .*none, got 'sincos'"),
    (lambda: small_config(pool="max"), "pool must be one of class, mean, got 'max'"),
    (lambda: small_config(class_token=False), "pool 'class' needs class_token=True"),
    (lambda: small_config(num_classes=-1), "num_classes must be at least 0, got -1"),
    (lambda: small_config(dim=10**23), "dim must be below 2³¹, got 1e[+]23"),
    (lambda: small_config(image_size=(8,)), r"image_size must be 2 whole numbers, got \(8,\)"),
    (lambda: small_config(dim=12.0), "dim must be a whole number, got 12.0"),
    (lambda: small_config(image_size="8"), "image_size must be a tuple of whole numbers, got '8'"),
    (lambda: small_config(patch_size=(4, 4)), r"patch_size must be a whole number, got \(4, 4\)"),
    (lambda: small_config(mlp_dim=(3,)), r"mlp_dim must be a whole number, got \(3,\)"),
    (lambda: small_config(stem=32), "stem must be a tuple of whole numbers, got 32"),
    (lambda: CNNConfig(widths=64), "widths must be a tuple of whole numbers, got 64"),
    (lambda: load_folder(Path("nowhere"), (64, 64)), r"image_size must be a whole number, got \(64, 64\)"),
    (lambda: small_config(qkv_bias="no"), "qkv_bias must be a bool, got 'no'"),
    (lambda: small_config(dropout=-0.1), "dropout .* got -0.1"),
    (lambda: small_config(drop_path=float("nan")), "drop_path .* got nan"),
    (lambda: small_config(stem=(0,)), "stem must be at least 1, got 0"),
    (lambda: small_config(stem=(5, 7, 9)), "stride 8 does not divide patch_size 4"),
    (lambda: model()(images()[0]), r"\(B, C, H, W\), got \(3, 8, 12\)"),
    (lambda: model()(images()[:, :1]), "must have 3 channels, got 1"),
    (lambda: model()(images().mT), "must be 8×12, as the positions are, got 12×8"),
    (lambda: model().resize((9, 12)), "image 9×12 is not divisible by patch size 4"),
    (lambda: patch_embedding()(images()[..., 1:]), "image 8×11 is not divisible by patch size 4"),
    (lambda: hybrid()(images()[..., 2:]), "image 8×10 is not divisible by patch size 4"),
    (lambda: patchify(images(), 3), "image 8×12 is not divisible by patch size 3"),
    (lambda: unpatchify(rand(B, N, 48), P, (9, 12)), "image 9×12 is not divisible by patch size 4"),
    (
        lambda: attention(rand(T, 4), rand(S, 4), rand(S, 6), torch.ones(T, S)),
        "mask must be boolean.*got torch.float32",
    ),
    (lambda: gaussian_attention(rand(T, 4), rand(S, 4), rand(S, 6), 0.0), "bandwidth must be positive, got 0.0"),
    (lambda: gaussian_attention(rand(T, 4), rand(S, 1), rand(S, 6)), "d = 4 for q and 1 for k"),
    (lambda: MultiHeadSelfAttention(D, 5), "dim 12 is not divisible by num_heads 5"),
    (lambda: HeadShapedAttention(D, HEADS)(rand(B, T, 1)), "tokens must have width 12, got 1"),
    (lambda: sincos_positions(T, 11), "dim must be even, got 11"),
    (lambda: sincos_positions_2d(GRID, 14), "dim must be divisible by 4, got 14"),
]


@pytest.mark.parametrize(("call", "message"), DOORS, ids=[message for _, message in DOORS])
def test_a_door_says_what_was_expected(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


@pytest.mark.parametrize("name", ["patch_size", "channels", "dim", "depth", "num_heads", "mlp_dim"])
def test_every_size_of_a_config_is_at_least_one(name):
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        small_config(**{name: 0})


# Inside: any error. What torch's products of matrices refuse is left to torch.

FORMS = {"explicit": attention, "fused": fused_attention, "quickest": quickest_attention}
COUNTS = torch.ones(T, S, dtype=torch.int64)  # no mask
INSIDE = {
    **{
        f"{name} attention, a mask of whole numbers": lambda f=f: f(rand(T, 4), rand(S, 4), rand(S, 6), COUNTS)
        for name, f in FORMS.items()
    },
    "attention_weights, float mask": lambda: attention_weights(rand(T, S), rand(T, S)),
    "patchify, no batch": lambda: patchify(images()[0], P),
    "patchify, patch of 0": lambda: patchify(images(), 0),
    "unpatchify, a patch too few": lambda: unpatchify(rand(B, N - 1, 48), P, (HEIGHT, WIDTH)),
    "a stem of another stride": lambda: embedding(HybridEmbedding(conv_stem(C, (6,)), 6, 4, D))(images()),
    "patches of another width": lambda: embedding(patch_embedding(dim=16))(images()),
    "positions of an odd width": lambda: rand(1, N + 1, 13) + POSITIONS["learned_2d"](GRID, 13, 1)(),
    "resize_positions, a row too few": lambda: resize_positions(rand(1, N, D), GRID, (4, 4)),
}


@pytest.mark.parametrize("what", INSIDE)
def test_what_does_not_fit_raises(what):
    with pytest.raises(LOUD):
        INSIDE[what]()


# What looks wrong and is not


@pytest.mark.parametrize("form", FORMS)
def test_without_keys_the_output_is_zero(form):
    output = FORMS[form](rand(T, 4), rand(0, 4), rand(0, 6))
    assert torch.equal(output[0] if form == "explicit" else output, torch.zeros(T, 6))


def test_no_images_give_no_logits():
    assert model()(images(0)).shape == (0, small_config().num_classes)


def test_one_memory_serves_every_target():
    cross, x, memory = MultiHeadCrossAttention(D, HEADS), rand(B, T, D), rand(1, S, D)
    torch.testing.assert_close(cross(x, memory), cross(x, memory.expand(B, S, D)))

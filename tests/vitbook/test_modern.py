"""The parts of a modern block: torch's own where it has them, closed forms, and the plain model where all is off."""

from dataclasses import asdict, replace

import pytest
import small_models
import torch
from small_models import HEADS, HIDDEN, B, D, N, T
from torch import nn
from torch.testing import assert_close

from vitbook import modern
from vitbook.checkpoint import save_checkpoint
from vitbook.modern import ModernAttention, ModernBlock, ModernConfig, ModernViT, rotary_angles, rotate
from vitbook.pretrained import load_pretrained
from vitbook.vit import VisionTransformer

pytest_plugins = ["shared_fixtures"]
pytestmark = pytest.mark.usefixtures("double")
EVERYTHING = dict(norm="rms", rotary_base=100.0, qk_norm=True, layer_scale=0.3, swiglu=True, registers=2)


def config(**changes) -> ModernConfig:
    return ModernConfig(**asdict(small_models.small_config()) | changes)


def shaken(**changes) -> ModernViT:
    return small_models.shake(ModernViT(config(**changes))).eval()


@torch.no_grad()
def test_with_all_parts_off_it_is_the_plain_model():
    plain, ours = VisionTransformer(small_models.small_config()), ModernViT(config())
    ours.load_state_dict(small_models.shake(plain).state_dict())
    x = small_models.images()
    assert_close(ours(x), plain(x))


def test_rms_norm_equals_torchs():
    ours, theirs, x = small_models.shake(modern.RMSNorm(D)), nn.RMSNorm(D, eps=1e-6), torch.randn(B, T, D)
    theirs.load_state_dict(ours.state_dict())
    assert_close(ours(x), theirs(x))


def test_a_rotation_is_a_product_with_a_complex_number():
    x, angles = torch.randn(B, T, 8), torch.randn(T, 4)
    a, b = x.chunk(2, dim=-1)
    turned = torch.complex(a, b) * torch.polar(torch.ones(T, 4), angles)
    assert_close(rotate(x, angles), torch.cat([turned.real, turned.imag], dim=-1))


def test_angles_of_the_corners():
    """In 3 columns the centers are −2/3, 0 and 2/3; the slowest of two pairs turns by 2π/10 a unit."""
    angles = rotary_angles((1, 3), 8)
    assert_close(angles[:, :2], torch.zeros(3, 2))  # the only row is in the middle
    assert_close(angles[:, 2], 2 * torch.pi * torch.tensor([-2 / 3, 0, 2 / 3]))
    assert_close(angles[:, 3], angles[:, 2] / 10)


@torch.no_grad()
def test_turned_attention_knows_offsets_alone():
    """Patches moved to another corner of a larger grid, of the same spacing, have the same scores."""
    layer, x = small_models.shake(ModernAttention(D, HEADS)), torch.randn(B, 4, D)
    wide = rotary_angles((4, 4), D // HEADS).unflatten(0, (4, 4))
    scores = []
    for row, column in ((0, 0), (2, 1)):
        layer.angles = wide[row : row + 2, column : column + 2].flatten(0, 1)
        scores.append(layer.attend(x)[1])
    assert_close(*scores)


@torch.no_grad()
@pytest.mark.parametrize("swiglu", [False, True])
def test_a_layer_scale_of_zero_is_the_identity(swiglu):
    block, x = ModernBlock(config(layer_scale=0.0, swiglu=swiglu)), torch.randn(B, T, D)
    assert_close(block(x), x, rtol=0, atol=0)


@torch.no_grad()
def test_a_layer_scale_folds_into_the_map_before_it():
    scaled = small_models.shake(modern.ScaledLinear(D, HIDDEN))
    folded, x = nn.Linear(D, HIDDEN), torch.randn(B, T, D)
    folded.weight.copy_(scaled.gamma[:, None] * scaled.weight)
    folded.bias.copy_(scaled.gamma * scaled.bias)
    assert_close(folded(x), scaled(x))


def test_swiglu_has_as_many_weights_at_two_thirds_of_the_width():
    def weights(module):
        return sum(p.numel() for p in module.parameters() if p.ndim == 2)

    mlp = ModernBlock(config(mlp_dim=30)).mlp
    assert weights(modern.SwiGLU(D, 20)) == weights(mlp) == 2 * D * 30


def test_swiglu_by_a_loop():
    mlp, x = small_models.shake(modern.SwiGLU(3, 2)), torch.randn(3)
    w, v, b, c = *mlp.fc1.weight.chunk(2), *mlp.fc1.bias.chunk(2)
    hidden = [(g := w[i] @ x + b[i]) / (1 + (-g).exp()) * (v[i] @ x + c[i]) for i in range(2)]
    assert_close(mlp(x), mlp.fc2(torch.stack(hidden)))


@torch.no_grad()
def test_attention_pooling_equals_torchs():
    ours, z = small_models.shake(modern.AttentionPooling(D, HEADS, HIDDEN)), torch.randn(B, N, D)
    theirs = nn.MultiheadAttention(D, HEADS, batch_first=True)
    three = [ours.attn.query, ours.attn.key, ours.attn.value]
    theirs.in_proj_weight.copy_(torch.cat([linear.weight for linear in three]))
    theirs.in_proj_bias.copy_(torch.cat([linear.bias for linear in three]))
    theirs.out_proj.load_state_dict(ours.attn.proj.state_dict())
    y = theirs(ours.probe.expand(B, -1, -1), z, z)[0][:, 0]
    assert_close(ours(z), y + ours.mlp(ours.norm(y)))
    assert_close(ours(z[:, torch.randperm(N)]), ours(z))


@torch.no_grad()
def test_everything_at_once_resizes_and_comes_back_from_its_weights():
    model = shaken(**EVERYTHING, attention_pool=True, pool="mean", class_token=False)
    twin = ModernViT(model.config)
    twin.load_state_dict(model.state_dict())
    for size in (None, (12, 8)):
        for one in (model, twin) if size else ():
            one.resize(size)
        x = torch.randn(B, 3, *model.config.image_size)
        assert_close(twin.eval()(x), model(x))
    assert model.encoder.blocks[0].attn.angles.shape == (2 + N, D // HEADS // 2)


@pytest.mark.parametrize("changes", [{part: value} for part, value in EVERYTHING.items()])
def test_every_part_has_an_effect_and_learns(changes):
    plain, model, x = shaken(), shaken(**changes), small_models.images()
    own = model.state_dict()
    shared = {name: v for name, v in plain.state_dict().items() if name in own and v.shape == own[name].shape}
    model.load_state_dict(shared, strict=False)
    assert small_models.differ(model(x), plain(x))
    model(x).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad.abs().max() > 0, name


@torch.no_grad()
def test_a_checkpoint_brings_its_parts_back(tmp_path):
    model = ModernViT(config(**EVERYTHING))
    facts = {"model": asdict(model.config), "mean": [0.5] * 3, "std": [0.2] * 3, "class_names": list("abcdefghi")}
    save_checkpoint(tmp_path, "best", model.state_dict(), facts)
    twin, x = load_pretrained(tmp_path / "best.json").model, small_models.images()
    assert twin.config == model.config
    assert_close(twin(x), model.eval()(x))


@pytest.mark.door
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"norm": "batch"}, "norm must be one of layer, rms, got 'batch'"),
        ({"registers": -1}, "registers must be at least 0, got -1"),
        ({"rotary_base": 10.0, "dim": 18}, "must be divisible by 4, got 6"),
        ({"activation": "mish"}, "activation must be one of gelu, gelu_tanh, quick_gelu"),
    ],
)
def test_parts_that_do_not_fit_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        replace(config(), **changes)

"""The whole model is its four equations; every size has the published number of parameters; one batch is learned."""

import inspect
import math
from dataclasses import replace

import pytest
import small_models
import torch
import torch.nn.functional as F
from small_models import HEIGHT, WIDTH, B, C, K, close, images, small_config

from vitbook.data import digits
from vitbook.positions import POSITIONS
from vitbook.vit import CONFIGS, VisionTransformer, ViTConfig, create_vit

both_precisions = pytest.mark.usefixtures("precision")


def small_vit(**changes) -> VisionTransformer:
    return small_models.shake(VisionTransformer(small_config(**changes)))


@pytest.mark.parametrize(
    ("name", "changes", "count"),
    [
        ("vit_ti_16", {}, 5_717_416),
        ("vit_s_16", {}, 22_050_664),
        ("vit_s_32", {}, 22_878_952),
        ("vit_b_16", {}, 86_567_656),
        ("vit_b_32", {}, 88_224_232),
        ("vit_l_16", {}, 304_326_632),
        ("vit_l_32", {}, 306_535_400),
        ("vit_h_14", {}, 632_045_800),
        ("vit_b_16", {"image_size": 384}, 86_859_496),
    ],
)
def test_the_number_of_parameters_is_the_published_one(name, changes, count):
    with torch.device("meta"):
        model = create_vit(name, **changes)
    assert sum(p.numel() for p in model.parameters()) == count


@pytest.mark.parametrize(
    ("name", "size", "channels"), [("vit_digits", 8, 1), ("vit_cifar", 32, 3), ("hybrid_small", 32, 3)]
)
def test_the_small_sizes_take_the_pictures_that_they_are_for(name, size, channels):
    assert create_vit(name)(torch.randn(B, channels, size, size)).shape == (B, 10)


def every_field() -> dict:
    """Each field of ViTConfig with a value other than small_config's."""
    shape = dict(image_size=(12, 12), patch_size=2, channels=1, num_classes=5, dim=24, depth=3, num_heads=2, mlp_dim=8)
    choices = dict(stem=(5,), pool="class", class_token=False, positions="none", qkv_bias=False)
    return shape | choices | dict(dropout=0.5, attention_dropout=0.5, drop_path=0.5)


def test_every_field_of_the_config_has_an_effect():
    def model(**fields):
        return VisionTransformer(ViTConfig(**fields))

    model.__signature__ = inspect.signature(ViTConfig)
    base = vars(small_config(pool="mean", num_classes=0))
    small_models.each_argument_counts(model, base, every_field(), images())


@both_precisions
def test_gradients_reach_every_parameter():
    model = small_vit()
    F.cross_entropy(model(images()), torch.tensor([1, 4])).backward()
    idle = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().max() > 1e-8]
    assert idle == []


def test_the_weights_start_as_documented():
    model = create_vit("vit_cifar")
    bound = math.sqrt(6 / (192 + 192))
    for block in model.encoder.blocks:
        for weight in (*block.attn.qkv.weight.chunk(3), block.attn.proj.weight):  # Q, K and V each by itself
            assert bound * 0.99 < weight.abs().max() <= bound
        assert 0.99 * math.sqrt(6 / (192 + 768)) < block.mlp.fc1.weight.abs().max() <= math.sqrt(6 / (192 + 768))
        assert not block.attn.qkv.bias.any() and not block.mlp.fc2.bias.any()
    assert not model.head.weight.any() and not model.head.bias.any() and not model.embedding.cls_token.any()
    assert model.embedding.positions.pos_embed.std().item() == pytest.approx(0.02, rel=0.05)
    assert not model.embedding.patch_embed.proj.bias.any()
    assert model.embedding.patch_embed.proj.weight.std().item() == pytest.approx(math.sqrt(1 / 48), rel=0.05)


def test_initialize_draws_the_matrices_anew_and_keeps_the_rest():
    model = small_vit()
    before = {name: p.clone() for name, p in model.named_parameters()}
    model.initialize()
    for name, parameter in model.named_parameters():
        if "pos_embed" in name or "cls_token" in name or "norm" in name:
            assert torch.equal(parameter, before[name])
        else:
            assert (parameter != before[name]).double().mean() > 0.9, name
    assert not model.head.weight.any() and not model.encoder.blocks[1].mlp.fc1.bias.any()


@pytest.mark.parametrize("positions", POSITIONS)
def test_a_resized_model_takes_the_new_pictures_and_keeps_the_rest(positions):
    model = small_vit(positions=positions)
    before = {name: p.clone() for name, p in model.named_parameters() if "positions" not in name}
    model.resize((12, 20))
    assert model.config.image_size == (12, 20)
    assert model(torch.randn(B, C, 12, 20)).shape == (B, K)
    assert all(torch.equal(model.get_parameter(name), value) for name, value in before.items())
    assert all(p.requires_grad and p.is_leaf for p in model.parameters())
    with pytest.raises(ValueError, match="must be 12×20.*got 8×12"):
        model(images())


def test_one_batch_of_digits_is_learned_below_a_hundredth():
    data = digits()
    x, labels = data.normalize(data.train.images[:24]), data.train.labels[:24]
    model = create_vit("vit_digits")
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    first = F.cross_entropy(model(x), labels)
    close(first, torch.tensor(math.log(10)))
    for _ in range(60):
        loss = F.cross_entropy(model(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.01


@pytest.mark.door
def test_a_stem_makes_the_hybrid():
    config = replace(CONFIGS["vit_cifar"], depth=1, stem=[5, 7])
    assert config.stem == (5, 7)
    model = VisionTransformer(config)
    assert model.embedding.grid == (8, 8)
    pictures = torch.randn(2, 3, 32, 32)
    assert model.embedding.patch_embed.stem(pictures).shape == (2, 7, 8, 8)
    assert model(pictures).shape == (2, 10)
    deep = VisionTransformer(replace(config, stem=(5, 5, 7, 7)))
    assert deep.embedding.grid == (8, 8) and deep(pictures).shape == (2, 10)


@pytest.mark.door
def test_what_torch_exports_and_traces_takes_batches_of_any_size():
    model = VisionTransformer(small_config()).eval()
    several, more = images(), torch.randn(5, C, HEIGHT, WIDTH)
    batch = torch.export.Dim("batch", min=2, max=1024)
    exported = torch.export.export(model, (several,), dynamic_shapes=({0: batch},)).module()
    traced = torch.jit.trace(model, several)
    for x in (several, more):
        close(exported(x), model(x))
        close(traced(x), model(x))

"""The whole model is its four equations; every size has the published number of parameters; one batch is learned."""

import inspect
import math
from dataclasses import replace

import properties as check
import pytest
import torch
import torch.nn.functional as F
from properties import HEIGHT, WIDTH, B, C, D, K, N, P, close, differ, images, small_config

from vitbook.data import digits
from vitbook.embedding import POSITIONS, resize_positions
from vitbook.patches import HybridEmbedding, conv_stem, patchify, unpatchify
from vitbook.vit import CONFIGS, VisionTransformer, ViTConfig, create_vit

both_precisions = pytest.mark.usefixtures("precision")


def small_vit(**changes) -> VisionTransformer:
    return check.shake(VisionTransformer(small_config(**changes)))


@both_precisions
@pytest.mark.parametrize(
    "test",
    [
        check.vit_equals_equations_1_to_4,
        check.mean_pooling_ignores_the_class_token,
        check.the_order_of_patches_counts,
        check.blocks_start_different,
        check.scores_are_no_probabilities,
        check.first_loss_is_log_k,
    ],
    ids=lambda test: test.__name__,
)
def test_property(test):
    test(VisionTransformer)


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


@pytest.mark.parametrize(("name", "size", "channels"), [("digits", 8, 1), ("fashion", 28, 1), ("cifar", 32, 3)])
def test_the_small_sizes_take_the_pictures_they_are_named_after(name, size, channels):
    assert create_vit(f"vit_{name}")(torch.randn(B, channels, size, size)).shape == (B, 10)


def test_every_config_has_the_mlp_and_the_heads_of_its_table():
    for config in CONFIGS.values():
        assert config.dim % config.num_heads == 0
        assert config.mlp_dim in (2 * config.dim, 4 * config.dim)


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
    check.each_argument_counts(model, base, every_field(), images())


def test_scores_are_the_head_on_the_features():
    model, x = small_vit(), images()
    assert model.tokens(x).shape == (B, N + 1, D)
    assert model.features(x).shape == (B, D)
    close(model(x), F.linear(model.features(x), model.head.weight, model.head.bias))


def test_no_classes_leave_the_features():
    model, x = small_vit(num_classes=0), images()
    assert torch.equal(model(x), model.features(x))


@pytest.mark.parametrize("pool", ["class", "mean"])
@pytest.mark.parametrize("positions", POSITIONS)
def test_every_pooling_goes_with_every_positions(pool, positions):
    model = small_vit(pool=pool, positions=positions)
    assert model(images()).shape == (B, K)


@both_precisions
def test_without_a_class_token_the_mean_is_over_all_tokens():
    model, x = small_vit(pool="mean", class_token=False), images()
    assert model.tokens(x).shape == (B, N, D)
    close(model.features(x), model.tokens(x).mean(dim=1))


@both_precisions
@pytest.mark.parametrize("pool", ["class", "mean"])
@pytest.mark.parametrize("positions", ["none", "learned"])
def test_the_order_of_the_patches_counts_only_with_positions(pool, positions):
    model, x = small_vit(pool=pool, positions=positions), images()
    shuffled = unpatchify(patchify(x, P)[:, [4, 2, 0, 5, 1, 3]], P, (HEIGHT, WIDTH))
    assert differ(model(shuffled), model(x)) == (positions == "learned")


@both_precisions
def test_pictures_do_not_see_one_another():
    model, x = small_vit(), images()
    close(model(x)[1:], model(x[1:]))


def test_evaluation_is_deterministic_with_every_dropout_configured():
    model, x = small_vit(dropout=0.3, attention_dropout=0.3), images()
    assert differ(model(x), model(x))
    model.eval()
    assert torch.equal(model(x), model(x))


@both_precisions
def test_gradients_reach_every_parameter():
    model = small_vit()
    F.cross_entropy(model(images()), torch.tensor([1, 4])).backward()
    idle = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().max() > 1e-8]
    assert idle == []


def test_all_blocks_and_all_of_q_k_and_v_start_different():
    model = VisionTransformer(small_config())
    starts = [part for block in model.encoder.blocks for part in block.attn.qkv.weight.chunk(3)]
    for i, one in enumerate(starts):
        assert all(differ(one, other) for other in starts[:i])


def test_the_weights_start_as_documented():
    model = create_vit("vit_cifar")
    bound = math.sqrt(6 / (192 + 192))
    for block in model.encoder.blocks:
        for weight in (*block.attn.qkv.weight.chunk(3), block.attn.proj.weight):  # Q, K and V each by itself
            assert bound * 0.99 < weight.abs().max() <= bound
        assert 0.99 * math.sqrt(6 / (192 + 768)) < block.mlp.fc1.weight.abs().max() <= math.sqrt(6 / (192 + 768))
        assert not block.attn.qkv.bias.any() and not block.mlp.fc2.bias.any()
    assert not model.head.weight.any() and not model.head.bias.any()
    assert model.embedding.positions.pos_embed.std().item() == pytest.approx(0.02, rel=0.05)
    assert not model.embedding.patch_embed.proj.bias.any()
    assert model.embedding.patch_embed.proj.weight.std().item() == pytest.approx(math.sqrt(1 / 48), rel=0.05)


def test_initialise_draws_anew():
    model = small_vit()
    torch.nn.init.ones_(model.head.weight)
    torch.nn.init.ones_(model.encoder.blocks[1].mlp.fc1.bias)
    before = {name: p.clone() for name, p in model.named_parameters()}
    model.initialize()
    drawn = {
        name for name, p in model.named_parameters() if p.ndim > 1 and name.startswith(("encoder", "embedding.patch"))
    }
    assert len(drawn) == 4 * model.config.depth + 1
    for name in drawn:
        assert (model.get_parameter(name) != before[name]).double().mean() > 0.9
    kept = [name for name in before if "pos_embed" in name or "cls_token" in name or "norm" in name]
    assert len(kept) == 2 + 2 * (2 * model.config.depth + 1)
    assert all(torch.equal(model.get_parameter(name), before[name]) for name in kept)
    assert not model.head.weight.any()
    assert not model.encoder.blocks[1].mlp.fc1.bias.any()


@pytest.mark.parametrize("positions", POSITIONS)
def test_a_resized_model_takes_the_new_pictures_and_keeps_the_rest(positions):
    model = small_vit(positions=positions)
    before = {name: p.clone() for name, p in model.named_parameters() if "positions" not in name}
    model.resize((12, 20))
    assert model.config.image_size == (12, 20)
    assert model(torch.randn(B, C, 12, 20)).shape == (B, K)
    assert all(torch.equal(model.get_parameter(name), value) for name, value in before.items())
    with pytest.raises(ValueError, match="must be 12×20.*got 8×12"):
        model(images())


def test_resizing_interpolates_the_positions_and_there_and_back_gives_the_same_size():
    model = small_vit()
    before = model.embedding.positions.pos_embed.detach().clone()
    model.resize(24)
    close(model.embedding.positions.pos_embed.detach(), resize_positions(before, (2, 3), (6, 6)))
    model.resize((HEIGHT, WIDTH))
    assert model(images()).shape == (B, K)


def test_a_size_that_does_not_fit_leaves_the_model_as_it_was():
    model = small_vit()
    with pytest.raises(ValueError, match="image 9×12 is not divisible by patch size 4"):
        model.resize((9, 12))
    assert model(images()).shape == (B, K)


def test_a_hybrid_stands_in_for_the_patches():
    hybrid = HybridEmbedding(conv_stem(C, (6, 8)), 8, 4, D)
    model = VisionTransformer(small_config(), patch_embed=hybrid)
    assert model.embedding.patch_embed is hybrid
    assert model.tokens(images()).shape == (B, N + 1, D)


def test_the_state_loads_into_a_model_of_the_same_size():
    one, other, x = small_vit(), small_vit(), images()
    assert differ(one(x), other(x))
    other.load_state_dict(one.state_dict())
    assert torch.equal(one(x), other(x))


def test_one_batch_of_digits_is_learned_below_a_hundredth():
    data = digits()
    x, labels = data.normalise(data.train.images[:24]), data.train.labels[:24]
    model = create_vit("vit_digits")
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    first = F.cross_entropy(model(x), labels)
    close(first, torch.tensor(math.log(10)))
    for _ in range(120):
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

"""LoRA equals its closed form before and after it is merged; each layer's learning rate is its share of the whole."""

import copy

import pytest
import torch
import torch.nn.functional as F
from small_models import backbone, pictures
from torch import nn
from torch.testing import assert_close

from vitbook.cnn import CNNConfig, WhiteningCNN
from vitbook.finetuning import LoRALinear, add_lora, freeze, layer_groups, merge_lora, merged, prepare, train_mode
from vitbook.modern import ModernConfig, ModernViT
from vitbook.training import parameter_groups
from vitbook.vit import VisionTransformer, create_vit

RANK = 3


def taught(model: nn.Module) -> nn.Module:
    """The same model, its LoRA as if it had learned something."""
    for name, parameter in model.named_parameters():
        if name.endswith("lora_b"):
            nn.init.normal_(parameter)
    return model


@pytest.mark.parametrize("bias", [True, False])
def test_a_map_with_lora_is_its_equation(bias):
    linear = nn.Linear(5, 7, bias=bias).double()
    lora, x = LoRALinear(linear, RANK, alpha=6.0), torch.randn(2, 4, 5, dtype=torch.float64)
    assert_close(lora(x), linear(x), rtol=0, atol=0)
    taught(lora)
    weight = linear.weight + 6 / RANK * lora.lora_b @ lora.lora_a
    assert_close(lora(x), F.linear(x, weight, linear.bias))
    assert (lora.lora_a.shape, lora.lora_b.shape) == ((RANK, 5), (7, RANK))
    assert {name for name, p in lora.named_parameters() if p.requires_grad} == {"lora_a", "lora_b"}
    assert LoRALinear(nn.Linear(1000, 300), 200).lora_a.detach().var() == pytest.approx(1e-3, rel=0.02)


def test_only_what_is_added_and_the_head_learn_and_merging_changes_nothing_but_rounding():
    model, images = backbone(), pictures()
    before, logits = copy.deepcopy(model), model(images)
    add_lora(model, RANK)
    assert_close(model(images), logits, rtol=0, atol=0)
    model(images).square().sum().backward()
    for name, parameter in taught(model).named_parameters():
        assert (parameter.grad is not None) == (".lora_" in name or name.startswith("head")), name
    logits = model(images)
    assert (logits - before(images)).abs().max() > 1e-3
    tensors = merged(model.state_dict())
    merge_lora(model)
    assert_close(model(images), logits)
    assert [type(part) for part in model.modules()] == [type(part) for part in before.modules()]
    before.load_state_dict(tensors)
    assert_close(before(images), logits)
    changed = {name for name, tensor in tensors.items() if not torch.equal(tensor, backbone_state()[name])}
    assert changed == {name for name in tensors if name.endswith("qkv.weight")}


def backbone_state() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return backbone().state_dict()


def test_rank_0_is_the_identity_and_trains_the_head_alone():
    model, images = backbone(), pictures()
    logits, probe = model(images), copy.deepcopy(model)
    add_lora(model, rank=0)
    freeze(probe)
    trained = {name for name, p in model.named_parameters() if p.requires_grad and p.numel()}
    assert trained == {name for name, p in probe.named_parameters() if p.requires_grad} == {"head.weight", "head.bias"}
    assert_close(model(images), logits, rtol=0, atol=0)
    merge_lora(model)
    assert_close(model(images), logits, rtol=0, atol=0)


def test_other_maps_and_other_models():
    model = backbone()
    add_lora(model, 2, maps=("qkv", "proj", "fc1", "fc2"))
    depth = model.config.depth
    assert sum(isinstance(part, LoRALinear) for part in model.modules()) == 4 * depth
    modern = ModernViT(ModernConfig(8, 4, 3, 5, dim=12, depth=2, num_heads=3, mlp_dim=20, layer_scale=0.1, registers=2))
    add_lora(modern, 2, maps=("qkv", "proj"))  # a map with LayerScale is another kind of map, and stays
    assert {name for name, part in modern.named_modules() if isinstance(part, LoRALinear)} == {
        f"encoder.blocks.{block}.attn.qkv" for block in range(2)
    }


@pytest.mark.parametrize(
    ("build", "rank", "message"),
    [
        (lambda: WhiteningCNN(CNNConfig((8, 8), 3, 5, widths=(4,))), 2, "named qkv, a WhiteningCNN has none"),
        (backbone, 13, "rank must be at most 12, the narrower side of the map, got 13"),
        (backbone, -1, "rank must be at least 0, got -1"),
    ],
)
def test_what_cannot_be_is_refused_and_the_model_stays_as_it_was(build, rank, message):
    model = build()
    before, learn = dict(model.named_modules()), [p.requires_grad for p in model.parameters()]
    with pytest.raises(ValueError, match=message):
        add_lora(model, rank)
    assert dict(model.named_modules()) == before and [p.requires_grad for p in model.parameters()] == learn


@pytest.mark.parametrize("wrong", [{"lora_a": None}, {"lora_a": torch.zeros(4, 5)}, {"weight": torch.zeros(3, 3)}])
def test_tensors_that_are_no_lora_are_refused_by_name(wrong):
    state = {f"part.{name}": tensor for name, tensor in LoRALinear(nn.Linear(5, 7), RANK).state_dict().items()}
    for name, tensor in wrong.items():
        state.pop(f"part.{name}")
        state |= {f"part.{name}": tensor} if tensor is not None else {}
    with pytest.raises(ValueError, match="part.lora_b: no LoRA"):
        merged(state)


@pytest.mark.parametrize("decay", [0.5, 1.0])
def test_each_layer_has_its_share_of_the_rate_and_all_else_is_as_without(decay):
    model = create_vit("vit_digits")
    depth, share = model.config.depth, {}
    for group in layer_groups(model, 0.1, decay):
        share |= dict.fromkeys(map(id, group["params"]), (group["share"], group["weight_decay"]))
    decayed = {id(p): group["weight_decay"] for group in parameter_groups(model, 0.1) for p in group["params"]}
    for name, parameter in model.named_parameters():
        layer = 0 if name.startswith("embedding") else depth + 1
        for block in range(depth):
            layer = block + 1 if name.startswith(f"encoder.blocks.{block}.") else layer
        assert share[id(parameter)] == (pytest.approx(decay ** (depth + 1 - layer)), decayed[id(parameter)]), name
    assert layer_groups(model, 0.1, decay)[0]["share"] == 1


def test_layer_wise_rates_want_layers_and_a_share():
    with pytest.raises(ValueError, match="need encoder blocks, a Linear has none"):
        layer_groups(nn.Linear(2, 3), 0.1, 0.5)
    for decay in (0.0, 1.5, float("nan")):
        with pytest.raises(ValueError, match="decay must be above 0 and at most 1"):
            layer_groups(create_vit("vit_digits"), 0.1, decay)


@pytest.mark.parametrize("tune", ["probe", "lora"])
def test_a_frozen_batch_norm_keeps_its_statistics(tune):
    model = create_vit("vit_digits", channels=3, stem=(4, 6), patch_size=4)
    prepare(model, tune, RANK)
    before = [buffer.clone() for buffer in model.buffers()]
    for mode, moves in ((train_mode, False), (VisionTransformer.train, True)):  # torch's own mode moves them
        mode(model)
        model(5 * torch.randn(4, 3, 8, 8))
        same = [torch.equal(*pair) for pair in zip(before, model.buffers(), strict=True)]
        assert all(same) != moves and model.training

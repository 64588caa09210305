"""The formulas of costs against what torch counts and keeps."""

from dataclasses import replace

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from vitbook import costs
from vitbook.attention import attention
from vitbook.modern import ModernConfig
from vitbook.vit import CONFIGS, VisionTransformer, ViTConfig

SMALL = ViTConfig(image_size=(8, 12), patch_size=2, channels=3, num_classes=5, dim=24, depth=2, num_heads=4, mlp_dim=56)
WITHOUT = replace(SMALL, class_token=False, pool="mean", patch_size=4)


def test_the_base_model_has_the_published_number_of_operations():
    """17.56 billion multiply-adds: fvcore and timm list 17.6 (timm's results table, vit_base_patch16_224)."""
    assert costs.forward_flops(CONFIGS["vit_b_16"]) == 2 * 17_563_828_224


@pytest.mark.parametrize("config", [SMALL, WITHOUT, CONFIGS["vit_cifar"], CONFIGS["vit_ti_16"]])
def test_the_products_are_those_that_torch_counts(config):
    with torch.device("meta"):  # there attention is two plain products, which the counter sees
        model = VisionTransformer(config)
        images = torch.empty(1, config.channels, *config.image_size)
    with FlopCounterMode(display=False) as counter:
        scores = model(images)
    assert counter.get_total_flops() == costs.forward_flops(config)
    with FlopCounterMode(display=False) as counter:
        scores = model(images.requires_grad_())
        scores.sum().backward()
    assert counter.get_total_flops() == costs.training_flops(config)


def kept_bytes(config: ViTConfig, batch: int) -> int:
    """Bytes that the blocks keep for the backward pass, weights not counted."""
    torch.manual_seed(0)
    encoder = VisionTransformer(config).encoder
    known = {p.untyped_storage().data_ptr() for p in encoder.parameters()}
    kept: dict[int, int] = {}

    def look(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    tokens = torch.randn(batch, costs.number_of_tokens(config), config.dim, requires_grad=True)
    with saved_tensors_hooks(look, lambda tensor: tensor):
        output = encoder(tokens)  # held, and with it all that is kept: or two tensors could share an address
    assert output.requires_grad
    return sum(kept.values())


def test_the_blocks_keep_what_the_formula_says(monkeypatch):
    batch = 3
    fused = kept_bytes(SMALL, batch)
    assert batch * costs.activation_bytes(SMALL) < fused < 1.1 * batch * costs.activation_bytes(SMALL)
    monkeypatch.setattr("vitbook.multihead.quickest_attention", lambda q, k, v, mask, dropout_p: attention(q, k, v)[0])
    explicit = kept_bytes(SMALL, batch)
    weights = batch * SMALL.depth * costs.weight_bytes(SMALL)
    assert 0.9 * weights < explicit - fused < 1.1 * weights


@pytest.mark.parametrize("config", [SMALL, WITHOUT])
def test_training_holds_four_numbers_for_each_weight_beside_what_the_blocks_keep(config):
    model = VisionTransformer(config)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(3, config.channels, *config.image_size)).sum().backward()
    optimizer.step()
    held = [*model.parameters(), *(parameter.grad for parameter in model.parameters())]
    for state in optimizer.state.values():
        held += [tensor for name, tensor in state.items() if name != "step"]  # a counter
    fixed = sum(tensor.nbytes for tensor in held)
    assert costs.training_bytes(config, 0) == fixed
    kept = costs.training_bytes(config, 3) - fixed
    assert kept < kept_bytes(config, 3) < 1.1 * kept


def test_a_roof_has_two_sides():
    """A product of square matrices of side s has intensity 2s³ / 3bs² = 2s/3b."""
    assert costs.product_intensity(96, 96, 96) == pytest.approx(16.0)
    assert costs.product_intensity(2, 3, 5, 1) == pytest.approx(60 / 31)
    assert costs.roofline(2.0, peak=100.0, bandwidth=10.0) == 20.0
    assert costs.roofline(20.0, peak=100.0, bandwidth=10.0) == 100.0


def test_a_stem_is_refused():
    with pytest.raises(ValueError, match="must have none"):
        costs.forward_flops(replace(SMALL, patch_size=2, stem=(6,)))


@pytest.mark.door
@pytest.mark.parametrize("cost", [costs.forward_flops, costs.weight_bytes, costs.activation_bytes])
def test_a_config_with_more_in_it_is_refused(cost):
    with pytest.raises(ValueError, match="the formulas are for a plain ViTConfig, got a ModernConfig"):
        cost(ModernConfig(**vars(SMALL), registers=4, swiglu=True))

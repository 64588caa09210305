"""Muon moves each matrix by its orthogonalized gradients, as its equation says, wherever the matrix lies."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from vitbook.cnn import CNNConfig, SmallCNN, WhiteningCNN
from vitbook.muon import Muon, hidden_matrices, orthogonalized
from vitbook.vit import create_vit


@pytest.fixture(autouse=True)
def in_float32(monkeypatch):
    monkeypatch.setattr("vitbook.muon.has_bfloat16", lambda device: False)


def a_step(
    name: str, weight: torch.Tensor, gradient: torch.Tensor, lr: float = 0.1, decay: float = 0.0
) -> torch.Tensor:
    """The weight after the first step."""
    parameter = nn.Parameter(weight.clone(memory_format=torch.preserve_format))
    parameter.grad = gradient.clone()
    Muon({name: parameter}, lr, decay).step()
    return parameter.detach()


def test_a_step_is_the_orthogonal_factor_of_the_gradient_at_the_length_of_adamws():
    """Five Newton-Schulz steps leave singular values between about 0.7 and 1.2 where the equation has 1."""
    gradient = torch.randn(12, 30)
    u, _, v = torch.linalg.svd(gradient, full_matrices=False)
    moved = -a_step("one.weight", torch.zeros(12, 30), gradient)
    length = 0.1 * 0.2 * 30**0.5
    assert_close(u.T @ moved @ v.T, length * torch.eye(12), atol=0.35 * length, rtol=0)
    assert_close(-a_step("one.weight", torch.zeros(12, 30), 100 * gradient), moved, atol=1e-5, rtol=0)


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch has it from 2.9 on")
@pytest.mark.parametrize("shape", [(12, 30), (30, 12)])
def test_steps_are_those_of_torchs_muon(shape):
    """Which computes in bfloat16."""
    ours, theirs = (nn.Parameter(torch.ones(shape)) for _ in range(2))
    options = dict(lr=0.1, weight_decay=0.5)
    both = Muon({"one.weight": ours}, **options), torch.optim.Muon([theirs], adjust_lr_fn="match_rms_adamw", **options)
    for gradient in torch.randn(3, *shape):
        for parameter, optimizer in zip((ours, theirs), both, strict=True):
            parameter.grad = gradient.clone()
            optimizer.step()
    length = 0.1 * 0.2 * 30**0.5
    assert_close(ours, theirs, atol=0.02 * length, rtol=0)


@pytest.mark.parametrize("has, precision", [(False, 1e-5), (True, 0.1)])
def test_bfloat16_is_used_only_where_the_hardware_has_it(has, precision, monkeypatch):
    matrices = torch.randn(3, 20, 8)
    exact = orthogonalized(matrices.double())
    monkeypatch.setattr("vitbook.muon.has_bfloat16", lambda device: has)
    off = (orthogonalized(matrices) - exact).abs().max()
    assert off < precision and (off > 1e-3) == has


def test_weights_decay():
    gradient = torch.randn(6, 6)
    plain, decayed = (a_step("one.weight", torch.ones(6, 6), gradient, decay=decay) for decay in (0.0, 0.5))
    assert_close(plain - decayed, torch.full((6, 6), 0.1 * 0.5))


def test_queries_keys_and_values_are_three_matrices():
    weight, gradient = torch.randn(36, 12), torch.randn(36, 12)
    apart = [a_step("one.weight", w, g) for w, g in zip(weight.chunk(3), gradient.chunk(3), strict=True)]
    assert torch.equal(a_step("attn.qkv.weight", weight, gradient), torch.cat(apart))
    assert not torch.equal(a_step("mlp.fc1.weight", weight, gradient), torch.cat(apart))


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_a_convolution_is_a_matrix_however_it_lies_in_memory(memory_format):
    weight, gradient = torch.randn(8, 5, 3, 3), torch.randn(8, 5, 3, 3)
    as_matrix = a_step("one.weight", weight.flatten(1), gradient.flatten(1)).view_as(weight)
    ours = a_step("one.weight", weight.to(memory_format=memory_format), gradient)
    assert_close(ours, as_matrix, atol=1e-5, rtol=0)


def test_the_momentum_is_nesterovs():
    one, other = torch.randn(2, 7, 7)
    parameter = nn.Parameter(torch.zeros(7, 7))
    optimizer = Muon({"one.weight": parameter}, 0.1, 0.0)
    for gradient in (one, other):
        before = parameter.detach().clone()
        parameter.grad = gradient
        optimizer.step()
    mean = 0.95 * 0.05 * one + 0.05 * other
    expected = a_step("one.weight", torch.zeros(7, 7), 0.95 * mean + 0.05 * other)
    assert_close(parameter.detach() - before, expected, atol=1e-5, rtol=0)


def test_a_weight_without_a_gradient_stays():
    used, unused = nn.Parameter(torch.ones(4, 4)), nn.Parameter(torch.ones(4, 4))
    optimizer = Muon({"one.weight": used, "two.weight": unused}, 0.1, 0.1)
    used.grad = torch.randn(4, 4)
    optimizer.step()
    assert torch.equal(unused, torch.ones(4, 4)) and not torch.equal(used, unused)


def test_it_is_for_the_matrices_between_the_first_layer_and_the_last():
    vit = create_vit("vit_digits", depth=1)
    block = [f"encoder.blocks.0.{part}.weight" for part in ("attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2")]
    assert list(hidden_matrices(vit)) == block
    hybrid = create_vit("vit_cifar", depth=1, stem=(8, 16))
    stem = "embedding.patch_embed"
    assert list(hidden_matrices(hybrid)) == [f"{stem}.stem.3.weight", f"{stem}.patch_embed.proj.weight", *block]
    teacher = WhiteningCNN(CNNConfig(widths=(4, 6)))
    assert list(hidden_matrices(teacher)) == [f"blocks.{i}.{j}.weight" for i in (0, 1) for j in (0, 4)]
    assert all(weight.ndim == 4 for weight in hidden_matrices(SmallCNN(1, 10, 4)).values())

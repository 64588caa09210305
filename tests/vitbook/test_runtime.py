"""The same seed gives the same random numbers, in Python, NumPy and torch."""

import random

import numpy as np
import pytest
import torch

from vitbook.runtime import about, flushing_denormals, has_bfloat16, seed_everything


def draws(seed: int) -> list:
    seed_everything(seed)
    return [random.random(), np.random.rand(), torch.rand(()).item()]


def test_the_seed_fixes_every_random_number():
    first, other = draws(5), draws(6)
    assert draws(5) == first
    assert not set(first) & set(other)


def test_a_gpu_is_kept_from_trading_precision_for_speed():
    cuda, cudnn = torch.backends.cuda, torch.backends.cudnn
    cuda.matmul.allow_tf32 = cudnn.allow_tf32 = cudnn.benchmark = True
    seed_everything(0)
    assert not (cuda.matmul.allow_tf32 or cudnn.allow_tf32 or cudnn.benchmark)
    assert cudnn.deterministic


@pytest.mark.parametrize(
    ("units", "has"),
    [
        ({"avx2": True, "avx512_f": True, "avx512_bf16": False, "amx_bf16": False}, False),
        ({"avx512_bf16": True, "amx_bf16": False}, True),
        ({"architecture": "aarch64", "neon": True, "bf16": False}, False),
        ({}, True),  # torch cannot say
    ],
)
def test_a_cpu_has_bfloat16_by_its_instructions(units, has, monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: units, raising=False)
    assert has_bfloat16(torch.device("cpu")) is has


@pytest.mark.parametrize(("capability", "has"), [((7, 5), False), ((8, 0), True), ((9, 0), True)])
def test_a_gpu_has_bfloat16_from_ampere_on(capability, has, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert has_bfloat16(torch.device("cuda")) is has


def test_a_measured_number_is_shown_with_its_bounds():
    assert about(torch.tensor(0.174), 0.1, 0.25) == "≈0.174 (0.1 to 0.25)"
    assert about(0.989, 0.97, 1, ".1%") == "≈98.9% (97.0% to 100.0%)"
    for outside in (0.05, 0.3, float("nan")):
        with pytest.raises(AssertionError, match=r"outside its bounds"):
            about(outside, 0.1, 0.25)


@pytest.mark.parametrize("before", [False, True])
def test_denormals_count_as_zero_within_the_block_alone(before):
    def kept() -> bool:
        return bool(torch.tensor(1e-40) * 1.0 > 0)

    torch.set_flush_denormal(before)
    try:
        with pytest.raises(ValueError, match="in the block"), flushing_denormals():
            assert not kept()
            raise ValueError("in the block")
        assert kept() is not before
    finally:
        torch.set_flush_denormal(False)

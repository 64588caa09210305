"""The same seed gives the same random numbers, in Python, NumPy and torch."""

import random

import numpy as np
import torch

from vitbook.runtime import device, seed_everything


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


def test_the_device_is_a_gpu_where_there_is_one():
    assert device().type == ("cuda" if torch.cuda.is_available() else "cpu")
    torch.zeros(1, device=device())

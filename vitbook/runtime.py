"""Where the code runs, and from which random numbers it starts."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from vitbook._common.validation import check_choice, check_kind, check_sizes


def seed_everything(seed: int) -> None:
    """Start Python's, NumPy's and torch's random numbers from `seed`, and keep a GPU from trading precision for speed.

    Draw random numbers on the CPU and move them afterwards: then a GPU starts from the same ones. With TF32 off and
    cuDNN deterministic, what follows agrees with the CPU to float32 rounding.
    """
    check_sizes(0, seed=seed)
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


def about(value: float, low: float, high: float, form: str = ".3g") -> str:
    """A measured number with its bounds, "≈0.17 (0.1 to 0.25)"; AssertionError where it lies outside them.

    What differs a little from machine to machine is printed so, and comparisons of outputs pass over what follows ≈.
    form: as in `format`, ".1%" for a share.
    """
    shown = f"≈{value:{form}} ({low:{form}} to {high:{form}})"
    assert low <= value <= high, f"{shown}: outside its bounds"
    return shown


DEVICES = ("auto", "cpu", "cuda", "mps")
_chosen = "auto"


def choose_device(name: str) -> None:
    """Let `device` give this one from now on; "auto" is the first CUDA GPU if there is one, else the CPU.

    "mps" is Apple's GPU, on which none of this has been tried. Raises ValueError for one that is not there.
    """
    global _chosen
    check_choice("device", name, DEVICES)
    there = {"cuda": torch.cuda.is_available, "mps": torch.backends.mps.is_available}.get(name, lambda: True)
    if not there():
        raise ValueError(f"device {name} was asked for, and torch finds none")
    _chosen = name


def device() -> torch.device:
    """Where to compute, as `choose_device` says."""
    automatic = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(automatic if _chosen == "auto" else _chosen)


def has_bfloat16(device: torch.device) -> bool:
    """Whether the device multiplies matrices in bfloat16 in hardware. Others emulate it, and float32 is quicker there.

    NVIDIA's GPUs do from compute capability 8.0 on (Ampere; Colab's T4 has 7.5), x86 CPUs with AVX-512 BF16 or AMX, ARM
    CPUs with BF16. Taken for granted where torch cannot say; False for a GPU that is not there.
    """
    check_kind(torch.device, device=device)
    if device.type == "cuda":
        return torch.cuda.is_available() and torch.cuda.get_device_capability(device) >= (8, 0)
    can = getattr(torch.cpu, "get_capabilities", dict)()
    return device.type != "cpu" or not can or any(can.get(unit) for unit in ("avx512_bf16", "amx_bf16", "bf16"))


@contextmanager
def flushing_denormals() -> Iterator[None]:
    """Within the block, a CPU takes numbers below 1.2e-38 for 0: with each of them it takes many times as long.

    In GELU, e^(−x²/2) is one from |x| = 13 on. A GPU has no such trouble, and stays as it is.
    """
    before = torch.tensor(1e-40).mul(1.0).item() == 0  # torch does not say
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)

"""Where the code runs, and from which random numbers it starts."""

import random

import numpy as np
import torch

from vitbook.checks import check_sizes


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


def device() -> torch.device:
    """The first CUDA GPU if there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")

"""Time training steps of the recipes' models side by side, in two precisions: for the figures of chapter 20.

    python records/speed.py vitbook/assets/runs/speed.json

On one thread, in CPU seconds, on random images, with fused AdamW in every arm. In each round all arms have a turn, in
an order that the round's seed draws; a turn is one call that is not counted, then calls for about a fifth of a second.
Four minutes on one core.
"""

import random
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch
from harness import Rows, arguments_of
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from vitbook.cnn import CNNConfig, WhiteningCNN
from vitbook.vit import create_vit

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
from measure import PRECISIONS, step_call  # noqa: E402

MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {  # and how many images a step takes
    "plain ViT": (lambda: create_vit("vit_cifar", dim=128, depth=6, num_heads=4, mlp_dim=256), (128,)),
    "hybrid": (lambda: create_vit("hybrid_small"), (128,)),
    "CNN": (lambda: WhiteningCNN(CNNConfig()), (128,)),
    "CIFAR size": (lambda: create_vit("vit_cifar"), (1, 8, 64)),
}


@cache
def made(model: str, images: int, precision: str) -> tuple[Callable[[], object], dict]:
    """A training step, and the model's numbers: parameters, and FLOPs of the step for one image."""
    torch.manual_seed(0)
    network, x, labels = MODELS[model][0](), torch.randn(images, 3, 32, 32), torch.arange(images) % 10
    with FlopCounterMode(display=False) as counter:
        network.train()(x).sum().backward()
    numbers = {"parameters": sum(p.numel() for p in network.parameters())}
    return step_call(network, x, labels, precision), numbers | {"flops": counter.get_total_flops() // images}


def timed(arm: str, n: int, **_: object) -> dict:
    """Milliseconds of one step of n images, the mean of a turn, and the model's numbers."""
    model, precision = arm.split(", ")
    step, numbers = made(model, n, precision)
    step()
    calls, began = 0, time.process_time()
    while not calls or time.process_time() - began < 0.2:
        step()
        calls += 1
    return {"milliseconds": round(1000 * (time.process_time() - began) / calls, 3), **numbers}


def main(arguments: list[str] | None = None) -> None:
    parser = arguments_of(__doc__, data_dir=False)
    parser.add_argument("--rounds", type=int, default=11)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    arms = [(f"{model}, {p}", n) for model, (_, sizes) in MODELS.items() for n in sizes for p in PRECISIONS]
    rows = Rows(given.file)
    for seed in range(given.rounds):
        turns = random.Random(seed).sample(arms, len(arms))
        rows.fill(timed, [dict(arm=arm, n=n, rate=None, seed=seed) for arm, n in turns])


if __name__ == "__main__":
    main()

"""Times of several functions side by side: in turns, round by round, so that a machine that slows down slows all."""

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitbook.vit import ViTConfig

Clock = Callable[[], float]
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Collect once, then not until the end."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def waiting(device: torch.device) -> Callable[[], None]:
    """What waits until the device has done all that it was told."""
    return partial(torch.cuda.synchronize, device) if device.type == "cuda" else lambda: None


def seconds(function: Callable[[], object], calls: int, wait: Callable[[], None], clock: Clock) -> float:
    """Seconds of one call, the mean of several in a row."""
    wait()
    start = clock()
    for _ in range(calls):
        function()
    wait()
    return (clock() - start) / calls


def side_by_side(
    functions: dict[str, Callable[[], object]],
    rounds: int,
    turn: float,
    device: torch.device,
    clock: Clock = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds of one call of each function, in each round.

    In a round every function has one turn, of so many calls as take about `turn` seconds; each round begins with
    another function. Two calls before, not counted, warm up; the last of them settles how many calls make a turn.
    clock: gives seconds; `time.process_time` leaves out when others had the CPU, and is for one thread alone.
    """
    wait = waiting(device)
    calls = {}
    for name, function in functions.items():
        seconds(function, 1, wait, clock)
        calls[name] = max(1, round(turn / seconds(function, 1, wait, clock)))
    times: dict[str, list[float]] = {name: [] for name in functions}
    names = list(functions)
    with without_garbage_collection():
        for number in range(rounds):
            first = number % len(names)
            for name in names[first:] + names[:first]:
                times[name].append(seconds(functions[name], calls[name], wait, clock))
    return times


def ratio(times: list[float], of: list[float]) -> tuple[float, float, float]:
    """(lower quartile, median, upper quartile) over the rounds of how many times as long it took as `of`."""
    ratios = [a / b for a, b in zip(times, of, strict=True)]
    if len(ratios) == 1:
        return ratios[0], ratios[0], ratios[0]
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return low, middle, high


def autocast(precision: str, device: torch.device):
    """Matrix products in bfloat16, or everything as it is."""
    return nullcontext() if precision == "float32" else torch.autocast(device.type, PRECISIONS[precision])


def forward_call(model: nn.Module, images: Tensor, precision: str) -> Callable[[], Tensor]:
    """A call that evaluates the model, without gradients."""
    model.eval()

    @torch.inference_mode()
    def forward() -> Tensor:
        with autocast(precision, images.device):
            return model(images)

    return forward


def step_call(model: nn.Module, images: Tensor, labels: Tensor, precision: str) -> Callable[[], Tensor]:
    """A call that trains for one step: forward, cross-entropy, backward, fused AdamW."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.05, fused=True)

    def step() -> Tensor:
        with autocast(precision, images.device):
            scores = model(images)
        loss = F.cross_entropy(scores.float(), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return scores

    return step


def random_batch(config: ViTConfig, batch: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Random images and labels that fit the model. → (B, C, H, W), (B)."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(batch, config.channels, *config.image_size, generator=generator)
    return images.to(device), torch.randint(config.num_classes, (batch,), generator=generator).to(device)


def make_call(model: nn.Module, config: ViTConfig, batch: int, kind: str, precision: str, device: torch.device):
    """What is measured: one call of kind "forward" or "step"."""
    images, labels = random_batch(config, batch, device)
    if kind == "forward":
        return forward_call(model, images, precision)
    return step_call(model, images, labels, precision)


def matmul_call(precision: str, device: torch.device, side: int = 0) -> tuple[Callable[[], Tensor], int]:
    """A product of two large square matrices, and its FLOPs: what the chip can do at most."""
    side = side or (8192 if device.type == "cuda" else 2048)
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(side, side, generator=generator).to(device, PRECISIONS[precision]) for _ in range(2))
    return lambda: a @ b, 2 * side**3

"""Random inputs for the exercises, new ones for every check."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from vitbook.vit import VisionTransformer, ViTConfig


def normal(generator: torch.Generator, *shape: int) -> Tensor:
    """Standard normal float64 numbers of the given shape."""
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def random_order(generator: torch.Generator, length: int) -> Tensor:
    """An order (T,) of T ≥ 3 tokens that moves each of them and is not its own inverse: a single cycle."""
    cycle = torch.randperm(length, generator=generator)
    return torch.empty_like(cycle).index_put((cycle,), cycle.roll(1))


def random_mask(generator: torch.Generator, queries: int, keys: int) -> Tensor:
    """A boolean mask (queries, keys): every query sees a key and misses one, every key is seen and missed."""
    mask = torch.rand(queries, keys, generator=generator) < 0.6
    turn = (torch.arange(queries)[:, None] - torch.arange(keys)) % min(queries, keys)
    return mask.masked_fill(turn == 0, True).masked_fill(turn == 1, False)


def random_module(generator: torch.Generator, build: Callable[[], nn.Module]) -> nn.Module:
    """The module that `build` makes, in float64 and evaluation mode, every parameter drawn from `generator`."""
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):  # so that the global generator stays as it is
        module = build().double().eval()
    for parameter in module.parameters():
        parameter.data = 0.5 * normal(generator, *parameter.shape)
    return module


def tokens_and_module(build: Callable[..., nn.Module], *cases: tuple[int, ...], scale: float = 1.0) -> Callable:
    """Inputs for an `Exercise`: for each case (B, T, D, …) tokens (B, T, D), and the module build(D, …)."""
    return lambda generator: [
        (scale * normal(generator, b, t, d), random_module(generator, partial(build, d, *rest)))
        for b, t, d, *rest in cases
    ]


def images_and_vit(generator: torch.Generator) -> list[tuple[Tensor, nn.Module]]:
    """Images (B, 3, 8, 12), and a Vision Transformer for them with five classes, twice."""
    tiny = ViTConfig(image_size=(8, 12), patch_size=4, num_classes=5, dim=12, depth=2, num_heads=3, mlp_dim=20)
    return [(normal(generator, b, 3, 8, 12), random_module(generator, lambda: VisionTransformer(tiny))) for b in (2, 3)]

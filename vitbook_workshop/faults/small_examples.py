"""Small inputs and modules of random numbers for the checks, and when two results are the same.

Random numbers are drawn from torch's own generator, in torch's default dtype; the sizes all differ, so that no
transpose can hide.
"""

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitbook.vit import ViTConfig

B, T, S, D, HEADS, HIDDEN = 2, 5, 7, 12, 3, 20  # T tokens, S tokens to look at, D/HEADS = 4
C, HEIGHT, WIDTH, P = 3, 8, 12, 4  # a grid of 2 rows and 3 columns
GRID = (2, 3)
N, K = 6, 9  # patches, classes

TOLERANCE = {torch.float64: {"rtol": 1e-9, "atol": 1e-10}, torch.float32: {"rtol": 1e-4, "atol": 1e-5}}


def close(got: Tensor, expected: Tensor) -> None:
    """Assert the same numbers, to the tolerance of their dtype."""
    torch.testing.assert_close(got, expected, **TOLERANCE[got.dtype])


def differ(one: Tensor, other: Tensor) -> bool:
    """Not the same numbers, by more than rounding."""
    same_kind = one.device == other.device and one.shape == other.shape
    return not (same_kind and torch.allclose(one, other, rtol=1e-4, atol=1e-6))


def same_map(ours: Callable, theirs: Callable, *inputs: Tensor, weights: Iterable[tuple[Tensor, Tensor]] = ()) -> None:
    """Same outputs, and same gradients for the inputs and for pairs (ours, theirs) of weights in the same order."""
    leaves = [(x.detach().clone().requires_grad_(),) * 2 for x in inputs]
    sides = list(zip(*leaves, *weights, strict=True))
    outputs = [function(*side[: len(inputs)]) for function, side in zip((ours, theirs), sides, strict=True)]
    close(*outputs)
    direction = torch.linspace(-1, 2, outputs[0].numel()).view_as(outputs[0])
    gradients = [torch.autograd.grad(output, side, direction) for output, side in zip(outputs, sides, strict=True)]
    for our_gradient, their_gradient in zip(*gradients, strict=True):
        close(our_gradient.flatten(), their_gradient.flatten())


@torch.no_grad()
def copy_weights(pairs: Iterable[tuple[Tensor, Tensor]]) -> None:
    """Put our weights into theirs."""
    for our_weight, their_weight in pairs:
        their_weight.copy_(our_weight)


@torch.no_grad()
def shake(module: nn.Module) -> nn.Module:
    """Give every parameter random values, so that no zero and no one hides a mistake."""
    for parameter in module.parameters():
        parameter.normal_(std=0.3).add_(0.1)
    return module


def build(layer: Callable, **settings: Any) -> nn.Module:
    """A module from its class, with this page's sizes for those of its arguments that need one."""
    sizes = dict(dim=D, embed_dim=D, num_heads=HEADS, mlp_dim=HIDDEN, hidden_dim=HIDDEN, depth=3)
    arguments = inspect.signature(layer).parameters
    return layer(**{name: value for name, value in (sizes | settings).items() if name in arguments})


def images(batch: int = B) -> Tensor:
    """Images of random numbers. (B, C, H, W)."""
    return torch.randn(batch, C, HEIGHT, WIDTH)


def small_config(**changes: Any) -> ViTConfig:
    """A small ViT's config, with other fields where they are given."""
    sizes = dict(image_size=(HEIGHT, WIDTH), patch_size=P, channels=C, num_classes=K, dim=D, depth=2)
    return ViTConfig(**sizes | dict(num_heads=HEADS, mlp_dim=HIDDEN) | changes)


def layer_norm(x: Tensor, norm: nn.LayerNorm) -> Tensor:
    """LayerNorm with eps 1e-6: each token's mean to 0 and its (biased) variance to 1."""
    return F.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, 1e-6)


def transformer_and_words(transformer: Callable) -> tuple[nn.Module, Tensor, Tensor]:
    """A small Transformer, a source (B, S) and a target (B, T) without padding."""
    source, target = torch.randint(1, 11, (B, S)), torch.randint(1, 11, (B, T))
    return shake(transformer(11, D, 2, HEADS, HIDDEN, padding=0)), source, target


def unequal_batches() -> list[tuple[Tensor, Tensor]]:
    """Seven examples in batches of 4 and 3."""
    x, labels = torch.randn(7, D), torch.randint(K, (7,))
    return [(x[:4], labels[:4]), (x[4:], labels[4:])]


def classifier() -> nn.Module:
    """A small model (…, D) → (…, K) with dropout."""
    return nn.Sequential(nn.Linear(D, HIDDEN), nn.GELU(), nn.Dropout(0.5), nn.Linear(HIDDEN, K))

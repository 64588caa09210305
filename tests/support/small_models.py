"""The small inputs and modules of the checks, under one name with what only the tests of the package need."""

import inspect
from collections.abc import Callable, Iterable

import pytest
import torch
from torch import Tensor, nn

from vitbook.distillation import DistilledVisionTransformer
from vitbook.modern import ModernConfig, ModernViT
from vitbook.vit import VisionTransformer
from vitbook_workshop.faults.small_examples import *  # noqa: F403
from vitbook_workshop.faults.small_examples import B, differ, images, shake, small_config


def backbone(distilled: bool = False, **changes) -> VisionTransformer:
    """A small Vision Transformer in float64, in evaluation, of which every weight counts.

    changes: fields of `ViTConfig`; where one of `ModernConfig` alone is among them, the model is a `ModernViT`.
    """
    if changes.keys() <= vars(small_config()).keys():
        model = (DistilledVisionTransformer if distilled else VisionTransformer)(small_config(**changes))
    else:
        model = ModernViT(ModernConfig(**vars(small_config()) | changes))
    return shake(model).double().eval()


# What the head sees, and what is derived from `VisionTransformer`, as changes of `backbone`
FAMILY = {
    "class token": {},
    "mean": {"pool": "mean"},
    "mean without class token": {"pool": "mean", "class_token": False},
    "no positions": {"positions": "none"},
    "sines and cosines": {"positions": "sincos_2d"},
    "rows and columns": {"positions": "learned_2d"},
    "two tokens": {"distilled": True},
    "registers": dict(registers=2, pool="mean", norm="rms", qk_norm=True, layer_scale=0.3, swiglu=True),
    "attention pooling": {"attention_pool": True, "embedding_norm": True},
    "rotary": {"rotary_base": 100.0, "registers": 1},
}
of_every_kind = pytest.mark.parametrize("changes", FAMILY.values(), ids=FAMILY)


def pictures(batch: int = B) -> Tensor:
    """Random pictures for it. → float64 (B, C, H, W)."""
    return images(batch).double()


def each_argument_counts(function: Callable, base: dict, changes: dict, *inputs) -> None:
    """Changing any one argument of `function` changes what comes out; `changes` names every argument there is.

    What comes out of a class of modules is its parameters' shapes and, in training, its outputs on `inputs`.
    """
    arguments = {name for name, p in inspect.signature(function).parameters.items() if p.kind != p.VAR_KEYWORD}
    assert arguments == set(changes), f"changes must name every argument of {function.__name__} and no other"

    def outcomes(**settings) -> Iterable:
        try:
            torch.manual_seed(0)
            made = function(**base | settings)
            if isinstance(made, nn.Module):
                yield [parameter.shape for parameter in made.parameters()]
                torch.manual_seed(1)
                made = made.train()(*inputs)
            yield from made if isinstance(made, (tuple, list)) else [made]
        except ValueError as error:  # the other arguments no longer fit this one: an effect, too
            yield str(error)

    for name, other in changes.items():
        pairs = zip(outcomes(), outcomes(**{name: other}), strict=False)
        assert any(
            differ(*pair) if all(isinstance(value, Tensor) for value in pair) else pair[0] != pair[1] for pair in pairs
        ), f"{function.__name__}: {name} has no effect"

"""Activation patching: carry a part of one run of a model into another, and see the answer move.

Where a map says what lights up, this says what decides: a part of the model is given what it computed for another
image, the donor, and all else stays. If the answer follows the donor, what tells the two images apart went through
that part (Vig et al. 2020, "causal mediation analysis"; Meng et al. 2022; Heimersheim and Nanda 2024).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitbook.attention_maps import attention_layers


@dataclass(frozen=True)
class Part:
    """What a module gives, or takes: a tensor (B, T, D), or one token of it, or some of its columns."""

    module: str  # a name of model.named_modules(): "encoder.blocks.1" for the stream after a block, "….mlp"
    token: int | None = None  # every token if not given
    columns: tuple[int, int] | None = None  # first, and one beyond the last; all if not given
    taken: bool = False  # whether it is what the module takes

    @property
    def place(self) -> tuple[slice, slice | list[int], slice]:
        """Where in the tensor."""
        token = slice(None) if self.token is None else [self.token]
        return slice(None), token, slice(*(self.columns or (None,)))


def head(model: nn.Module, block: int, number: int) -> Part:
    """What one head of a block gives, before W_O, of any model that `recorded_attention` knows."""
    layers = list(attention_layers(model).items())
    if not 0 <= block < len(layers):
        raise ValueError(f"block must lie in 0 … {len(layers) - 1}, got {block}")
    name, layer = layers[block]
    if not 0 <= number < layer.num_heads:
        raise ValueError(f"head must lie in 0 … {layer.num_heads - 1}, got {number}")
    width = layer.proj.in_features // layer.num_heads
    return Part(f"{name}.proj", columns=(number * width, (number + 1) * width), taken=True)


@torch.no_grad()
def patched(model: nn.Module, images: Tensor, donors: Tensor, parts: Sequence[Part]) -> Float[Tensor, "batch classes"]:
    """The logits for images, each of these parts being as it is for the donors.

    Raises ValueError for a module that the model has not, or that gives no tensor (B, T, D).
    """
    kept: list[Tensor] = []
    with _hooked(model, parts, lambda x, part: kept.append(x[part.place].clone())):
        model(donors)
    donated = iter(kept)

    def carry(x: Tensor, part: Part) -> Tensor:
        x = x.clone()
        x[part.place] = next(donated)
        return x

    with _hooked(model, parts, carry):
        return model(images)


@contextmanager
def _hooked(model: nn.Module, parts: Sequence[Part], change: Callable[[Tensor, Part], Any]) -> Iterator[None]:
    """Meanwhile, each part is what `change` makes of it, or stays where that is None."""
    modules, handles = dict(model.named_modules()), []
    try:
        for part in parts:
            if part.module not in modules:
                raise ValueError(f"module must be one of the model's, as encoder.blocks.0.mlp, got {part.module!r}")

            def hook(_: nn.Module, given: Any, result: Any = None, part: Part = part) -> Any:
                x = given[0] if part.taken else result
                if not isinstance(x, Tensor) or x.ndim != 3:
                    raise ValueError(f"{part.module} must give a tensor (B, T, D), got {getattr(x, 'shape', type(x))}")
                changed = change(x, part)
                return (changed, *given[1:]) if part.taken and changed is not None else changed

            module = modules[part.module]
            handles.append((module.register_forward_pre_hook if part.taken else module.register_forward_hook)(hook))
        yield
    finally:
        for handle in handles:
            handle.remove()


def moved(model: nn.Module, images: Tensor, donors: Tensor, parts: Sequence[Part]) -> Float[Tensor, " batch"]:
    """How far the answer goes from the image's to the donor's: 0 not at all, 1 all the way.

    It is measured on the difference of two logits, that of the donor's answer and that of the image's; images whose
    answer is the donor's are nan.
    """
    with torch.no_grad():
        here, there = model(images), model(donors)
    ours, theirs = here.argmax(dim=1), there.argmax(dim=1)

    def lead(logits: Float[Tensor, "batch classes"]) -> Float[Tensor, " batch"]:
        return (logits.gather(1, theirs[:, None]) - logits.gather(1, ours[:, None]))[:, 0]

    return (lead(patched(model, images, donors, parts)) - lead(here)) / (lead(there) - lead(here))

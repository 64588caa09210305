"""The properties of `faults.checks_of_parts`, under one name with those that only the tests of the package need."""

import inspect
from collections.abc import Callable, Iterable

import torch
from scipy.ndimage import zoom
from torch import Tensor, nn

from vitbook.vit import VisionTransformer
from vitbook_workshop.faults.checks_of_parts import *  # noqa: F403
from vitbook_workshop.faults.checks_of_parts import GRID, B, D, N
from vitbook_workshop.faults.checks_of_parts import _build as build  # noqa: F401
from vitbook_workshop.faults.checks_of_parts import _classifier as classifier  # noqa: F401
from vitbook_workshop.faults.checks_of_parts import _close as close
from vitbook_workshop.faults.checks_of_parts import _differ as differ
from vitbook_workshop.faults.checks_of_parts import _images as images
from vitbook_workshop.faults.checks_of_parts import _layer_norm as layer_norm  # noqa: F401
from vitbook_workshop.faults.checks_of_parts import _same_map as same_map  # noqa: F401
from vitbook_workshop.faults.checks_of_parts import _shake as shake
from vitbook_workshop.faults.checks_of_parts import _small_config as small_config
from vitbook_workshop.faults.checks_of_parts import _transformer_and_words as transformer_and_words  # noqa: F401
from vitbook_workshop.faults.checks_of_parts import _unequal_batches as unequal_batches  # noqa: F401


def backbone(**changes) -> VisionTransformer:
    """A small Vision Transformer in float64, in evaluation, of which every weight counts."""
    return shake(VisionTransformer(small_config(**changes))).double().eval()


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


def resizing_equals_zoom(resize: Callable) -> None:
    """Google's own resizing, scipy's zoom of order 1, on grids that are not square; the class row stays."""
    for prefix, new in ((1, (4, 7)), (0, (3, 3)), (2, (5, 2))):
        table = torch.randn(1, prefix + N, D)
        got = resize(table, GRID, new, prefix, mode="bilinear", align_corners=True, antialias=False)
        factors = (new[0] / GRID[0], new[1] / GRID[1], 1)
        expected = torch.from_numpy(zoom(table[0, prefix:].view(*GRID, D).numpy(), factors, order=1))
        assert torch.equal(got[:, :prefix], table[:, :prefix])
        close(got[0, prefix:], expected.flatten(0, 1))

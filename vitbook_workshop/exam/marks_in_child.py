"""Somebody's own method, in the process that `marks.examine` starts for it: called image by image, and marked."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vitbook.attribution import Classes, Maps
from vitbook.patches import Images
from vitbook.vit import VisionTransformer
from vitbook_workshop.exam.sittings import SITTINGS, graded, sitting
from vitbook_workshop.faults.diagnose_in_child import module_at
from vitbook_workshop.faults.whose_error import in_one_line


def examine_here(tell: Callable[..., None], target: str, scenes: int) -> None:
    """Mark a function (model, image, class) → map (rows, columns) in each sitting; tell the marks, or what is wrong."""
    try:
        tell(doing=f"importing {target}")
        explain = _function(target)
        for name in SITTINGS:
            tell(doing=f"marking {name}")
            asked = sitting(name, scenes)
            method = _Watched(explain, f"{target}, {name}")
            tell(**{name: graded(method, asked) | {"constant": method.constant}})
    except (Exception, SystemExit) as error:
        tell(error=str(error) if isinstance(error, ValueError) else f"{target} stops with {in_one_line(error)}")


def _function(target: str) -> Callable[..., Any]:
    place, _, name = target.rpartition(":")
    try:
        module = module_at(place)
    except (Exception, SystemExit) as error:
        raise ValueError(f"importing {place} stops with {in_one_line(error)}") from None
    explain = getattr(module, name, None)
    if not callable(explain):
        raise ValueError(f"{place} has no function {name}")
    return explain


class _Watched:
    """A stranger's function as a method: what it gives is looked at, and so is what it leaves of the model."""

    def __init__(self, explain: Callable[..., Any], where: str):
        self.explain, self.where, self.constant = explain, where, 0.0

    def __call__(self, model: VisionTransformer, images: Images, classes: Classes) -> Maps:
        """Raises ValueError for a map of another grid or kind, for nan, and for a changed model."""
        before, maps = _state(model), []
        with torch.no_grad():
            expected = model(images[:1]).clone()
        for image, label in zip(images, classes.tolist(), strict=True):
            try:
                given = self.explain(model, image.clone(), label)
            except (Exception, SystemExit) as error:
                raise ValueError(f"{self.where}: it stops with {in_one_line(error)}") from None
            maps.append(self._checked(given, model.embedding.grid, len(maps)))
            if len(maps) in (1, len(images)):
                self._check_unchanged(model, before)
        with torch.no_grad():
            if not torch.equal(model(images[:1]), expected):
                raise ValueError(f"{self.where}: it changed what the model computes: remove your hooks after each call")
        found = torch.stack(maps)
        flat = found.flatten(1)
        self.constant = (flat.amax(dim=1) == flat.amin(dim=1)).double().mean().item()
        return found

    def _checked(self, given: Any, grid: tuple[int, int], number: int) -> Tensor:
        if not isinstance(given, (Tensor, np.ndarray, list)):
            raise ValueError(f"{self.where}: it must return a map as a tensor or array, got {type(given).__name__}")
        values = torch.as_tensor(given).detach().double()
        if tuple(values.shape) != grid:
            raise ValueError(f"{self.where}: its map must have the shape {grid}, got {tuple(values.shape)}")
        if not values.isfinite().all():
            raise ValueError(f"{self.where}: its map of scene {number} is not finite")
        return values

    def _check_unchanged(self, model: nn.Module, before: dict[str, Any]) -> None:
        after = _state(model)
        for name, was in before.items():
            if not (torch.equal(after[name], was) if isinstance(was, Tensor) else after[name] == was):
                raise ValueError(f"{self.where}: it changed the model's {name}: work on a copy, or put it back")


def _state(model: nn.Module) -> dict[str, Any]:
    """All that a model should be afterwards as it was before."""
    state = copy.deepcopy(model.state_dict())
    return state | {f"{name or 'whole'} training mode": module.training for name, module in model.named_modules()}

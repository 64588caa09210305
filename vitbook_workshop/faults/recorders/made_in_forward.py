"""Numbers in a forward pass that neither an image nor a parameter made: drawn at random there, or constant."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vitbook_workshop.faults.recorders.operations import OperationWatch

DRAWN = {"rand", "randn", "rand_like", "randn_like", "normal", "normal_", "uniform_", "randint", "randint_like",
         "randperm", "exponential_", "multinomial"}  # fmt: skip
DROPPED = {"bernoulli", "bernoulli_", "native_dropout"}
COMPARED = {"lt", "gt", "le", "ge", "lt_", "gt_", "floor", "floor_"}  # what makes a mask of random numbers
CREATED = {"zeros_like", "ones_like", "full_like", "empty_like", "new_zeros", "new_ones", "new_full", "new_empty"}
JOINED = {"cat", "stack", "copy_", "slice_scatter"}
ADDED = {"add", "add_", "sub", "sub_"}
MULTIPLIED = {"mm", "bmm", "addmm", "baddbmm", "matmul", "convolution"}


@dataclass(eq=False)
class Met:
    """Numbers that meet those of the image or of a parameter."""

    how: str  # "token", "table", "map", "dropout" or "noise"
    drawn: bool  # at random, in this forward pass; else constant
    numbers: Tensor
    learned_places: bool = False  # of a token: learned positions are added after it was put in front


class ForwardWatch(OperationWatch):
    """Inside `with ForwardWatch(images) as watch`, watch.met has what comes from nowhere.

    until_attention: look no further than the first softmax or fused attention. Where a number is from is known by its
    storage, which views share.
    """

    def __init__(self, images: Tensor, until_attention: bool = False):
        super().__init__()
        self.until_attention, self.over = until_attention, False
        self.met: list[Met] = []
        self._images, self._drawn = {storage(images)}, {}  # storage → "numbers" or "mask"
        self._kept: list = []  # so that no other tensor takes over a storage

    def see(self, name: str, given: list[Tensor], args: tuple, named: dict[str, Any], result: Any) -> None:
        self.over |= self.until_attention and ("softmax" in name or name.startswith("_scaled_dot"))
        if not self.over:
            results = [x for x in (result if isinstance(result, tuple | list) else [result]) if isinstance(x, Tensor)]
            self._look(name, given, named, results)
            self._kept += results

    def _look(self, name: str, given: list[Tensor], named: dict, results: list[Tensor]) -> None:
        if name in CREATED:
            return
        if name in DROPPED or named.get("dropout_p"):
            if name != "bernoulli_" and given:
                self.met.append(Met("dropout", True, results[0]))
            self._drawn |= dict.fromkeys(map(storage, results), "mask")
            return
        if name in DRAWN:
            self._drawn |= dict.fromkeys(map(storage, results), "numbers")
            return
        drawn = [x for x in given if storage(x) in self._drawn]
        of_images = [x for x in given if storage(x) in self._images and storage(x) not in self._drawn]
        live = of_images + [x for x in given if x.requires_grad and not any(x is y for y in drawn)]
        if drawn and live:
            mask = "mask" in {self._drawn[storage(x)] for x in drawn}
            self.met.append(Met("dropout" if mask else _how(name, live[0]), True, max(drawn, key=lambda x: x.ndim)))
            for x in drawn:
                self._drawn.pop(storage(x), None)
        elif drawn:
            mask = name in COMPARED or "mask" in {self._drawn[storage(x)] for x in drawn}
            self._drawn |= dict.fromkeys(map(storage, results), "mask" if mask else "numbers")
            return
        if of_images:
            self._images |= set(map(storage, results))
            if not drawn:
                self._meet(name, given, of_images[0], named)

    def _meet(self, name: str, given: list[Tensor], x: Tensor, named: dict) -> None:
        """A constant that is put before the tokens x, or a table that is added to them."""
        known = [y.requires_grad or storage(y) in self._images or storage(y) in self._drawn for y in given]
        if name == "cat" and x.ndim == 3 and named.get("dim", 0) % 3 != 2 and not known[0]:
            self.met.append(Met("token", False, given[0]))
        elif name == "constant_pad_nd" and x.ndim == 3 and tuple(named["pad"]) == (0, 0, 1, 0):
            self.met.append(Met("token", False, x.new_zeros(1, 1, x.shape[-1])))
        elif name in ADDED and len(given) == 2:
            other = given[0] if given[1] is x else given[1]
            if other.ndim > 1 and other.shape[-2:] == x.shape[-2:] and min(x.shape[-2:]) > 1:
                if other.requires_grad:
                    for met in self.met:
                        met.learned_places |= met.how == "token"
                elif not all(known):
                    self.met.append(Met("table", False, other))


def _how(name: str, other: Tensor) -> str:
    """What drawn numbers are that an operation brings together with others: images (B, C, H, W), or tokens."""
    if name in ADDED:
        return "noise" if other.ndim == 4 else "table"
    return "token" if name in JOINED else "map" if name in MULTIPLIED else "noise"


def storage(x: Tensor) -> int:
    """What tells whether two tensors are views of the same numbers; nested or sparse ones have no such thing."""
    try:
        return x.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):
        return id(x)


def drawn_in_forward(model: nn.Module, images: Tensor) -> list[Met]:
    """What a model draws at random in a forward pass."""
    with torch.random.fork_rng(), ForwardWatch(images) as watch:
        model(images)
    return [met for met in watch.met if met.drawn]


def looks_like_noise(table: Tensor) -> bool:
    """Whether a table (…, places, D) or (…, D, rows, columns) was drawn at random, or is 0.

    Sines and cosines have rows of one length; coordinates, and what is made of them, change little from row to row.
    """
    table = table.detach().float()
    table = table.reshape(-1, *table.shape[-2:])
    if table.shape[0] > 1 and (table - table[:1]).abs().max() > 0:  # channels first
        table = table.flatten(1)[None]
    if not table.any():
        return True
    return all(_rows_are_noise(rows) for rows in (table[0], table[0].mT))


def _rows_are_noise(rows: Tensor) -> bool:
    lengths = rows.norm(dim=-1)
    lengths = lengths[lengths > 0]
    spread = (rows - rows.mean(dim=0)).square().mean()
    steps = rows.diff(dim=0).square().mean() / (2 * spread)
    return bool(lengths.std() > 1e-3 * lengths.mean() and spread > 0 and steps > 0.5)

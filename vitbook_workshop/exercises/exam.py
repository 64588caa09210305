"""The exercises of chapters/28_exam.ipynb."""

import inspect
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from vitbook.attribution import in_pixels, precision_at_k
from vitbook_workshop.exam.methods import rolled_out
from vitbook_workshop.exam.sittings import Sitting, graded, sitting
from vitbook_workshop.exercises.grader.inputs import normal
from vitbook_workshop.exercises.grader.judging import Exercise, Refused

CHAPTER = "28_exam"

chance = Exercise(
    1 / 18,
    "each of the two highest patches is one of the two in the key with probability 2/36.",
    level="easy",
) | {
    "That is the chance that both of the two are right.": 2 / 36 * 1 / 35,
    "That is the chance that at least one of the two is right.": 1 - 34 * 33 / (36 * 35),
    "That is the chance of one patch among 36, for a key of one.": 1 / 36,
}


def _precision(maps: Tensor, key: Tensor, least: int = 0, whole: bool = False) -> Tensor:
    """Share of the highest patches that are in the key; least: how many there are at least."""
    shares = []
    for values, right in zip(maps.flatten(1), key.flatten(1), strict=True):
        k = max(int(right.sum()), least)
        hits = right[values.topk(k).indices].double()
        shares.append(hits.prod() if whole else hits.mean())
    return torch.stack(shares)


def _maps_and_keys(g: torch.Generator) -> list[tuple]:
    shapes = [(4, 3, 5), (3, 2, 4), (5, 4, 3)]
    keys = [torch.rand(shape, generator=g).flatten(1).argsort(dim=1).view(shape) for shape in shapes]
    counts = [torch.arange(1, len(key) + 1).view(-1, 1, 1) for key in keys]
    return [(normal(g, *key.shape), key < count) for key, count in zip(keys, counts, strict=True)]


precision = Exercise(
    lambda maps, key: precision_at_k(maps, key).double(),
    "k is the number of patches in an image's own key; count how many of the k highest are among them.",
    _maps_and_keys,
) | {
    "You always count the two highest. k is the size of each image's own key.": lambda maps, key: torch.stack(
        [
            right[values.topk(2).indices].double().mean()
            for values, right in zip(maps.flatten(1), key.flatten(1), strict=True)
        ]
    ),
    "That is 1 only where the whole key comes first. A part of it counts, too.": lambda m, k: _precision(m, k, 0, True),
    "You take the lowest patches.": lambda maps, key: _precision(-maps, key),
}


def _to_pixels(weights: Tensor, rows: int, columns: int, side: int, first: int = 1, shift: int = 0) -> Tensor:
    """The class token's row as an image; first: the column of the first patch; shift: in pixels, right and down."""
    values = weights[0, first : first + rows * columns].view(1, rows, columns)
    return in_pixels(values, (rows * side, columns * side))[0].roll((shift, shift), dims=(0, 1))


def _rows_of_weights(g: torch.Generator) -> list[tuple]:
    sizes = [(3, 5, 4), (2, 4, 6), (4, 3, 2)]
    return [(normal(g, 1 + r * c, 1 + r * c).softmax(dim=-1), r, c, side) for r, c, side in sizes]


pixels = Exercise(
    _to_pixels,
    "row 0 without its column 0 holds the patches, row by row; each patch's number stands at all of its side² pixels.",
    _rows_of_weights,
    kind="repair",
) | {
    "The class token's own column is kept: every patch has moved one place on.": lambda *given: _to_pixels(
        *given, first=0
    ),
    "Your map is shifted by half a patch.": lambda w, r, c, side: _to_pixels(w, r, c, side, shift=side // 2),
    (
        "The class token's own column is kept: every patch has moved one place on.",
        "Your map is shifted by half a patch.",
    ): (lambda w, r, c, side: _to_pixels(w, r, c, side, first=0, shift=side // 2)),
}


def _carried(here: Tensor, there: Tensor, head: int, token: int) -> Tensor:
    """One head's output for one token, (B, h, T, D_h), from another run."""
    mixed = here.clone()
    mixed[:, head, token] = there[:, head, token]
    return mixed


carry = Exercise(
    _carried,
    "copy the run's own tensor, then set [:, head, token] to what the other run has there.",
    lambda g: [
        (normal(g, b, h, t, d), normal(g, b, h, t, d), head, token)
        for b, h, t, d, head, token in ((2, 4, 5, 3, 1, 4), (3, 2, 7, 4, 0, 2), (1, 3, 4, 2, 2, 1))
    ],
) | {
    "You carry the whole head, all its tokens.": lambda a, b, head, token: torch.stack(
        [b[:, i] if i == head else a[:, i] for i in range(a.shape[1])], dim=1
    ),
    "You carry the token in all of its heads.": lambda a, b, head, token: torch.stack(
        [b[:, :, i] if i == token else a[:, :, i] for i in range(a.shape[2])], dim=2
    ),
    "You carry it the other way round.": lambda a, b, head, token: _carried(b, a, head, token),
}


@cache
def _asked() -> tuple[Sitting, float]:
    """Forty scenes of compare, and rollout's mark there."""
    asked = sitting("compare", 40, seed=4_000_000)
    return asked, graded(rolled_out, asked)["precision"][0]


def _beats_rollout(attempt: Callable) -> Callable:
    """Called with nothing, gives 1 where the maps of a function (model, image, class) have the better mark."""
    if len(inspect.signature(attempt).parameters) != 3:
        return attempt

    def mark() -> float | None:
        asked, least = _asked()
        maps = []
        for image, label in zip(asked.images, asked.classes.tolist(), strict=True):
            given = attempt(asked.model, image.clone(), label)
            if given is None:
                return given
            maps.append(torch.as_tensor(given).detach().double())
            if maps[-1].shape != (6, 6):
                raise Refused(f"a map must have the shape (6, 6), got {tuple(maps[-1].shape)}")
        found = precision_at_k(torch.stack(maps), asked.key).mean().item()
        if found <= least:
            raise Refused(f"precision at k {found:.2f} on 40 scenes of compare, and rollout has {least:.2f}")
        return 1.0

    return mark


better = Exercise(
    lambda: 1.0,
    "hide one patch at a time, and take as its number by how much the logit of the class falls.",
    level="hard",
    kind="write",
    adapt=_beats_rollout,
)

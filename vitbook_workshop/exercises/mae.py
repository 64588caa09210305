"""The exercises of chapters/22_mae.ipynb."""

import torch
from torch import Tensor

from vitbook import mae
from vitbook_workshop.exercises.grader.inputs import normal, random_order
from vitbook_workshop.exercises.grader.judging import Exercise, Personal
from vitbook_workshop.faults.mistakes import procedures as wrong

CHAPTER = "22_mae"


def _orders(generator: torch.Generator, batch: int, length: int) -> Tensor:
    """Orders that are not their own inverse, (B, N)."""
    return torch.stack([random_order(generator, length) for _ in range(batch)])


def _back(order: Tensor) -> Tensor:
    """The place of each patch in the shuffled order."""
    return order.argsort(dim=1)


def _predictions(generator: torch.Generator, batch: int, patches: int, numbers: int) -> tuple[Tensor, Tensor, Tensor]:
    """Painted patches, targets, and which were hidden: as many in each image."""
    hidden = _orders(generator, batch, patches) >= 2
    return normal(generator, batch, patches, numbers), normal(generator, batch, patches, numbers), hidden


def _masks_first(visible: Tensor, mask_token: Tensor, restore: Tensor) -> Tensor:
    """The mask tokens before the visible ones."""
    missing = restore.shape[1] - visible.shape[1]
    shuffled = torch.cat([mask_token.expand(len(visible), missing, -1), visible], dim=1)
    return shuffled.gather(1, restore[..., None].expand(-1, -1, visible.shape[-1]))


def _visible(side: int, hidden: int) -> Exercise:
    patches = (side // 16) ** 2
    seen = patches * (100 - hidden) // 100
    hint = f"how many patches has an image of {side} pixels, and which share of them is left?"
    return Exercise(seen, hint, level="easy") | {
        "That is how many are hidden.": patches - seen,
        "That is the length of the whole sequence, less the class token.": patches,
        "The class token is no patch.": seen + 1,
    }


visible = Personal(
    dict(side=(224, 192, 256, 384), hidden=(75, 25)),
    lambda side, hidden: (
        f"An image of {side}×{side} pixels is cut into patches of 16, and {hidden} % of them are hidden."
    ),
    _visible,
).exercise()

back = Exercise(
    _back,
    "restore[order[i]] must be i: sort the order.",
    lambda g: [(_orders(g, b, n),) for b, n in ((2, 5), (3, 7))],
    level="easy",
) | {
    wrong.argsort_applied_once: lambda order: order,
    "You read the order backwards. The inverse says for every patch where it went.": lambda order: order.flip(1),
}

loss = Exercise(
    mae.masked_loss,
    "one error for each patch, (B, N): the mean over its numbers. Then the mean over the hidden patches alone.",
    lambda g: [_predictions(g, 2, 5, 3), _predictions(g, 3, 7, 4)],
    gradients=True,
) | {
    wrong.loss_of_all_patches: wrong.loss_of_all_patches,
    "You count the visible patches and leave out the hidden ones.": (
        lambda predicted, targets, hidden: mae.masked_loss(predicted, targets, ~hidden)
    ),
    "Your sum is over the hidden patches, and you divide it by the number of all.": (
        lambda predicted, targets, hidden: ((predicted - targets).square().mean(dim=-1) * hidden).mean()
    ),
    "You take the sum over the numbers of a patch, not their mean.": (
        lambda predicted, targets, hidden: (predicted - targets).square().sum(dim=-1)[hidden].mean()
    ),
}

fill = Exercise(
    mae.add_mask_tokens,
    "append the mask tokens to the visible ones, then take for every patch the row at its place, with gather.",
    lambda g: [
        (normal(g, b, v, d), normal(g, 1, 1, d), _orders(g, b, n)) for b, v, n, d in ((2, 2, 5, 3), (3, 3, 7, 4))
    ],
    gradients=True,
    level="hard",
) | {
    "The mask tokens stand at the end: you have not led the patches back to their places.": (
        lambda visible, mask_token, restore: mae.add_mask_tokens(
            visible, mask_token, torch.arange(restore.shape[1]).expand_as(restore)
        )
    ),
    "You put the mask tokens first; the visible patches have the first places of the order.": _masks_first,
    wrong.argsort_applied_once: lambda visible, mask_token, restore: mae.add_mask_tokens(
        visible, mask_token, restore.argsort(dim=1)
    ),
}

"""The exercises of chapters/06_patches.ipynb."""

from einops import rearrange

from vitbook import patches
from vitbook_workshop.exercises.grader.inputs import normal
from vitbook_workshop.exercises.grader.judging import Exercise, Personal
from vitbook_workshop.exercises.my_vit.components import COMPONENTS
from vitbook_workshop.faults.mistakes import parts as wrong

CHAPTER = "06_patches"


def _rearranged(order):
    return lambda x, patch_size: rearrange(x, order, p=patch_size, q=patch_size)


patchify = Exercise(
    patches.patchify,
    "order the six axes as b, row of patches, column of patches, channel, pixel row, pixel column; then join.",
    lambda g: [(normal(g, 2, 3, 8, 12), 4), (normal(g, 1, 2, 15, 10), 5), (normal(g, 3, 1, 4, 6), 2)],
) | {
    wrong.view_without_permute: wrong.view_without_permute,
    wrong.channels_last_in_a_patch: wrong.channels_last_in_a_patch,
    "Your patches run down the grid. Count them along its rows.": _rearranged("b c (h p) (w q) -> b (w h) (c p q)"),
    "Pixel rows and columns are exchanged in your patches.": _rearranged("b c (h p) (w q) -> b (h w) (c q p)"),
    "You exchange no axes: reshape into six, permute, then join.": _rearranged("b c (h p) (w q) -> b c h p w q"),
}


def _ratio(trained: int, used: int) -> Exercise:
    old, new = trained // 16, used // 16
    exact = (new / old) ** 4
    return Exercise(
        exact,
        "count the patches of both images, without a class token; the weights are their squares. Do not round.",
        tolerance=1e-9,
    ) | {
        "That is the ratio of the numbers of patches. Each patch has a weight for every patch.": (new / old) ** 2,
        "That is the ratio of the sides.": new / old,
        "That counts a class token. Only weights between patches count.": ((new**2 + 1) / (old**2 + 1)) ** 2,
        "That is the old number over the new one.": 1 / exact,
        "That is rounded. Give the exact ratio, as a power of a fraction.": round(exact, 2),
    }


ratio = Personal(
    dict(trained=(224, 192, 208), used=(384, 352, 448, 512)),
    lambda trained, used: (
        f"A model with patches of 16 pixels was trained on images of {trained}×{trained} and is used on images of "
        f"{used}×{used}. By what factor does the number of attention weights between patches (no class token) grow in "
        "each head? Give the exact ratio, not a rounded one."
    ),
    _ratio,
).exercise()

kernel = Exercise(
    lambda weight, patch_size: rearrange(weight, "D (p q c) -> D c p q", p=patch_size, q=patch_size),
    "the columns run over row, column, channel: cut them so, then move the channel to the front.",
    lambda g: [(normal(g, 5, 48), 4), (normal(g, 4, 18), 3), (normal(g, 3, 8), 2)],
    level="hard",
) | {
    "You cut the columns into (c p q). Cut (p q c), then move the channel.": _rearranged("D (c p q) -> D c p q"),
    "Pixel rows and columns are exchanged.": _rearranged("D (p q c) -> D c q p"),
    "The channel is the last axis. A convolution's weight is (D, C, P, P).": _rearranged("D (p q c) -> D p q c"),
}

PatchEmbedding = COMPONENTS["PatchEmbedding"]

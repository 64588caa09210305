"""The exercises of chapters/20_speed.ipynb."""

import torch

from vitbook.attention import attention, attention_weights
from vitbook_workshop.exercises.grader.inputs import normal
from vitbook_workshop.exercises.grader.judging import Exercise, Personal

CHAPTER = "20_speed"


def _flops(x, maps=24, products=4):
    """B(maps · TD² + products · T²D) for tokens (B, T, D)."""
    batch, tokens, dim = x.shape
    return batch * (maps * tokens * dim**2 + products * tokens**2 * dim)


block = Exercise(
    _flops,
    "the four maps of the attention, the two of the MLP, and two products whose cost grows with T².",
    lambda g: [(normal(g, 2, 5, 12),), (normal(g, 3, 40, 8),), (normal(g, 4, 10, 6),)],
    tolerance=1e-12,
    level="easy",
) | {
    "You count a multiply-add as one operation.": lambda x: _flops(x, 12, 2),
    "You leave out QKᵀ and ·V.": lambda x: _flops(x, 24, 0),
    "You count one of the two products QKᵀ and ·V.": lambda x: _flops(x, 24, 2),
    "You leave out W_O, or one of Q, K and V.": lambda x: _flops(x, 22, 4),
    "You count a single image.": lambda x: _flops(x[:1]),
    "You take the whole batch for one sequence.": lambda x: _flops(x.flatten(0, 1)[None]),
}

_NAMED = {384: "S", 192: "Ti", 768: "B", 1024: "L"}


def _tokens(width: int) -> Exercise:
    return Exercise(4 * width, "set the two products, 4T²D, equal to the MLP's two maps, 16TD².") | {
        "That is where they cost as much as the attention's four maps.": 2 * width,
        "That is where they cost as much as all six maps of the block.": 6 * width,
        "That sets one of the two products equal to the MLP.": 8 * width,
    }


tokens = Personal(
    dict(width=tuple(_NAMED)),
    lambda width: f"ViT-{_NAMED[width]} is {width} wide and its MLP four times as wide.",
    _tokens,
).exercise()

_WORDS = {8: "eight", 4: "four", 16: "sixteen"}


def _bytes(pixels: int, images: int) -> Exercise:
    patches = (pixels // 16) ** 2
    each = images * 12 * 2 * (patches + 1) ** 2  # of a block
    return Exercise(12 * each, "images · blocks · heads · T² · bytes, where T counts the class token.") | {
        "That leaves out the class token.": images * 12 * 12 * patches**2 * 2,
        "That is for one block, or for one head of each.": each,
        "That is for one image.": 12 * each // images,
        "bfloat16 has two bytes, not four.": 24 * each,
    }


bytes = Personal(
    dict(pixels=(384, 448, 512), images=tuple(_WORDS)),
    lambda pixels, images: f"images of {pixels} pixels, {_WORDS[images]} in a batch",
    _bytes,
).exercise()


def _rising_and_falling(g):
    """Scores up to 4000 and down to 0, by 1000 a key: their exponentials overflow. Whole, for float32."""
    q, k = normal(g, 3, 4).round(), normal(g, 9, 4).round()
    q[:, 0], k[:, 0] = 50, 160 - 40 * (torch.arange(9) - 4).abs()
    return q, k, normal(g, 9, 6), 4


streaming = Exercise(
    lambda q, k, v, size: attention(q, k, v)[0],
    "where the maximum grows from m to m', multiply both sums by exp(m − m'), that of the exponentials and that of "
    "the values; divide at the end.",
    lambda g: (
        [
            (normal(g, t, d), 4 * normal(g, s, d), normal(g, s, w), size)
            for t, s, d, w, size in ((3, 10, 4, 5, 4), (5, 12, 7, 2, 3), (2, 9, 6, 8, 16))
        ]
        + [_rising_and_falling(g)]
    ),
    level="hard",
) | {
    "Your softmax ends with each stretch of keys. It has to run over all of them.": (
        lambda q, k, v, size: sum(attention(q, *part)[0] for part in zip(k.split(size), v.split(size), strict=True))
    ),
    "You use the last stretch of keys alone.": lambda q, k, v, n: attention(q, k.split(n)[-1], v.split(n)[-1])[0],
    "Your scores are not divided by √d.": lambda q, k, v, size: attention_weights(q @ k.mT) @ v,
    "Your exponentials overflow: subtract the largest score so far.": lambda q, k, v, size: (
        (weights := (q @ k.mT / q.shape[-1] ** 0.5).exp()) @ v / weights.sum(dim=-1, keepdim=True)
    ),
}

"""The master drawing: the whole Vision Transformer, with the part lit that a chapter is about."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple

from vitbook_workshop.drawings.svg import TINTS, Drawing, Point

Lit = Callable[[str], AbstractContextManager]  # a context that mutes a part unless it is lit


class _Place(NamedTuple):
    """Where "you are here" can be."""

    name: str
    frame: tuple[float, float, float, float]  # x, y, width, height
    lit: tuple[str, ...]  # from the outside in


PLACES = {
    "patches": _Place("the image and its patches", (8, 24, 88, 104), ("patches",)),
    "embedding": _Place("the class token and the positions", (112, 24, 88, 104), ("embedding",)),
    "block": _Place("the encoder block", (8, 152, 344, 92), ("encoder", "block", "mlp", "attention")),
    "mlp": _Place("the MLP inside the encoder block", (256, 162, 64, 44), ("encoder", "mlp")),
    "attention": _Place(
        "attention inside the encoder block", (8, 268, 344, 88), ("encoder", "attention", "qkv", "match", "merge")
    ),
    "match": _Place(
        "the match of queries with keys, and the softmax", (130, 276, 142, 44), ("encoder", "attention", "match")
    ),
    "qkv": _Place(
        "the step from tokens to queries, keys and values", (16, 276, 106, 72), ("encoder", "attention", "qkv")
    ),
    "heads": _Place("the place where the heads are merged", (290, 312, 58, 40), ("encoder", "attention", "merge")),
    "head": _Place("the classification head", (290, 24, 62, 72), ("head",)),
}

PARTS = {  # name → words, and where a press on it goes: at least 30 units each way, 24 pixels on a small phone
    "patches": ("the patches", (12, 28, 80, 98)),
    "tokens": ("the tokens", (114, 28, 82, 98)),
    "block": ("the encoder block", (204, 28, 78, 108)),
    "logits": ("the head: the logits", (296, 28, 54, 46)),
    "answer": ("the answer: the probabilities", (296, 74, 54, 30)),
    "norm1": ("the LayerNorm before attention", (46, 166, 36, 36)),
    "attention": ("attention: what it adds", (94, 166, 80, 36)),
    "sum": ("the first sum", (171, 211, 30, 30)),
    "norm2": ("the LayerNorm before the MLP", (214, 166, 36, 36)),
    "mlp": ("the MLP: what it adds", (262, 166, 52, 36)),
    "end": ("the second sum", (315, 211, 30, 30)),
    "entering": ("the tokens that enter attention", (18, 276, 30, 72)),
    "queries": ("the queries Q", (76, 267, 48, 30)),
    "keys": ("the keys K", (76, 297, 48, 30)),
    "values": ("the values V", (76, 327, 48, 30)),
    "scores": ("the scores q·k", (134, 280, 52, 36)),
    "weights": ("the softmax: weights", (196, 280, 72, 36)),
    "blend": ("the blended values", (261, 321, 30, 30)),
    "heads": ("the heads, merged", (294, 316, 54, 36)),
}


def vit(here: str | None = None) -> Drawing:
    """The Vision Transformer in three rows: the model, one encoder block, attention.

    here: what is lit, one of `PLACES`; all of it if None.
    """
    if here is not None and here not in PLACES:
        raise ValueError(f"here must be None or one of {', '.join(PLACES)}, got {here!r}")
    alt = (
        "The Vision Transformer in three rows. First the model, left to right: a photograph cut into patches; a column "
        "of tokens, the class token on top, each with its position; L encoder blocks; a head that answers. Below it, "
        "one block: a line of tokens with two detours, through attention and through the MLP, each added back. Below "
        "that, attention: tokens become queries, keys and values; queries meet keys; a softmax; heads are merged."
    )
    title = f"You are here: {PLACES[here].name}" if here else "The Vision Transformer"
    alt += f" {title}." if here else ""
    d = Drawing(364, title, alt, on_screen=420 if here else 540)  # smaller at the head of a chapter

    def lit(part: str):
        return d.muted(here is not None and part not in PLACES[here].lit)

    _zoom(d, (208, 104), (276, 104), 152)
    _zoom(d, (96, 200), (172, 200), 268)
    for y, height in ((152, 92), (268, 88)):
        d.box(8, y, 344, height, "muted", r=8)
    _model(d, lit)
    _block(d, lit)
    _attention(d, lit)
    if here:
        x, y, width, height = PLACES[here].frame
        d.outline(x, y, width, height, r=8)
        _pin(d, x + width - 12, y + 3)
    return d


def _zoom(d: Drawing, left: Point, right: Point, y: float) -> None:
    """A wedge of light from a box to the frame below, which is its inside."""
    points = " ".join(f"{a:g},{b:g}" for a, b in (left, right, (352, y), (8, y)))
    d.add("polygon", points=points, fill=d.color("muted"), fill_opacity=TINTS["muted"])


def _pin(d: Drawing, x: float, y: float) -> None:
    drop = f"M{x} {y}c-3-6-7-8-7-13a7 7 0 0 1 14 0c0 5-4 7-7 13Z"
    d.add("path", d=drop, fill=d.color("ink"), stroke=d.color("paper"), stroke_width=1.5)
    d.add("circle", cx=x, cy=y - 13, r=2.5, fill=d.color("paper"))


def _model(d: Drawing, lit: Lit) -> None:
    with lit("patches"):
        d.photo(16, 32, 72, 3)
        d.text(52, 121, "patches")
    with lit("embedding"):
        d.line((90, 68), (109, 68), arrow=True)
        for row in (0, 1, 2, 3, 5):
            d.box(120, 32 + 12 * row, 16, 12, "position", r=2)
            d.box(140, 32 + 12 * row, 52, 12, "token" if row else "class", r=2)
        d.text(156, 89, "⋮")
        d.text(156, 121, "tokens")
    with lit("encoder"):
        d.line((196, 68), (206, 68), arrow=True)
        for shift in (8, 4, 0):
            d.box(208 + shift, 32 + shift, 60, 72, words="encoder\nblock" * (shift == 0))
        d.text(242, 130, "$×L$")
    with lit("head"):
        d.line((278, 52), (296, 52), arrow=True, role="class")
        d.box(298, 32, 48, 40, words="LN\nhead")
        d.text(322, 88, "answer")


def _block(d: Drawing, lit: Lit) -> None:
    with lit("block"):
        d.text(16, 168, "block", anchor="start")
        d.line((20, 226), (344, 226), role="token", width=4, arrow=True)
        for start, norm, box, end in ((32, 48, 96, 186), (204, 216, 264, 330)):
            d.line((start, 226), (start, 184), (norm, 184), arrow=True)
            d.box(norm, 170, 32, 28, words="LN")
            d.line((norm + 32, 184), (box, 184), arrow=True)
            d.line((box + 40, 184), (end, 184), (end, 217), arrow=True)
            d.plus(end, 226)
    with lit("attention"):
        d.box(96, 170, 76, 28, words="attention")
    with lit("mlp"):
        d.box(264, 170, 48, 28, words="MLP")


def _attention(d: Drawing, lit: Lit) -> None:
    with lit("attention"):
        d.text(344, 287, "attention", anchor="end")
    with lit("qkv"):
        d.cells(26, 284, 4, 1, "token", 14)
        for row, role in enumerate(("query", "key", "value")):
            y = 288 + 24 * row
            d.line((44, 312), (78, y), arrow=True, role=role)
            d.box(80, y - 8, 20, 16, role, r=2)
            d.text(110, y + 5, f"${'QKV'[row]}$", role)
    with lit("match"):
        d.line((118, 288), (136, 294), arrow=True, role="query")
        d.line((118, 312), (136, 304), arrow=True, role="key")
        d.box(138, 284, 44, 28, words="$q·k$")
        d.line((184, 298), (198, 298), arrow=True)
        d.box(200, 284, 64, 28, words="softmax")
    with lit("merge"):
        d.line((118, 336), (267, 336), arrow=True, role="value")
        d.line((264, 298), (276, 298), (276, 326), arrow=True)
        d.box(268, 328, 16, 16, words="×", r=8)
        d.line((284, 336), (296, 336), arrow=True, role="value")
        d.box(298, 320, 46, 28, words="heads")

"""Each plot a second time for dark pages: its white paper becomes the page's, its ink chalk, and its pictures stay.

The PNG of a chapter's output says where its pictures and color scales stand (tools/figure_boxes.py). One that does not
say so stands on a white card.
"""

import json
import math
import re
from pathlib import Path

import numpy as np
from PIL import Image
from sphinx.application import Sphinx

from vitbook_workshop.drawings.palette import PALETTE

FIGURE = re.compile(r'<img (?![^>]*on-paper)(?P<rest>[^>]*\bsrc="(?P<path>[^"]*\b_images/[^"]+)\.png"[^>]*)>')


def on_slate(pixels: np.ndarray, boxes: list[list[int]]) -> np.ndarray:
    """A drawing on white as one on a dark page. (H, W, 3) floats, 0 to 1, in and out; boxes: what stays as it is.

    Each pixel is taken for some ink over white. Black ink becomes the page's own, and the darker a color, the more of
    that is added to it, so that a blue line is a lighter blue, and the edges of letters stay soft.
    """
    ink_color, paper = (
        np.array([int(PALETTE[role].dark[i : i + 2], 16) for i in (1, 3, 5)]) / 255 for role in ("ink", "paper")
    )
    amount = 1 - pixels.min(axis=2, keepdims=True)
    ink = (pixels - (1 - amount)) / np.maximum(amount, 1e-6)
    chalk = ink + (1 - ink.max(axis=2, keepdims=True)) * ink_color
    dark = (1 - amount) * paper + amount * chalk
    for left, top, right, bottom in boxes:
        dark[top:bottom, left:right] = pixels[top:bottom, left:right]
    return dark


def draw_twin(path: Path) -> bool:
    """Write NAME-dark.webp beside NAME.png, where the PNG knows its pictures; whether there is one now."""
    twin = path.with_name(f"{path.stem}-dark.webp")
    if not twin.exists():
        with Image.open(path) as image:
            if "Pictures" not in image.info:
                return False
            pixels = np.asarray(image.convert("RGB"), dtype=np.float64) / 255
            dark = on_slate(pixels, json.loads(image.info["Pictures"]))
        Image.fromarray((255 * dark).round().astype(np.uint8)).save(twin, lossless=True)
    return True


def is_chart(path: Path) -> bool:
    """Whether a plot is lines and letters rather than pictures: book.css keeps these legible on a phone."""
    with Image.open(path) as image:
        boxes = json.loads(image.info["Pictures"])
        return sum((right - left) * (bottom - top) for left, top, right, bottom in boxes) < 0.3 * math.prod(image.size)


def draw_twins(app: Sphinx, error: Exception | None) -> None:
    """Put beside each plot of every page its twin, of which book.css shows one."""
    if error or app.builder.format != "html":
        return
    for page in Path(app.outdir).rglob("*.html"):

        def with_twin(match: re.Match, folder: Path = page.parent) -> str:
            path = folder / f"{match['path']}.png"
            if not draw_twin(path):
                return match[0]
            light = "data-chart " * is_chart(path) + match["rest"]
            dark = light.replace(f"{match['path']}.png", f"{match['path']}-dark.webp")
            return f'<img class="on-paper" {light}><img class="on-slate" loading="lazy" {dark}>'

        html = page.read_text(encoding="utf-8")
        if (better := FIGURE.sub(with_twin, html)) != html:
            page.write_text(better, encoding="utf-8")


def setup(app: Sphinx) -> None:
    app.connect("build-finished", draw_twins)

"""The book's live figures: each a still in a notebook, and a page or a part of the site in which it computes."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image

from vitbook._common.files import ASSETS, write_whole
from vitbook._common.images import center_crop, decode_image
from vitbook.attention_maps import recorded_attention
from vitbook.data import digits
from vitbook.painting import Painter, on_the_path
from vitbook.pretrained import Pretrained, load_pretrained
from vitbook.training import keeping_modes
from vitbook.vit import CONFIGS, create_vit
from vitbook_workshop.book_address import chapters_address
from vitbook_workshop.drawings.palette import PALETTE, variables
from vitbook_workshop.live.bundles import NEEDS, delivered, scripts_for, source
from vitbook_workshop.live.figure_data import (
    album,
    data_address,
    packed_digits,
    packed_exam,
    packed_model,
    packed_places,
    packed_run,
    packed_vectors,
    recorded_run,
    vectors,
)

FIGURES = {  # each figure's chapter, and what its button says
    "ask": ("13_attention_maps", "Ask the model yourself"),
    "train": ("10_training", "Train it yourself"),
    "query": ("01_attention", "Move the query"),
    "scale": ("02_scale", "Change the width"),
    "patches": ("06_patches", "Change the size"),
    "places": ("07_embedding", "Choose a place"),
    "shares": ("12_data", "Train on fewer digits"),
    "steps": ("10_training", "Go through the run"),
    "paint": ("29_painting", "Train a painter"),
    "exam": ("28_exam", "Take the exam"),
}
SIDE = 240  # of the still, in pixels


@dataclass(frozen=True)
class LiveFigure:
    """A figure that computes in the reader's browser. In a notebook it is a still; `save` writes it as a page."""

    still: str = field(repr=False)  # HTML: what is there without scripts
    about: str
    parts: dict[str, str] = field(repr=False)  # name → the script that hands it over

    def _repr_html_(self) -> str:
        return self.still

    def save(self, path: str | Path) -> None:
        """Write it as a page of its own that any browser opens, from a folder too: whole, or not at all."""
        colors = f":root{{{variables('light')}}}@media(prefers-color-scheme:dark){{:root{{{variables('dark')}}}}}"
        scripts = "\n".join(f"<script>{script}</script>" for script in (source("live.js"), *self.parts.values()))
        page = (
            '<!DOCTYPE html>\n<html lang="en">\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            '<meta name="color-scheme" content="light dark">\n'
            f"<title>{escape(self.about)}</title>\n<style>{colors}"
            "body{max-width:60rem;margin:0 auto;padding:.5rem;font-family:system-ui,sans-serif;"
            "background:var(--vit-paper);color:var(--vit-ink)}</style>\n"
            f"<h1>{escape(self.about)}</h1>\n{self.still}\n{scripts}\n</html>\n"
        )
        write_whole(Path(path), page.encode())


def ask(model: str | Pretrained = "vitbook:cifar10", photographs: Sequence[dict] = ()) -> LiveFigure:
    """A model that answers in the page, on photographs or the reader's own, and can be interfered with.

    model: a name of weights in the package, whose figure the book's site starts; or any model of the package, with what
        `load_pretrained` says of it. Its `save` holds all weights: two bytes for each number, or four. A model without
        classes has no bars: what a change does is said by the cosine of its features with and without it.
    photographs: those to choose from, each from `photograph`; the album's where none are given.

    Raises ValueError as `packed_model`.
    """
    name = model.removeprefix("vitbook:") if isinstance(model, str) else ""
    trained = load_pretrained(model) if isinstance(model, str) else model
    photographs = list(photographs) or album()
    parts = scripts_for("ask", {"album": photographs, f"model-{name}": packed_model(trained)})
    config = trained.model.config
    about = f"Ask the model: {config.depth} blocks of {config.num_heads} heads"
    return LiveFigure(_ask_still(trained, name, photographs[0]), about, parts)


def train() -> LiveFigure:
    """A small Vision Transformer that learns the digits in the page, and reads one that the reader draws."""
    return LiveFigure(_train_still(), "Train a Vision Transformer", scripts_for("train", {"digits": packed_digits()}))


def paint() -> LiveFigure:
    """A small Vision Transformer that learns to paint the digits in the page, and then paints what it is asked for."""
    return LiveFigure(_paint_still(), "Train a painter", scripts_for("paint", {"digits": packed_digits()}))


def _paint_still() -> str:
    """A digit on its way from noise, in HTML."""
    image = digits().train.images[0].unsqueeze(0) / 127.5 - 1
    noise = torch.randn(image.shape, generator=torch.Generator().manual_seed(0))
    way = torch.cat([on_the_path(image, noise, torch.tensor([step / 9])) for step in range(10)])
    levels = ((way[:, 0].clamp(-1, 1) + 1) * 127.5).round().byte()
    picture = Image.fromarray(levels.permute(1, 0, 2).reshape(8, 80).numpy())
    picture = picture.resize((640, 64), Image.Resampling.NEAREST)
    parameters = sum(p.numel() for p in Painter(CONFIGS["vit_digits"]).parameters())
    says = (
        f"The way from noise to a digit. A Vision Transformer of {parameters:,} parameters can learn to go it in your "
        "browser."
    )
    alt = "Ten coarse gray images: random pixels on the left, from which a handwritten digit emerges to the right."
    return host("paint", "", f"<p>{_picture(picture, alt, 'PNG')}</p>\n<p>{says}</p>")


def exam() -> LiveFigure:
    """Scenes whose answer two patches decide: the reader looks for them, maps do, and heads are carried from twins."""
    packed = packed_exam()
    levels = np.frombuffer(base64.b64decode(packed["scenes"][0]["pixels"]), np.uint8).reshape(24, 24, 3)
    picture = Image.fromarray(levels).resize((240, 240), Image.Resampling.NEAREST)
    alt = "A gray noisy square with five small textured patches, one gray and four colored."
    still = (
        f"<p>{_picture(picture, alt, 'PNG')}</p>\n<p>One of the four colored patches has the gray patch's texture, and "
        "its color is the answer. Which two patches decide? Look for them, then see what three maps point at.</p>"
    )
    return LiveFigure(host("exam", "", still), "Which patches decide?", scripts_for("exam", {"scenes": packed}))


def shares() -> LiveFigure:
    """The digits' Vision Transformer, trained on 1, 5, 20 or 100 % of them in equally many steps, beside a baseline."""
    data = digits()
    ten = torch.stack([data.train.images[data.train.labels == label][0, 0] for label in range(10)])
    picture = Image.fromarray(ten.permute(1, 0, 2).reshape(8, 80).numpy()).resize((640, 64), Image.Resampling.NEAREST)
    still = (
        f"<p>{_picture(picture, 'Ten coarse gray images, one of each digit from 0 to 9.', 'PNG')}</p>\n"
        f"<p>One of each digit. How many of {len(data.test)} others can a Vision Transformer read that learned from "
        "these ten, and how many after 70, 287 or 1,437?</p>"
    )
    parts = scripts_for("shares", {"digits": packed_digits()})
    return LiveFigure(host("shares", "", still), "A share of the digits", parts)


def _train_still() -> str:
    """Some of the digits that are learned, in HTML."""
    data = digits()
    few = data.test.images[:20, 0].reshape(2, 10, 8, 8).permute(0, 2, 1, 3).reshape(16, 80)
    picture = Image.fromarray(few.numpy()).resize((640, 128), Image.Resampling.NEAREST)
    says = (
        f"{len(data.train):,} digits to learn from and {len(data.test)} to be judged by: a Vision Transformer of "
        f"{sum(p.numel() for p in create_vit('vit_digits').parameters()):,} parameters can learn them in your browser."
    )
    alt = "Two rows of ten coarse gray images of handwritten digits, white on black."
    return host("train", "digits", f"<p>{_picture(picture, alt, 'PNG')}</p>\n<p>{says}</p>")


def query() -> LiveFigure:
    """A query to be dragged among four keys in the plane: scores, weights and the blended answer follow."""
    arrows = "".join(
        f'<line x1="0" y1="0" x2="{x}" y2="{y}" stroke="var(--vit-{kind}, {PALETTE[kind].light})" stroke-width="3"/>'
        for kind, x, y in [("key", 36, 0), ("key", 0, -36), ("key", -36, 0), ("key", 0, 36), ("query", 72, -36)]
    )
    still = (
        '<p><svg viewBox="-80 -45 160 90" width="320" height="180" role="img" aria-label="Four short arrows, the keys, '
        f'point right, up, left and down; a longer one, the query, points to the right and a little up.">{arrows}</svg>'
        "</p>\n<p>Four keys stand in the plane, with the values 0, 10, 20 and 30. A query among them gives each a "
        "weight, and the answer is the blend.</p>"
    )
    return LiveFigure(host("query", "", still), "A query among four keys", scripts_for("query"))


def scale() -> LiveFigure:
    """A query and eight keys whose width is chosen: their scores and weights, with and without √d."""
    query, *keys = vectors()[:, :64] / 32
    scores = torch.stack(keys) @ query
    bars = "".join(
        f'<rect x="{left}" y="{12 * i}" width="{120 * weight + 1:.1f}" height="9" '
        f'fill="var(--vit-{kind}, {PALETTE[kind].light})"/>'
        for left, kind, weights in [(0, "muted", scores), (150, "key", scores / 8)]
        for i, weight in enumerate(weights.softmax(dim=0).tolist())
    )
    alt = "Two columns of eight bars: on the left two have nearly all the length, on the right each has some."
    still = (
        f'<p><svg viewBox="0 0 280 96" width="420" height="144" role="img" aria-label="{alt}">{bars}</svg></p>\n'
        "<p>The weights of eight keys for one query, at a width of 64: softmax(q·k) on the left, softmax(q·k/√d) on "
        "the right. What do other widths do to both?</p>"
    )
    parts = scripts_for("scale", {"vectors": packed_vectors()})
    return LiveFigure(host("scale", "", still), "The width, and the softmax", parts)


def patches() -> LiveFigure:
    """A photograph cut into patches whose size is chosen: how many tokens, and how many numbers in each."""
    photograph = album()[0]
    size = 'width="256" height="256"'
    shown = f'<img src="{photograph["src"]}" alt="A photograph of a kingfisher on a branch." {size} />'
    still = (
        f"<p>{shown}</p>"
        f"\n<p>128×128 pixels can be cut into 1,024 patches of 4×4, or into 4 of 64×64. {photograph['credit']}</p>"
    )
    parts = scripts_for("patches", {"photograph": photograph})
    return LiveFigure(host("patches", "", still), "The size of a patch", parts)


def places() -> LiveFigure:
    """The places in an image, and how similar the position of each is to that of a chosen one."""
    packed = packed_places()
    grid, learned = packed["grid"], base64.b64decode(packed["tables"]["learned"])
    chosen = learned[(3 * grid + 2) * grid**2 :][: grid**2]
    cells = "".join(
        f'<rect x="{10 * (n % grid)}" y="{10 * (n // grid)}" width="9.5" height="9.5" '
        f'fill="var(--vit-position, {PALETTE["position"].light})" fill-opacity="{level / 100 * (level < 128):.2f}"/>'
        for n, level in enumerate(chosen)
    )
    alt = "A grid of places; the third place of the fourth row and its mirror image are the fullest."
    still = (
        f'<p><svg viewBox="0 0 {10 * grid} {10 * grid}" width="256" height="256" role="img" aria-label="{alt}">{cells}'
        "</svg></p>\n<p>The fuller a place, the more similar its learned position is to that of the third place in the "
        "fourth row.</p>"
    )
    parts = scripts_for("places", {"positions": packed})
    return LiveFigure(host("places", "", still), "Which positions are similar?", parts)


def steps() -> LiveFigure:
    """A recorded training run of the digits' Vision Transformer: its curves, and the model after some epochs."""
    run, image, shown = recorded_run(), digits().test.images[0, 0], (0, 4, 10, 40)
    attention = run["attention"][[run["epochs"].tolist().index(epoch) for epoch in shown]].float()
    clear = (attention / attention.amax(dim=-1, keepdim=True)).unflatten(-1, (4, 4))
    tiles = image * clear.repeat_interleave(2, dim=-2).repeat_interleave(2, dim=-1)  # (epochs, L, h, 8, 8)
    tiles = F.pad(tiles, (0, 1, 0, 1), value=128).permute(1, 3, 0, 2, 4).reshape(36, 4, 36)
    levels = F.pad(tiles, (0, 2), value=128).flatten(1).round().byte().numpy()
    picture = Image.fromarray(levels).resize((5 * 152, 5 * 36), Image.Resampling.NEAREST)
    alt = "Four times sixteen small images of a 7: on the left most of it is clear, on the right few parts are."
    right = [f"{100 * run['accuracy'][epoch]:.1f}" for epoch in shown]
    says = (
        "What the class token attends to in a test digit, by block and head: with random weights, and after 4, 10 and "
        f"40 epochs of training. The model reads {', '.join(right[:3])} and {right[3]} % of the test digits."
    )
    still = host("steps", "", f"<p>{_picture(picture, alt, 'PNG')}</p>\n<p>{says}</p>")
    return LiveFigure(still, "A training run, epoch by epoch", scripts_for("steps", {"run": packed_run()}))


def _picture(picture: Image.Image, alt: str, kind: str) -> str:
    """An image within HTML."""
    size = f'width="{picture.width}" height="{picture.height}" style="max-width: 100%; height: auto"'
    return f'<img src="{data_address(picture, kind)}" alt="{escape(alt)}" {size} />'


def _ask_still(trained: Pretrained, name: str, entry: dict) -> str:
    """A photograph and what each head's first token attends to in it, and what the model says, in HTML."""
    model = trained.model
    image = decode_image(base64.b64decode(entry["src"].partition(",")[2]), entry["name"])
    inputs = trained.preprocessing(image).to(next(model.parameters()))
    with torch.no_grad(), keeping_modes(model), recorded_attention(model) as weights:
        said = model.eval()(inputs)[0]
    share, k = said.softmax(dim=-1).max(dim=-1)
    says = f"says {trained.class_names[k] if trained.class_names else f'class {k}'} ({100 * share:.1f}\u00a0%)"
    if not model.config.num_classes:
        says = f"has no classes; it gives {len(said)} features"
    depth, heads, (rows, columns) = len(weights), weights[0].shape[1], model.embedding.grid
    prefix = len(model.embedding.prefix_tokens)
    asked = 0 if model.config.class_token else prefix
    small = _sized(image, SIDE // max(depth, heads) - 2, columns / rows)
    across, down = small.width + 2, small.height + 2
    picture = Image.new("RGB", (SIDE + 8 + heads * across, max(SIDE, depth * down)), "white")
    picture.paste(_sized(image, SIDE, columns / rows), (0, 0))
    for block, of_heads in enumerate(weights):
        for head, row in enumerate(of_heads[0, :, asked, prefix:].reshape(heads, rows, columns).float().cpu()):
            clear = Image.fromarray((255 * row / row.max()).round().byte().numpy()).resize(small.size, 0)
            picture.paste(small, (SIDE + 8 + head * across, block * down), clear)
    query = "the class token" if model.config.class_token else "the first patch"
    alt = f"Left a photograph, {entry['title']}; right {depth} rows of {heads} small copies, clear where a head looks."
    return host(
        "ask",
        name,
        f"<p>{_picture(picture, alt, 'JPEG')}</p>\n"
        f"<p>The model {escape(says)}. Each small copy is one head, a row of them one block: what {query} "
        f"attends to is clear. {escape(entry['credit'])}</p>",
    )


def _sized(image: Image.Image, side: int, ratio: float) -> Image.Image:
    """The middle of an image in a model's proportions, width by height; the longer side has so many pixels."""
    return center_crop(image, round(side / max(1, ratio)), round(side * min(1, ratio)))


def host(figure: str, model: str, still: str) -> str:
    """What stands in a page: a still in HTML, where the figure is live, and a button that live.js makes work."""
    chapter, invitation = FIGURES[figure]
    address = f"{chapters_address()}{chapter}.html"
    elsewhere = f'Live <a href="{address}">on the book\'s site</a>.' if chapters_address() else ""
    if figure == "ask" and not model:
        elsewhere = "Live in the page that <code>save</code> writes."
    return (
        f'<div class="vitbook-live" data-figure="{figure}" data-model="{model}">\n{still}\n'
        '<p class="invitation"><button class="live-start" type="button" disabled="" style="visibility: hidden">'
        f'{invitation}</button> <span class="elsewhere">{elsewhere}</span></p>\n</div>'
    )


def site_files() -> dict[str, str]:
    """Every script of the figures by its file's name, as the site serves them."""
    names = sorted(file.stem for file in (ASSETS / "weights").glob("*.json"))
    classifiers = {name: model for name in names if (model := load_pretrained(f"vitbook:{name}")).class_names}
    models = {f"model-{name}": packed_model(model) for name, model in classifiers.items()}
    parts = models | {"album": album(), "digits": packed_digits(), "photograph": album()[0]}
    parts |= {"vectors": packed_vectors(), "positions": packed_places(), "run": packed_run(), "scenes": packed_exam()}
    scripts = {"live": source("live.js")} | {name: delivered(name, part) for name, part in parts.items()}
    for figure in NEEDS:
        scripts |= scripts_for(figure)
    return {f"{name}.js": script for name, script in scripts.items()}

"""The book's model in the reader's browser: scripts that compute what `vitbook` computes, without server or network.

In the folder `scripts`, a figure has its own script, HTML and a thread that computes:

ask      a model's answer, and interference with it      worker.js      the thread of `ask`
train    a model that learns the digits                  learner.js     the thread of `train` and `shares`
query    a query among four keys                         live.js        starts a figure when a reader wants it
scale    the width, and the softmax                      shared.js      what all figures use
patches  a photograph cut into patches                   pad.js         where a reader draws, in `ask` and `train`
places   positions that resemble each other              learning.js    what `train` and `steps` share
shares   a model that learns from some of the digits     camera.js      a camera, in `ask`
steps    a recorded run of `train`, epoch by epoch

forward.js    Equations 1 to 4, as vit.py has them       images.js      image → what the model sees, as Pillow does it
modern.js     what came after, as modern.py has it       weights.js     safetensors → model
gradient.js   Equations 1 to 4 backwards, and AdamW      thread.js      messages in, answers out
matrix.js     matrices in one piece of memory
kernels.ts    the products, for WebAssembly (kernels.wasm); kernels.js has them for browsers without its SIMD

They are classic scripts, and what they need is in scripts too, as base64: a page in a folder may load nothing else.
"""

import base64
import io
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import load_file, save
from torch import nn

from vitbook._common.files import ASSETS, write_whole
from vitbook._common.images import center_crop, decode_image
from vitbook._common.names import listed
from vitbook._common.outlines import shapes_alone
from vitbook._common.site import chapters_address
from vitbook.attention_maps import position_similarity, recorded_attention
from vitbook.data import Split, album_credits, digits
from vitbook.distillation import DistilledVisionTransformer
from vitbook.finetuning import merged
from vitbook.modern import ModernViT
from vitbook.positions import sincos_positions, sincos_positions_2d
from vitbook.pretrained import Pretrained, load_pretrained
from vitbook.training import keeping_modes
from vitbook.vit import CONFIGS, VisionTransformer, create_vit
from vitbook_workshop.drawings.palette import COLORS, variables

COMPUTING = ("kernels.js", "matrix.js", "weights.js", "images.js", "forward.js")
COMPILER = "assemblyscript@0.28.20"  # of npm: `asc kernels.ts -o kernels.wasm` with
COMPILE = "--optimizeLevel 3 --noAssert --runtime stub --memoryBase 16 --importMemory --enable simd".split()
FIRST = "bird_kingfisher"  # of the album
THREADS = {"ask": ("modern.js", "worker.js"), "train": ("gradient.js", "learner.js")}
THREAD_OF = {"ask": "ask", "train": "train", "shares": "train"}
SHARED = {"ask": ("pad.js", "camera.js"), "train": ("pad.js", "learning.js"), "steps": ("learning.js",)}
NEEDS = {  # data that a figure loads
    "ask": ("model-{model}", "album"),
    "train": ("digits",),
    "query": (),
    "scale": ("vectors",),
    "patches": ("photograph",),
    "places": ("positions",),
    "shares": ("digits",),
    "steps": ("run",),
}
CHAPTERS = {
    "ask": "13_attention_maps",
    "train": "10_training",
    "query": "01_attention",
    "scale": "02_scale",
    "patches": "06_patches",
    "places": "07_embedding",
    "shares": "12_data",
    "steps": "10_training",
}
INVITATIONS = {
    "ask": "Ask the model yourself",
    "train": "Train it yourself",
    "query": "Move the query",
    "scale": "Change the width",
    "patches": "Change the size",
    "places": "Choose a place",
    "shares": "Train on fewer digits",
    "steps": "Go through the run",
}
SIDE = 240  # of the still, in pixels
MODELS = (VisionTransformer, ModernViT, DistilledVisionTransformer)  # that forward.js and modern.js compute
MOST_NUMBERS = 100_000_000  # of a model: in float32, 533 of the 536 million letters that Chromium takes in a script
FILE_BYTES = 2**24  # of weights, in base64: browsers limit how long a text can be


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
    parts = _parts("ask", {"album": photographs, f"model-{name}": packed_model(trained)})
    config = trained.model.config
    about = f"Ask the model: {config.depth} blocks of {config.num_heads} heads"
    return LiveFigure(_ask_still(trained, name, photographs[0]), about, parts)


def train() -> LiveFigure:
    """A small Vision Transformer that learns the digits in the page, and reads one that the reader draws."""
    return LiveFigure(_train_still(), "Train a Vision Transformer", _parts("train", {"digits": packed_digits()}))


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
    parts = _parts("shares", {"digits": packed_digits()})
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
        f'<line x1="0" y1="0" x2="{x}" y2="{y}" stroke="var(--vit-{kind}, {COLORS[kind].light})" stroke-width="3"/>'
        for kind, x, y in [("key", 36, 0), ("key", 0, -36), ("key", -36, 0), ("key", 0, 36), ("query", 72, -36)]
    )
    still = (
        '<p><svg viewBox="-80 -45 160 90" width="320" height="180" role="img" aria-label="Four short arrows, the keys, '
        f'point right, up, left and down; a longer one, the query, points to the right and a little up.">{arrows}</svg>'
        "</p>\n<p>Four keys stand in the plane, with the values 0, 10, 20 and 30. A query among them gives each a "
        "weight, and the answer is the blend.</p>"
    )
    return LiveFigure(host("query", "", still), "A query among four keys", _parts("query"))


def scale() -> LiveFigure:
    """A query and eight keys whose width is chosen: their scores and weights, with and without √d."""
    query, *keys = _vectors()[:, :64] / 32
    scores = torch.stack(keys) @ query
    bars = "".join(
        f'<rect x="{left}" y="{12 * i}" width="{120 * weight + 1:.1f}" height="9" '
        f'fill="var(--vit-{kind}, {COLORS[kind].light})"/>'
        for left, kind, weights in [(0, "muted", scores), (150, "key", scores / 8)]
        for i, weight in enumerate(weights.softmax(dim=0).tolist())
    )
    alt = "Two columns of eight bars: on the left two have nearly all the length, on the right each has some."
    still = (
        f'<p><svg viewBox="0 0 280 96" width="420" height="144" role="img" aria-label="{alt}">{bars}</svg></p>\n'
        "<p>The weights of eight keys for one query, at a width of 64: softmax(q·k) on the left, softmax(q·k/√d) on "
        "the right. What do other widths do to both?</p>"
    )
    parts = _parts("scale", {"vectors": packed_vectors()})
    return LiveFigure(host("scale", "", still), "The width, and the softmax", parts)


def patches() -> LiveFigure:
    """A photograph cut into patches whose size is chosen: how many tokens, and how many numbers in each."""
    photograph = album()[0]
    shown = f'<img src="{photograph["src"]}" alt="A photograph of a kingfisher on a branch." width="256" height="256">'
    still = (
        f"<p>{shown}</p>"
        f"\n<p>128×128 pixels can be cut into 1,024 patches of 4×4, or into 4 of 64×64. {photograph['credit']}</p>"
    )
    return LiveFigure(host("patches", "", still), "The size of a patch", _parts("patches", {"photograph": photograph}))


def places() -> LiveFigure:
    """The places in an image, and how similar the position of each is to that of a chosen one."""
    packed = packed_places()
    grid, learned = packed["grid"], base64.b64decode(packed["tables"]["learned"])
    chosen = learned[(3 * grid + 2) * grid**2 :][: grid**2]
    cells = "".join(
        f'<rect x="{10 * (n % grid)}" y="{10 * (n // grid)}" width="9.5" height="9.5" '
        f'fill="var(--vit-position, {COLORS["position"].light})" fill-opacity="{level / 100 * (level < 128):.2f}"/>'
        for n, level in enumerate(chosen)
    )
    alt = "A grid of places; the third place of the fourth row and its mirror image are the fullest."
    still = (
        f'<p><svg viewBox="0 0 {10 * grid} {10 * grid}" width="256" height="256" role="img" aria-label="{alt}">{cells}'
        "</svg></p>\n<p>The fuller a place, the more similar its learned position is to that of the third place in the "
        "fourth row.</p>"
    )
    return LiveFigure(
        host("places", "", still), "Which positions are similar?", _parts("places", {"positions": packed})
    )


def steps() -> LiveFigure:
    """A recorded training run of the digits' Vision Transformer: its curves, and the model after some epochs."""
    run, image, shown = _recorded_run(), digits().test.images[0, 0], (0, 4, 10, 60)
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
        f"60 epochs of training. The model reads {', '.join(right[:3])} and {right[3]} % of the test digits."
    )
    still = host("steps", "", f"<p>{_picture(picture, alt, 'PNG')}</p>\n<p>{says}</p>")
    return LiveFigure(still, "A training run, epoch by epoch", _parts("steps", {"run": packed_run()}))


def _picture(picture: Image.Image, alt: str, kind: str) -> str:
    """An image within HTML."""
    size = f'width="{picture.width}" height="{picture.height}" style="max-width: 100%; height: auto"'
    return f'<img src="{_address(picture, kind)}" alt="{escape(alt)}" {size}>'


def _address(picture: Image.Image, kind: str) -> str:
    """An image as a data: address."""
    file = io.BytesIO()
    picture.save(file, kind, quality=80)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(file.getvalue()).decode()}"


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
    address = f"{chapters_address()}{CHAPTERS[figure]}.html"
    elsewhere = f'Live <a href="{address}">on the book\'s site</a>.' if chapters_address() else ""
    if figure == "ask" and not model:
        elsewhere = "Live in the page that <code>save</code> writes."
    return (
        f'<div class="vitbook-live" data-figure="{figure}" data-model="{model}">\n{still}\n'
        '<p class="invitation"><button class="live-start" type="button" disabled style="visibility: hidden">'
        f'{INVITATIONS[figure]}</button> <span class="elsewhere">{elsewhere}</span></p>\n</div>'
    )


def _parts(figure: str, data: dict[str, object] | None = None) -> dict[str, str]:
    """All that live.js needs for a figure, by name: its script, the style, the source of its thread, and data."""
    parts = {"style": source("live.css"), **_threads(figure), **(data or {})}
    return {figure: bundle(figure)} | {name: delivered(name, part) for name, part in parts.items()}


def bundle(figure: str) -> str:
    """A figure as a script that hands it over: its own code, its HTML, and the names of what else it needs."""
    scripts = source(*scripts_of(figure))
    given = dict(html=source(f"{figure}.html"), thread=list(_threads(figure)), needs=NEEDS[figure])
    handed = f"vitbookLive.deliver('{figure}', {{ start: {figure}, ...{_json(given)} }});"
    return f"(() => {{\n{scripts}\n{handed}\n}})();"


def scripts_of(figure: str) -> tuple[str, ...]:
    """The files of a figure's own script, in their order."""
    return "shared.js", *SHARED.get(figure, ()), f"{figure}.js"


def worker_source(figure: str) -> str:
    """The whole script of a figure's thread."""
    return "\n".join(_threads(figure).values())


def _threads(figure: str) -> dict[str, str]:
    """The parts of a figure's thread by name, in their order: what all threads share, and its own."""
    if figure not in THREAD_OF:
        return {}
    module = base64.b64encode(_scripts().joinpath("kernels.wasm").read_bytes()).decode()
    shared, own = f'const KERNELS = "{module}";\n{source(*COMPUTING)}', THREADS[THREAD_OF[figure]]
    return {"computing": shared, f"thread-{THREAD_OF[figure]}": source(*own, "thread.js")}


def _scripts() -> Traversable:
    """The folder of the scripts."""
    return resources.files("vitbook_workshop.live").joinpath("scripts")


def source(*names: str) -> str:
    """Some of the scripts, one after the other."""
    return "\n".join(_scripts().joinpath(name).read_text(encoding="utf-8") for name in names)


def album() -> list[dict]:
    """The album's photographs as they are in the package, the landing page's first."""
    photographs = []
    for credit in sorted(album_credits(), key=lambda credit: not credit["file"].startswith(FIRST)):
        name, content = Path(credit["file"]).stem, (ASSETS / "album" / credit["file"]).read_bytes()
        photographs.append(
            dict(
                name=name,
                title=name.replace("_", ": "),
                credit=f"Photograph: {credit['author']}, {credit['licence']}.",
                src=f"data:image/jpeg;base64,{base64.b64encode(content).decode()}",
            )
        )
    return photographs


def photograph(name: str, title: str, credit: str, image: Image.Image) -> dict:
    """An image for `ask`, kept to the bit. name: in the page's address; credit: a sentence that stands below."""
    return dict(name=name, title=title, credit=credit, src=_address(image, "PNG"))


def packed_digits() -> dict:
    """The digits that a reader's browser learns from, and the model that learns them, for learner.js."""
    data = digits()

    def packed(split: Split) -> dict:
        parts = dict(images=split.images.flatten(1), labels=split.labels.byte())
        return {name: base64.b64encode(part.numpy().tobytes()).decode() for name, part in parts.items()}

    return dict(
        config=asdict(CONFIGS["vit_digits"]),
        train=packed(data.train),
        test=packed(data.test),
        mean=data.mean.tolist(),
        std=data.std.tolist(),
    )


def packed_vectors() -> dict:
    """A query and eight keys (512,), normally distributed, for scale.js: whole numbers of 32nds, one byte each."""
    query, *keys = (_bytes(vector) for vector in _vectors())
    return dict(unit=1 / 32, query=query, keys=keys)


def _vectors() -> torch.Tensor:
    """Normally distributed numbers (9, 512), in whole 32nds."""
    return (torch.randn(9, 512, generator=torch.Generator().manual_seed(0)) * 32).round().clamp(-128, 127)


def packed_places() -> dict:
    """Cosine similarities of positions, learned and from sines, for places.js: whole hundredths, one byte each."""
    model = load_pretrained("vitbook:cifar10_plain").model
    rows, columns = model.embedding.grid
    dim = model.config.dim
    tables = dict(
        learned=model.embedding.positions().detach()[:, -rows * columns :],
        sines_2d=sincos_positions_2d((rows, columns), dim)[None],
        sines=sincos_positions(rows * columns, dim)[None],
    )
    similar = {name: position_similarity(table, (rows, columns), 0) for name, table in tables.items()}
    return dict(grid=rows, tables={name: _bytes(100 * maps) for name, maps in similar.items()})


def packed_run() -> dict:
    """The recorded run for steps.js: maps in whole 31sts, one letter each."""
    run, data = _recorded_run(), digits()
    places = torch.cartesian_prod(torch.arange(4.0), torch.arange(4.0))
    apart = torch.cdist(places, places, p=1)  # steps across and down
    similarity, attention, head = (run[name].float() for name in ("similarity", "attention", "head"))
    facts = [run["probability"], attention.amax(dim=(1, 2, 3)), similarity[:, apart == 1].mean(dim=1)]
    facts += [similarity[:, apart > 1].mean(dim=1), head.std(dim=(1, 2))]
    return dict(
        epochs=run["epochs"].tolist(),
        steps=math.ceil(len(data.train) / 64),
        losses=_rounded(run["loss"]),
        accuracies=_rounded(run["accuracy"]),
        facts=_rounded(torch.stack(facts, dim=1)),
        image=data.test.images[0].flatten().tolist(),
        label=data.test.labels[0].item(),
        heads=attention.shape[2],
        attention=_letters(attention / attention.amax(dim=-1, keepdim=True)),
        alike=_letters(similarity),
        head=_letters(head / head.abs().max()),
    )


def _recorded_run() -> dict[str, torch.Tensor]:
    """What records/record_steps.py wrote."""
    return load_file(ASSETS / "runs" / "steps.safetensors")


def _rounded(numbers: torch.Tensor) -> list:
    return (numbers.double() * 10_000).round().div(10_000).tolist()


def _letters(numbers: torch.Tensor) -> str:
    """Numbers from −1 to 1 in whole 31sts, a letter each, from ">" to "|": gzip shortens them as it cannot base64."""
    return (93 + 31 * numbers).round().clamp(62, 124).to(torch.uint8).numpy().tobytes().decode()


def _bytes(numbers: torch.Tensor) -> str:
    """Whole numbers, −128 to 127, in base64."""
    return base64.b64encode(numbers.round().clamp(-128, 127).to(torch.int8).numpy().tobytes()).decode()


def site_files() -> dict[str, str]:
    """Every script of the figures by its file's name, as the site serves them."""
    names = sorted(file.stem for file in (ASSETS / "weights").glob("*.json"))
    classifiers = {name: model for name in names if (model := load_pretrained(f"vitbook:{name}")).class_names}
    models = {f"model-{name}": packed_model(model) for name, model in classifiers.items()}
    parts = models | {"album": album(), "digits": packed_digits(), "photograph": album()[0]}
    parts |= {"vectors": packed_vectors(), "positions": packed_places(), "run": packed_run()}
    scripts = {"live": source("live.js")} | {name: delivered(name, part) for name, part in parts.items()}
    for figure in NEEDS:
        scripts |= _parts(figure)
    return {f"{name}.js": script for name, script in scripts.items()}


def check_model(model: nn.Module) -> None:
    """Raise ValueError for a model that the scripts do not compute, or that no page could hold."""
    if type(model) not in MODELS:
        names = ", ".join(kind.__name__ for kind in MODELS)
        raise ValueError(f"model must be one of {names}, which the page computes, got {type(model).__name__}")
    if (count := sum(p.numel() for p in model.parameters())) > MOST_NUMBERS:
        limit = f"at most {MOST_NUMBERS:,} parameters, as a page's script can hold no more"
        raise ValueError(f"model must have {limit}, got {count:,}")
    with shapes_alone():
        expected = type(model)(model.config).state_dict().items()
    got = {name: tensor.shape for name, tensor in merged(model.state_dict()).items()}
    if differing := sorted(name for name, _ in {(name, part.shape) for name, part in expected} ^ set(got.items())):
        raise ValueError(f"model must have the parts that its config says, which {listed(differing)} are not")


def packed_model(trained: Pretrained) -> dict:
    """A model and how it wants to see images, for worker.js.

    A tensor is float16 where that loses nothing, else float32; LoRA is merged. Without classes the names of these are
    an empty list. prefix: names of the tokens before the patches.

    Raises ValueError as `check_model`, and where the preprocessing has other channels than the model.
    """
    model, preprocessing = trained.model, asdict(trained.preprocessing)
    check_model(model)
    if len(preprocessing["mean"]) != model.config.channels:
        has = f"{len(preprocessing['mean'])} channels"
        raise ValueError(f"the model's {model.config.channels} channels must be those of the preprocessing, got {has}")
    tensors = {name: _small(x) for name, x in merged(model.state_dict()).items() if x.is_floating_point()}
    embedding, angles = model.embedding, getattr(model.encoder.blocks[0].attn, "angles", None)
    prefix = len(embedding.prefix_tokens)
    tensors["embedding.positions.pos_embed"] = _small(embedding.positions().expand(-1, -1, model.config.dim))
    if angles is not None:
        tensors["angles"] = _small(angles)
    firsts = ["the class token"] * model.config.class_token + ["the distillation token"] * hasattr(model, "head_dist")
    preprocessing.pop("image_size")  # the config has it
    return dict(
        type=type(model).__name__,
        config=asdict(model.config),
        preprocessing=preprocessing,
        classes=list(trained.class_names or [f"class {k}" for k in range(model.config.num_classes)]),
        prefix=firsts + [f"register {i}" for i in range(prefix - len(firsts))],
        tensors=[base64.b64encode(save(some)).decode() for some in _files(tensors)],
    )


def _files(tensors: dict[str, torch.Tensor]) -> list[dict[str, torch.Tensor]]:
    """Tensors in as many files as they need, each of FILE_BYTES or of one tensor."""
    files: list[dict[str, torch.Tensor]] = [{}]
    for name, tensor in tensors.items():
        if files[-1] and sum(other.nbytes for other in files[-1].values()) + tensor.nbytes > FILE_BYTES:
            files.append({})
        files[-1][name] = tensor
    return files


def _small(tensor: torch.Tensor) -> torch.Tensor:
    """In float16 where that loses nothing, else in float32."""
    tensor = tensor.detach().float().cpu().contiguous()
    half = tensor.half()
    return half if torch.equal(half.float(), tensor) else tensor


def delivered(name: str, content: object) -> str:
    """A script that hands a part over to live.js."""
    return f"vitbookLive.deliver({json.dumps(name)},{_json(content)});"


def _json(content: object) -> str:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).replace("<", r"\u003c")

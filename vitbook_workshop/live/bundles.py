"""The scripts of the figures: which files each needs, and how they come into a page, without server or network.

In the folder `scripts`, a figure has its own script, HTML and a thread that computes:

ask      a model's answer, and interference with it      worker.js      the thread of `ask`, `inside` and `exam`
train    a model that learns the digits                  learner.js     the thread of `train` and `shares`
query    a query among four keys                         live.js        starts a figure when a reader wants it
scale    the width, and the softmax                      shared.js      what all figures use
patches  a photograph cut into patches                   pad.js         where a reader draws, in `ask` and `train`
places   positions that resemble each other              learning.js    what `train` and `steps` share
shares   a model that learns from some of the digits     camera.js      a camera, in `ask`
steps    a recorded run of `train`, epoch by epoch       easel.js       the thread of `paint`
paint    a model that learns to paint the digits
inside   the drawing of the model, and what its parts hold
exam     which patches decide, and who finds them

forward.js    Equations 1 to 4, as vit.py has them       images.js      image → what the model sees, as Pillow does it
modern.js     what came after, as modern.py has it       weights.js     safetensors → model
gradient.js   Equations 1 to 4 backwards, and AdamW      thread.js      messages in, answers out
matrix.js     matrices in one piece of memory            kernels.ts     the products, compiled to kernels.wasm
painter.js    painting.py, forwards and backwards

They are classic scripts, and what they need is in scripts too, as base64: a page in a folder may load nothing else.
"""

import base64
import json
import re
from importlib import resources
from importlib.resources.abc import Traversable

COMPUTING = ("matrix.js", "weights.js", "images.js", "forward.js")
THREADS = {"ask": ("modern.js", "worker.js"), "train": ("gradient.js", "learner.js")}
THREADS |= {"paint": ("gradient.js", "painter.js", "easel.js")}
THREAD_OF = {"ask": "ask", "inside": "ask", "train": "train", "shares": "train", "paint": "paint", "exam": "ask"}
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
    "paint": ("digits",),
    "inside": ("model-{model}", "photograph"),
    "exam": ("scenes",),
}


def scripts_for(figure: str, data: dict[str, object] | None = None) -> dict[str, str]:
    """All that live.js needs for a figure, by name: its script, the style, the source of its thread, and data."""
    style = re.sub(r"/\*.*?\*/\s*", "", source("live.css"), flags=re.S)
    parts = {"style": style, **_threads(figure), **(data or {})}
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


def delivered(name: str, content: object) -> str:
    """A script that hands a part over to live.js."""
    return f"vitbookLive.deliver({json.dumps(name)},{_json(content)});"


def _json(content: object) -> str:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).replace("<", r"\u003c")

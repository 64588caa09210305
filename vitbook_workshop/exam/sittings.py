"""The exam itself: scenes that a model answers rightly, a method's maps of them, and what these are worth."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from safetensors.torch import load_file
from torch import Tensor

from vitbook._common.files import ASSETS
from vitbook._common.validation import check_choice
from vitbook.attribution import auc, precision_at_k
from vitbook.planted import CONFIG, TASKS, planted
from vitbook.vit import VisionTransformer
from vitbook_workshop.exam.methods import Method

SITTINGS = (*TASKS, "watermark")  # what is asked: a task, or to show the watermark to which a model has taken
SHIPPED = ASSETS / "exam.safetensors"  # the models of seed 0
COUNT = 200  # scenes of each


@dataclass(frozen=True)
class Sitting:
    """Scenes of a task that a model answers rightly."""

    model: VisionTransformer
    images: Float[Tensor, "N 3 24 24"]
    classes: Int64[Tensor, " N"]
    key: Bool[Tensor, "N 6 6"]


def exam_model(name: str) -> VisionTransformer:
    """The trained model of one of `SITTINGS` (`records/exam.py`)."""
    check_choice("name", name, SITTINGS)
    model, stored = VisionTransformer(CONFIG).eval(), load_file(SHIPPED)
    model.load_state_dict({key.removeprefix(f"{name}."): x for key, x in stored.items() if key.startswith(name)})
    return model


def sitting(name: str, count: int = COUNT, model: VisionTransformer | None = None, seed: int = 1_000_000) -> Sitting:
    """One of `SITTINGS`, with the model that comes with the package or another one that was trained for it."""
    model = model or exam_model(name)
    shortcut = name == "watermark"
    task, mark = ("compare", "true") if shortcut else (name, "none")
    scenes = planted(task, count + count // 5, torch.Generator().manual_seed(seed), mark)
    with torch.no_grad():
        right = (model(scenes.images).argmax(dim=1) == scenes.labels).nonzero()[:count, 0]
    key = scenes.watermark if shortcut else scenes.key
    return Sitting(model, scenes.images[right], scenes.labels[right], key[right])


def graded(method: Method, asked: Sitting) -> dict:
    """What a method's maps are worth: precision at k, AUC, and the share of scenes whose whole key comes first.

    Each with its 95 % interval over scenes, and n, their number.
    """
    maps = method(asked.model, asked.images, asked.classes)
    precision = precision_at_k(maps, asked.key)
    marks = {"precision": precision, "auc": auc(maps, asked.key), "whole": (precision > 1 - 1e-6).double()}
    return {"n": len(maps)} | {name: interval(values) for name, values in marks.items()}


def interval(values: Float[Tensor, " N"]) -> list[float]:
    """Mean, and the ends of its 95 % interval over scenes that are drawn again and again."""
    drawn = torch.randint(len(values), (1000, len(values)), generator=torch.Generator().manual_seed(0))
    low, high = values.double()[drawn].mean(dim=1).quantile(torch.tensor([0.025, 0.975]).double()).tolist()
    return [round(x, 4) for x in (values.double().mean().item(), low, high)]

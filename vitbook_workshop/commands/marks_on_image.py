"""An image file's maps, each with its mark in the exam and what deleting patches in its order does to this image."""

from collections.abc import Iterator
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from vitbook._common.images import read_image
from vitbook.attribution import Maps, in_pixels
from vitbook.patches import Images
from vitbook.pretrained import Pretrained
from vitbook.vit import VisionTransformer
from vitbook_workshop.commands.explain_file import at_size
from vitbook_workshop.exam.marks import CAVEAT, recorded_marks
from vitbook_workshop.exam.methods import ALL
from vitbook_workshop.live.your_model import resized_model
from vitbook_workshop.training_runs.trained_models import task_of

SHOWN = (  # those that need no other image, and not many forward passes
    "by chance",
    "center first",
    "last block's attention",
    "attention × value norm",
    "rollout",
    "gradient-weighted (Chefer)",
    "gradient × input",
    "integrated gradients",
    "occlusion, gray",
)


@torch.no_grad()
def deletion_area(model: VisionTransformer, image: Images, maps: Maps, steps: int = 8) -> Float[Tensor, " batch"]:
    """The mean probability of the model's own answer while the highest patches become gray first: less is better.

    Petsiuk et al. 2018; the area under the curve, by trapezoids. image: one, (1, C, H, W); maps: several of it.
    """
    answer = model(image).argmax(dim=1)
    rank = maps.flatten(1).argsort(dim=1, descending=True).argsort(dim=1).view_as(maps)
    curve = []
    for step in range(steps + 1):
        shown = in_pixels(rank >= rank[0].numel() * step / steps, image.shape[2:]).unsqueeze(1)
        curve.append(model(torch.where(shown, image, 0)).softmax(dim=1)[:, answer[0]])
    return torch.trapezoid(torch.stack(curve), dim=0) / steps


def lines(weights: Pretrained, file: Path, size: tuple[int, ...] = ()) -> Iterator[str]:
    """A line for each map. Raises ValueError for a model without classes."""
    if (task := task_of(weights)) != "classes":
        raise ValueError(f"the exam's maps explain a class, and this model has {task or 'none'}")
    preprocessing = at_size(weights, size)
    model, _ = resized_model(weights.model, preprocessing.image_size)
    model = model.eval()
    image = preprocessing(read_image(file)).to(next(model.parameters()).device)
    with torch.no_grad():
        answer = model(image).argmax(dim=1)
    yield f"{'map':<28}{'mark in the exam':>18}{'deletion here':>15}"
    for name in SHOWN:
        marks = recorded_marks(name)
        mark = sum(marks[task] for task in ("find", "compare", "count")) / 3
        area = deletion_area(model, image, ALL[name](model, image, answer)).item()
        yield f"{name:<28}{mark:>18.2f}{area:>15.3f}"
    yield f"mark: precision at k, mean of three tasks (1 is perfect, more is better), {CAVEAT}"
    yield "deletion here: mean probability of the answer while patches become gray in the map's order (less is better)"

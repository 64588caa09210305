"""Train chapter 24's two towers with both losses, on few and on many pairs, shorter and longer; what can they name?

    python records/contrastive.py vitbook/assets/runs/contrastive.json

Of the 64 pairs of a color and a shape, a quarter is kept from training, so that each color misses two shapes and each
shape two colors. Each color is trained with some of its other shapes, equally many for all. A seed draws which pairs
these are, the weights and the scenes; runs of one seed are asked about the same pairs. Each loss has the rate and the
bias with the highest sum of both shares after 400 steps on 48 pairs, with another seed (`--tune --seeds 100 --steps 400
--shapes 6`). In 1,000 steps the sigmoid has a quarter of that rate, with which it lost less of the seen; the file holds
what was tried. It has one record a run, and is written again after each; a command that is repeated goes on after the
last one. As it is, it takes about ten minutes on one core, and the tuning two more.
"""

import math
import time
from itertools import product

import torch
from harness import Rows, arguments_of
from torch import Tensor

from vitbook.contrastive import (
    COLORS,
    PLACES,
    SHAPES,
    ScaleAndBias,
    TextTower,
    TwoTowers,
    cosines,
    describe_scenes,
    draw_scenes,
    mean_direction,
    sigmoid_loss,
    softmax_loss,
)
from vitbook.training import warmup_cosine
from vitbook.vit import VisionTransformer, ViTConfig

LOSSES = {"softmax": softmax_loss, "sigmoid": sigmoid_loss}
KEPT = len(SHAPES) // 4  # shapes of each color that are kept from training
TUNED = {  # for runs of fewer than 1,000 steps, and for longer ones
    "softmax": ({"rate": 2e-3, "bias": 0.0}, {"rate": 2e-3, "bias": 0.0}),
    "sigmoid": ({"rate": 8e-3, "bias": -10.0}, {"rate": 2e-3, "bias": -10.0}),
}
TRIED = {
    "softmax": [{"rate": rate, "bias": 0.0} for rate in (1e-3, 2e-3, 4e-3, 8e-3)],
    "sigmoid": [{"rate": rate, "bias": bias} for rate in (2e-3, 4e-3, 8e-3, 1.6e-2) for bias in (-10.0, -math.log(63))],
}


def scenes_of(shapes: int) -> tuple[Tensor, Tensor]:
    """Scenes to train with, in which each color has so many shapes, and scenes kept from it; each pair at every place.

    (8 · shapes · 4, 3), (8 · 2 · 4, 3)
    """
    place, color, shape = torch.cartesian_prod(*map(torch.arange, map(len, (PLACES, COLORS, SHAPES)))).T
    step = (shape - color) % len(SHAPES)
    scenes = torch.stack([torch.randperm(len(COLORS))[color], torch.randperm(len(SHAPES))[shape], place], dim=1)
    return scenes[(step >= KEPT) & (step < KEPT + shapes)], scenes[step < KEPT]


def prepare(images: Tensor) -> Tensor:
    return (images - 0.5) / 0.3


@torch.no_grad()
def shares_right(model: TwoTowers, scenes: Tensor, images: int) -> dict:
    """Of that many new images of these scenes, the shares whose name, color and shape is right. There are 64 names."""
    names = [f"{color} {shape}" for color, shape in product(COLORS, SHAPES)]
    prompts = torch.stack([model.read([f"a {name} at the {place}" for name in names]) for place in PLACES])
    scenes = scenes.repeat(math.ceil(images / len(scenes)), 1)[:images]
    answer = cosines(model.see(prepare(draw_scenes(scenes))), mean_direction(prompts)).argmax(dim=-1)
    color, shape = answer // len(SHAPES) == scenes[:, 0], answer % len(SHAPES) == scenes[:, 1]
    found = {"both": color & shape, "color": color, "shape": shape}
    return {name: right.double().mean().item() for name, right in found.items()}


def record(loss: str, shapes: int, steps: int, seed: int, rate: float, bias: float, images: int = 1920) -> dict:
    """Train once; what came of it on new images, of scenes as in training and of those kept from it."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    trained, kept = scenes_of(shapes)
    words = " ".join(["a at the", *COLORS, *SHAPES, *PLACES]).split()
    vit = ViTConfig(24, 6, dim=48, depth=2, num_heads=4, mlp_dim=96, num_classes=0, positions="sincos_2d")
    text = TextTower(words, length=8, dim=48, depth=1, num_heads=4, hidden_dim=96)
    model = TwoTowers(VisionTransformer(vit), text, 32, ScaleAndBias(10.0, bias))
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: warmup_cosine(step, steps, 30))
    start = time.process_time()
    for _ in range(steps):
        scenes = trained[torch.randperm(len(trained))[:64]]
        value = LOSSES[loss](model(prepare(draw_scenes(scenes)), describe_scenes(scenes)))
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        schedule.step()
    found = {"core_seconds": time.process_time() - start, "last_loss": value.item()}
    found |= {"scale": model.to_logits.t.exp().item(), "images": images}
    return found | {"seen": shares_right(model, trained, images), "never_seen": shares_right(model, kept, images)}


def main(arguments: list[str] | None = None) -> None:
    parser = arguments_of(__doc__, data_dir=False)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--steps", type=int, nargs="+", default=[250, 1000], help="lengths of runs")
    parser.add_argument("--shapes", type=int, nargs="+", default=[6, 2], help="of each color in training")
    parser.add_argument("--tune", action="store_true", help="try every rate and bias; give another seed, not 0 to 4")
    given = parser.parse_args(arguments)
    keys = [
        {"loss": loss, "shapes": shapes, "steps": steps, "seed": seed, **tried}
        for steps, shapes, seed, loss in product(given.steps, given.shapes, given.seeds, LOSSES)
        for tried in (TRIED[loss] if given.tune else [TUNED[loss][steps >= 1000]])
    ]
    Rows(given.file, "tuning" if given.tune else "runs").fill(record, keys)


if __name__ == "__main__":
    main()

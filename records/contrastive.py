"""Train chapter 24's two towers, and what may do as well without a text tower: which new names does each give right?

    python records/contrastive.py vitbook/assets/runs/contrastive.json

A name is a color with a shape. Of 64, a quarter is kept from training, so that each color misses two shapes and each
shape two colors. Each color is trained with some of its other shapes, equally many for all. A seed draws which names
these are, the weights and the scenes; runs of one seed share the image tower's first weights and the scenes, and are
asked about the same names. An arm's rate is the one with the highest mean of both shares, seen and never seen, with
another seed and so other names. As it is, it takes eight minutes of one core. Other arms are there to be tried;
contrastive_one_rate.json holds runs of towers at 2e-3, a rate that was tuned for the softmax loss in 400 steps.
"""

import math
import time
from itertools import product

import torch
from harness import Rows, arguments_of, compare
from torch import Tensor, nn

from vitbook.contrastive import (
    COLORS,
    PATTERNS,
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

KEPT = len(SHAPES) // 4  # shapes of each color that are kept from training
NAMES = [f"{color} {shape}" for color, shape in product(COLORS, SHAPES)]
WIDTH = 48


def scenes_of(shapes: int) -> tuple[Tensor, Tensor]:
    """Scenes to train with, in which each color has so many shapes, and scenes kept from it; each name at every place.

    (8 · shapes · 4, 3), (8 · 2 · 4, 3)
    """
    place, color, shape = torch.cartesian_prod(*map(torch.arange, map(len, (PLACES, COLORS, SHAPES)))).T
    step = (shape - color) % len(SHAPES)
    scenes = torch.stack([torch.randperm(len(COLORS))[color], torch.randperm(len(SHAPES))[shape], place], dim=1)
    return scenes[(step >= KEPT) & (step < KEPT + shapes)], scenes[step < KEPT]


def prepare(images: Tensor) -> Tensor:
    return (images - 0.5) / 0.3


class ThreeVectors(TextTower):
    """In a text tower's place: a learned vector each for color, shape and place, added up. Nothing is read."""

    def __init__(self):
        nn.Module.__init__(self)  # no word, position or layer of a text tower
        self.numbers = {part: number for number, part in enumerate((*COLORS, *SHAPES, *PLACES))}
        self.embedding = nn.Embedding(len(self.numbers), WIDTH)

    def tokenize(self, captions: list[str]) -> Tensor:
        return torch.tensor([[self.numbers[part] for part in caption.split(maxsplit=2)] for caption in captions])

    def forward(self, parts: Tensor) -> Tensor:
        return self.embedding(parts).sum(dim=1)


class Towers(nn.Module):
    """An image tower, and beside it one for captions, or three vectors."""

    def __init__(self, image: VisionTransformer, kind: str):
        super().__init__()
        self.pattern = PATTERNS[2] if kind == "three vectors" else None
        words = " ".join(["a at the", *COLORS, *SHAPES, *PLACES]).split()
        text = ThreeVectors() if self.pattern else TextTower(words, 8, WIDTH, depth=1, num_heads=4, hidden_dim=96)
        self.loss_of = sigmoid_loss if kind == "sigmoid" else softmax_loss
        to_logits = ScaleAndBias(10.0, -10.0 if kind == "sigmoid" else 0.0)
        self.towers = TwoTowers(image, text, 32, to_logits)

    def loss(self, images: Tensor, captions: list[str], scenes: Tensor) -> Tensor:
        return self.loss_of(self.towers(images, captions))

    def scores(self, images: Tensor) -> Tensor:
        pattern = self.pattern or PATTERNS[0]
        prompts = [[pattern.format(*name.split(), place) for name in NAMES] for place in PLACES]
        vectors = mean_direction(torch.stack([self.towers.read(captions) for captions in prompts]))
        return cosines(self.towers.see(images), vectors)


class Heads(nn.Module):
    """The same image tower under a linear head each for color, shape and place: no name is ever formed."""

    def __init__(self, image: VisionTransformer):
        super().__init__()
        self.image = image
        self.heads = nn.ModuleList(nn.Linear(WIDTH, len(values)) for values in (COLORS, SHAPES, PLACES))

    pattern = None

    def loss(self, images: Tensor, captions: list[str], scenes: Tensor) -> Tensor:
        features = self.image.features(images)
        losses = [nn.functional.cross_entropy(head(features), scenes[:, n]) for n, head in enumerate(self.heads)]
        return torch.stack(losses).sum()

    def scores(self, images: Tensor) -> Tensor:
        color, shape, _ = (head(self.image.features(images)).log_softmax(dim=-1) for head in self.heads)
        return (color[:, :, None] + shape[:, None]).flatten(1)


@torch.no_grad()
def shares_right(model: Towers | Heads, scenes: Tensor, images: int) -> dict[str, float]:
    """Of that many new images of these scenes, the shares that are right: the name, of 64 and among theirs; its parts.

    "among": asked only among the names that these scenes have.
    """
    theirs = torch.zeros(len(NAMES)).index_fill(0, scenes[:, 0] * len(SHAPES) + scenes[:, 1], 1.0)
    scenes = scenes.repeat(math.ceil(images / len(scenes)), 1)[:images]
    scores = model.scores(prepare(draw_scenes(scenes)))
    answer, among = scores.argmax(dim=-1), (scores + theirs.log()).argmax(dim=-1)
    color, shape = answer // len(SHAPES) == scenes[:, 0], answer % len(SHAPES) == scenes[:, 1]
    found = {"both": color & shape, "color": color, "shape": shape}
    found["among"] = among == scenes[:, 0] * len(SHAPES) + scenes[:, 1]
    return {name: right.double().mean().item() for name, right in found.items()}


KINDS = ("softmax", "three vectors", "heads", "sigmoid")
ARMS = {f"{kind}, {names} names": (kind, names // len(COLORS)) for names in (48, 16) for kind in KINDS}


def run(arm: str, rate: float, seed: int, tuning: bool, steps: int = 1000, images: int = 1920) -> dict:
    """Train once; what came of it on new images, of scenes as in training and of those kept from it."""
    torch.set_num_threads(1)
    kind, shapes = ARMS[arm]
    torch.manual_seed(seed)
    trained, kept = scenes_of(shapes)
    image = VisionTransformer(
        ViTConfig(24, 6, dim=WIDTH, depth=2, num_heads=4, mlp_dim=96, num_classes=0, positions="sincos_2d")
    )
    model = Heads(image) if kind == "heads" else Towers(image, kind)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: warmup_cosine(step, steps, 30))
    start = time.process_time()
    torch.manual_seed(seed)  # the same scenes, however many numbers the weights took
    for _ in range(steps):
        scenes = trained[torch.randperm(len(trained))[:64]]
        value = model.loss(prepare(draw_scenes(scenes)), describe_scenes(scenes, model.pattern), scenes)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        schedule.step()
    spent = {"core_seconds": round(time.process_time() - start, 3), "n": images}
    seen, never_seen = (shares_right(model, some, images) for some in (trained, kept))
    if tuning:
        return {"validation_accuracy": (seen["both"] + never_seen["both"]) / 2, **spent}
    return {"last_loss": value.item(), "seen": seen, "never_seen": never_seen, **spent}


def main(arguments: list[str] | None = None) -> None:
    parser = arguments_of(__doc__, data_dir=False)
    parser.add_argument("--arms", nargs="+", default=list(ARMS)[:3], choices=list(ARMS), metavar="ARM")
    parser.add_argument("--rates", type=float, nargs="+", default=[1e-3, 2e-3, 4e-3], help="to begin with")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    given = parser.parse_args(arguments)
    compare(Rows(given.file), run, given.arms, given.rates, given.seeds)


if __name__ == "__main__":
    main()

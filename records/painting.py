"""Painters of chapter 29: what the output stands for, how time and class enter, and a longer run on photographs.

    python records/painting.py vitbook/assets/runs/painting_aims.json aims
    python records/painting.py vitbook/assets/runs/painting.json digits
    python records/painting.py vitbook/assets/runs/painting_photographs.json photographs --data-dir FOLDER --minutes 60

`aims` compares predicting the clean image, the noise and the velocity, at patches of 8, 4 and 2 pixels, and two tokens
with adaptive LayerNorm, all with one loss and each at its own rate. A rate is chosen by the Fréchet distance to
validation images; what is compared is measured against the test images. `digits` trains chapter 29's painter with three
seeds, and measures by steps and guidance. `photographs` trains a painter of CIFAR-10 that can be stopped: repeated, it
goes on until so many minutes of one core are spent. Its running mean is kept in float16.
"""

import time
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

import torch
from harness import Rows, arguments_of, compare, processor, versions, write
from sklearn.model_selection import cross_val_score
from sklearn.svm import SVC
from torch import nn

from vitbook._common.files import ASSETS
from vitbook.augment import random_affine, random_flip
from vitbook.checkpoint import load_checkpoint, load_state_tensors, save_checkpoint, state_tensors
from vitbook.data import Split, digits, load_dataset
from vitbook.engine import average
from vitbook.painting import (
    AIMS,
    Painter,
    frechet_distance,
    nearest_distances,
    paint,
    painting_loss,
    time_code,
    train_painter,
)
from vitbook.patches import unpatchify
from vitbook.runtime import has_bfloat16
from vitbook.training import parameter_groups, train_epoch, warmup_cosine
from vitbook.vit import CONFIGS, VisionTransformer, ViTConfig, create_vit

SMALL = replace(CONFIGS["vit_digits"], dim=48, depth=3, num_heads=3, mlp_dim=96)  # of the comparisons
ADAPTIVE = "image, 2, adaptive LayerNorm"
ARMS = {f"{aim}, {patch}": (aim, patch) for patch in (8, 4, 2) for aim in AIMS} | {ADAPTIVE: ("image", 2)}
WORK = [Path("painter")]  # the folder of what a command needs again
PAINTED = 300  # images that a painter is judged by, as many of each class

DIGITS, DIGITS_RATE, DIGITS_EPOCHS = CONFIGS["vit_digits"], 4e-3, 24  # chapter 29's painter
PHOTOGRAPHS = ViTConfig(image_size=32, patch_size=8, num_classes=10, dim=96, depth=4, num_heads=4, mlp_dim=288)
BATCH, RATE, DECAY, WARMUP, CHUNK = 128, 2e-3, 0.998, 200, 50  # of the long run; its state is kept every CHUNK steps


def from_levels(images: torch.Tensor) -> torch.Tensor:
    """0 … 255 to −1 … 1."""
    return images.float() / 127.5 - 1


def grays(images: torch.Tensor) -> torch.Tensor:
    """Rounded to the 17 grays that the digits have, so that nothing is told apart by its rounding."""
    return (images.clamp(-1, 1) * 8).round() / 8


class AdaptivePainter(Painter):
    """Time and class as shift, scale and gate of every block, instead of as tokens. Peebles & Xie 2023, adaLN-Zero."""

    def __init__(self, config: ViTConfig, aim: str = "image"):
        super().__init__(config, aim)
        self.modulations = nn.ModuleList(nn.Linear(config.dim, 6 * config.dim) for _ in range(config.depth))
        for modulation in self.modulations:
            nn.init.zeros_(modulation.weight)
            nn.init.zeros_(modulation.bias)

    def forward(self, z: torch.Tensor, t: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        config = self.backbone.config
        told = nn.functional.silu(self.time(time_code(t, config.dim)) + self.classes(labels))[:, None]
        x = self.backbone.embedding(z)
        for block, modulation in zip(self.backbone.encoder.blocks, self.modulations, strict=True):
            shift1, scale1, gate1, shift2, scale2, gate2 = modulation(told).chunk(6, dim=-1)
            x = x + gate1 * block.attn(block.norm1(x) * (1 + scale1) + shift1)
            x = x + gate2 * block.mlp(block.norm2(x) * (1 + scale2) + shift2)
        out = unpatchify(self.to_pixels(self.backbone.norm(x)), config.patch_size, config.sides)
        return AIMS[self.aim](out, z, t[:, None, None, None])


@cache
@torch.enable_grad()  # who asks first measures, without gradients
def judges() -> tuple[SVC, VisionTransformer]:
    """Who names a painted digit, and whose features are compared: chapter 10's model, by its recipe, trained once."""
    data, model = digits(), create_vit("vit_digits")
    kept = WORK[0] / "judge.json"
    if kept.exists():
        model.load_state_dict(load_checkpoint(kept)[0])
    else:
        torch.manual_seed(0)
        model = create_vit("vit_digits")
        batches = data.loader(data.train, batch_size=64, shuffle=True, seed=0)
        optimizer = torch.optim.AdamW(parameter_groups(model, weight_decay=0.3), lr=3e-3, fused=True)
        steps = 40 * len(batches)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: warmup_cosine(step, steps, steps // 10))
        for _ in range(40):
            train_epoch(model, batches, optimizer, schedule, label_smoothing=0.1, augment=random_affine)
        save_checkpoint(WORK[0], "judge", model.state_dict(), {})
    return SVC().fit(from_levels(data.train.images).flatten(1), data.train.labels), model.eval()


@torch.no_grad()
def measured(images: torch.Tensor, labels: torch.Tensor, others: Split) -> dict:
    """What there is to say of images, −1 to 1, beside those of `others`: painted ones, or real ones to compare with."""
    svm, model = judges()
    data = digits()
    images, real = grays(images), grays(from_levels(others.images))
    mean, std = data.moments

    def features(images: torch.Tensor) -> torch.Tensor:
        return model.features(((images + 1) / 2 - mean) / std)

    some = images[torch.randperm(len(images), generator=torch.Generator().manual_seed(0))][: len(real)]
    both, which = torch.cat([some, real]).flatten(1), [0] * len(some) + [1] * len(real)
    mixed = torch.randperm(len(both), generator=torch.Generator().manual_seed(0))
    told_apart = cross_val_score(SVC(), both[mixed], torch.tensor(which)[mixed], cv=5)
    return {
        "named": float(svm.score(images.flatten(1), labels)),
        "nearest": nearest_distances(images, grays(from_levels(data.train.images))).mean().item(),
        "told_apart": float(told_apart.mean()),
        "frechet": frechet_distance(features(images), features(real)),
    }


def painted(model: Painter, steps: int = 25, guidance: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    labels = torch.arange(PAINTED) % 10
    noise = torch.randn(PAINTED, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    return paint(model, labels, steps, guidance, noise), labels


def run(arm: str, rate: float, seed: int, tuning: bool, epochs: int) -> dict:
    """Train one arm, and measure what it paints beside the validation images or the test images."""
    data = digits()
    if tuning:
        data = data.with_validation(0.2, seed)
    aim, patch_size = ARMS[arm]
    torch.manual_seed(seed)
    model = (AdaptivePainter if arm == ADAPTIVE else Painter)(replace(SMALL, patch_size=patch_size), aim)
    images, labels = from_levels(data.train.images), data.train.labels
    mean, losses = train_painter(model, images, labels, epochs, batch_size=32, learning_rate=rate)
    found = measured(*painted(mean), data.validation or data.test)
    found["n"] = PAINTED
    found["parameters"] = sum(parameter.numel() for parameter in mean.parameters())
    return {"loss": losses[-1], **found} | ({"validation_closeness": -found["frechet"]} if tuning else {})


def digit_painters(rows: Rows, epochs: int, seeds: list[int]) -> None:
    """Chapter 29's painter with each seed, by steps and guidance; and real images in the place of painted ones."""
    data = digits()
    images, labels = from_levels(data.train.images), data.train.labels
    ways = [(25, guidance) for guidance in (0.0, 1.0, 1.5, 2.0, 3.0, 4.0)]
    ways += [(steps, 2.0) for steps in (1, 2, 3, 5, 10)]
    for seed in seeds:
        drawn = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))[:PAINTED]
        key = dict(rate=None, seed=seed, tuning=False, n=PAINTED)
        rows.once(lambda drawn=drawn: measured(images[drawn], labels[drawn], data.test), what="training images", **key)
        if rows.find(arm=f"{ways[-1][0]} steps, guidance {ways[-1][1]:g}", seed=seed):
            continue
        torch.manual_seed(seed)
        model = Painter(DIGITS)
        mean = train_painter(model, images, labels, epochs, batch_size=32, learning_rate=DIGITS_RATE)[0]
        for steps, guidance in ways:
            made = {"steps": steps, "guidance": guidance, **key, "rate": DIGITS_RATE}
            arm = f"{steps} steps, guidance {guidance:g}"
            rows.once(
                lambda mean=mean, way=(steps, guidance): measured(*painted(mean, *way), data.test), arm=arm, **made
            )


def train_photographs(file: Path, data_dir: Path | None, minutes: float, assets: Path, work: Path) -> None:
    """Go on with the run whose state is in the folder `work`, until it has taken so long; write record and weights.

    The rate is constant after a warm-up, so that the running mean may be taken at any time.
    """
    data = load_dataset("cifar10", data_dir, validation=0.0)
    torch.manual_seed(0)
    model, mean = Painter(PHOTOGRAPHS), Painter(PHOTOGRAPHS)
    mean.load_state_dict(model.state_dict())
    optimizer = torch.optim.AdamW(parameter_groups(model, 0.01), lr=RATE, betas=(0.9, 0.95), fused=True)
    state = {"model": model, "mean": mean, "optimizer": optimizer}
    facts = {"step": 0, "core_seconds": 0.0, "losses": []}
    if (work / "last.json").exists():
        tensors, facts = load_checkpoint(work / "last.json")
        load_state_tensors(state, tensors)
    while facts["core_seconds"] < 60 * minutes:
        began, total = time.process_time(), 0.0
        torch.manual_seed(facts["step"])  # what follows depends on the step alone, stopped or not
        for step in range(facts["step"], facts["step"] + CHUNK):
            for group in optimizer.param_groups:
                group["lr"] = RATE * min(1, (step + 1) / WARMUP)
            images, labels = batch(data.train, step)
            with torch.autocast("cpu", torch.bfloat16, enabled=has_bfloat16(torch.device("cpu"))):
                loss = painting_loss(model, random_flip(from_levels(images)), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            average(mean, model, min(DECAY, (1 + step) / (10 + step)))
            total += loss.item()
        facts["step"] += CHUNK
        facts["core_seconds"] += time.process_time() - began
        facts["losses"].append(round(total / CHUNK, 4))
        save_checkpoint(work, "last", state_tensors(state), facts)
        print(facts["step"], round(facts["core_seconds"]), facts["losses"][-1], flush=True)
    about = {
        "dataset": data.name,
        "model": asdict(PHOTOGRAPHS),
        "class_names": list(data.class_names),
        "settings": {"batch": BATCH, "rate": RATE, "decay": DECAY, "warmup": WARMUP},
        "epochs": round(facts["step"] * BATCH / len(data.train), 2),
        "parameters": sum(parameter.numel() for parameter in mean.parameters()),
    }
    save_checkpoint(assets / "painters", "photographs", {key: t.half() for key, t in mean.state_dict().items()}, about)
    facts["core_seconds"] = round(facts["core_seconds"])
    write(file, about | facts | {"processor": processor(), **versions()})


def batch(split: Split, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The images and labels of this step; each epoch has an order of its own."""
    each = len(split) // BATCH
    order = torch.randperm(len(split), generator=torch.Generator().manual_seed(step // each))
    chosen = order[step % each * BATCH :][:BATCH]
    return split.images[chosen], split.labels[chosen]


def main(arguments: list[str] | None = None) -> None:
    parser = arguments_of(__doc__)
    parser.add_argument("what", choices=["aims", "digits", "photographs"])
    parser.add_argument("--epochs", type=int, help="on the digits; 10 to compare, 24 for the chapter's painter")
    parser.add_argument("--rates", type=float, nargs="+", default=[2e-3, 4e-3, 8e-3])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS), metavar="ARM")
    parser.add_argument("--minutes", type=float, default=60, help="of one core, for the photographs")
    parser.add_argument("--assets", type=Path, default=ASSETS, help="where to keep the weights")
    parser.add_argument("--work", type=Path, default=Path("painter"), help="the folder of a run's state")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    WORK[0] = given.work
    if given.what == "photographs":
        train_photographs(given.file, given.data_dir, given.minutes, given.assets, given.work)
    elif given.what == "digits":
        digit_painters(
            Rows(given.file, "rows", epochs=given.epochs or DIGITS_EPOCHS), given.epochs or DIGITS_EPOCHS, given.seeds
        )
    else:
        epochs = given.epochs or 10
        rows = Rows(given.file, "rows", epochs=epochs)
        compare(
            rows,
            lambda **key: run(**key, epochs=epochs),
            given.arms,
            given.rates,
            given.seeds,
            by="validation_closeness",
        )


if __name__ == "__main__":
    main()

"""Train DINO or LeJEPA on CIFAR-10 without labels, keep the backbone, and write down what its features are good for.

    python records/dino.py --data-dir FOLDER --method lejepa

By default it trains for 45 minutes of one CPU core and measures for about four more. The record goes to
vitbook/assets/runs/METHOD.json, the weights in float16, about 1.6 MB, to vitbook/assets/weights/METHOD.json and the
safetensors beside it: `load_pretrained("vitbook:lejepa")`. DINO's backbone is the teacher's. Started again after an
interruption, it goes on from the checkpoint in --folder; delete that to start over.
"""

import argparse
import math
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path

import torch
from mae import keep, read_off
from torch import Tensor, nn

from vitbook._common.files import ASSETS
from vitbook.checkpoint import load_checkpoint, load_state_tensors, save_checkpoint, state_tensors
from vitbook.data import Dataset, load_dataset
from vitbook.dino import (
    ProjectionHead,
    StudentAndTeacher,
    View,
    ViewEncoder,
    crops,
    entropy,
    lejepa_loss,
    random_colors,
)
from vitbook.pretrained import load_pretrained
from vitbook.runtime import device, has_bfloat16
from vitbook.training import parameter_groups, warmup_cosine
from vitbook.vit import VisionTransformer, ViTConfig

CHECKPOINT_SECONDS = 60.0


class Dino:
    """A student, and a teacher that follows it."""

    def __init__(self, backbone: VisionTransformer, given: argparse.Namespace):
        self.model = StudentAndTeacher(backbone, ProjectionHead(given.dim, given.prototypes)).to(device())
        self.learner, self.backbone = self.model.student, self.model.teacher.backbone
        self.momentum = given.momentum

    def loss(self, large: list[View], small: list[View]) -> tuple[Tensor, dict[str, float]]:
        """Of one step, and the entropies that tell of a collapse, in nats."""
        with autocast():
            student, self.answers = (logits.float() for logits in self.model(large, small))
        p = self.model.targets(self.answers)
        spread = {"each": entropy(p).mean().item(), "mean": entropy(p.mean(dim=(0, 1))).item()}
        return self.model.loss(student, self.answers), spread

    def after_step(self, progress: float) -> None:
        momentum = 1 - (1 - self.momentum) * (math.cos(math.pi * progress) + 1) / 2  # rises to 1
        self.model.follow(self.answers, momentum)


class LeJepa:
    """One network; its head normalizes over the batch, as in the authors' minimal example."""

    def __init__(self, backbone: VisionTransformer, given: argparse.Namespace):
        head = nn.Sequential(nn.Linear(given.dim, 512), nn.BatchNorm1d(512), nn.GELU(), nn.Linear(512, 64))
        self.model = self.learner = ViewEncoder(backbone, head).to(device())
        self.backbone, self.weight = backbone, given.weight

    def loss(self, large: list[View], small: list[View]) -> tuple[Tensor, dict[str, float]]:
        with autocast():
            z = torch.cat([self.model(torch.cat(views)).float() for views in (large, small)])
        return lejepa_loss(z.unflatten(0, (-1, len(large[0]))), self.weight), {}

    def after_step(self, progress: float) -> None:
        """Nothing follows."""


METHODS = {"dino": Dino, "lejepa": LeJepa}


class Training:
    """A method in training; every random number of a step depends on the seed and on the step alone."""

    def __init__(self, data: Dataset, given: argparse.Namespace):
        torch.manual_seed(given.seed)
        channels, *image_size = data.train.images.shape[1:]
        vit = ViTConfig(
            image_size=tuple(image_size), patch_size=given.patch_size, channels=channels, num_classes=0, dim=given.dim,
            depth=given.depth, num_heads=given.num_heads, mlp_dim=2 * given.dim, pool=given.pool,
        )  # fmt: skip
        self.method = METHODS[given.method](VisionTransformer(vit), given)
        self.model, self.backbone = self.method.model, self.method.backbone
        self.optimizer = torch.optim.AdamW(parameter_groups(self.method.learner, 0.04), lr=given.learning_rate)
        self.data, self.given = data, given
        self.epoch_steps = len(data.train) // given.batch_size
        self.steps = given.epochs * self.epoch_steps
        self.step, self.seconds, self.core_seconds = 0, 0.0, 0.0
        self.curve: list[dict[str, float]] = []  # a mean over each hundredth of the training

    @property
    def settings(self) -> dict:
        """What makes this run this one."""
        return {name: value for name, value in vars(self.given).items() if not isinstance(value, Path)}

    def run(self) -> None:
        """Train for so many epochs, or until the time is up."""
        latest, saved = [], 0.0
        clock, core = time.perf_counter() - self.seconds, time.process_time() - self.core_seconds
        while (progress := max(self.step / self.steps, self.seconds / self.given.seconds)) < 1:
            latest.append(self.take_step(progress))
            self.seconds, self.core_seconds = time.perf_counter() - clock, time.process_time() - core
            if progress >= len(self.curve) / 100:
                mean = {name: sum(one[name] for one in latest) / len(latest) for name in latest[0]}
                self.curve.append({"step": self.step} | {name: round(value, 4) for name, value in mean.items()})
                latest = []
                print(f"{progress:4.0%} of the training, {self.seconds:.0f} s: {self.curve[-1]}", flush=True)
            if self.seconds - saved > CHECKPOINT_SECONDS:
                self.save()
                saved = self.seconds

    def take_step(self, progress: float) -> dict[str, float]:
        """One step, at this share of the training."""
        given = self.given
        torch.manual_seed(given.seed + self.step // self.epoch_steps)
        order = torch.randperm(len(self.data.train))
        place = self.step % self.epoch_steps * given.batch_size
        torch.manual_seed((given.seed << 32) + self.step)
        images = self.data.normalize(self.data.train.images[order[place : place + given.batch_size]]).to(device())
        views = crops(images, given.large, given.small, given.num_small, change=partial(random_colors, tint=given.tint))
        rate = warmup_cosine(round(1000 * progress), 1001, 50)
        for group in self.optimizer.param_groups:
            group["lr"] = given.learning_rate * rate
        loss, facts = self.method.loss(*views)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.method.learner.parameters(), 3.0)
        self.optimizer.step()
        self.method.after_step(progress)
        self.step += 1
        return {"loss": loss.item()} | facts

    def save(self) -> None:
        facts = {"settings": self.settings, "step": self.step, "curve": self.curve}
        facts |= {"seconds": self.seconds, "core_seconds": self.core_seconds}
        save_checkpoint(self.given.folder, "last", state_tensors({"model": self.model, "opt": self.optimizer}), facts)

    def resume(self) -> None:
        """Go on from the checkpoint, if there is one. Raises ValueError where it is of another run."""
        if not (path := self.given.folder / "last.json").exists():
            return
        tensors, facts = load_checkpoint(path)
        if facts["settings"] != self.settings:
            others = facts["settings"]
            raise ValueError(f"{path} is of a run with other settings, {others}: delete it or name a --folder")
        load_state_tensors({"model": self.model, "opt": self.optimizer}, tensors)
        self.step, self.curve = facts["step"], facts["curve"]
        self.seconds, self.core_seconds = facts["seconds"], facts["core_seconds"]


def autocast() -> torch.autocast:
    """Products in bfloat16, where the device has it."""
    return torch.autocast(device().type, torch.bfloat16, enabled=has_bfloat16(device()))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--method", default="dino", choices=METHODS)
    parser.add_argument("--assets", type=Path, default=ASSETS, help="where to keep the record and the weights")
    parser.add_argument("--folder", type=Path, default=Path("runs/agreement"), help="for the checkpoint to go on from")
    parser.add_argument("--about", default="", help="what data, which machine: a sentence")
    parser.add_argument("--beside", help="weights to measure as well, such as vitbook:cifar10_plain, which had labels")
    parser.add_argument("--dataset", default="cifar10")
    parser.add_argument("--data-dir", type=Path, help="where the data set's files are; without it they are downloaded")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=2700, help="of training at most; the rate falls accordingly")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=1.5e-3)
    parser.add_argument("--momentum", type=float, default=0.99, help="of DINO's teacher, at first")
    parser.add_argument("--prototypes", type=int, default=1024, help="of DINO's head")
    parser.add_argument("--weight", type=float, default=0.05, help="LeJEPA's λ")
    parser.add_argument("--large", type=int, default=24, help="side of the large views in pixels")
    parser.add_argument("--small", type=int, default=12, help="side of the small views in pixels")
    parser.add_argument("--num-small", type=int, default=4)
    parser.add_argument("--tint", type=float, default=0.3, help="of views, as in `random_colors`")
    parser.add_argument("--patch-size", type=int, default=4)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--num-heads", type=int, default=4)
    parser.add_argument("--pool", default="class")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    data = load_dataset(given.dataset, given.data_dir, validation=0.0)
    training = Training(data, given)
    with autocast():
        before = read_off(training.backbone, data)
    print(f"before {before}", flush=True)
    training.resume()
    training.run()
    training.save()
    with autocast():
        after = read_off(training.backbone, data)
    facts = {
        "about": given.about,
        "dataset": data.name,
        "settings": training.settings,
        "model": asdict(training.backbone.config),
        "steps": training.step,
        "images_seen": training.step * given.batch_size,
        "seconds": round(training.seconds),
        "core_seconds": round(training.core_seconds),
        "curve": training.curve,
        "before": before,
        "after": after,
        "test_images": len(data.test),
        "torch": torch.__version__,
    }
    if given.beside:
        with autocast():
            facts["beside"] = {"weights": given.beside} | read_off(load_pretrained(given.beside).model, data)
    keep(given.method, training.backbone.state_dict(), data, facts, given.assets)
    print(f"after  {after}")


if __name__ == "__main__":
    main()

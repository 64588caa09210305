"""Teach a small plain ViT on CIFAR-10 in several ways, one number changed at a time; write down what each was worth.

    python records/distillation.py vitbook/assets/runs/distillation.json \\
        --teachers runs/cifar10_small_teacher vitbook:cifar10 --data-dir FOLDER

The first teacher is the CNN, here of `vitbook train --config cifar10_teacher --cnn 32 128 128 --folder
runs/cifar10_small_teacher`, the second the hybrid of `cifar10_hour`: a ViT behind four convolutions, which a larger CNN
taught. All students share one rate. A seed draws the order of the training images, how each is
cropped and flipped at each showing, and the weights; all students of a seed are shown the same, and the teachers are
asked about each showing once. So students of one seed can be compared in pairs. Nothing is chosen by the test images.
As it is, it takes two and a half hours of one core without bfloat16; a command that is repeated adds what is missing.
"""

import time

import torch
import torch.nn.functional as F
from harness import Rows, arguments_of
from torch import Tensor, nn

from vitbook.augment import random_crop, random_flip
from vitbook.data import Dataset, Split, load_dataset
from vitbook.distillation import (
    DistilledVisionTransformer,
    hard_distillation_loss,
    soft_distillation_loss,
    token_distillation_loss,
)
from vitbook.engine import batches
from vitbook.muon import Muon, hidden_matrices
from vitbook.runtime import device, has_bfloat16
from vitbook.training import evaluate, parameter_groups, warmup_cosine
from vitbook.vit import VisionTransformer, ViTConfig
from vitbook_workshop.training_runs.teachers import load_teacher

SHAPE = ViTConfig(image_size=32, patch_size=8, dim=96, depth=4, num_heads=4, mlp_dim=192, num_classes=10)
BATCH, RATE, MUON_RATE, DECAY = 128, 2e-3, 6e-3, 0.1


def soft(weight: float, temperature: float, teacher: int = 0):
    """The loss of soft distillation with these numbers."""
    return lambda model, x, y, taught: soft_distillation_loss(model(x), y, taught[teacher], temperature, weight)


def labels_twice(model: nn.Module, x: Tensor, y: Tensor, taught: list[Tensor]) -> Tensor:
    """Two tokens and no teacher: both hear the label."""
    return token_distillation_loss(*model.both_heads(x), y, F.one_hot(y, 10).float())


# which student, and its loss of images, labels and the logits of both teachers
PLAIN, TWO = VisionTransformer, DistilledVisionTransformer
VARIANTS = {
    "labels alone": (PLAIN, lambda model, x, y, taught: F.cross_entropy(model(x), y)),
    "labels alone, smoothed by 0.1": (PLAIN, lambda model, x, y, t: F.cross_entropy(model(x), y, label_smoothing=0.1)),
    "soft, λ = 0.1, τ = 3": (PLAIN, soft(0.1, 3.0)),
    "soft, λ = 0.1, τ = 1": (PLAIN, soft(0.1, 1.0)),
    "soft, λ = 0.5, τ = 1": (PLAIN, soft(0.5, 1.0)),
    "soft, λ = 0.9, τ = 1": (PLAIN, soft(0.9, 1.0)),
    "soft, λ = 0.9, τ = 3": (PLAIN, soft(0.9, 3.0)),
    "hard": (PLAIN, lambda model, x, y, taught: hard_distillation_loss(model(x), y, taught[0])),
    "hard, with a token": (
        TWO,
        lambda model, x, y, taught: token_distillation_loss(*model.both_heads(x), y, taught[0]),
    ),
    "two tokens, labels alone": (TWO, labels_twice),
    "soft, λ = 0.9, τ = 1, the hybrid": (PLAIN, soft(0.9, 1.0, teacher=1)),
    "hard, the hybrid": (PLAIN, lambda model, x, y, taught: hard_distillation_loss(model(x), y, taught[1])),
}


def lesson(data: Dataset, teachers: list[nn.Module], images: int, epochs: int, seed: int) -> list[tuple]:
    """What every student of a seed is shown: batches of images, labels, and the logits of each teacher."""
    torch.manual_seed(seed)
    chosen, shown = torch.randperm(len(data.train))[:images], []
    for _ in range(epochs):
        for some in chosen[torch.randperm(len(chosen))].split(BATCH):
            x = random_flip(random_crop(data.train.images[some].float(), padding=3)).to(torch.uint8)
            shown.append((x, data.train.labels[some].to(device())))
    # Only now: kept between the teachers' large tensors, each batch would pin many times its memory.
    return [(x, y, [ask(teacher, data.normalize(x).to(device())) for teacher in teachers]) for x, y in shown]


@torch.no_grad()
def ask(teacher: nn.Module, images: Tensor) -> Tensor:
    """What a teacher says of some images."""
    with half():
        return teacher(images).float()


def half() -> torch.autocast:
    """bfloat16 where the hardware has it."""
    return torch.autocast(device().type, torch.bfloat16, enabled=has_bfloat16(device()))


def train(model: nn.Module, loss_of, shown: list[tuple], data: Dataset) -> nn.Module:
    """The recipe of `cifar10_quick`, in short: Muon for the matrices inside, AdamW for the rest."""
    hidden = hidden_matrices(model)
    groups = parameter_groups(model, DECAY)
    for group in groups:
        group["params"] = [p for p in group["params"] if not any(p is matrix for matrix in hidden.values())]
    optimizers = torch.optim.AdamW(groups, lr=RATE), Muon(hidden, MUON_RATE, DECAY)
    schedules = [
        torch.optim.lr_scheduler.LambdaLR(one, lambda step: warmup_cosine(step, len(shown), len(shown) // 10))
        for one in optimizers
    ]
    for x, y, taught in shown:
        with half():
            loss = loss_of(model, data.normalize(x).to(device()), y, taught)
        model.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        for one in (*optimizers, *schedules):
            one.step()
    return model.eval()


def test_accuracy(model: nn.Module, data: Dataset, split: Split) -> float:
    with half():
        return evaluate(model, batches(split, data.mean, data.std, 500)).accuracy


def main(arguments: list[str] | None = None) -> None:
    parser = arguments_of(__doc__)
    parser.add_argument("--teachers", nargs=2, required=True, help="weights of the CNN and of the hybrid")
    parser.add_argument("--images", type=int, default=50_000, help="of the training images")
    parser.add_argument("--test-images", type=int, default=10_000, help="of the test images, the first")
    parser.add_argument("--epochs", type=int, default=3, help="showings of each image")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="each student once with each")
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=list(VARIANTS), metavar="VARIANT")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    data = load_dataset("cifar10", given.data_dir, validation=0.0)
    test = Split(data.test.images[: given.test_images], data.test.labels[: given.test_images])
    teachers = [load_teacher(source, data).to(device()).eval() for source in given.teachers]
    right = [test_accuracy(teacher, data, test) for teacher in teachers]
    facts = {
        "shape": dict(patch_size=8, dim=SHAPE.dim, depth=SHAPE.depth, heads=SHAPE.num_heads, mlp_dim=SHAPE.mlp_dim),
        "images": given.images,
        "epochs": given.epochs,
        "teachers": dict(zip(("CNN", "hybrid"), right, strict=True)),
    }
    lessons, rows = Rows(given.file, "lessons", **facts), Rows(given.file, "rows", **facts)
    for seed in given.seeds:
        keys = [dict(arm=name, rate=RATE, seed=seed, tuning=False, n=len(test)) for name in given.variants]
        if all(rows.find(**key) for key in keys):
            continue
        began = time.process_time()
        shown = lesson(data, teachers, given.images, given.epochs, seed)
        labels = torch.cat([y for _, y, _ in shown])
        choices = [torch.cat([taught[n] for *_, taught in shown]).argmax(dim=1) for n in range(2)]
        contradicts = [(choice != labels).double().mean().item() for choice in choices]
        heard = {"contradicts_label": contradicts, "core_seconds": time.process_time() - began}
        lessons.once(lambda heard=heard: heard, seed=seed)

        def student(arm: str, seed: int, shown: list[tuple] = shown, **_: object) -> dict:
            model_class, loss_of = VARIANTS[arm]
            torch.manual_seed(seed)
            began = time.process_time()
            model = train(model_class(SHAPE).to(device()), loss_of, shown, data)
            seconds = time.process_time() - began
            return {"test_accuracy": test_accuracy(model, data, test), "core_seconds": seconds}

        rows.fill(student, keys)


if __name__ == "__main__":
    main()

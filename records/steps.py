"""Train chapter 10's model by its recipe, and look into it on the way: for the figure that goes through the run.

    python records/steps.py vitbook/assets/runs/steps.safetensors

After no epoch and after every one: loss and accuracy on the test images. After some: the cosine similarities of the
positions, what the class token attends to in the first test image, the probability of that image's digit, and the
weights of the head. Twenty seconds on a core.
"""

from argparse import ArgumentParser
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor

from vitbook._common.files import write_whole
from vitbook.attention_maps import position_similarity, recorded_attention
from vitbook.augment import random_affine
from vitbook.data import Dataset, digits
from vitbook.runtime import seed_everything
from vitbook.training import evaluate, parameter_groups, train_epoch, warmup_cosine
from vitbook.vit import VisionTransformer, create_vit

SHOWN = (0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30, 40)  # epochs; much happens in the first ones
PEAK, DECAY, SMOOTHING, BATCH = 3e-3, 0.3, 0.1, 64


@torch.no_grad()
def look(model: VisionTransformer, data: Dataset) -> dict[str, Tensor]:
    """What the figure shows of a model: similarity (N, N), attention (L, h, N), probability (), head (K, D)."""
    embedding = model.embedding
    model.eval()
    with recorded_attention(model) as weights:
        probabilities = model(data.normalize(data.test.images[:1]))[0].softmax(dim=-1)
    return {
        "similarity": position_similarity(embedding.positions(), embedding.grid).flatten(1),
        "attention": torch.cat(weights)[:, :, 0, 1:],
        "probability": probabilities[data.test.labels[0]],
        "head": model.head.weight.clone(),
    }


def record(data: Dataset, epochs: int, shown: tuple[int, ...], seed: int) -> dict[str, Tensor]:
    """The run, as in the chapter. Of every epoch loss and accuracy, and of those in `shown` what `look` finds."""
    seed_everything(seed)
    model = create_vit("vit_digits")
    batches, tests = data.loader(data.train, BATCH, shuffle=True), data.loader(data.test, BATCH)
    optimizer = torch.optim.AdamW(parameter_groups(model, weight_decay=DECAY), lr=PEAK, fused=True)
    steps = epochs * len(batches)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: warmup_cosine(step, steps, steps // 10))
    curves, seen = [], []
    for epoch in range(epochs + 1):
        if epoch:
            train_epoch(model, batches, optimizer, schedule, label_smoothing=SMOOTHING, augment=random_affine)
        result = evaluate(model, tests)
        curves.append((result.loss, result.accuracy))
        if epoch in shown:
            seen.append(look(model, data))
            print(f"epoch {epoch:>2}: test loss {result.loss:.3f}, {result.accuracy:.1%} right", flush=True)
    loss, accuracy = torch.tensor(curves).T.contiguous()
    found = {name: torch.stack([one[name] for one in seen]) for name in seen[0]}
    return found | {"epochs": torch.tensor(shown), "loss": loss, "accuracy": accuracy}


def main(arguments: list[str] | None = None) -> None:
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="the safetensors to write")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    shown = tuple(epoch for epoch in SHOWN if epoch <= given.epochs)
    found = record(digits(), given.epochs, shown, given.seed)
    facts = {"seed": str(given.seed), "steps_an_epoch": "23", "torch": torch.__version__}
    small = {name: x.half() if x.dim() > 1 else x for name, x in found.items()}
    write_whole(given.file, save(small, facts))


if __name__ == "__main__":
    main()

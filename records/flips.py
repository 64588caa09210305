"""Train a small ViT on photographs with flips and without, and write down how alike its mirrored positions become.

    python records/flips.py vitbook/assets/runs/mirrored_positions.json --data-dir FOLDER

CIFAR-10 at 16 × 16 pixels in patches of 2, 400 steps of 64 images, none shown twice. Each arm has its own rate, the
best on 5,000 validation images. Two minutes on a core.
"""

from dataclasses import replace

import torch
from harness import Rows, arguments_of, compare
from torch import Tensor
from until_flat import shrunk

from vitbook.attention_maps import position_similarity
from vitbook.data import Dataset, Split, load_dataset
from vitbook.runtime import seed_everything
from vitbook.training import evaluate, parameter_groups, train_epoch, warmup_cosine
from vitbook.vit import VisionTransformer, ViTConfig

ARMS = ("no flips", "flips")
RATES = (2e-3, 6e-3, 1.8e-2)
STEPS, BATCH, DECAY = 400, 64, 0.05
CONFIG = ViTConfig(16, 2, 3, 10, dim=32, depth=2, num_heads=2, mlp_dim=64)


def flipped(images: Tensor) -> Tensor:
    """Half of the images, drawn at random, mirrored left to right."""
    return torch.where(torch.rand(len(images), 1, 1, 1) < 0.5, images, images.flip(3))


def mirrors(table: Tensor, side: int) -> dict:
    """Mean cosine of the positions of neighbors, and of places mirrored left to right and top to bottom.

    Of the latter for the outermost columns or rows first; those in the middle are neighbors.
    """
    similar = position_similarity(table, (side, side)).view(side, side, side, side)
    n, m = torch.arange(side).view(side, 1), torch.arange(side)
    beside = similar[n, m[1:], n, m[:-1]].mean() + similar[n[1:], m, n[:-1], m].mean()
    pairs = {"left_right": (similar[n, m, n, m.flip(0)], 0), "top_bottom": (similar[n, m, n.flip(0), m], 1)}
    means = {name: mirrored.mean(dim)[: side // 2 - 1].tolist() for name, (mirrored, dim) in pairs.items()}
    return {"neighbors": round(beside.item() / 2, 4)} | {k: [round(x, 4) for x in v] for k, v in means.items()}


def train(data: Dataset, arm: str, rate: float, seed: int, tuning: bool, steps: int = STEPS) -> dict:
    """What came of one run."""
    seed_everything(seed)
    model = VisionTransformer(CONFIG)
    optimizer = torch.optim.AdamW(parameter_groups(model, DECAY), lr=rate, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: warmup_cosine(step, steps, steps // 10))
    order = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(seed))[: steps * BATCH]
    splits = (Split(data.train.images[part], data.train.labels[part]) for part in order.split(BATCH))
    batches = ((data.normalize(split.images), split.labels) for split in splits)
    train_epoch(model, batches, optimizer, schedule, augment=flipped if arm == "flips" else None)

    def accuracy(split: Split) -> float:
        return evaluate(model, data.loader(split, 500)).accuracy

    found = {"n": len(data.test), "validation_accuracy": accuracy(data.validation)}
    if tuning:
        return found
    embedding = model.embedding
    return found | {"test_accuracy": accuracy(data.test)} | mirrors(embedding.positions().detach(), embedding.grid[0])


def main(arguments: list[str] | None = None) -> None:
    given = arguments_of(__doc__).parse_args(arguments)
    data = load_dataset("cifar10", given.data_dir, validation=0.1)
    data = replace(data, **{part: shrunk(getattr(data, part), 2) for part in ("train", "validation", "test")})

    def run(**key) -> dict:
        return train(data, **key)

    compare(Rows(given.file), run, ARMS, RATES)


if __name__ == "__main__":
    main()

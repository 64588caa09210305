"""Train a Vision Transformer and a small CNN on shares of a data set, on equal terms, and write down what came of it.

    python experiments/record_data_curve.py vitbook/assets/runs/data.json --data-dir FOLDER

Every run takes the same number of steps, in batches of the same size, with the same augmentation: a share's images are
repeated until there are as many as in all. The test images are looked at once, at the end of each. The file holds one
record a run, and is written again after each. As it is, on CIFAR-10, all eight runs take about 25 minutes on two cores;
`--steps 20` tries in a minute whether all is there.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace

import torch
from records import arguments_of, write
from torch import nn

from vitbook.cnn import SmallCNN
from vitbook.data import Dataset, load_dataset, split_at_random
from vitbook.engine import TrainConfig, batches, fit
from vitbook.runtime import device, has_bfloat16
from vitbook.training import evaluate
from vitbook.vit import VisionTransformer, ViTConfig

SHARES = (0.01, 0.05, 0.2, 1.0)


def vit(image_size: tuple[int, int], channels: int, num_classes: int) -> nn.Module:
    shape = dict(dim=128, depth=6, num_heads=4, mlp_dim=256, pool="mean", class_token=False)
    return VisionTransformer(ViTConfig(image_size, 4, channels, num_classes, **shape))


def cnn(image_size: tuple[int, int], channels: int, num_classes: int) -> nn.Module:
    return SmallCNN(channels, num_classes, width=32).to(memory_format=torch.channels_last)


MODELS: dict[str, Callable[..., nn.Module]] = {"ViT": vit, "CNN": cnn}


def recipe(data: Dataset, steps: int, batch_size: int, seed: int) -> tuple[TrainConfig, int]:
    """How every model is trained, and how many training images make an epoch, so that there are exactly `steps`."""
    epochs = max(1, round(steps * batch_size / len(data.train)))
    kind = dict(learning_rate=2e-3, affine=0.0, crop=4, flip=True, bf16=True)
    config = TrainConfig(epochs=epochs, batch_size=batch_size, seed=seed, **kind)
    if steps % epochs:
        raise ValueError(f"steps must be a multiple of {epochs}, the epochs they make, got {steps}")
    return config, steps // epochs * batch_size


def runs(data: Dataset, shares: list[float], steps: int, batch_size: int, seed: int) -> Iterator[dict]:
    """One record after another: for each share, for each model."""
    config, length = recipe(data, steps, batch_size, seed)
    for share in shares:
        few = data.train if share == 1 else split_at_random(data.train, share, seed, data.class_names)[1]
        some = replace(data, train=few).with_share(1, length=length)
        for name, build in MODELS.items():
            torch.manual_seed(seed)
            shape = dict(image_size=tuple(data.train.images.shape[2:]), channels=data.train.images.shape[1])
            model = build(**shape, num_classes=len(data.class_names)).to(device())
            records = fit(model, some, config, progress=False)
            with torch.autocast(device().type, torch.bfloat16, enabled=config.bf16 and has_bfloat16(device())):
                mean, std = (moment.to(device()) for moment in (some.mean, some.std))
                result = evaluate(model, batches(some.test, mean, std, 500))
            yield {
                "model": name,
                "parameters": sum(p.numel() for p in model.parameters()),
                "dataset": data.name,
                "share": share,
                "images": min(length, len(few)),
                "steps": records[-1]["step"],
                "train_loss": records[-1]["train_loss"],
                "seconds": records[-1]["seconds"],
                "test_accuracy": result.accuracy,
                "torch": torch.__version__,
                "config": asdict(config),
            }


def main(arguments: list[str] | None = None) -> None:
    parser = arguments_of(__doc__, dataset=True)
    parser.add_argument("--steps", type=int, default=390, help="of each run")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--shares", type=float, nargs="+", default=SHARES)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    data = load_dataset(given.dataset, given.data_dir, validation=0.0)
    done = []
    for record in runs(data, given.shares, given.steps, given.batch_size, given.seed):
        done.append(record)
        write(given.file, done)
        print("{model} {share:.0%}: {test_accuracy:.1%} in {seconds:.0f} s".format(**record), flush=True)


if __name__ == "__main__":
    main()

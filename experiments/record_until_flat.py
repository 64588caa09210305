"""A Vision Transformer and a CNN on shares of a data set, each at its own rate, each trained until longer is no better.

    python experiments/record_until_flat.py vitbook/assets/runs/flat.json --data-dir FOLDER

`record_data_curve.py` gives all runs the same number of steps, of which a small share needs few and the whole set many.
Here every model and share has the learning rate that is best on validation images after `--steps` steps, and is then
trained for twice, four times, … as many, from scratch, until a doubling wins less than `--flat` in validation accuracy,
or until `--most` steps: then the record's "flat" is false. All that with every seed. The test images are looked at once
a seed, by the length with the best validation accuracy. The file is written again after each record, and a command that
is repeated goes on after the last one.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, replace

import torch
from record_data_curve import MODELS, SHARES
from records import arguments_of, write
from torch import nn

from vitbook.data import Dataset, load_dataset, split_at_random
from vitbook.engine import TrainConfig, batches, fit
from vitbook.runtime import device
from vitbook.training import evaluate

RATES = (5e-4, 1e-3, 2e-3, 4e-3)
RECIPE = TrainConfig(affine=0.0, crop=4, flip=True, bf16=True)


def trained(
    build: Callable[[], nn.Module], data: Dataset, steps: int, batch_size: int, rate: float, seed: int
) -> tuple[nn.Module, dict]:
    """A new model after so many steps, in ten epochs of the images repeated in turn; its best epoch's record."""
    length = max(1, steps // 10) * batch_size
    config = replace(RECIPE, epochs=min(steps, 10), batch_size=batch_size, learning_rate=rate, seed=seed)
    torch.manual_seed(seed)
    model = build().to(device())
    history = fit(model, data.with_share(1, length=length), config, progress=False)
    return model, max(history, key=lambda record: record["validation_accuracy"])


def until_flat(
    build: Callable[[], nn.Module], data: Dataset, rate: float, seed: int, given: argparse.Namespace
) -> tuple[list[dict], nn.Module]:
    """Validation accuracy after each length, twice the one before, and the best of these models."""
    curve: list[dict] = []
    steps, best = given.steps, None
    while steps <= given.most:
        model, record = trained(build, data, steps, given.batch_size, rate, seed)
        if best is None or record["validation_accuracy"] > max(point["validation_accuracy"] for point in curve):
            best = model
        curve.append({"steps": steps, "validation_accuracy": record["validation_accuracy"]})
        if is_flat(curve, given.flat):
            break
        steps *= 2
    return curve, best


def is_flat(curve: list[dict], least: float) -> bool:
    """Whether the last doubling has won less than this."""
    return len(curve) > 1 and curve[-1]["validation_accuracy"] - curve[-2]["validation_accuracy"] < least


def record(name: str, share: float, seed: int, data: Dataset, rate: float, given: argparse.Namespace) -> dict:
    """What came of one model on one share with one seed, at a rate."""
    curve, model = until_flat(builder(name, data), data, rate, seed, given)
    mean, std = (moment.to(device()) for moment in data.moments)
    result = evaluate(model, batches(data.test, mean, std, 500))
    return {
        "model": name,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "dataset": data.name,
        "share": share,
        "images": len(data.train),
        "seed": seed,
        "learning_rate": rate,
        "curve": curve,
        "flat": is_flat(curve, given.flat),
        "test_accuracy": result.accuracy,
        "torch": torch.__version__,
        "config": asdict(RECIPE),
    }


def builder(name: str, data: Dataset) -> Callable[[], nn.Module]:
    """What builds a model for these images."""
    shape = dict(image_size=tuple(data.train.images.shape[2:]), channels=data.train.images.shape[1])
    return lambda: MODELS[name](**shape, num_classes=len(data.class_names))


def best_rate(name: str, data: Dataset, given: argparse.Namespace) -> float:
    """The rate with the best validation accuracy after the shortest length, with the first seed."""

    def accuracy(rate: float) -> float:
        _, record = trained(builder(name, data), data, given.steps, given.batch_size, rate, given.seeds[0])
        return record["validation_accuracy"]

    return max(given.rates, key=accuracy)


def main(arguments: list[str] | None = None) -> None:
    parser = arguments_of(__doc__, dataset=True)
    parser.add_argument("--steps", type=int, default=1000, help="of the shortest run")
    parser.add_argument("--most", type=int, default=64000, help="steps of the longest run")
    parser.add_argument("--flat", type=float, default=0.005, help="what a doubling has to win")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--rates", type=float, nargs="+", default=RATES)
    parser.add_argument("--shares", type=float, nargs="+", default=SHARES)
    parser.add_argument("--seeds", type=int, nargs="+", default=(0, 1, 2))
    parser.add_argument("--validation", type=float, default=0.1, help="share of the training images to choose by")
    given = parser.parse_args(arguments)
    whole = load_dataset(given.dataset, given.data_dir, validation=given.validation)
    done = json.loads(given.file.read_text()) if given.file.exists() else []
    for share in given.shares:
        few = whole.train if share == 1 else split_at_random(whole.train, share, 0, whole.class_names)[1]
        data = replace(whole, train=few)
        for name in MODELS:
            known = [one for one in done if (one["model"], one["share"]) == (name, share)]
            left = [seed for seed in given.seeds if seed not in [one["seed"] for one in known]]
            rate = known[0]["learning_rate"] if known else best_rate(name, data, given)
            for seed in left:
                done.append(record(name, share, seed, data, rate, given))
                write(given.file, done)
                steps, flat = done[-1]["curve"][-1]["steps"], "" if done[-1]["flat"] else ", not flat yet"
                came_to = f"{done[-1]['test_accuracy']:.1%} after {steps} steps{flat}"
                print(f"{name} {share:.0%} seed {seed}: {came_to}", flush=True)


if __name__ == "__main__":
    main()

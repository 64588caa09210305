"""A Vision Transformer and a CNN on shares of a data set, each at its own rate, trained until validation is flat.

    python records/until_flat.py vitbook/assets/runs/flat.json --shrink 2 --data-dir FOLDER

An epoch is as long for every share, whose images are repeated until there are as many as in all. For each model and
share, the rate is the one with the best validation accuracy after `--tune` epochs with a seed that no run has; where it
is the smallest or largest tried, half or twice of it is tried as well. Then a run draws its share by its seed, and goes
on until the running mean of its weights has had no better validation accuracy for `--patience` epochs; where `--most`
epochs end it before, "flat" is false. The rate falls along a cosine that would reach 0 after `--most` epochs. The test
images are looked at once, by the best weights. BatchNorm takes the statistics of a batch of validation images, and of
all training images for the test. A command that is repeated goes on after its last row.
"""

from argparse import Namespace
from dataclasses import replace
from itertools import product

import torch
import torch.nn.functional as F
from harness import Rows, arguments_of, compare
from torch import nn
from torch.optim.swa_utils import update_bn

from vitbook.cnn import SmallCNN
from vitbook.data import Dataset, Split, load_dataset, split_at_random
from vitbook.engine import TrainConfig, batches, fit
from vitbook.runtime import device
from vitbook.training import evaluate
from vitbook.vit import VisionTransformer, ViTConfig

SHARES = (0.01, 0.05, 0.2, 1.0)
RATES = (4e-3, 8e-3, 1.6e-2)
MODELS = ("ViT", "CNN")
RECIPE = TrainConfig(optimizer="muon", affine=0.0, bf16=True, ema=0.999)


def build(name: str, data: Dataset, dim: int) -> nn.Module:
    """A new model for these images: a ViT of 4 blocks, dim wide, or a CNN whose last stage is as wide."""
    channels, *size = data.train.images.shape[1:]
    if name == "CNN":
        # From 8 channels on: with fewer, its shortcuts in channels_last make torch 2.13 write past its memory on AVX2.
        return SmallCNN(channels, len(data.class_names), width=dim // 4).to(memory_format=torch.channels_last)
    shape = dict(dim=dim, depth=4, num_heads=4, mlp_dim=2 * dim, pool="mean", class_token=False)
    return VisionTransformer(ViTConfig(tuple(size), 4, channels, len(data.class_names), **shape))


def shrunk(split: Split, times: int) -> Split:
    """Images so many times smaller, each pixel the mean of a square. uint8 (N, C, H, W) → (N, C, H/times, W/times)."""
    parts = [F.avg_pool2d(images.float(), times).round().byte() for images in split.images.split(1000)]
    return Split(torch.cat(parts), split.labels)


def share_of(whole: Dataset, share: float, seed: int) -> tuple[Dataset, int]:
    """A share of the training images, which the seed draws, repeated in turn; and how many they are."""
    few = whole.train if share == 1 else split_at_random(whole.train, share, seed, whole.class_names)[1]
    return replace(whole, train=few).with_share(1, length=len(whole.train)), len(few)


def trained(
    name: str, data: Dataset, rate: float, seed: int, epochs: int, patience: int, given: Namespace
) -> tuple[nn.Module, list[dict]]:
    """A new model with its best weights, and a record for each epoch. Half an epoch of warm-up."""
    when = dict(epochs=epochs, patience=patience, warmup=0.5 / epochs)
    augmented = dict(crop=data.train.images.shape[-1] // 8, flip=True) if given.augment else {}
    rates = dict(learning_rate=rate, muon_learning_rate=rate)
    config = replace(RECIPE, seed=seed, batch_size=given.batch_size, **rates, **when, **augmented)
    torch.manual_seed(seed)
    model = build(name, data, given.dim).to(device())
    for module in model.modules():  # statistics of the weights of each step do not fit the mean of these weights
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean = module.running_var = None
    return model, fit(model, data, config, progress=False)


def run(arm: str, rate: float, seed: int, tuning: bool, whole: Dataset, given: Namespace) -> dict:
    """What came of one model on one share with one seed, at a rate."""
    name, share = arm.split(", ")
    data, count = share_of(whole, float(share), seed)
    epochs, patience = (given.tune, 0) if tuning else (given.most, given.patience)
    model, history = trained(name, data, rate, seed, epochs, patience, given)
    best = max(history, key=lambda record: record["validation_accuracy"])  # the first of them
    if tuning:
        return {"n": len(data.validation), "validation_accuracy": best["validation_accuracy"]}
    mean, std = (moment.to(device()) for moment in data.moments)
    judged = build(name, data, given.dim).to(device())
    judged.load_state_dict(model.state_dict(), strict=False)
    update_bn(batches(data.train, mean, std, 500), judged)
    return {
        "model": name,
        "images": count,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "epoch_steps": history[0]["step"],
        "curve": [round(record["validation_accuracy"], 4) for record in history],
        "best_epoch": best["epoch"],
        "train_accuracy": round(best["train_accuracy"], 4),
        "flat": len(history) - best["epoch"] >= given.patience,
        "n": len(data.test),
        "test_accuracy": evaluate(judged, batches(data.test, mean, std, 500)).accuracy,
    }


def main(arguments: list[str] | None = None) -> None:
    parser = arguments_of(__doc__, dataset=True)
    parser.add_argument("--shrink", type=int, default=1, help="by how much the images are made smaller first")
    parser.add_argument("--dim", type=int, default=64, help="width of the ViT, and of the CNN's last stage")
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--shares", type=float, nargs="+", default=SHARES)
    parser.add_argument("--seeds", type=int, nargs="+", default=(0, 1, 2))
    parser.add_argument("--rates", type=float, nargs="+", default=RATES)
    parser.add_argument("--tune", type=int, default=1, help="epochs of the runs that choose a rate")
    parser.add_argument("--most", type=int, default=20, help="epochs of the longest run")
    parser.add_argument("--patience", type=int, default=3, help="epochs without a better validation accuracy")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--augment", action="store_true", help="with crops and flips")
    parser.add_argument("--validation", type=float, default=0.1, help="share of the training images to choose by")
    given = parser.parse_args(arguments)
    whole = load_dataset(given.dataset, given.data_dir, validation=given.validation)
    if given.shrink > 1:
        parts = ("train", "validation", "test")
        whole = replace(whole, **{part: shrunk(getattr(whole, part), given.shrink) for part in parts})
    facts = dict(dataset=whole.name, image_size=list(whole.train.images.shape[2:]))
    arms = [f"{name}, {share:g}" for share, name in product(given.shares, given.models)]
    one = lambda **key: run(**key, whole=whole, given=given)  # noqa: E731
    compare(Rows(given.file, "rows", **facts), one, arms, given.rates, given.seeds)


if __name__ == "__main__":
    main()

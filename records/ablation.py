"""Ten ingredients of a recipe: train without each of them, and with each of them alone. Write down what came of it.

    python records/ablation.py vitbook/assets/runs/ablation.json --data-dir FOLDER

Every run is the recipe `cifar10_quick` on a share of the training images, another one for each seed, so that many
passes over them are affordable. "without X" leaves one ingredient out; "only X" leaves out the other nine. Nothing is
chosen by what a run reaches, so each is judged by the test images. The file holds one record a run, and is written
again after each; a command that is repeated goes on after the last one. With `--workers`, several train at a time,
each on one thread. Nothing is tuned for any of them: all have the rates of the recipe, and without an ingredient,
another might do better.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import torch
from harness import Rows, arguments_of

from vitbook.data import load_dataset
from vitbook.engine import TrainConfig, batches, fit
from vitbook.runtime import device, has_bfloat16
from vitbook.training import evaluate
from vitbook.vit import VisionTransformer
from vitbook_workshop.training_runs.settings import Run, run_of

# each ingredient, by what takes it out: settings of training, and of the model
INGREDIENTS: dict[str, tuple[dict, dict]] = {
    "stem": ({}, {"stem": ()}),
    "positions": ({}, {"positions": "none"}),
    "Muon": ({"optimizer": "adamw"}, {}),
    "warm-up": ({"warmup": 0.0}, {}),
    "clipping": ({"clip_norm": 0.0}, {}),
    "label smoothing": ({"label_smoothing": 0.0}, {}),
    "weight decay": ({"weight_decay": 0.0}, {}),
    "crops": ({"crop": 0}, {}),
    "flips": ({"flip": False}, {}),
    "running mean": ({"ema": 0.0}, {}),
}


def without(names: Iterable[str]) -> tuple[dict, dict]:
    """The settings that leave several ingredients out."""
    train, vit = {}, {}
    for name in names:
        train |= INGREDIENTS[name][0]
        vit |= INGREDIENTS[name][1]
    return train, vit


CHANGES: dict[str, tuple[dict, dict]] = {
    "the whole recipe": ({}, {}),
    "none of the ten": without(INGREDIENTS),
    **{f"without {name}": without([name]) for name in INGREDIENTS},
    **{f"only {name}": without(set(INGREDIENTS) - {name}) for name in INGREDIENTS},
}


def config_of(arm: str, **settings) -> TrainConfig:
    """How a run with one change is trained."""
    return replace(run_of(config=Path("cifar10_quick")).train, **settings | CHANGES[arm][0])


def rate_of(arm: str) -> float:
    """Of the matrices: Muon's or AdamW's, as the recipe has it."""
    config = config_of(arm)
    return config.muon_learning_rate if config.optimizer == "muon" else config.learning_rate


def record(
    arm: str,
    seed: int,
    epochs: int,
    share: float,
    data_dir: Path | None = None,
    batch_size: int = 128,
    **_: object,
) -> dict:
    """Train with one change; what came of it."""
    torch.set_num_threads(1)
    run: Run = run_of(config=Path("cifar10_quick"))
    config = config_of(arm, epochs=epochs, batch_size=batch_size, seed=seed)
    whole = load_dataset(run.dataset, data_dir, validation=0.0)
    data = whole.with_share(share, seed, length=round(share * len(whole.train)))
    torch.manual_seed(seed)
    model = VisionTransformer(replace(run.vit, **CHANGES[arm][1])).to(device())
    last = fit(model, data, config, progress=False)[-1]
    with torch.autocast(device().type, torch.bfloat16, enabled=has_bfloat16(device())):
        result = evaluate(model, batches(data.test, *(moment.to(device()) for moment in data.moments), 500))
    found = {"images": len(data.train), "n": len(data.test)}
    found |= {"test_accuracy": result.accuracy, "test_loss": result.loss}
    return found | {name: last[name] for name in ("step", "train_loss", "train_accuracy")}


def main(arguments: list[str] | None = None) -> None:
    parser = arguments_of(__doc__)
    parser.add_argument("--epochs", type=int, default=10, help="of each run")
    parser.add_argument("--share", type=float, default=0.1, help="of the training images")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--seeds", type=int, nargs="+", default=(0, 1, 2), help="each change once with each")
    parser.add_argument("--workers", type=int, default=1, help="runs at a time")
    parser.add_argument("--changes", nargs="+", default=list(CHANGES), choices=list(CHANGES), metavar="CHANGE")
    given = parser.parse_args(arguments)
    size = dict(epochs=given.epochs, share=given.share, batch_size=given.batch_size)
    keys = [
        {"arm": arm, "rate": rate_of(arm), "seed": seed, "tuning": False}
        for seed, arm in product(given.seeds, given.changes)
    ]
    Rows(given.file, "rows", **size).fill(partial(record, **size, data_dir=given.data_dir), keys, given.workers)


if __name__ == "__main__":
    main()

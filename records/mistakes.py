"""What does each mistake cost, and what does it leave in the weights?

    python records/mistakes.py vitbook/assets/runs/mistakes.json

Every mistake of a Vision Transformer that can show on scikit-learn's digits, trained as in chapter 19: 2 blocks of
width 32, from the same initial weights and on the same batches as the right model of the same seed, for 8 and for 30
epochs. The right model's rate, for each length its own best on validation images, is every mistake's ("alike"). Only
what costs a point or more after 8 epochs is trained for 30, beside some that are asked for. What then still costs a
point is tuned, too, and trained again at its own rate ("rows").
"borrowed" is the right model's weights run with the mistake, "handed_on" the mistaken model's weights run by right
code, neither trained any further; "logits" the largest difference of a logit between right and borrowed. Accuracies
in percent of the 360 test images. Some 25 minutes of one core; a command that is repeated adds what is missing.
"""

import math
from dataclasses import replace
from functools import cache
from statistics import mean

import torch
from harness import Rows, arguments_of, compare

from vitbook.data import Dataset, Split, load_dataset
from vitbook.runtime import seed_everything
from vitbook.training import Evaluation, evaluate, parameter_groups, train_epoch, warmup_cosine
from vitbook.vit import CONFIGS, VisionTransformer
from vitbook_workshop.faults.mistakes import IN_A_VIT, MISTAKES, broken_vit

CONFIG = replace(CONFIGS["vit_digits"], dim=32, depth=2, mlp_dim=64)
RATES = (0.005, 0.01, 0.02)
# One batch size only; a width that is another model; a dropout of 0 and a single channel, on which nothing changes.
# And one that no step of training survives.
UNSEEN = {
    "WeightsChangedInPlace",
    "BatchSizedClassToken",
    "BatchSizedPositions",
    "SizesFixed",
    "AttentionDropoutUnread",
    "channels_last_in_a_patch",
    "unfolded_without_permute",
}
IN_A_MODEL = [name for name in IN_A_VIT if name not in UNSEEN]
LITTLE_L2 = "l2_inside_adam, decay 0.001"  # a hundredth of all others' decay
IN_TRAINING = ["l2_inside_adam", LITTLE_L2, "everything_decays"]
RIGHT = {8: "right, 8 epochs", 30: "right"}
# Trained for 30 epochs whatever they cost after 8: three are ahead of the right model then.
ASKED = ["ViewWithoutTranspose", "MergedWithoutTranspose", "view_without_permute", LITTLE_L2]
WITH_MEAN = {"right, mean pooling", "MeanIncludesTheClassToken"}


@cache
def data_of(validation: float) -> Dataset:
    return load_dataset("digits", validation=validation)


def build(arm: str) -> VisionTransformer:
    config = replace(CONFIG, pool="mean" if arm in WITH_MEAN else "class")
    return broken_vit(config, *[arm] * (arm in IN_A_MODEL))


def train(arm: str, rate: float, seed: int, epochs: int, data: Dataset) -> VisionTransformer:
    """The right model, one with this mistake, or one that is trained with it."""
    seed_everything(seed)
    model, optimizer, groups = build(arm), torch.optim.AdamW, parameter_groups
    decay = 0.001 if arm == LITTLE_L2 else 0.1
    if arm.startswith("l2_inside_adam"):
        optimizer = MISTAKES["l2_inside_adam"].variant
    elif arm == "everything_decays":
        groups = MISTAKES[arm].variant
    stepper = optimizer(groups(model, weight_decay=decay), lr=rate)
    images, labels = data.normalize(data.train.images), data.train.labels
    steps = epochs * math.ceil(len(labels) / 64)
    schedule = torch.optim.lr_scheduler.LambdaLR(stepper, lambda step: warmup_cosine(step, steps, steps // 10))
    shuffle = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        order = torch.randperm(len(labels), generator=shuffle)
        batches = list(zip(images[order].split(64), labels[order].split(64), strict=True))
        train_epoch(model, batches, stepper, schedule)
    return model


def judge(model: VisionTransformer, data: Dataset, split: Split) -> Evaluation:
    return evaluate(model, data.loader(split, batch_size=64))


@cache
def right_one(arm: str, rate: float, seed: int, epochs: int) -> VisionTransformer:
    return train(arm, rate, seed, epochs, data_of(0.0))


def alike(arm: str, rate: float, seed: int, epochs: int) -> dict:
    """What came of a mistake at the right model's rate, and of weights that change hands."""
    data, right_arm = data_of(0.0), "right, mean pooling" if arm in WITH_MEAN else "right"
    right = right_one(right_arm, rate, seed, epochs)
    if arm == right_arm:
        return {"n": len(data.test), "trained": 100 * judge(right, data, data.test).accuracy}
    model = train(arm, rate, seed, epochs, data)
    found = {"n": len(data.test), "trained": 100 * judge(model, data, data.test).accuracy}
    if arm in IN_A_MODEL:
        borrowing, owner = build(arm), build(right_arm)
        borrowing.load_state_dict(right.state_dict())  # all names match, all shapes match
        owner.load_state_dict(model.state_dict())
        expected, said = judge(right, data, data.test), judge(borrowing, data, data.test)
        found["borrowed"] = 100 * said.accuracy
        found["handed_on"] = 100 * judge(owner, data, data.test).accuracy
        found["logits"] = (said.logits - expected.logits).abs().max().item()
    return found


def cost(rows: Rows, arm: str, epochs: int) -> float:
    """Points lost at the right model's rate, on average over the first three seeds."""
    right = "right, mean pooling" if arm in WITH_MEAN else "right"
    pairs = [[rows.find(arm=name, epochs=epochs, seed=seed)["trained"] for name in (right, arm)] for seed in range(3)]
    return mean(of_right - of_arm for of_right, of_arm in pairs)


def main(arguments: list[str] | None = None) -> None:
    parser = arguments_of(__doc__, data_dir=False)
    parser.add_argument("--seeds", type=int, default=5, help="at least 3")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    own, same = (Rows(options.file, part, model="2 blocks of width 32") for part in ("rows", "alike"))
    seeds = range(options.seeds)

    def run(arm: str, rate: float, seed: int, tuning: bool) -> dict:
        epochs = 8 if arm == RIGHT[8] else 30
        if not tuning and (known := same.find(arm=arm, rate=rate, seed=seed, epochs=epochs)):
            return {name: known[name] for name in ("n", "trained", "core_seconds")}  # the same run
        data = data_of(0.2 if tuning else 0.0)
        said = judge(train(arm, rate, seed, epochs, data), data, data.validation if tuning else data.test)
        return {"n": len(said.labels), "validation_accuracy" if tuning else "trained": 100 * said.accuracy}

    def at_the_rights_rate(arms: list[str], epochs: int) -> None:
        rate = compare(own, run, [RIGHT[epochs]], RATES, seeds)[0]["rate"]
        same.fill(alike, [dict(arm=arm, rate=rate, seed=seed, epochs=epochs) for seed in seeds for arm in arms])

    mistaken = [*IN_A_MODEL, *IN_TRAINING]
    at_the_rights_rate(["right", "right, mean pooling", *mistaken], epochs=8)
    longer = [arm for arm in mistaken if arm in ASKED or cost(same, arm, 8) >= 1]
    at_the_rights_rate(["right", *longer], epochs=30)
    for arm in longer:
        if cost(same, arm, 30) >= 1:
            compare(own, run, [arm], RATES, seeds)


if __name__ == "__main__":
    main()

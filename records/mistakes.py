"""What does each mistake cost a model that is trained with it, and one that runs somebody else's weights with it?

    python records/mistakes.py vitbook/assets/runs/mistakes.json --seeds 5

Every mistake of a Vision Transformer that can show on scikit-learn's digits, trained as in chapter 19: 2 blocks of
width 32, eight epochs, the same initial weights and batches as the right model of the same seed. "borrowed" runs the
weights of that right model with the mistake, untrained; "logits" is the largest difference of a logit from the right
one. Accuracies in percent of the 360 test images, a number for each seed. About two minutes a seed on a core; a command
that is repeated adds the mistakes and the seeds that are missing.
"""

import json
import math
from dataclasses import replace

import torch
from harness import arguments_of, write

from vitbook.data import Dataset, digits
from vitbook.runtime import seed_everything
from vitbook.training import Evaluation, evaluate, parameter_groups, train_epoch, warmup_cosine
from vitbook.vit import CONFIGS, VisionTransformer
from vitbook_workshop.faults.mistakes import IN_A_VIT, MISTAKES, broken_vit

CONFIG = replace(CONFIGS["vit_digits"], dim=32, depth=2, mlp_dim=64)
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
IN_TRAINING = ["l2_inside_adam", "everything_decays"]


def trained(data: Dataset, seed: int, *mistakes: str, pool: str = "class", training: str = "") -> VisionTransformer:
    """A model with these mistakes, or trained with the one named by `training`."""
    seed_everything(seed)
    model = broken_vit(replace(CONFIG, pool=pool), *mistakes)
    optimizer, groups = torch.optim.AdamW, parameter_groups
    if training == "l2_inside_adam":
        optimizer = MISTAKES[training].variant
    elif training:
        groups = MISTAKES[training].variant
    stepper = optimizer(groups(model, weight_decay=0.1), lr=0.01)
    images, labels = data.normalize(data.train.images), data.train.labels
    steps = 8 * math.ceil(len(labels) / 64)
    schedule = torch.optim.lr_scheduler.LambdaLR(stepper, lambda step: warmup_cosine(step, steps, steps // 10))
    shuffle = torch.Generator().manual_seed(seed)
    for _ in range(8):
        order = torch.randperm(len(labels), generator=shuffle)
        batches = list(zip(images[order].split(64), labels[order].split(64), strict=True))
        train_epoch(model, batches, stepper, schedule)
    return model


def of_a_seed(data: Dataset, seed: int, names: list[str]) -> dict[str, dict[str, float]]:
    """For each of these mistakes: accuracy when trained with it; accuracy and logits with the right model's weights.

    And for the right models, which are trained for it.
    """
    batches = list(data.loader(data.test, batch_size=64))

    def test(model: VisionTransformer) -> Evaluation:
        return evaluate(model, batches)

    right = {pool: trained(data, seed, pool=pool) for pool in ("class", "mean")}
    expected = {pool: test(model) for pool, model in right.items()}
    found = {f"right, pool {pool}": {"trained": 100 * said.accuracy} for pool, said in expected.items()}
    for name in filter(names.__contains__, IN_A_MODEL):
        pool = "mean" if name == "MeanIncludesTheClassToken" else "class"
        model = broken_vit(replace(CONFIG, pool=pool), name)
        model.load_state_dict(right[pool].state_dict())  # all names match, all shapes match
        said = test(model)
        found[name] = {
            "trained": 100 * test(trained(data, seed, name, pool=pool)).accuracy,
            "borrowed": 100 * said.accuracy,
            "logits": (said.logits - expected[pool].logits).abs().max().item(),
        }
    for name in filter(names.__contains__, IN_TRAINING):
        found[name] = {"trained": 100 * test(trained(data, seed, training=name)).accuracy}
    return found


def main(arguments: list[str] | None = None) -> None:
    parser = arguments_of(__doc__, data_dir=False)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    data, before = digits(), json.loads(options.file.read_text()) if options.file.exists() else {}
    found = before.get("mistakes", {})
    for seed in range(options.seeds):
        missing = [name for name in (*IN_A_MODEL, *IN_TRAINING) if len(found.get(name, {}).get("trained", [])) <= seed]
        if not missing:
            continue
        for name, numbers in of_a_seed(data, seed, missing).items():
            for kind, number in numbers.items():
                runs = found.setdefault(name, {}).setdefault(kind, [])
                if len(runs) == seed:
                    runs.append(round(number, 3))
                elif runs[seed] != round(number, 3):  # another machine, or another torch
                    raise ValueError(f"{name}, seed {seed}: {kind} is {number:.3f} here, and {runs[seed]} in the file")
        seeds = max(before.get("seeds", 0), seed + 1)
        record = {"model": "2 blocks of width 32, 8 epochs", "test_images": len(data.test.labels), "seeds": seeds}
        record |= {"torch": torch.__version__, "mistakes": found}
        write(options.file, record)
        print(f"seed {seed}", flush=True)


if __name__ == "__main__":
    main()

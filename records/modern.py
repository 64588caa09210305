"""Put the parts of a modern block into the plain ViT one at a time, train on digits, and write down what each did.

    python records/modern.py vitbook/assets/runs/modern.json
    python records/modern.py vitbook/assets/runs/modern_one_rate.json --rates 3e-3

The recipe is that of chapter 10, for fewer epochs. With several rates, each arm is trained at its own; with one, all
are trained at that. A seed draws the test split, the weights and the order of the images, so arms of one seed can be
compared in pairs. A rate is chosen on a fifth of the training images, set apart. Three minutes each on one core.
"""

from dataclasses import asdict, replace

import torch
from harness import Rows, arguments_of, compare
from torch import nn

from vitbook.augment import random_affine
from vitbook.data import digits
from vitbook.modern import ModernConfig, ModernViT
from vitbook.training import evaluate, parameter_groups, train_epoch, warmup_cosine
from vitbook.vit import CONFIGS

# `vit_digits` at half the width, with a hidden width that has two thirds
PLAIN = ModernConfig(**asdict(CONFIGS["vit_digits"]) | {"dim": 32, "depth": 3, "num_heads": 2, "mlp_dim": 96})
SWIGLU = {"swiglu": True, "mlp_dim": PLAIN.mlp_dim * 2 // 3}
MEAN = {"pool": "mean", "class_token": False}
ATTENTION = MEAN | {"attention_pool": True}
ARMS: dict[str, dict] = {
    "plain": {},
    "no positions": {"positions": "none"},
    "rotary, no learned positions": {"rotary_base": 100.0, "positions": "none"},
    "RMSNorm": {"norm": "rms"},
    "QK-norm": {"qk_norm": True},
    "LayerScale from 0.1": {"layer_scale": 0.1},
    "SwiGLU, two thirds as wide": SWIGLU,
    "LayerScale and SwiGLU": {"layer_scale": 0.1} | SWIGLU,
    "4 registers": {"registers": 4},
    "mean pooling, no class token": MEAN,
    "attention pooling, no class token": ATTENTION,
}
BEFORE_THE_HEAD = {  # arms in which something else happens to the vector that the head sees
    "plain, halved": ({}, lambda y: y / 2),
    "attention pooling, doubled": (ATTENTION, lambda y: 2 * y),
    "attention pooling, normalized": (ATTENTION, nn.LayerNorm(PLAIN.dim, elementwise_affine=False)),
}
AT_ONE_RATE = (*ARMS, *BEFORE_THE_HEAD)
AT_THEIR_OWN = ("plain", "no positions", "rotary, no learned positions", "SwiGLU, two thirds as wide")
AT_THEIR_OWN += ("mean pooling, no class token", "attention pooling, no class token", "attention pooling, doubled")


def build(arm: str) -> ModernViT:
    config, change = BEFORE_THE_HEAD.get(arm) or (ARMS[arm], None)
    model = ModernViT(replace(PLAIN, **config))
    if change:
        model.head.register_forward_pre_hook(lambda head, seen: (change(seen[0]),))
    return model


def run(arm: str, rate: float, seed: int, tuning: bool, epochs: int) -> dict:
    """Train one arm; what came of it on the validation images or on the test images."""
    data = digits(seed=seed)
    if tuning:
        data = data.with_validation(0.2, seed)
    torch.manual_seed(seed)
    model = build(arm)
    batches = data.loader(data.train, batch_size=64, shuffle=True, seed=seed)
    optimizer = torch.optim.AdamW(parameter_groups(model, weight_decay=0.3), lr=rate, fused=True)
    steps = epochs * len(batches)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: warmup_cosine(step, steps, steps // 10))
    for _ in range(epochs):
        loss = train_epoch(model, batches, optimizer, schedule, label_smoothing=0.1, augment=random_affine)
    judging = data.validation or data.test
    name = "validation_accuracy" if tuning else "test_accuracy"
    return {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "train_loss": loss,
        name: evaluate(model, data.loader(judging, batch_size=400)).accuracy,
        "n": len(judging),
    }


def main(arguments: list[str] | None = None) -> None:
    parser = arguments_of(__doc__, data_dir=False)
    parser.add_argument("--epochs", type=int, default=12, help="of each run")
    parser.add_argument("--rates", type=float, nargs="+", default=[4e-3, 8e-3, 1.6e-2], help="one: the rate of all")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="each arm once with each")
    parser.add_argument("--arms", nargs="+", choices=[*ARMS, *BEFORE_THE_HEAD], metavar="ARM")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rows = Rows(given.file, "rows", epochs=given.epochs)

    def made(**key) -> dict:
        return run(**key, epochs=given.epochs)

    if len(given.rates) > 1:
        compare(rows, made, given.arms or AT_THEIR_OWN, given.rates, given.seeds)
    else:
        arms = given.arms or AT_ONE_RATE
        keys = [dict(arm=arm, rate=given.rates[0], seed=seed, tuning=False) for seed in given.seeds for arm in arms]
        rows.fill(made, keys)


if __name__ == "__main__":
    main()

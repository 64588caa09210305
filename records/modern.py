"""Put the parts of a modern block into the plain ViT one at a time, train on digits, and write down what each did.

    python records/modern.py vitbook/assets/runs/modern.json

Every variant has the same budget and the same recipe, that of chapter 10 in short. A seed draws the test split, the
weights and the order of the images, so variants of one seed can be compared in pairs. Nothing is chosen by the test
images. As it is, it takes a few minutes on one core.
"""

import time
from dataclasses import asdict, replace
from itertools import product

import torch
from harness import Rows, arguments_of

from vitbook.augment import random_affine
from vitbook.data import digits
from vitbook.modern import ModernConfig, ModernViT
from vitbook.training import evaluate, parameter_groups, train_epoch, warmup_cosine
from vitbook.vit import CONFIGS

# `vit_digits` at half the width, with a hidden width that has two thirds
PLAIN = ModernConfig(**asdict(CONFIGS["vit_digits"]) | {"dim": 32, "depth": 3, "num_heads": 2, "mlp_dim": 96})
VARIANTS: dict[str, dict] = {
    "plain": {},
    "no positions": {"positions": "none"},
    "rotary, no learned positions": {"rotary_base": 100.0, "positions": "none"},
    "RMSNorm": {"norm": "rms"},
    "QK-norm": {"qk_norm": True},
    "LayerScale from 0.1": {"layer_scale": 0.1},
    "SwiGLU, two thirds as wide": {"swiglu": True, "mlp_dim": PLAIN.mlp_dim * 2 // 3},
    "LayerScale and SwiGLU": {"layer_scale": 0.1, "swiglu": True, "mlp_dim": PLAIN.mlp_dim * 2 // 3},
    "4 registers": {"registers": 4},
    "attention pooling": {"attention_pool": True, "pool": "mean", "class_token": False},
}


def record(variant: str, seed: int, epochs: int) -> dict:
    """Train one variant; what came of it on the test images."""
    torch.set_num_threads(1)
    data = digits(seed=seed)
    torch.manual_seed(seed)
    model = ModernViT(replace(PLAIN, **VARIANTS[variant]))
    batches = data.loader(data.train, batch_size=64, shuffle=True, seed=seed)
    optimizer = torch.optim.AdamW(parameter_groups(model, weight_decay=0.3), lr=3e-3, fused=True)
    steps = epochs * len(batches)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: warmup_cosine(step, steps, steps // 10))
    start = time.process_time()
    for _ in range(epochs):
        loss = train_epoch(model, batches, optimizer, schedule, label_smoothing=0.1, augment=random_affine)
    seconds = time.process_time() - start
    result = evaluate(model, data.loader(data.test, batch_size=400))
    return {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "train_loss": loss,
        "test_loss": result.loss,
        "test_accuracy": result.accuracy,
        "test_images": len(data.test),
        "core_seconds": seconds,
    }


def main(arguments: list[str] | None = None) -> None:
    parser = arguments_of(__doc__, data_dir=False)
    parser.add_argument("--epochs", type=int, default=12, help="of each run")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3], help="each variant once with each")
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=list(VARIANTS), metavar="VARIANT")
    parser.add_argument("--workers", type=int, default=1, help="runs at a time")
    given = parser.parse_args(arguments)
    keys = [
        {"variant": variant, "seed": seed, "epochs": given.epochs}
        for seed, variant in product(given.seeds, given.variants)
    ]
    Rows(given.file).fill(record, keys, given.workers)


if __name__ == "__main__":
    main()

"""Are five labeled digits of each class worth more after pretraining? Chapter 22, each arm at its own rate.

    python records/few_labels.py vitbook/assets/runs/few_labels.json

A seed draws the masked autoencoder's weights and masks, and which digits have labels. An arm's rate is chosen on the
training digits whose labels are not drawn. About three minutes on a core.
"""

from copy import deepcopy
from functools import cache

import torch
import torch.nn.functional as F
from harness import Rows, arguments_of, compare
from torch import Tensor

from vitbook.data import digits
from vitbook.mae import MaskedAutoencoder, pretrain
from vitbook.training import warmup_cosine
from vitbook.vit import VisionTransformer, create_vit

ARMS = {  # whether it was pretrained, and the steps of fine-tuning
    f"{start}, {steps} steps": (start == "pretrained", steps)
    for steps in (60, 240)
    for start in ("from scratch", "pretrained")
}


@cache
def backbone(pretrained: bool, seed: int, epochs: int) -> VisionTransformer:
    """Chapter 22's encoder with this seed's weights, before or after pretraining."""
    torch.manual_seed(seed)
    vit = create_vit("vit_digits", depth=2, positions="sincos_2d", pool="mean")
    model = MaskedAutoencoder(vit, dim=32, depth=1, num_heads=4)
    if pretrained:
        pretrain(model, digits().normalize(digits().train.images), epochs=epochs, learning_rate=4e-3)
    return vit


def run(arm: str, rate: float, seed: int, tuning: bool, epochs: int = 60) -> dict:
    """The share of digits that a model gets right after training on five of each class."""
    torch.set_num_threads(1)
    pretrained, steps = ARMS[arm]
    data = digits()
    images, labels = data.normalize(data.train.images), data.train.labels
    mixed = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    few = torch.cat([mixed[labels[mixed] == digit][:5] for digit in range(10)])
    torch.manual_seed(seed)
    vit = deepcopy(backbone(pretrained, seed, epochs)).train()
    optimizer = torch.optim.AdamW(vit.parameters(), lr=rate, weight_decay=0.05, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: warmup_cosine(step, steps, 5))
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(vit(images[few]), labels[few]).backward()
        optimizer.step()
        schedule.step()

    @torch.no_grad()
    def right(some: Tensor, answers: Tensor) -> dict:
        return {"n": len(some), "accuracy": (vit.eval()(some).argmax(dim=1) == answers).double().mean().item()}

    if tuning:
        rest = torch.ones(len(labels), dtype=torch.bool).index_fill(0, few, False)
        found = right(images[rest], labels[rest])
        return {"n": found["n"], "validation_accuracy": found["accuracy"]}
    found = right(data.normalize(data.test.images), data.test.labels)
    return {"n": found["n"], "test_accuracy": found["accuracy"]}


def main(arguments: list[str] | None = None) -> None:
    parser = arguments_of(__doc__, data_dir=False)
    parser.add_argument("--rates", type=float, nargs="+", default=[5e-4, 1e-3, 2e-3, 4e-3], help="to begin with")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    given = parser.parse_args(arguments)
    compare(Rows(given.file), run, list(ARMS), given.rates, given.seeds)


if __name__ == "__main__":
    main()

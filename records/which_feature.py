"""Which feature is best for what? Class token, mean of the patches, or both; how to compare them; which block.

    python records/which_feature.py vitbook/assets/runs/which_feature.json --tiny FOLDER

Photographs of twenty classes of Tiny-ImageNet that no model was trained on, shrunk to 32 pixels: 300 of each are known,
and others are asked for. Two things are measured: the share of these whose class the 20 nearest known ones name, each
vote alike; and the mean average precision of all known ones, ranked by likeness, those of the same class being right.
"length 1" compares by cosine, "as it is" by distance, "product" by the dot product, and "standardized" by cosine after
each number has had the mean and the deviation of the known ones taken out. Nothing is trained. Three minutes on a core.
"""

from pathlib import Path

import torch
import torch.nn.functional as F
from harness import Rows, arguments_of
from torch import Tensor
from transfer import CLASSES, tiny_imagenet

from vitbook.data import Split
from vitbook.engine import batches
from vitbook.features import standardized
from vitbook.pretrained import load_pretrained
from vitbook.targets import mean_average_precision

MODELS = ("cifar10", "dino", "lejepa", "mae")
FEATURES = ("class", "mean", "both")
LIKENESS = {  # (M, D) asked and (N, D) known → (M, N), more for what is nearer
    "length 1": lambda asked, known: F.normalize(asked, dim=1) @ F.normalize(known, dim=1).T,
    "as it is": lambda asked, known: -torch.cdist(asked, known),
    "product": lambda asked, known: asked @ known.T,
    "standardized": lambda asked, known: LIKENESS["length 1"](standardized(asked, known), standardized(known, known)),
}


@torch.no_grad()
def features_of(name: str, split: Split) -> dict[tuple[str, str], Tensor]:
    """By feature and block, (N, D) or for both (N, 2D): of the tokens after half of the blocks, and after the norm."""
    weights = load_pretrained(f"vitbook:{name}")
    model, found = weights.model, {}
    half, patches = len(model.encoder.blocks) // 2, model.embedding.grid[0] * model.embedding.grid[1]
    for images, _ in batches(split, *weights.preprocessing.moments, 250):
        seen = {}
        hook = model.encoder.blocks[half - 1].register_forward_hook(lambda *call, seen=seen: seen.update(half=call[2]))
        seen["last"] = model.tokens(images)
        hook.remove()
        for block, tokens in seen.items():
            parts = {"class": tokens[:, 0], "mean": tokens[:, -patches:].mean(dim=1)}
            for feature, values in (parts | {"both": torch.cat(list(parts.values()), dim=1)}).items():
                found.setdefault((feature, block), []).append(values)
    return {key: torch.cat(values) for key, values in found.items()}


def measured(likeness: Tensor, known: Tensor, asked: Tensor) -> dict[str, float]:
    """likeness (M, N), and the labels of the known (N,) and the asked (M,)."""
    votes = F.one_hot(known[likeness.topk(min(20, len(known))).indices], len(CLASSES)).sum(dim=1)
    return {
        "accuracy": (votes.argmax(dim=1) == asked).double().mean().item(),
        "retrieval": mean_average_precision(likeness.T, (known[:, None] == asked).float()),
        "n": len(asked),
    }


def main(arguments: list[str] | None = None) -> None:
    parser = arguments_of(__doc__, data_dir=False)
    parser.add_argument("--tiny", type=Path, required=True, help="the unpacked folder tiny-imagenet-200")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--asked", type=int, default=50, help="photographs of each class that are asked for")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rows = Rows(given.file)
    known, others = tiny_imagenet(given.tiny, 32)
    count = given.asked * len(CLASSES)  # the first ones are the 50 validation images of each class
    others = Split(others.images[:count], others.labels[:count])
    for model in given.models:
        if len([row for row in rows.all() if row["model"] == model]) == len(LIKENESS) * 2 * len(FEATURES):
            continue
        banks, queries = features_of(model, known), features_of(model, others)
        for (feature, block), bank in banks.items():
            for compared, likeness in LIKENESS.items():
                key = {"model": model, "feature": feature, "block": block, "compared": compared}
                key = {"arm": ", ".join(key.values()), **key, "rate": None, "seed": 0}
                like = likeness(queries[feature, block], bank)
                rows.once(lambda like=like: measured(like, known.labels, others.labels), **key)


if __name__ == "__main__":
    main()

"""What does a vote of neighbors gain by whitening? For the pixels, and for features of the shipped weights.

    python records/whitening.py vitbook/assets/runs/whitening.json --data-dir FOLDER

20 neighbors among 10,000 training images vote by cosine: on features as they are, less the mean, and whitened, both by
these 10,000. How much of the mean variance is added to each direction's is chosen on validation images, which are set
apart; the test images are looked at once. Nothing is trained. About three minutes on a core.
"""

from dataclasses import replace

import torch
from harness import Rows, arguments_of
from torch import Tensor

from vitbook.data import Dataset, Split, load_dataset
from vitbook.engine import batches
from vitbook.features import collect_features, neighbor_votes, whitening
from vitbook.pretrained import load_pretrained
from vitbook.runtime import device, has_bfloat16
from vitbook.vit import VisionTransformer

ARMS = {"pixels": None, "random weights": "mae", "MAE": "mae", "DINO": "dino"}  # the weights; random ones of that shape
SHRINKAGES = (0.01, 0.1, 1.0, 10.0, 100.0)
KNOWN = 10_000  # images that vote


def features_of(arm: str, data: Dataset) -> list[Tensor]:
    """Of the training, validation and test images, (N, D) each."""
    splits = (data.train, data.validation, data.test)
    if ARMS[arm] is None:
        return [data.normalize(split.images).flatten(1) for split in splits]
    model = load_pretrained(f"vitbook:{ARMS[arm]}").model
    if arm == "random weights":
        torch.manual_seed(0)
        model = VisionTransformer(model.config)
    moments = [moment.to(device()) for moment in data.moments]
    with torch.autocast(device().type, torch.bfloat16, enabled=has_bfloat16(device())):
        model = model.to(device())
        return [collect_features(model, batches(split, *moments, 500))[0].float() for split in splits]


def right(known: Tensor, asked: Tensor, labels: Tensor, answers: Split) -> float:
    votes = torch.cat([neighbor_votes(some, known, labels, 10) for some in asked.split(500)])
    return (votes.argmax(dim=1) == answers.labels).double().mean().item()


def measure(arm: str, data: Dataset) -> dict:
    """The shares of test images that are right, and what was tried on validation images."""
    torch.set_num_threads(1)
    known, asked, tested = features_of(arm, data)
    labels, tried = data.train.labels, {}
    for shrinkage in SHRINKAGES:
        mean, matrix = whitening(known, shrinkage)
        tried[shrinkage] = right((known - mean) @ matrix, (asked - mean) @ matrix, labels, data.validation)
    best = max(tried, key=tried.get)
    mean, matrix = whitening(known, best)
    return {
        "raw": right(known, tested, labels, data.test),
        "centered": right(known - mean, tested - mean, labels, data.test),
        "whitened": right((known - mean) @ matrix, (tested - mean) @ matrix, labels, data.test),
        "mean_share": (mean.norm() / known.norm(dim=1).mean()).item(),
        "shrinkage": best,
        "tried": tried,
        "n": len(data.test),
    }


def main(arguments: list[str] | None = None) -> None:
    parser = arguments_of(__doc__, dataset=True)
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=list(ARMS), metavar="ARM")
    given = parser.parse_args(arguments)
    data = load_dataset(given.dataset, given.data_dir, validation=0.04)
    data = replace(data, train=Split(data.train.images[:KNOWN], data.train.labels[:KNOWN]), given_moments=data.moments)
    keys = [{"arm": arm, "rate": None, "seed": 0, "tuning": False} for arm in given.arms]
    Rows(given.file).fill(lambda arm, **_: measure(arm, data), keys)


if __name__ == "__main__":
    main()

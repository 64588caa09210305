"""Does a model notice what it has never seen? By its largest probability, by energy, and by the nearest features.

    python records/unknown.py vitbook/assets/runs/unknown.json --data-dir FOLDER --tiny FOLDER

"learned": a model that was trained on the ten classes of CIFAR-10. "probe": a probe on features of a backbone trained
without labels, which knows eight of the ten; a seed draws which. Both are asked for photographs of twenty other classes
of Tiny-ImageNet ("others") and for handwritten digits, enlarged; the probe also for the two classes "kept away" from
it. A seed draws which 2,000 test photographs of known classes draw the line, at 5 % of false alarms; the others are
turned away by it or not. Three minutes on a core.
"""

from pathlib import Path

import torch
import torch.nn.functional as F
from harness import Rows, arguments_of
from torch import Tensor
from transfer import probe, tiny_imagenet

from vitbook.confidence import auroc, energy, feature_distance, least_probability, unknown_above
from vitbook.data import Split, digits, load_dataset
from vitbook.engine import batches
from vitbook.features import collect_features
from vitbook.pretrained import Pretrained, load_pretrained

SCORES = {
    "probability": lambda logits, features, bank: least_probability(logits),
    "energy": lambda logits, features, bank: energy(logits),
    "distance": lambda logits, features, bank: torch.cat([feature_distance(f, bank) for f in features.split(500)]),
}
SHARE, DRAWS = 0.05, 2000
STRENGTH = 0.1  # chapter 16's C


def enlarged_digits() -> Split:
    """The test digits with 32×32 pixels and three equal colors."""
    small = digits().test
    images = F.interpolate(small.images.float(), size=32, mode="bilinear").round().byte()
    return Split(images.expand(-1, 3, -1, -1).contiguous(), small.labels)


def main(arguments: list[str] | None = None) -> None:
    parser = arguments_of(__doc__)
    parser.add_argument("--tiny", type=Path, required=True, help="the unpacked folder tiny-imagenet-200")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--known", type=int, default=10_000, help="training photographs to compare features with")
    parser.add_argument("--draws", type=int, default=DRAWS, help="test photographs that draw the line")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    data, rows = load_dataset("cifar10", given.data_dir, validation=0), Rows(given.file)
    train = Split(data.train.images[: given.known], data.train.labels[: given.known])
    strange = tiny_imagenet(given.tiny, 32)
    others = Split(torch.cat([part.images for part in strange]), torch.cat([part.labels for part in strange]))

    def features(weights: Pretrained, split: Split) -> Tensor:
        return collect_features(weights.model, batches(split, *weights.preprocessing.moments, 250))[0]

    def measure(arm: str, seed: int, score, parts: dict[str, tuple[Tensor, Tensor]], bank: Tensor) -> dict:
        """parts: logits and features of the known and of each kind of unknown."""
        of = {name: score(*part, bank) for name, part in parts.items()}
        order = torch.randperm(len(of["known"]), generator=torch.Generator().manual_seed(seed))
        line = unknown_above(of["known"][order[: given.draws]], SHARE)
        of["known"] = of["known"][order[given.draws :]]
        found = {"n": len(of["known"]), "turned_away": {k: (v > line).double().mean().item() for k, v in of.items()}}
        areas = {}
        for name in parts.keys() - {"known"}:
            both = torch.cat([of["known"], of[name]])
            areas[name] = auroc(both, torch.arange(len(both)) >= len(of["known"]))
        return found | {"auroc": areas}

    def fill(situation: str, seed: int, parts: dict[str, tuple[Tensor, Tensor]], bank: Tensor) -> None:
        for name, score in SCORES.items():
            key = {"arm": f"{situation}, {name}", "rate": None, "seed": seed}
            rows.once(lambda key=key, score=score: measure(key["arm"], seed, score, parts, bank), **key)

    weights = load_pretrained("vitbook:cifar10")
    asked = {"known": data.test, "others": others, "digits": enlarged_digits()}
    seen = {name: features(weights, split) for name, split in asked.items()}
    with torch.no_grad():
        parts = {name: (weights.model.head(values), values) for name, values in seen.items()}
    bank = features(weights, train)
    for seed in given.seeds:
        fill("learned", seed, parts, bank)

    weights = load_pretrained("vitbook:dino")
    bank, test, *far = (features(weights, split) for split in (train, *asked.values()))
    for seed in given.seeds:
        away = torch.randperm(10, generator=torch.Generator().manual_seed(seed))[:2]
        known, near = ~torch.isin(train.labels, away), torch.isin(data.test.labels, away)
        seen = {"known": test[~near], "kept away": test[near]} | dict(zip(("others", "digits"), far, strict=True))
        logits = probe(bank[known], train.labels[known], torch.cat(list(seen.values())), STRENGTH)
        split = logits.split([len(values) for values in seen.values()])
        fill("probe", seed, dict(zip(seen, zip(split, seen.values(), strict=True), strict=True)), bank[known])


if __name__ == "__main__":
    main()

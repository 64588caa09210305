"""What helps where classes are very unequal? Drawing rare ones as often, weighing them, or adjusting the logits.

    python records/long_tail.py vitbook/assets/runs/long_tail.json --data-dir FOLDER

CIFAR-10 with 500 photographs of one class and fewer of each next one, down to 5. A head, linear or with one hidden
layer, learns from the features of a backbone that was trained without labels and stays as it is. A seed draws which
class has how many, the photographs, the head and the order of training. An arm's rate is chosen on 100 other
photographs of every class, so by balanced accuracy; the test has equally many of every class. "afterwards" is plain
training whose logits are adjusted at the end. "recalls" and "precisions" are by class, from the class with the most
photographs on. Two minutes on a core.
"""

from functools import cache

import torch
import torch.nn.functional as F
from harness import Rows, arguments_of, compare
from torch import Tensor, nn

from vitbook.data import Split, load_dataset
from vitbook.engine import batches
from vitbook.features import collect_features, standardized
from vitbook.imbalance import balanced_order, by_class, class_counts, class_weights, log_prior
from vitbook.pretrained import load_pretrained
from vitbook.training import Evaluation, warmup_cosine

WAYS = ("plain", "afterwards", "sample", "loss", "logits")
HEADS = ("linear", "hidden layer")
COUNTS = [round(500 * (5 / 500) ** (rank / 9)) for rank in range(10)]  # photographs of each class, the largest first
HELD, POOL = 100, 1000  # photographs of each class to choose by, and to draw all from
BATCH, HIDDEN, DECAY = 50, 256, 0.05
Known = tuple[Tensor, Tensor]  # features (N, D) and labels (N,)


def drawn(pool: Known, seed: int, counts: list[int], held: int) -> tuple[Known, Known, Tensor]:
    """Very unequal training photographs, equally many of each class to choose by; the classes, the largest first."""
    generator, chosen = torch.Generator().manual_seed(seed), ([], [])
    classes = torch.randperm(len(counts), generator=generator)
    for count, k in zip(counts, classes, strict=True):
        members = (pool[1] == k).nonzero()[:, 0]
        members = members[torch.randperm(len(members), generator=generator)]
        for some, part in zip(chosen, (members[:count], members[count : count + held]), strict=True):
            some.append(part)
    train, validation = ((pool[0][index], pool[1][index]) for index in map(torch.cat, chosen))
    return train, validation, classes


def trained(train: Known, K: int, hidden: bool, way: str, rate: float, seed: int, epochs: int) -> nn.Module:
    """A head for K classes, trained in one way."""
    x, labels = train
    torch.manual_seed(seed)
    layers = [nn.Linear(x.shape[1], HIDDEN), nn.GELU()] if hidden else []
    head = nn.Sequential(*layers, nn.Linear(HIDDEN if hidden else x.shape[1], K))
    optimizer = torch.optim.AdamW(head.parameters(), lr=rate, weight_decay=DECAY, fused=True)
    counts = class_counts(labels, K)
    weights, prior = class_weights(counts) if way == "loss" else None, log_prior(counts) if way == "logits" else 0
    generator, step, total = torch.Generator().manual_seed(seed), 0, epochs * (len(labels) // BATCH)
    for _ in range(epochs):
        if way == "sample":
            order = balanced_order(labels, len(labels), generator)
        else:
            order = torch.randperm(len(labels), generator=generator)
        for some in order.split(BATCH)[: len(labels) // BATCH]:
            optimizer.param_groups[0]["lr"] = rate * warmup_cosine(step, total, total // 10)
            optimizer.zero_grad()
            F.cross_entropy(head(x[some]) + prior, labels[some], weights).backward()
            optimizer.step()
            step += 1
    return head


def main(arguments: list[str] | None = None) -> None:
    parser = arguments_of(__doc__, weights=True)
    parser.set_defaults(weights="vitbook:dino")
    parser.add_argument("--rates", type=float, nargs="+", default=[1e-3, 3e-3, 1e-2], help="to begin with")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--counts", type=int, nargs="+", default=COUNTS, help="photographs of each class")
    parser.add_argument("--held", type=int, default=HELD, help="of each class to choose by")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    weights, data = load_pretrained(given.weights), load_dataset("cifar10", given.data_dir, validation=0)
    K = len(data.class_names)
    pool = torch.cat([(data.train.labels == k).nonzero()[:POOL, 0] for k in range(K)])

    @cache
    def features() -> tuple[Known, Known]:
        """Of what is drawn from, and of the test."""
        splits = Split(data.train.images[pool], data.train.labels[pool]), data.test
        return tuple(
            collect_features(weights.model, batches(split, *weights.preprocessing.moments, 250)) for split in splits
        )

    @cache
    @torch.no_grad()
    def answers(head: str, way: str, rate: float, seed: int, tuning: bool) -> tuple[Evaluation, float]:
        """What a head says of the photographs to choose by or of the test, and its share of right training ones."""
        known, test = features()
        train, validation, _ = drawn(known, seed, given.counts, given.held)
        x = standardized(train[0], train[0])
        with torch.enable_grad():
            model = trained((x, train[1]), K, head != "linear", way, rate, seed, given.epochs)
        asked, labels = validation if tuning else test
        right = (model(x).argmax(dim=1) == train[1]).double().mean().item()
        return Evaluation(model(standardized(asked, train[0])), labels), right

    def run(arm: str, rate: float, seed: int, tuning: bool) -> dict:
        head, way = arm.split(", ")
        result, right = answers(head, "plain" if way == "afterwards" else way, rate, seed, tuning)
        train, _, classes = drawn(features()[0], seed, given.counts, given.held)
        if way == "afterwards":
            result = Evaluation(result.logits - log_prior(class_counts(train[1], K)), result.labels)
        found = {"n": len(result.labels), "train_accuracy": right}
        if tuning:
            return found | {"validation_accuracy": result.accuracy}
        precision, recall, _ = (values.nan_to_num()[classes].tolist() for values in by_class(result.confusion))
        return found | {"test_accuracy": result.accuracy, "recalls": recall, "precisions": precision}

    rows = Rows(given.file, "rows", weights=given.weights, counts=given.counts, epochs=given.epochs)
    compare(rows, run, [f"{head}, {way}" for head in HEADS for way in WAYS], given.rates, given.seeds)


if __name__ == "__main__":
    main()

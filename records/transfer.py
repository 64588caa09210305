"""Put a trained model to a new task in every way of chapter 16, with 5 to 500 labels a class, and record the results.

    python records/transfer.py vitbook/assets/runs/transfer.json --tiny FOLDER --features FILE

The task: twenty classes of Tiny-ImageNet that CIFAR-10 lacks, shrunk from 64 to 32 pixels, the 50 validation images of
each for testing. Labels for training are drawn by seed from the first 300 of the 500 others; 500 are all of them, and
there the seeds differ only in the order and in the random start of what trains. Learning rates, and C of the probe on
each kind of features, were chosen with 50 labels a class of a seed that is not used again, on 50 other images a class.
Training is in bfloat16 where the processor has it, every test in float32. The file holds one record a run and is
written again after each; a second call goes on where the first was stopped. The features of the 300 and of the test
images go to another file, as whole numbers of 8 bits: features are kept, photographs are not.
"""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path

import torch
import torch.nn.functional as F
from harness import Rows, arguments_of, tune
from PIL import Image
from safetensors.torch import save
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from vitbook._common.files import write_whole
from vitbook._common.images import read_image, to_tensor
from vitbook.data import Dataset, Split, load_dataset
from vitbook.engine import TrainConfig, batches, fit
from vitbook.features import collect_features, neighbor_votes
from vitbook.finetuning import merge_lora, prepare
from vitbook.pretrained import Pretrained, load_pretrained
from vitbook.runtime import has_bfloat16
from vitbook.training import Evaluation, evaluate
from vitbook.vit import VisionTransformer

CLASSES = {
    "n01443537": "goldfish", "n01910747": "jellyfish", "n01944390": "snail", "n02165456": "ladybug",
    "n02279972": "monarch", "n02504458": "elephant", "n02769748": "backpack", "n02814860": "lighthouse",
    "n03388043": "fountain", "n04099969": "rocking chair", "n04133789": "sandal", "n04356056": "sunglasses",
    "n04366367": "suspension bridge", "n04398044": "teapot", "n04399382": "teddy bear", "n04507155": "umbrella",
    "n07734744": "mushroom", "n07753592": "banana", "n07873807": "pizza", "n12267677": "acorn",
}  # fmt: skip
READ = (5, 10, 20, 50, 100, 300, 500)  # labels a class for what only reads features
STORED = 300  # images a class that labels are drawn from and whose features are kept; more than these are all there are
EPOCHS = {5: 16, 50: 4, 500: 1}  # for what trains, in batches of 50: 32, 80 and 200 steps
STRENGTHS = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1)  # C of a probe
RATES = {"lora": (3e-3, 1e-2), "layers": (1.5e-3, 5e-3), "all": (3e-4, 1e-3), "scratch": (3e-4, 1e-3)}  # to try first
SWEEP_SEED = 99


def tiny_imagenet(folder: Path, size: int) -> tuple[Split, Split]:
    """The images of `CLASSES`, to draw labels from and to test on, of size × size pixels."""
    names = (row.split("\t")[:2] for row in (folder / "val" / "val_annotations.txt").read_text().splitlines())
    tests = [(folder / "val" / "images" / file, wnid) for file, wnid in names if wnid in CLASSES]
    trains = [(path, wnid) for wnid in CLASSES for path in sorted((folder / "train" / wnid).rglob("*.JPEG"))]

    def split(files: list[tuple[Path, str]]) -> Split:
        kernel = Image.Resampling.BOX if 64 % size == 0 else Image.Resampling.BICUBIC
        images = [to_tensor(read_image(path).resize((size, size), kernel)) for path, _ in files]
        return Split(torch.stack(images), torch.tensor([list(CLASSES).index(wnid) for _, wnid in files]))

    return split(trains), split(sorted(tests))


def few(split: Split, count: int, seed: int, after: int = 0) -> Tensor:
    """Indices of so many images of each class, drawn by seed; those of a smaller count are among them."""
    generator = torch.Generator().manual_seed(seed)

    def drawn(indices: Tensor) -> Tensor:
        order = torch.randperm(min(STORED, len(indices)), generator=generator)
        return torch.cat([indices[order], indices[STORED:]])

    return torch.cat([drawn(indices)[after : after + count] for indices in _by_class(split.labels)])


def _by_class(labels: Tensor) -> list[Tensor]:
    return [(labels == k).nonzero()[:, 0] for k in range(len(CLASSES))]


def vote(known: Tensor, labels: Tensor, asked: Tensor, right: Tensor) -> Evaluation:
    """What five neighbors make of images."""
    votes = neighbor_votes(asked, known, labels, len(CLASSES), k=5)
    return Evaluation(votes.clamp(min=1e-3).log(), right)


def probe(known: Tensor, labels: Tensor, asked: Tensor, right: Tensor, strength: float) -> Evaluation:
    """What logistic regression on standardized features makes of images."""
    mean, std = known.mean(dim=0), known.std(dim=0).clamp(min=1e-6)
    fitted = LogisticRegression(C=strength, max_iter=300).fit(((known - mean) / std).numpy(), labels.numpy())
    return Evaluation(torch.from_numpy(fitted.decision_function(((asked - mean) / std).numpy())).float(), right)


def said(result: Evaluation) -> dict[str, float]:
    return {"test_accuracy": result.accuracy, "test_loss": result.loss, "calibration_error": result.calibration_error}


class WithSeconds(Rows):
    """Rows that name the weights, and the CPU seconds that each took."""

    def __init__(self, file: Path, weights: str):
        super().__init__(file)
        self.weights = weights

    def once(self, make: Callable[[], dict], **key) -> dict:
        def timed() -> dict:
            began = time.process_time()
            return make() | {"cpu_seconds": round(time.process_time() - began, 2), "weights": self.weights}

        return super().once(timed, **key)


def tuned(
    given: Pretrained, method: str, task: Dataset, rate: float, epochs: int, seed: int, old: Dataset | bool = False
) -> dict:
    """Train one model in one way; how good it is then, and how good it still is at its old task with its old head."""
    torch.manual_seed(seed)
    if method == "scratch":
        model = VisionTransformer(replace(given.model.config, num_classes=len(CLASSES)))
    else:
        model = _fresh(given)
        prepare(model, method)
    decay = {"layer_decay": 0.7} if method == "layers" else {}
    config = TrainConfig(
        epochs=epochs, batch_size=50, learning_rate=rate, weight_decay=0.05, label_smoothing=0.0,
        affine=0.5, flip=True, bf16=has_bfloat16(torch.device("cpu")), seed=seed, **decay,
    )  # fmt: skip
    started = time.process_time()
    records = fit(model, task, config, progress=False)
    result = {"train_cpu_seconds": round(time.process_time() - started, 2)} | said(asked(model, task))
    result |= {"steps": records[-1]["step"], "train_loss": records[-1]["train_loss"]}
    result["trained_numbers"] = sum(p.numel() for p in model.parameters() if p.requires_grad)
    if old and method != "scratch":
        merge_lora(model)
        model.head = given.model.head
        result["old_accuracy"] = asked(model, old).accuracy
    return result


def asked(model: nn.Module, task: Dataset) -> Evaluation:
    """What a model says of the test images, in float32."""
    return evaluate(model, batches(task.test, *task.moments, 100))


def _fresh(given: Pretrained) -> VisionTransformer:
    """Another model with the same weights, and a head of zeros for the new classes."""
    model = VisionTransformer(replace(given.model.config, num_classes=len(CLASSES)))
    state = given.model.state_dict()
    model.load_state_dict(model.state_dict() | {name: t for name, t in state.items() if not name.startswith("head")})
    return model


def main(arguments: list[str] | None = None) -> None:
    parser = arguments_of(__doc__, data_dir=False, weights=True)
    parser.add_argument("--features", type=Path, required=True, help="where to put the features")
    parser.add_argument("--tiny", type=Path, required=True, help="the unpacked folder tiny-imagenet-200")
    parser.add_argument("--cifar", type=Path, help="where CIFAR-10's files are; without it they are downloaded")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--methods", nargs="+", choices=list(RATES), default=list(RATES), help="of what trains")
    parser.add_argument("--most", type=int, default=max(READ), help="labels a class at most")
    parser.add_argument("--old", type=int, default=500, help="test images of the old task")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    weights, recorder = load_pretrained(given.weights), WithSeconds(given.file, given.weights)
    moments = weights.preprocessing.moments
    pool, test = tiny_imagenet(given.tiny, 32)
    data = Dataset("tiny_imagenet", pool, test, tuple(CLASSES.values()), given_moments=moments)

    # What only reads features

    def features(model: nn.Module, splits: tuple[Split, Split] = (pool, test)) -> tuple[Tensor, Tensor]:
        return tuple(collect_features(model, batches(split, *moments, 100))[0] for split in splits)

    def read_all(
        kind: str, counts: tuple[int, ...], make: Callable[[], tuple[Tensor, Tensor]], with_probe: bool = True
    ) -> None:
        """Neighbors, and mostly probes, for each count and seed."""
        extracted = cache(make)

        def probed(c: float, count: int, seed: int, after: int = 0) -> dict:
            """With labels of a seed: on the test images, or on some that come after them in the same draw."""
            (known, asked), right, index = extracted(), test.labels, few(pool, count, seed)
            if after:
                others = few(pool, 50, seed, after)
                asked, right = known[others], pool.labels[others]
            return said(probe(known[index], pool.labels[index], asked, right, c))

        def voted(count: int, seed: int) -> dict:
            (known, asked), index = extracted(), few(pool, count, seed)
            return said(vote(known[index], pool.labels[index], asked, test.labels))

        seen = lambda: {"images": int(torch.cat(extracted()).any(dim=1).sum())}  # noqa: E731
        recorder.once(seen, method="extract", features=kind)
        keys = [
            {"labels": count, "seed": seed}
            for count, seed in product(counts, range(given.seeds))
            if count <= given.most and (count < STORED or not seed)  # more are the same images for every seed
        ]
        for key in keys:
            recorder.once(lambda key=key: voted(*key.values()), features=kind, method="neighbors", **key)
        if with_probe:
            first = min(50, given.most)
            tried = {
                c: recorder.once(lambda c=c: probed(c, first, SWEEP_SEED, first), tried="probe", features=kind, C=c)
                for c in STRENGTHS
            }
            best = max(tried, key=lambda c: tried[c]["test_accuracy"])
            for key in keys:
                recorder.once(lambda key=key: probed(best, *key.values()), features=kind, method="probe", **key, C=best)

    def trained() -> tuple[Tensor, Tensor]:
        known, asked = features(weights.model)
        kept = few(pool, STORED, 0).sort().values
        scale = known[kept].abs().amax(dim=0) / 127
        tensors = {"scale": scale, "train_labels": pool.labels[kept].byte(), "test_labels": test.labels.byte()}
        tensors["train"] = (known[kept] / scale).round().char()
        tensors["test"] = (asked / scale).round().clamp(-127, 127).char()
        about = {"classes": json.dumps(data.class_names), "weights": given.weights, "pixels": "32"}
        given.features.parent.mkdir(parents=True, exist_ok=True)
        write_whole(given.features, save(tensors, about))
        return known, asked

    def random_weights() -> tuple[Tensor, Tensor]:
        torch.manual_seed(0)
        return features(VisionTransformer(replace(weights.model.config, num_classes=0)).eval())

    def larger(size: int) -> tuple[Tensor, Tensor]:
        """Only of the photographs that the draws of 50 a class need; those of the others are left at zero."""
        model = load_pretrained(given.weights, num_classes=0, image_size=size).model
        images, tested = tiny_imagenet(given.tiny, size)
        drawn = torch.cat([few(pool, 50, seed) for seed in range(given.seeds)]).unique()
        some, asked = features(model, (Split(images.images[drawn], images.labels[drawn]), tested))
        return some.new_zeros(len(pool), some.shape[1]).index_copy(0, drawn, some), asked

    def pixels() -> tuple[Tensor, Tensor]:
        return tuple(F.avg_pool2d(split.images.float() / 255, 2).flatten(1) for split in (pool, test))

    read_all("trained", READ, trained)
    read_all("random weights", (5, 50, 500), random_weights)
    read_all("pixels", (5, 50, 500), pixels)
    read_all("trained, at 48 pixels", (50,), lambda: larger(48), with_probe=False)

    # What trains

    old = load_dataset("cifar10", given.cifar, validation=0.0)
    chosen = Split(old.test.images[: given.old], old.test.labels[: given.old])
    old = replace(old, test=chosen, given_moments=moments)
    recorder.once(lambda: {"old_accuracy": asked(weights.model, old).accuracy}, method="before")

    def with_labels(count: int, seed: int) -> Dataset:
        index = few(pool, count, seed)
        return replace(data, train=Split(pool.images[index], pool.labels[index]))

    count = min(50, given.most)
    index = few(pool, 50, SWEEP_SEED, after=count)
    chosen = replace(with_labels(count, SWEEP_SEED), test=Split(pool.images[index], pool.labels[index]))
    best = {}
    for method in given.methods:

        def score(rate: float, method: str = method) -> float:
            make = lambda: tuned(weights, method, chosen, rate, EPOCHS[50], SWEEP_SEED)  # noqa: E731
            return recorder.once(make, tried=method, rate=rate)["test_accuracy"]

        tried = tune(score, RATES[method], factor=3, most=5)
        best[method] = max(tried, key=tried.get)
    for seed, count in product(range(given.seeds), EPOCHS):
        task = with_labels(count, seed) if count <= given.most else None
        for method in given.methods if task else ():
            recorder.once(
                lambda m=method, t=task, n=count, s=seed: tuned(weights, m, t, best[m], EPOCHS[n], s, n == 50 and old),
                method=method, labels=count, seed=seed, rate=best[method],
            )  # fmt: skip
    read_all("trained, at 64 pixels", (50,), lambda: larger(64), with_probe=False)


if __name__ == "__main__":
    main()

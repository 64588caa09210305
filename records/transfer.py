"""Put a trained model to a new task in every way of chapter 16, with 5, 50 and 250 labels a class, and record it.

    python records/transfer.py vitbook/assets/runs/transfer.json --tiny FOLDER --features FILE

The task: twenty classes of Tiny-ImageNet that CIFAR-10 lacks, shrunk from 64 to 32 pixels. Labels for training are
drawn by seed from the first 300 training images of each class; the 200 others and the 50 validation images are for
testing. An arm is a way with a number of labels. What it chooses (a learning rate, the number of neighbors, C of a
probe) is the best on 50 other images a class of the 300, with a seed that is not used again. "augmented": a probe on
features of the very images that the ways that train are shown, flipped, turned and moved. "scratch" has Muon and more
passes than the others. Training is in bfloat16 where the processor has it, and so are the tests of what was trained;
features of images as they are, are in float32. "right" holds a bit for each test image, as hexadecimal digits. The
features of the 300 and of the 50 go to another file, in whole numbers of 8 bits: features are kept, photographs not.
"""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F
from harness import TUNING_SEED, Rows, arguments_of, compare, tune
from PIL import Image
from safetensors.torch import save
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from vitbook._common.files import write_whole
from vitbook._common.images import read_image, to_tensor
from vitbook.augment import augmented
from vitbook.data import Dataset, Split, load_dataset
from vitbook.engine import TrainConfig, batches, fit
from vitbook.features import collect_features, neighbor_votes, standardized
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
STORED = 300  # training images a class that labels are drawn from and whose features are kept; the rest is for testing
HELD = 50  # of them, a class, that choices are made by
COUNTS = (5, 50, 250)  # labels a class
PASSES = {5: 32, 50: 8, 250: 4}  # over them, for what trains, in batches of 50: 64, 160 and 400 steps
FROM_SCRATCH = {5: 64, 50: 16, 250: 8}  # 128, 320 and 800 steps
NEIGHBORS = (5, 10, 20)  # k, to try first
STRENGTHS = (1e-2, 3e-2, 1e-1)  # C of a probe
RATES = {
    "layers": (1.5e-3, 5e-3, 1.5e-2),
    "lora": (3e-3, 1e-2, 3e-2),
    "all": (3e-4, 1e-3, 3e-3),
    "scratch": (3e-3, 6e-3, 1.2e-2),
}
WAYS = ("read", "augmented", *RATES, "larger")
RECIPE = TrainConfig(
    batch_size=50, weight_decay=0.05, label_smoothing=0.0, affine=0.5, flip=True, bf16=has_bfloat16(torch.device("cpu"))
)


def tiny_imagenet(folder: Path, size: int) -> tuple[Split, Split]:
    """The images of `CLASSES`, to draw labels from and to test on, of size × size pixels."""
    names = (row.split("\t")[:2] for row in (folder / "val" / "val_annotations.txt").read_text().splitlines())
    tests = sorted((folder / "val" / "images" / file, wnid) for file, wnid in names if wnid in CLASSES)
    trains = []
    for wnid in CLASSES:
        files = [(path, wnid) for path in sorted((folder / "train" / wnid).rglob("*.JPEG"))]
        trains, tests = trains + files[:STORED], tests + files[STORED:]

    def split(files: list[tuple[Path, str]]) -> Split:
        kernel = Image.Resampling.BOX if 64 % size == 0 else Image.Resampling.BICUBIC
        images = [to_tensor(read_image(path).resize((size, size), kernel)) for path, _ in files]
        return Split(torch.stack(images), torch.tensor([list(CLASSES).index(wnid) for _, wnid in files]))

    return split(trains), split(tests)


def few(split: Split, count: int, seed: int, after: int = 0) -> Tensor:
    """Indices of so many images of each class, drawn by seed; those of a smaller count are among them."""
    generator = torch.Generator().manual_seed(seed)
    members = [(split.labels == k).nonzero()[:, 0] for k in range(len(CLASSES))]
    return torch.cat([m[torch.randperm(len(m), generator=generator)][after : after + count] for m in members])


def vote(known: Tensor, labels: Tensor, asked: Tensor, k: int) -> Tensor:
    """What k neighbors make of images, as logits."""
    return neighbor_votes(asked, known, labels, len(CLASSES), k=k).clamp(min=1e-3).log()


def probe(known: Tensor, labels: Tensor, asked: Tensor, strength: float) -> Tensor:
    """What logistic regression on standardized features makes of images, as logits."""
    fitted = LogisticRegression(C=strength, max_iter=300).fit(standardized(known, known), labels.numpy())
    return torch.from_numpy(fitted.decision_function(standardized(asked, known))).float()


def said(result: Evaluation, tuning: bool) -> dict:
    """What a row keeps of the answers."""
    if tuning:
        return {"n": len(result.labels), "validation_accuracy": result.accuracy}
    bits = "".join(map(str, (result.predictions == result.labels).int().tolist()))
    return {
        "n": len(result.labels),
        "test_accuracy": result.accuracy,
        "test_loss": result.loss,
        "calibration_error": result.calibration_error,
        "right": f"{int(bits, 2):0{-(-len(bits) // 4)}x}",
    }


def fresh(given: Pretrained, method: str) -> VisionTransformer:
    """A model with the same weights, or new ones, and a head of zeros for the new classes."""
    model = VisionTransformer(replace(given.model.config, num_classes=len(CLASSES)))
    if method != "scratch":
        kept = {name: tensor for name, tensor in given.model.state_dict().items() if not name.startswith("head")}
        model.load_state_dict(model.state_dict() | kept)
        prepare(model, method)
    return model


def trained(
    given: Pretrained, method: str, count: int, task: Dataset, rate: float, seed: int
) -> tuple[nn.Module, dict]:
    """A model that was trained in one way, and what that took."""
    torch.manual_seed(seed)
    model = fresh(given, method)
    config = replace(RECIPE, seed=seed, epochs=PASSES[count], learning_rate=rate)
    if method == "scratch":
        rates = dict(learning_rate=rate / 3, muon_learning_rate=rate)
        config = replace(config, epochs=FROM_SCRATCH[count], optimizer="muon", **rates)
    if method == "layers":
        config = replace(config, layer_decay=0.7)
    started = time.process_time()
    last = fit(model, task, config, progress=False)[-1]
    found = {"train_core_seconds": round(time.process_time() - started, 2), "steps": last["step"]}
    found["trained_numbers"] = sum(p.numel() for p in model.parameters() if p.requires_grad)
    return model, found | {name: last[name] for name in ("train_loss", "train_accuracy")}


def asked(model: nn.Module, split: Split, moments: tuple[Tensor, Tensor]) -> Evaluation:
    """What a trained model says of images."""
    with torch.autocast("cpu", torch.bfloat16, enabled=RECIPE.bf16):
        return evaluate(model, batches(split, *moments, 100))


def main(arguments: list[str] | None = None) -> None:
    parser = arguments_of(__doc__, data_dir=False, weights=True)
    parser.add_argument("--features", type=Path, required=True, help="where to put the features")
    parser.add_argument("--tiny", type=Path, required=True, help="the unpacked folder tiny-imagenet-200")
    parser.add_argument("--cifar", type=Path, help="where CIFAR-10's files are; without it they are downloaded")
    parser.add_argument("--seeds", type=int, nargs="+", default=(0, 1, 2))
    parser.add_argument("--counts", type=int, nargs="+", default=COUNTS, help="labels a class")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS, help="read: neighbors and probes")
    parser.add_argument("--old", type=int, default=1000, help="test images of the old task")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    weights, rows = load_pretrained(given.weights), Rows(given.file, "rows", weights=given.weights)
    moments = weights.preprocessing.moments
    pool, test = tiny_imagenet(given.tiny, 32)
    old = load_dataset("cifar10", given.cifar, validation=0.0).test
    old = Split(old.images[: given.old], old.labels[: given.old])

    def part(indices: Tensor) -> Split:
        return Split(pool.images[indices], pool.labels[indices])

    def held(count: int, seed: int) -> Tensor:
        return few(pool, HELD, seed, after=count)

    # What only reads features

    def features(model: nn.Module, splits: tuple[Split, Split] = (pool, test)) -> tuple[Tensor, Tensor]:
        return tuple(collect_features(model, batches(split, *moments, 100))[0] for split in splits)

    @cache
    def of_trained() -> tuple[Tensor, Tensor]:
        known, others = features(weights.model)
        seen = others[: 50 * len(CLASSES)]
        scale = known.abs().amax(dim=0) / 127
        tensors = {"scale": scale, "train_labels": pool.labels.byte(), "test_labels": test.labels[: len(seen)].byte()}
        tensors["train"] = (known / scale).round().char()
        tensors["test"] = (seen / scale).round().clamp(-127, 127).char()
        about = {"classes": json.dumps(list(CLASSES.values())), "weights": given.weights, "pixels": "32"}
        given.features.parent.mkdir(parents=True, exist_ok=True)
        write_whole(given.features, save(tensors, about))
        return known, others

    @cache
    def of_random_weights() -> tuple[Tensor, Tensor]:
        torch.manual_seed(0)
        return features(VisionTransformer(replace(weights.model.config, num_classes=0)).eval())

    @cache
    def of_pixels() -> tuple[Tensor, Tensor]:
        return tuple(F.avg_pool2d(split.images.float() / 255, 2).flatten(1) for split in (pool, test))

    @cache
    def of_larger(size: int) -> tuple[Tensor, Tensor]:
        """Only of the photographs that the draws of 50 a class need; those of the others are left at zero."""
        model = load_pretrained(given.weights, num_classes=0, image_size=size).model
        images, tested = tiny_imagenet(given.tiny, size)
        draws = [few(pool, 50, seed) for seed in given.seeds] + [few(pool, 50 + HELD, TUNING_SEED)]
        drawn = torch.cat(draws).unique()
        some, others = features(model, (Split(images.images[drawn], images.labels[drawn]), tested))
        return some.new_zeros(len(pool), some.shape[1]).index_copy(0, drawn, some), others

    @cache
    @torch.no_grad()
    def of_shown(count: int, seed: int) -> tuple[Tensor, Tensor]:
        """Features and labels of the labeled images, augmented anew in each pass."""
        torch.manual_seed(seed)
        chosen, config = part(few(pool, count, seed)), replace(RECIPE, seed=seed)
        found = []
        for _ in range(PASSES[count]):
            for images, labels in zip(chosen.images.split(100), chosen.labels.split(100), strict=True):
                shown = augmented(images, labels, config, *moments, len(CLASSES))[0]
                with torch.autocast("cpu", torch.bfloat16, enabled=RECIPE.bf16):
                    found.append(weights.model.features(shown).float())
        return torch.cat(found), chosen.labels.repeat(PASSES[count])

    def read(arm: str, make: Callable, count: int, choice: str, first: tuple, factor: float, answer: Callable) -> None:
        """An arm that trains no part of the backbone, at its own best choice."""

        def run(seed: int, tuning: bool, **chosen: float) -> dict:
            known, tests = make()
            index, right = few(pool, count, seed), test.labels
            if tuning:
                tests, right = known[held(count, seed)], pool.labels[held(count, seed)]
            bank, labels = of_shown(count, seed) if "augmented" in arm else (known[index], pool.labels[index])
            return said(Evaluation(answer(bank, labels, tests, chosen[choice]), right), tuning)

        def fill(value: float, seeds: tuple[int, ...], tuning: bool) -> list[dict]:
            keys = [{"arm": arm, "rate": None, "seed": seed, "tuning": tuning, choice: value} for seed in seeds]
            return rows.fill(lambda seed, tuning, **key: run(seed, tuning, **{choice: key[choice]}), keys)

        tried = tune(lambda v: fill(v, (TUNING_SEED,), True)[0]["validation_accuracy"], first, factor)
        fill(max(tried, key=tried.get), given.seeds, False)

    def neighbors(arm: str, make: Callable, count: int, flat: bool = False) -> None:
        def answer(bank: Tensor, labels: Tensor, tests: Tensor, k: float) -> Tensor:
            first, second = (standardized(bank, bank), standardized(tests, bank)) if flat else (bank, tests)
            return vote(first, labels, second, int(k))

        read(arm, make, count, "k", NEIGHBORS, 2, answer)

    kinds = {"features": of_trained, "random weights": of_random_weights, "pixels": of_pixels}
    for count in sorted(given.counts) if "read" in given.ways else ():
        for kind, make in list(kinds.items())[: 3 if count < 250 else 1]:
            neighbors(f"neighbors, {kind}, {count}", make, count)
            neighbors(f"neighbors, {kind} standardized, {count}", make, count, flat=True)
            read(f"probe, {kind}, {count}", make, count, "C", STRENGTHS, 3, probe)

    # What trains

    before = lambda: {"old_accuracy": asked(weights.model, old, moments).accuracy, "n": len(old.labels)}  # noqa: E731
    rows.once(before, what="the old task before")

    def run(arm: str, rate: float, seed: int, tuning: bool) -> dict:
        method, count = arm.split(", ")
        count = int(count)
        chosen = part(few(pool, count, seed))
        task = Dataset("tiny_imagenet", chosen, test, tuple(CLASSES.values()), given_moments=moments)
        model, found = trained(weights, method, count, task, rate, seed)
        found |= said(asked(model, part(held(count, seed)) if tuning else test, moments), tuning)
        if method != "scratch" and not tuning:
            merge_lora(model)
            model.head = weights.model.head
            found["old_accuracy"] = asked(model, old, moments).accuracy
        return found

    for count in given.counts:
        if count < 250 and "augmented" in given.ways:
            read(f"probe, augmented, {count}", of_trained, count, "C", STRENGTHS, 3, probe)
        for method in [way for way in given.ways if way in RATES]:
            compare(rows, run, [f"{method}, {count}"], RATES[method], given.seeds)
    for size in (48, 64) if 50 in given.counts and "larger" in given.ways else ():
        neighbors(f"neighbors, features at {size} pixels, 50", lambda size=size: of_larger(size), 50)


if __name__ == "__main__":
    main()

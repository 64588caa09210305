"""What training runs came to: their models on the images of their data set, over seeds, and as recorded."""

import hashlib
import json
import statistics
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from vitbook._common.files import read_json, write_whole
from vitbook._common.suggestions import unknown
from vitbook.confidence import UNKNOWN_BY, unknown_above
from vitbook.data import Dataset, Split
from vitbook.engine import evaluated, fingerprint
from vitbook.pretrained import Pretrained
from vitbook.recorded import RECORDED
from vitbook.runtime import device
from vitbook_workshop.training_runs.settings import RECIPES, Run, image_folder, load_images, read_run
from vitbook_workshop.training_runs.trained_models import open_model

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class OpenedRun:
    """A trained model and the images of its run."""

    checkpoint: Path
    weights: Pretrained
    run: Run
    data: Dataset

    def images(self, split: str) -> Split:
        """The images of "test", "validation" or "train". Raises ValueError where there are none."""
        if split not in SPLITS:
            raise ValueError(unknown("split", split, SPLITS))
        images = getattr(self.data, split)
        if images is None:
            raise ValueError(f"the run of {self.checkpoint} has no {split} images")
        return images

    def evaluate(self, split: str) -> Any:
        """What the model says of them, an `Evaluation`, or of masks a `PixelEvaluation`."""
        mean, std = (moment.to(device()) for moment in self.weights.preprocessing.moments)
        size = self.run.train.batch_size
        return evaluated(self.weights.model, self.data, self.images(split), (mean, std), size)


def evaluate_run(checkpoint: Path, split: str = "test", data_dir: Path | None = None) -> Any:
    """What a trained model says of the images of its run; see `open_run` and `OpenedRun.images`."""
    return open_run(checkpoint, data_dir).evaluate(split)


def open_run(checkpoint: Path, data_dir: Path | None = None) -> OpenedRun:
    """A trained model, and the images that it was trained on and is tested on.

    checkpoint: as in `open_model`, with run.json beside it; data_dir: where the data set's files are now. Raises
    ValueError where the images are others than they were, FileNotFoundError where there are none.
    """
    weights = open_model(checkpoint)
    run = read_run((checkpoint if checkpoint.is_dir() else checkpoint.parent) / "run.json")
    now = replace(run, data_dir=data_dir or run.data_dir)
    if (folder := image_folder(now)) and not folder.is_dir():
        raise FileNotFoundError(
            f"there is no folder {folder}: say with --data-dir in which folder {run.dataset} is now"
        )
    data = load_images(now)
    if data.class_names != weights.class_names:
        raise ValueError(f"{checkpoint} knows classes {weights.class_names}, {run.dataset} has {data.class_names}")
    known = weights.facts.get("images")
    for part in ("train", "validation") if isinstance(known, dict) else ():  # not every checkpoint tells
        if fingerprint(getattr(data, part)) != known.get(part):
            raise ValueError(f"{run.dataset} has other {part} images than {checkpoint} was trained with")
    return OpenedRun(checkpoint, weights, run, data)


def unknown_line(checkpoint: Path, share: float, by: str, data_dir: Path | None = None) -> float:
    """The score above which an image shows none of a run's classes, a key of `UNKNOWN_BY` being how it is computed.

    Of images such as its validation images, at most `share` lie above. Their scores are computed once, and kept in the
    run's folder. Raises what `open_run` and `unknown_above` raise.
    """
    folder = checkpoint if checkpoint.is_dir() else checkpoint.parent
    best = checkpoint / "best.json" if checkpoint.is_dir() else checkpoint
    if not best.exists() or not (folder / "run.json").exists():
        raise FileNotFoundError(
            f"there is no trained model at {checkpoint}, whose validation images could draw the line"
        )
    digest, kept = hashlib.sha256(best.read_bytes()).hexdigest(), read_json(folder / "validation_scores.json") or {}
    if kept.get("of") != digest:
        opened = open_run(checkpoint, data_dir)
        if opened.data.task != "classes":
            raise ValueError(f"unknown is for classes, and the images of {checkpoint} have {opened.data.task}")
        logits = opened.evaluate("validation").logits
        kept = {"of": digest} | {name: score(logits).tolist() for name, score in UNKNOWN_BY.items()}
        write_whole(folder / "validation_scores.json", json.dumps(kept).encode())
    return unknown_above(torch.tensor(kept[by]), share)


def over_seeds(histories: list[list[dict]]) -> str:
    """What runs of several seeds came to: validation accuracy at its best, or training accuracy where there is none.

    Of masks, the mean IoU in its place.
    """
    if "validation_miou" in histories[0][-1]:
        best = [max(record["validation_miou"] for record in history) for history in histories]
        return f"validation mean IoU {mean_and_spread(best)}"
    if "validation_accuracy" in histories[0][-1]:
        best = [max(record["validation_accuracy"] for record in history) for history in histories]
        return f"validation accuracy {mean_and_spread(best)}"
    return f"training accuracy {mean_and_spread([history[-1]['train_accuracy'] for history in histories])}"


def mean_and_spread(accuracies: list[float]) -> str:
    """Mean, standard deviation (of a sample, n − 1) and range of some shares, in percent."""
    mean, spread = statistics.mean(accuracies), statistics.stdev(accuracies)
    low, high = min(accuracies), max(accuracies)
    return f"{mean:.2%} ± {100 * spread:.2f} ({low:.2%} to {high:.2%}, {len(accuracies)} runs)"


def recorded(name: str) -> str:
    """What the recorded run of a recipe came to, in words: accuracy, its mean over seeds if there are several; time."""
    if name not in RECORDED:
        return "not measured yet"
    record = json.loads(RECORDED[name].read_text())
    last = record["history"][-1]
    time = f"{record.get('core_seconds', last['seconds']) / 60:.0f} minutes"
    if "core_seconds" in record:
        time += f" of one core{', those of its teacher included' if record.get('teacher_core_seconds') else ''}"
    if last["epoch"] != read_run(RECIPES[name]).train.epochs:
        time += f" ({last['epoch']} epochs)"
    accuracies = record.get("test_accuracies", [record["test_accuracy"]])
    seeds = f"mean of {len(accuracies)} seeds" if len(accuracies) > 1 else "one seed"
    return f"test accuracy {record['test_accuracy']:.1%} ({seeds}) after {time}: {record['about']}"

"""Test a finished run, once, and keep what it came to in the package: its log and, if asked for, its weights.

    python records/keep_run.py runs/cifar10_hour cifar10_hour --about "…" --weights cifar10

The log and the test accuracy go to vitbook/assets/runs/NAME.json, the weights in float16 to
vitbook/assets/weights/NAME.json and the safetensors beside it. The accuracy is that of the weights as they are kept;
core_seconds, where given, is all that was spent on one run, its teacher included. Of several seeds, in folders seed_0,
seed_1, … as `vitbook train --seeds` makes them, each accuracy is kept, and their mean; log and weights are the first's.
"""

import argparse
import statistics
import tempfile
from dataclasses import asdict
from pathlib import Path

from harness import write
from torch import Tensor

from vitbook._common.files import ASSETS, write_whole
from vitbook.checkpoint import load_checkpoint, save_checkpoint
from vitbook.training import Evaluation
from vitbook_workshop.training_runs.results import evaluate_run
from vitbook_workshop.training_runs.settings import read_run
from vitbook_workshop.training_runs.trained_models import open_model


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="of the run, or of the runs of several seeds")
    parser.add_argument("name", help="under which the log is kept")
    parser.add_argument("--about", required=True, help="what data, which machine: a sentence")
    parser.add_argument("--weights", help="name under which the weights are kept")
    parser.add_argument("--core-seconds", type=float, help="what one run took, all cores added up: user time")
    parser.add_argument("--teacher-core-seconds", type=float, default=0.0, help="what its teacher's run took")
    parser.add_argument("--data-dir", type=Path, help="where the data set's files are now")
    parser.add_argument("--assets", type=Path, default=ASSETS, help="where to keep them")
    given = parser.parse_args(arguments)
    first, *others = sorted(given.folder.glob("seed_*")) or [given.folder]
    tensors, facts = load_checkpoint(first / "best.json")
    run, last = read_run(first / "run.json"), load_checkpoint(first / "last.json")[1]
    results = [tested_as_kept(folder, given.data_dir) for folder in (first, *others)]
    accuracies = [result.accuracy for result in results]
    record = {
        "about": given.about,
        "dataset": run.dataset,
        "test_accuracy": statistics.mean(accuracies),
        "test_accuracies": accuracies,
        "test_loss": statistics.mean(result.loss for result in results),
        "test_images": len(results[0].labels),
        "parameters": sum(weight.numel() for weight in open_model(first).model.parameters()),
        "versions": facts["versions"],
        "config": asdict(run.train),
        "vit": facts["model"],
        "history": last["history"],
    }
    if given.core_seconds:
        teacher = given.teacher_core_seconds
        record |= {"core_seconds": given.core_seconds + teacher, "teacher_core_seconds": teacher}
    write(given.assets / "runs" / f"{given.name}.json", record)
    if given.weights:
        about = {key: facts[key] for key in ("model", "dataset", "class_names", "mean", "std", "versions")}
        about |= {"about": given.about, "recipe": given.name, "test_accuracy": accuracies[0]}
        save_checkpoint(given.assets / "weights", given.weights, halved(tensors), about)
    print(*(f"test accuracy {accuracy:.2%}" for accuracy in accuracies), sep="\n")


def tested_as_kept(folder: Path, data_dir: Path | None) -> Evaluation:
    """What a run's best weights say of the test images when they went through float16."""
    tensors, facts = load_checkpoint(folder / "best.json")
    kept = {name: half.to(tensors[name].dtype) for name, half in halved(tensors).items()}
    with tempfile.TemporaryDirectory() as place:
        save_checkpoint(Path(place), "best", kept, facts)
        write_whole(Path(place) / "run.json", (folder / "run.json").read_bytes())
        return evaluate_run(Path(place), "test", data_dir)


def halved(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """In float16, what is no whole number."""
    return {name: tensor.half() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}


if __name__ == "__main__":
    main()

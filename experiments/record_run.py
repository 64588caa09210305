"""Test a finished run, once, and keep what it came to in the package: its log and, if asked for, its weights.

    python experiments/record_run.py runs/cifar10_hour cifar10_hour --about "…" --weights cifar10

The log and the test accuracy go to vitbook/assets/runs/NAME.json, the weights in float16 to
vitbook/assets/weights/NAME.json and the safetensors beside it. The accuracy is that of the weights as they are kept;
core_seconds, where given, is all that was spent on them, their teacher included.
"""

import argparse
import tempfile
from dataclasses import asdict
from pathlib import Path

from records import write

import vitbook
from vitbook._support.files import write_whole
from vitbook.checkpoint import load_checkpoint, save_checkpoint
from vitbook.runs import evaluate_run, read_run

ASSETS = Path(vitbook.__file__).parent / "assets"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="of the run")
    parser.add_argument("name", help="under which the log is kept")
    parser.add_argument("--about", required=True, help="what data, which machine: a sentence")
    parser.add_argument("--weights", help="name under which the weights are kept")
    parser.add_argument("--core-seconds", type=float, help="what the run took, all cores added up: user time")
    parser.add_argument("--teacher-core-seconds", type=float, default=0.0, help="what its teacher's run took")
    parser.add_argument("--data-dir", type=Path, help="where the data set's files are now")
    parser.add_argument("--assets", type=Path, default=ASSETS, help="where to keep them")
    given = parser.parse_args(arguments)
    tensors, facts = load_checkpoint(given.folder / "best.json")
    last = load_checkpoint(given.folder / "last.json")[1]
    run = read_run(given.folder / "run.json")
    halves = {name: tensor.half() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}
    kept = {name: half.to(tensors[name].dtype) for name, half in halves.items()}
    with tempfile.TemporaryDirectory() as place:  # tested as it will be loaded
        save_checkpoint(Path(place), "best", kept, facts)
        write_whole(Path(place) / "run.json", (given.folder / "run.json").read_bytes())
        result = evaluate_run(Path(place), "test", given.data_dir)
    record = {
        "about": given.about,
        "dataset": run.dataset,
        "test_accuracy": result.accuracy,
        "test_loss": result.loss,
        "test_images": len(result.labels),
        "parameters": sum(tensor.numel() for tensor in tensors.values()),
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
        about |= {"about": given.about, "recipe": given.name, "test_accuracy": result.accuracy}
        save_checkpoint(given.assets / "weights", given.weights, halves, about)
    print(f"test accuracy {result.accuracy:.2%} of {len(result.labels)}")


if __name__ == "__main__":
    main()

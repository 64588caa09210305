"""Export the book's model for CIFAR-10 in every format, and write down bytes, accuracy and milliseconds.

    python experiments/record_export.py vitbook/assets/runs/export.json --data-dir FOLDER

On one thread. As it is, it takes some minutes.
"""

import argparse
import json
import statistics
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import torch

from vitbook._support.files import write_whole
from vitbook.data import load_dataset
from vitbook.export import FORMATS, export, load_exported
from vitbook.pretrained import load_pretrained


def milliseconds(run, images: torch.Tensor, rounds: int) -> float:
    run(images)
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        run(images)
        times.append(time.perf_counter() - started)
    return 1000 * statistics.median(times)


@torch.no_grad()
def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="the JSON to write")
    parser.add_argument("--weights", default="vitbook:cifar10")
    parser.add_argument("--dataset", default="cifar10")
    parser.add_argument("--data-dir", type=Path, help="where the data set's files are; without it they are downloaded")
    parser.add_argument("--images", type=int, default=1000, help="how many test images, from the first on")
    parser.add_argument("--rounds", type=int, default=21, help="how often each time is measured; the median counts")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    weights = load_pretrained(given.weights)
    test = load_dataset(given.dataset, given.data_dir, validation=0.0).test
    images = weights.preprocessing.normalize(test.images[: given.images])
    labels = test.labels[: given.images]
    done = []
    with tempfile.TemporaryDirectory() as folder:
        for to in ("torch", *FORMATS):
            file, run = None, weights.model
            if to != "torch":
                file = export(weights, Path(folder, f"{to}.{'pt2' if to == 'pt2' else 'onnx'}"), to)
                run = load_exported(file)[0]
            logits = torch.cat([run(some) for some in images.split(50)])
            expected = torch.cat([weights.model(some) for some in images.split(50)])
            done.append(
                {
                    "format": to,
                    "weights": given.weights,
                    "bytes": file.stat().st_size if file else None,
                    "test_images": len(images),
                    "test_accuracy": (logits.argmax(dim=1) == labels).double().mean().item(),
                    "answers_changed": int((logits.argmax(dim=1) != expected.argmax(dim=1)).sum()),
                    "largest_error": (logits - expected).abs().max().item(),
                    "milliseconds_of_1": milliseconds(run, images[:1], given.rounds),
                    "milliseconds_of_50": milliseconds(run, images[:50], given.rounds),
                    "torch": version("torch"),
                    "onnxruntime": version("onnxruntime"),
                }
            )
            write_whole(given.file, (json.dumps(done, indent=1) + "\n").encode())
            print(done[-1], flush=True)


if __name__ == "__main__":
    main()

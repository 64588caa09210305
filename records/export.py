"""Export the book's model for CIFAR-10 in every format, and write down bytes, accuracy and milliseconds.

    python records/export.py vitbook/assets/runs/export.json --data-dir FOLDER

On one thread, all test images. Times are CPU seconds, since a machine may be shared, taken in rounds, in each of which
the formats come in another order; their median counts. Some minutes.
"""

import random
import statistics
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import torch
from harness import arguments_of, processor, versions, write

from vitbook.data import load_dataset
from vitbook.export import FORMATS, export, load_exported
from vitbook.pretrained import load_pretrained

BATCHES = (1, 50)


@torch.no_grad()
def main(arguments: list[str] | None = None) -> None:
    parser = arguments_of(__doc__, dataset=True, weights=True)
    parser.add_argument("--images", type=int, help="how many test images, from the first on; all if not given")
    parser.add_argument("--rounds", type=int, default=21, help="how often each time is measured; the median counts")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    weights = load_pretrained(given.weights)
    test = load_dataset(given.dataset, given.data_dir, validation=0.0).test
    images = weights.preprocessing.normalize(test.images[: given.images])
    labels = test.labels[: given.images]
    with tempfile.TemporaryDirectory() as folder:
        files = {to: Path(folder, f"{to}.{'pt2' if to == 'pt2' else 'onnx'}") for to in FORMATS}
        runs = {"torch": weights.model} | {to: load_exported(export(weights, files[to], to))[0] for to in FORMATS}
        sizes = {to: file.stat().st_size for to, file in files.items()}
    answers = {to: torch.cat([run(some) for some in images.split(50)]) for to, run in runs.items()}
    times: dict[tuple[str, int], list[float]] = {(to, batch): [] for to in runs for batch in BATCHES}
    for round_ in range(given.rounds):
        for to, batch in random.Random(round_).sample(list(times), len(times)):
            runs[to](images[:batch])
            began = time.process_time()
            runs[to](images[:batch])
            times[to, batch].append(1000 * (time.process_time() - began))
    expected = answers["torch"]
    was_right = expected.argmax(dim=1) == labels
    done = []
    for to, logits in answers.items():
        right = logits.argmax(dim=1) == labels
        done.append({"arm": to, "rate": None, "seed": 0, "n": len(images)})
        done[-1] |= {"weights": given.weights, "bytes": sizes.get(to)}
        done[-1] |= {
            "test_accuracy": right.double().mean().item(),
            "answers_changed": int((logits.argmax(dim=1) != expected.argmax(dim=1)).sum()),
            "answers_lost": int((was_right & ~right).sum()),
            "answers_won": int((right & ~was_right).sum()),
            "largest_error": (logits - expected).abs().max().item(),
        }
        done[-1] |= {f"milliseconds_of_{batch}": statistics.median(times[to, batch]) for batch in BATCHES}
        done[-1] |= {
            "rounds": given.rounds,
            "processor": processor(),
            "onnxruntime": version("onnxruntime"),
        } | versions()
        print(done[-1], flush=True)
    write(given.file, done)


if __name__ == "__main__":
    main()

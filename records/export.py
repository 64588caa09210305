"""Export the book's model for CIFAR-10 in every format, and write down bytes, accuracy and milliseconds.

    python records/export.py vitbook/assets/runs/export.json --data-dir FOLDER

On one thread. As it is, it takes some minutes.
"""

import statistics
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import torch
from harness import arguments_of, write

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
    parser = arguments_of(__doc__, dataset=True, weights=True)
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
            record = {"format": to, "weights": given.weights, "bytes": file.stat().st_size if file else None}
            record |= {
                "test_images": len(images),
                "test_accuracy": (logits.argmax(dim=1) == labels).double().mean().item(),
                "answers_changed": int((logits.argmax(dim=1) != expected.argmax(dim=1)).sum()),
                "largest_error": (logits - expected).abs().max().item(),
            }
            record |= {f"milliseconds_of_{n}": milliseconds(run, images[:n], given.rounds) for n in (1, 50)}
            done.append(record | {"torch": torch.__version__, "onnxruntime": version("onnxruntime")})
            write(given.file, done)
            print(done[-1], flush=True)


if __name__ == "__main__":
    main()

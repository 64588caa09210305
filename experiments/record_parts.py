"""Take parts out of the shipped model, one after another, and write down what is left of its test accuracy.

    python experiments/record_parts.py vitbook/assets/runs/parts.json --data-dir FOLDER

Nothing is trained again. "without": the part adds nothing to the residual stream. "mean": it adds the same to every
image, its mean change of each token over the test images, so that only what it says of an image is lost. About four
minutes on a core.
"""

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import torch
from torch import Tensor, nn

from vitbook._support.files import write_whole
from vitbook.data import load_dataset
from vitbook.engine import batches
from vitbook.pretrained import load_pretrained
from vitbook.vit import VisionTransformer

WEIGHTS = "vitbook:cifar10"


@contextmanager
def hooked(hooks: dict[nn.Module, object]) -> Iterator[None]:
    """Meanwhile, each module calls its forward hook."""
    handles = [part.register_forward_hook(hook) for part, hook in hooks.items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def accuracy(model: VisionTransformer, batches: list[tuple[Tensor, Tensor]]) -> float:
    """Of tokens that are embedded already, the share that the encoder and the head name rightly."""
    right = sum((model.head(model.norm(model.encoder(z)[:, 0])).argmax(1) == y).sum().item() for z, y in batches)
    return right / sum(len(y) for _, y in batches)


@torch.no_grad()
def without_parts(model: VisionTransformer, embedded: list[tuple[Tensor, Tensor]]) -> dict[str, dict[str, float]]:
    """The accuracy without each part, and with the mean of what it adds in its place, of embedded images."""
    kinds = {"attention": "attn", "MLP": "mlp"}
    of_a_kind = {name: [getattr(block, kind) for block in model.encoder.blocks] for name, kind in kinds.items()}
    parts = {f"every {name}": some for name, some in of_a_kind.items()}
    parts |= {f"{name} {n}": [part] for name, some in of_a_kind.items() for n, part in enumerate(some, start=1)}
    sums = {part: 0 for some in of_a_kind.values() for part in some}

    def add(part: nn.Module, got: tuple, gave: Tensor) -> None:
        sums[part] = sums[part] + gave.sum(dim=0)

    with hooked(dict.fromkeys(sums, add)):
        found = {"without": {"nothing": accuracy(model, embedded)}, "mean": {}}
    placeless = [(z - model.embedding.positions(), labels) for z, labels in embedded]
    found["without"]["positions"] = accuracy(model, placeless)
    count = sum(len(labels) for _, labels in embedded)
    for name, taken_out in parts.items():
        with hooked({part: lambda part, got, gave: torch.zeros_like(gave) for part in taken_out}):
            found["without"][name] = accuracy(model, embedded)
        with hooked({part: lambda part, got, gave: (sums[part] / count).expand_as(gave) for part in taken_out}):
            found["mean"][name] = accuracy(model, embedded)
        print(f"without {name}: {found['without'][name]:.1%}; its mean: {found['mean'][name]:.1%}", flush=True)
    return found


@torch.no_grad()
def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="the JSON to write")
    parser.add_argument("--data-dir", type=Path, help="where CIFAR-10's files are; without it they are downloaded")
    given = parser.parse_args(arguments)
    weights, data = load_pretrained(WEIGHTS), load_dataset("cifar10", given.data_dir, validation=0.0)
    seen = weights.preprocessing
    pairs = batches(data.test, torch.tensor(seen.mean), torch.tensor(seen.std), 500)
    embedded = [(weights.model.embedding(images), labels) for images, labels in pairs]
    found = {"weights": WEIGHTS, "pictures": len(data.test), "torch": version("torch")}
    write_whole(given.file, (json.dumps(found | without_parts(weights.model, embedded), indent=1) + "\n").encode())


if __name__ == "__main__":
    main()

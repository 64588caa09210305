"""Take parts out of the shipped model, one after another, and write down what is left of its test accuracy.

    python records/parts.py vitbook/assets/runs/parts.json --data-dir FOLDER

Nothing is trained again: a part that is taken out adds nothing to the residual stream. A few minutes on a core.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from harness import arguments_of, write
from torch import Tensor, nn

from vitbook.data import load_dataset
from vitbook.engine import batches
from vitbook.pretrained import load_pretrained
from vitbook.vit import VisionTransformer

WEIGHTS = "vitbook:cifar10_plain"
KINDS = {"attention": "attn", "MLP": "mlp"}


@contextmanager
def taken_out(*parts: nn.Module) -> Iterator[None]:
    """Meanwhile, these parts give zeros."""
    handles = [part.register_forward_hook(lambda part, got, gave: torch.zeros_like(gave)) for part in parts]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@torch.no_grad()
def without_parts(model: VisionTransformer, embedded: Iterable[tuple[Tensor, Tensor]]) -> dict[str, float]:
    """The accuracy without each part, of batches of embedded images and their labels. "nothing": the whole model."""
    blocks, right, total = model.encoder.blocks, Counter(), 0
    for stream, labels in embedded:

        def count(z: Tensor, start: int, labels: Tensor = labels) -> int:
            """How many are right if the tokens z enter block `start`."""
            for block in blocks[start:]:
                z = block(z)
            return (model.head(model.norm(z[:, 0])).argmax(dim=1) == labels).sum().item()

        total += len(labels)
        right["positions"] += count(stream - model.embedding.positions(), 0)
        for name, kind in KINDS.items():
            with taken_out(*(getattr(block, kind) for block in blocks)):
                right[f"every {name}"] += count(stream, 0)
        for n, block in enumerate(blocks):  # what comes before the part is computed once
            for name, kind in KINDS.items():
                with taken_out(getattr(block, kind)):
                    right[f"{name} {n + 1}"] += count(stream, n)
            stream = block(stream)
        right["nothing"] += count(stream, len(blocks))
    return {name: number / total for name, number in right.items()}


def main(arguments: list[str] | None = None) -> None:
    parser = arguments_of(__doc__)
    given = parser.parse_args(arguments)
    weights, data = load_pretrained(WEIGHTS), load_dataset("cifar10", given.data_dir, validation=0.0)
    pairs = batches(data.test, *weights.preprocessing.moments, 500)
    accuracy = without_parts(weights.model, ((weights.model.embedding(images), labels) for images, labels in pairs))
    facts = {"weights": WEIGHTS, "images": len(data.test), "torch": torch.__version__}
    write(given.file, facts | {"without": accuracy})


if __name__ == "__main__":
    main()

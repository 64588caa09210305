"""Take parts out of the shipped models, one after another, and write down what is left of their test accuracy.

    python records/parts.py vitbook/assets/runs/missing_parts.json --data-dir FOLDER

Nothing is trained again. A part that is taken out gives zeros, or ("fill": "mean") what it gives on average, token by
token, over 500 training images: then what it always adds stays. Positions are replaced by zeros or their mean, or dealt
out to other places. And the head reads other tokens than it was trained on. Four minutes on a core.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from harness import Rows, arguments_of, processor, versions
from torch import Tensor, nn

from vitbook.data import load_dataset
from vitbook.engine import batches
from vitbook.pretrained import load_pretrained
from vitbook.vit import VisionTransformer

MODELS = {"plain": ("vitbook:cifar10_plain", 5000), "hybrid": ("vitbook:cifar10", 500)}  # and test images for each
KINDS = {"attention": "attn", "MLP": "mlp"}
FOR_MEANS = 500


@contextmanager
def giving(values: dict[nn.Module, Tensor | float]) -> Iterator[None]:
    """Meanwhile, each of these parts gives this."""
    handles = [
        part.register_forward_hook(lambda part, got, gave, value=value: torch.zeros_like(gave) + value)
        for part, value in values.items()
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@torch.no_grad()
def mean_outputs(model: VisionTransformer, images: Tensor) -> dict[nn.Module, Tensor]:
    """What each part gives to each token on average, (1, T, D)."""
    means, z = {}, model.embedding(images)
    for block in model.encoder.blocks:
        for part, norm in ((block.attn, block.norm1), (block.mlp, block.norm2)):
            added = part(norm(z))
            means[part], z = added.mean(dim=0, keepdim=True), z + added
    return means


def places(table: Tensor, grid: tuple[int, int]) -> dict[str, Tensor]:
    """What to give the patches in place of their positions; the class token keeps its own."""
    prefix, patches = table[:, :1], table[:, 1:]
    on_grid = patches.unflatten(1, grid)
    order = torch.randperm(patches.shape[1], generator=torch.Generator().manual_seed(0))
    changed = {
        "zero": torch.zeros_like(patches),
        "mean": patches.mean(dim=1, keepdim=True).expand_as(patches),
        "shuffled": patches[:, order],
        "mirrored": on_grid.flip(2).flatten(1, 2),
        "upside down": on_grid.flip(1).flatten(1, 2),
    }
    return {name: torch.cat([prefix, new], dim=1) for name, new in changed.items()}


def reads(model: VisionTransformer, z: Tensor) -> dict[str, Tensor]:
    """What the head says of tokens that it was not trained to read, and of its own."""
    tokens, one = model.norm(z), torch.randint(1, z.shape[1], (len(z),), generator=torch.Generator().manual_seed(0))
    seen = {
        "nothing": tokens[:, 0],
        "the last LayerNorm": z[:, 0],
        "class token, for the mean of the patches": tokens[:, 1:].mean(dim=1),
        "class token, for the mean of all tokens": tokens.mean(dim=1),
        "class token, for one patch": tokens[torch.arange(len(z)), one],
    }
    return {name: model.head(y) for name, y in seen.items()}


@torch.no_grad()
def without_parts(
    model: VisionTransformer, pairs: Iterable[tuple[Tensor, Tensor]], means: dict[nn.Module, Tensor]
) -> dict[tuple[str, str], dict]:
    """The accuracy on batches of images, and how sure the answers are, by what is missing ("nothing") and its fill."""
    blocks, sums, total = model.encoder.blocks, defaultdict(lambda: torch.zeros(2, dtype=torch.float64)), 0
    table = model.embedding.positions()

    def add(what: tuple[str, str], logits: Tensor, labels: Tensor) -> None:
        right = (logits.argmax(dim=1) == labels).sum()
        sums[what] += torch.stack([right, logits.softmax(dim=1).amax(dim=1).sum()]).double()

    for images, labels in pairs:
        stream, total = model.embedding(images), total + len(labels)

        def add_from(
            what: tuple[str, str], z: Tensor, start: int, missing: Iterable[nn.Module] = (), labels: Tensor = labels
        ) -> None:
            """If the tokens z enter block `start` and these parts are missing."""
            with giving({part: means[part] if what[1] == "mean" else 0.0 for part in missing}):
                for block in blocks[start:]:
                    z = block(z)
            add(what, model.head(model.norm(z[:, 0])), labels)

        for fill, other in places(table, model.embedding.grid).items():
            add_from(("positions", fill), stream - table + other, 0)
        for kind, name in KINDS.items():
            parts = [getattr(block, name) for block in blocks]
            for fill in ("zero", "mean"):
                add_from((f"every {kind}", fill), stream, 0, parts)
            add_from((f"every {kind} but the first", "zero"), stream, 0, parts[1:])
        for n, block in enumerate(blocks):  # what comes before the part is computed once
            for kind, name in KINDS.items():
                for fill in ("zero", "mean"):
                    add_from((f"{kind} {n + 1}", fill), stream, n, [getattr(block, name)])
            stream = block(stream)
        for name, logits in reads(model, stream).items():
            add((name, ""), logits, labels)
    return {
        what: {"accuracy": (right / total).item(), "mean_probability": round((sure / total).item(), 4)}
        for what, (right, sure) in sums.items()
    }


def main(arguments: list[str] | None = None) -> None:
    parser = arguments_of(__doc__)
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    given = parser.parse_args(arguments)
    data, rows = load_dataset("cifar10", given.data_dir, validation=0.0), Rows(given.file)
    for name in given.models:
        which, images = MODELS[name]
        weights = load_pretrained(which)
        model, moments = weights.model, weights.preprocessing.moments
        means = mean_outputs(model, weights.preprocessing.normalize(data.train.images[:FOR_MEANS]))
        few = data.test.select([n < images for n in range(len(data.test))])
        found = without_parts(model, batches(few, *moments, 500), means)
        for (missing, fill), result in found.items():
            key = {"arm": f"{name} without {missing}", "fill": fill, "rate": None, "seed": 0, "n": len(few)}
            rows.add(key | result | {"processor": processor(), **versions()})


if __name__ == "__main__":
    main()

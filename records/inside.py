"""What would two models say after each block, and without the choice that some blocks' attention makes?

    python records/inside.py vitbook/assets/runs/inside.json --data-dir FOLDER

"lens": the model's last LayerNorm and head, applied to the stream after no block, after the first, and so on
(`logit_lens`). "even": in some blocks, every head attends to all tokens alike, so that it gives each the mean of the
values. "by place": there, every head attends as it does on average over training images, to the same places in every
image. Of each: the share of test images that are named rightly, the share named as the whole model names them, and how
many are lost and won beside the whole model. "fitted": what a linear map reads off the class token after each number
of blocks, and off the mean of the patches, if it is fitted there, by ridge regression on training images. The models
are not trained further. Some four minutes on a core.
"""

from itertools import chain

import torch
import torch.nn.functional as F
from harness import Rows, arguments_of
from jaxtyping import Float, Int64
from torch import Tensor

from vitbook.attention_maps import logit_lens, recorded_attention, residual_stream
from vitbook.data import Split, load_dataset
from vitbook.encoder import EncoderBlock
from vitbook.engine import batches
from vitbook.multihead import merge_heads
from vitbook.pretrained import load_pretrained
from vitbook.vit import VisionTransformer

WEIGHTS = {"plain": "vitbook:cifar10_plain", "hybrid": "vitbook:cifar10"}
Fixed = Float[Tensor, "L h T T"]  # weights that are the same for every image


def attending(
    block: EncoderBlock, z: Float[Tensor, "B T D"], weights: Float[Tensor, "h T T"]
) -> Float[Tensor, "B T D"]:
    """A block whose heads attend as they are told."""
    values = block.attn.project(block.norm1(z))[2]  # (B, h, T, D_h)
    z = z + block.attn.proj(merge_heads(weights @ values))
    return z + block.mlp(block.norm2(z))


@torch.no_grad()
def fixed_weights(model: VisionTransformer, images: Float[Tensor, "B C H W"]) -> dict[str, Fixed]:
    """Even attention, and the mean of these images' attention."""
    with recorded_attention(model) as weights:
        model(images)
    mean = torch.stack([some.mean(dim=0) for some in weights])
    return {"even": torch.full_like(mean, 1 / mean.shape[-1]), "by place": mean}


def choices(depth: int) -> list[tuple[int, ...]]:
    """The blocks that make no choice: each alone, all others, all."""
    every = tuple(range(depth))
    others = (tuple(i for i in every if i != block) for block in every)
    return list(dict.fromkeys(chain(((block,) for block in every), others, [every])))


@torch.no_grad()
def answers(
    model: VisionTransformer, images: Float[Tensor, "B C H W"], fixed: dict[str, Fixed]
) -> dict[tuple[str, tuple[int, ...]], Int64[Tensor, " B"]]:
    """The classes named after each number of blocks, and with some blocks' attention fixed."""
    blocks, states = model.encoder.blocks, residual_stream(model, images)
    named = {("lens", tuple(range(done))): row for done, row in enumerate(logit_lens(model, states).argmax(dim=2))}
    for kind, weights in fixed.items():
        for chosen in choices(len(blocks)):
            z = states[chosen[0]]
            for i in range(chosen[0], len(blocks)):
                z = attending(blocks[i], z, weights[i]) if i in chosen else blocks[i](z)
            named[kind, chosen] = logit_lens(model, z[None])[0].argmax(dim=1)
    return named


def record(
    model: VisionTransformer, split: Split, fixed: dict[str, Fixed], moments: tuple[Tensor, Tensor]
) -> list[dict]:
    """A row for each kind and each choice of blocks."""
    found = [answers(model, images, fixed) for images, _ in batches(split, *moments, batch_size=100)]
    named = {key: torch.cat([some[key] for some in found]) for key in found[0]}
    whole = named["lens", tuple(range(len(model.encoder.blocks)))]
    before = whole == split.labels
    rows = []
    for (kind, chosen), said in named.items():
        right = said == split.labels
        shares = {"right": right, "as_the_whole": said == whole}
        counts = {"lost": before & ~right, "won": right & ~before}
        rows.append(
            {"kind": kind, "blocks": list(chosen)}
            | {name: those.double().mean().item() for name, those in shares.items()}
            | {name: int(those.sum()) for name, those in counts.items()}
        )
    return rows


@torch.no_grad()
def pooled(model: VisionTransformer, split: Split, moments: tuple[Tensor, Tensor]) -> Float[Tensor, "2 states N D"]:
    """The class token and the mean of the patches, after each number of blocks, as the last LayerNorm scales them."""
    found = []
    for images, _ in batches(split, *moments, batch_size=100):
        z = residual_stream(model, images)
        found.append(F.layer_norm(torch.stack([z[:, :, 0], z[:, :, 1:].mean(dim=2)]), z.shape[-1:]))
    return torch.cat(found, dim=2)


def fitted(model: VisionTransformer, known: Split, asked: Split, moments: tuple[Tensor, Tensor]) -> dict:
    """The share that is right after each number of blocks; a fifth of the known images chooses how much is ridged."""
    kept, classes = len(known) * 4 // 5, int(known.labels.max()) + 1
    x, y = pooled(model, known, moments), F.one_hot(known.labels, classes).float() - 1 / classes
    held_out, test = x[:, :, kept:], pooled(model, asked, moments)

    def right(tokens: Tensor, read: Tensor, labels: Tensor) -> float:
        return ((tokens @ read).argmax(dim=1) == labels).double().mean().item()

    shares = {}
    for place, name in enumerate(("class token", "mean of patches")):
        shares[name] = []
        for state in range(x.shape[1]):
            some = x[place, state, :kept]
            reads = [
                torch.linalg.solve(some.T @ some + ridge * torch.eye(some.shape[1]), some.T @ y[:kept])
                for ridge in (1.0, 10.0, 100.0, 1000.0)
            ]
            best = max(reads, key=lambda read: right(held_out[place, state], read, known.labels[kept:]))
            shares[name].append(right(test[place, state], best, asked.labels))
    return shares


def main(arguments: list[str] | None = None) -> None:
    parser = arguments_of(__doc__)
    parser.add_argument("--models", nargs="+", default=list(WEIGHTS), help="which to look into")
    parser.add_argument("--images", type=int, default=2000, help="how many of the test images")
    parser.add_argument("--known", type=int, default=5000, help="how many of the training images are fitted to")
    parser.add_argument("--seed", type=int, default=0, help="that draws them")
    given = parser.parse_args(arguments)
    data = load_dataset("cifar10", given.data_dir)
    chosen = torch.randperm(len(data.test), generator=torch.Generator().manual_seed(given.seed))[: given.images]
    split = Split(data.test.images[chosen], data.test.labels[chosen])

    def make(arm: str, **_: object) -> dict:
        weights = load_pretrained(WEIGHTS[arm])
        some = Split(data.train.images[:1000], data.train.labels[:1000])
        fixed = fixed_weights(weights.model, next(batches(some, *weights.preprocessing.moments, 1000))[0])
        return {"n": len(split), "changed": record(weights.model, split, fixed, weights.preprocessing.moments)}

    def fit(model: str, known: int) -> dict:
        weights = load_pretrained(WEIGHTS[model])
        some = Split(data.train.images[:known], data.train.labels[:known])
        return {"n": len(split)} | fitted(weights.model, some, split, weights.preprocessing.moments)

    Rows(given.file, "rows").fill(make, [dict(arm=name, rate=None, seed=given.seed) for name in given.models])
    Rows(given.file, "fitted").fill(fit, [dict(model=name, known=given.known) for name in given.models])


if __name__ == "__main__":
    main()

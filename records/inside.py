"""What would two models say after each block, and without the choice that a block's attention makes? On test images.

    python records/inside.py vitbook/assets/runs/inside.json --data-dir FOLDER

"lens": the model's last LayerNorm and head, applied to the stream after no block, after the first, and so on
(`logit_lens`). "even": in one block, every head attends to all tokens alike, so that it gives each the mean of the
values. Of both: the share of images that are named rightly, and the share named as the whole model names them. Nothing
is trained. Less than a minute on a core.
"""

import torch
from harness import arguments_of, write
from jaxtyping import Float
from torch import Tensor

from vitbook.attention_maps import logit_lens, residual_stream
from vitbook.data import Split, load_dataset
from vitbook.encoder import EncoderBlock
from vitbook.engine import batches
from vitbook.multihead import merge_heads
from vitbook.pretrained import load_pretrained
from vitbook.vit import VisionTransformer

WEIGHTS = ("vitbook:cifar10_plain", "vitbook:cifar10")


def evenly(block: EncoderBlock, z: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
    """A block whose heads attend to all tokens alike."""
    values = block.attn.project(block.norm1(z))[2]  # (B, h, T, D_h)
    z = z + block.attn.proj(merge_heads(values.mean(dim=2, keepdim=True).expand_as(values)))
    return z + block.mlp(block.norm2(z))


@torch.no_grad()
def answers(model: VisionTransformer, images: Float[Tensor, "B C H W"]) -> dict[str, Tensor]:
    """The classes named after each number of blocks (L + 1, B), and with one block's attention even (L, B)."""
    blocks, states = model.encoder.blocks, residual_stream(model, images)
    ends = []
    for i, block in enumerate(blocks):
        z = evenly(block, states[i])
        for later in blocks[i + 1 :]:
            z = later(z)
        ends.append(z)
    return {name: logit_lens(model, x).argmax(dim=2) for name, x in (("lens", states), ("even", torch.stack(ends)))}


def record(model: VisionTransformer, split: Split, moments: tuple[Tensor, Tensor]) -> dict[str, dict[str, list[float]]]:
    """For lens and even attention, the shares of images that are right, and that are named as by the whole model."""
    found = [answers(model, images) for images, _ in batches(split, *moments, batch_size=100)]
    named = {name: torch.cat([some[name] for some in found], dim=1) for name in found[0]}
    whole = named["lens"][-1]
    return {
        name: {
            share: (said == answer).double().mean(dim=1).tolist()
            for share, answer in (("right", split.labels), ("as the whole", whole))
        }
        for name, said in named.items()
    }


def main(arguments: list[str] | None = None) -> None:
    parser = arguments_of(__doc__)
    parser.add_argument("--weights", nargs="+", default=WEIGHTS, help="the models to look into")
    parser.add_argument("--images", type=int, default=1000, help="how many of the test images")
    parser.add_argument("--seed", type=int, default=0, help="that draws them")
    given = parser.parse_args(arguments)
    test = load_dataset("cifar10", given.data_dir).test
    chosen = torch.randperm(len(test), generator=torch.Generator().manual_seed(given.seed))[: given.images]
    split = Split(test.images[chosen], test.labels[chosen])
    document = {"images": len(split), "seed": given.seed, "torch": torch.__version__, "models": {}}
    for name in given.weights:
        weights = load_pretrained(name)
        document["models"][name] = record(weights.model, split, weights.preprocessing.moments)
        print(name, document["models"][name])
    write(given.file, document)


if __name__ == "__main__":
    main()

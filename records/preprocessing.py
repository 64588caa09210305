"""Prepare test images wrongly, and copy the weights wrongly, and write down what each mistake costs.

    python records/preprocessing.py vitbook/assets/runs/preprocessing.json --data-dir FOLDER

No mistake raises an error. All are made on the same images, so that each is compared with the right way image by image:
`answers_lost` were right and are wrong now, `answers_won` the other way round. A minute or two on one core.
"""

import torch
import torch.nn.functional as F
from harness import arguments_of, processor, versions, write
from jaxtyping import Float, UInt8
from torch import Tensor

from vitbook.data import load_dataset, normalize
from vitbook.pretrained import load_pretrained
from vitbook.vit import VisionTransformer

IMAGENET = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]])


def prepared(
    images: UInt8[Tensor, "batch 3 height width"], mean: Float[Tensor, "3"], std: Float[Tensor, "3"]
) -> dict[str, Float[Tensor, "batch 3 height width"]]:
    """Images in the right way, with this mean and standard deviation, and in wrong ones."""
    raw = images.float()
    return {
        "right": normalize(images, mean, std),
        "ImageNet's": normalize(images, *IMAGENET),
        "-1 … 1": raw / 127.5 - 1,
        "gray": normalize(images, mean, std).mean(dim=1, keepdim=True).expand(-1, 3, -1, -1),
        "BGR": normalize(images.flip(1), mean, std),
        "0 … 1": raw / 255,
        "0 … 255": raw,
        "/255 twice": (raw / 255**2 - mean[:, None, None]) / std[:, None, None],
        "reshape": normalize(images.permute(0, 2, 3, 1).reshape(images.shape), mean, std),
    }


@torch.no_grad()
def miscopied(name: str) -> dict[str, VisionTransformer]:
    """The model of these weights, with a mistake in copying them that changes no name and no shape."""
    names = ("W_O not transposed", "weights of K and V exchanged", "blocks 1 and 2 exchanged", "two heads for four")
    models = {mistake: load_pretrained(name).model for mistake in names}
    transposed, exchanged, disordered, rough = (model.encoder.blocks for model in models.values())
    for block in transposed:
        block.attn.proj.weight.copy_(block.attn.proj.weight.T.clone())
    for block in exchanged:
        q, k, v = block.attn.qkv.weight.chunk(3)
        block.attn.qkv.weight.copy_(torch.cat([q, v, k]))
    disordered[1], disordered[2] = disordered[2], disordered[1]
    for block in rough:
        block.attn.num_heads //= 2
    return models


@torch.no_grad()
def main(arguments: list[str] | None = None) -> None:
    parser = arguments_of(__doc__, dataset=True, weights=True)
    parser.add_argument("--images", type=int, default=1000, help="how many, the first of the test images")
    given = parser.parse_args(arguments)
    pretrained = load_pretrained(given.weights)
    test = load_dataset(given.dataset, given.data_dir, validation=0.0).test
    images, labels = test.images[: given.images], test.labels[: given.images]
    ways = prepared(images, *pretrained.preprocessing.moments)
    tries = {way: (pretrained.model, batch) for way, batch in ways.items()}
    copies = miscopied(given.weights)
    gelus = {kind: load_pretrained(given.weights, activation=kind).model for kind in ("gelu_tanh", "quick_gelu")}
    tries |= {name: (model, ways["right"]) for name, model in (copies | gelus).items()}
    kinds = {"prepared": ways, "copied": copies, "computed": gelus}
    rows, right = [], None
    for kind, name in ((kind, name) for kind, names in kinds.items() for name in names):
        model, batch = tries[name]
        logits = torch.cat([model(part) for part in batch.split(100)])
        correct = logits.argmax(dim=1) == labels
        right = correct if right is None else right
        rows.append({"arm": name, "rate": None, "seed": 0, "n": len(images), "kind": kind, "weights": given.weights})
        rows[-1] |= {
            "answers_right": correct.sum().item(),
            "answers_lost": (right & ~correct).sum().item(),
            "answers_won": (~right & correct).sum().item(),
            "test_loss": round(F.cross_entropy(logits, labels).item(), 3),
        }
        rows[-1] |= {"processor": processor()} | versions()
        print(rows[-1], flush=True)
    write(given.file, rows)


if __name__ == "__main__":
    main()

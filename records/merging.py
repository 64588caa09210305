"""Merge tokens in the book's model for CIFAR-10 and write down what accuracy is left, on all test images.

    python records/merging.py vitbook/assets/runs/merging.json --data-dir FOLDER

Nothing is trained. As it is, it takes about two minutes on one core.
"""

import torch
from harness import Rows, arguments_of
from torch import Tensor, nn

from vitbook.data import load_dataset
from vitbook.engine import batches
from vitbook.pretrained import load_pretrained
from vitbook.tokens import encode_merging, merging_logits
from vitbook.training import evaluate
from vitbook.vit import VisionTransformer


class Merging(nn.Module):
    """The model with r tokens fewer after each attention."""

    def __init__(self, model: VisionTransformer, r: int):
        super().__init__()
        self.model, self.r = model, r

    def forward(self, images: Tensor) -> Tensor:
        return merging_logits(self.model, images, self.r)


@torch.no_grad()
def main(arguments: list[str] | None = None) -> None:
    parser = arguments_of(__doc__, dataset=True, weights=True)
    parser.add_argument("--merged", type=int, nargs="+", default=[0, 2, 4, 8, 12, 16], help="tokens fewer in a block")
    given = parser.parse_args(arguments)
    pretrained = load_pretrained(given.weights)
    data = load_dataset(given.dataset, given.data_dir, validation=0.0)
    model = pretrained.model
    embedded = model.embedding(torch.zeros(1, *data.test.images.shape[1:]))

    def record(weights: str, merged: int) -> dict:
        left = encode_merging(model.encoder, embedded, merged)[0].shape[1]
        result = evaluate(Merging(model, merged), batches(data.test, *pretrained.preprocessing.moments, 500))
        return {"tokens_left": left, "test_accuracy": result.accuracy, "test_images": len(data.test)}

    Rows(given.file).fill(record, [{"weights": given.weights, "merged": r} for r in given.merged])


if __name__ == "__main__":
    main()

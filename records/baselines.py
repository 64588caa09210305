"""What methods without a deep network reach on a data set's pixels, for the tables of chapters 10 to 12.

    python records/baselines.py vitbook/assets/runs/baselines.json --data-dir FOLDER

1-nearest neighbor: each test image gets the label of the nearest training image, by the sum of squared differences of
the pixels. 20 neighbors by cosine: the vote by which chapters 22 and 23 judge features, on normalized pixels. Logistic
regression: one linear map from the normalized pixels to the logits, trained with AdamW. Nothing is chosen by the test
images. About three minutes on a core for CIFAR-10.
"""

import json

import torch
from harness import arguments_of, write
from torch import Tensor, nn

from vitbook.data import Dataset, load_dataset
from vitbook.features import neighbor_votes
from vitbook.training import evaluate, train_epoch, warmup_cosine

EPOCHS, BATCH, RATE = 10, 256, 1e-3  # of the logistic regression


def nearest_labels(pixels: Tensor, data: Dataset) -> Tensor:
    """The label of the nearest training image, for pixels from 0 to 1. (N, C·H·W) → (N,)."""
    known = data.train.images.flatten(1).float() / 255
    squares = known.square().sum(dim=1)
    # ‖x − k‖² without ‖x‖², which is the same for every k
    nearest = [(squares - 2 * some @ known.T).argmin(dim=1) for some in pixels.split(250)]
    return data.train.labels[torch.cat(nearest)]


def voted_labels(data: Dataset) -> Tensor:
    """What the 20 nearest normalized training images vote for, by their cosines. → (N,)."""
    known, asked = (data.normalize(split.images).flatten(1) for split in (data.train, data.test))
    votes = [neighbor_votes(some, known, data.train.labels, len(data.class_names)) for some in asked.split(250)]
    return torch.cat(votes).argmax(dim=1)


def logistic_regression(data: Dataset) -> nn.Module:
    """One linear map on normalized pixels, trained on `data.train`."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(data.train.images[0].numel(), len(data.class_names)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0)
    steps = EPOCHS * (len(data.train) // BATCH)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: warmup_cosine(step, steps))
    for _ in range(EPOCHS):
        order = torch.randperm(len(data.train))[: len(data.train) // BATCH * BATCH].split(BATCH)
        shown = ((data.normalize(data.train.images[chosen]), data.train.labels[chosen]) for chosen in order)
        train_epoch(model, shown, optimizer, schedule, clip_norm=0.0)
    return model


def baselines(data: Dataset) -> dict:
    """Test accuracy of each."""
    pixels = data.test.images.flatten(1).float() / 255
    tests = [(data.normalize(data.test.images), data.test.labels)]
    linear = evaluate(logistic_regression(data), tests).predictions
    says = {"1-nearest neighbor": nearest_labels(pixels, data), "20 neighbors by cosine": voted_labels(data)}
    says["logistic regression"] = linear
    right = {name: (labels == data.test.labels).double().mean().item() for name, labels in says.items()}
    facts = {"dataset": data.name, "train_images": len(data.train), "test_images": len(data.test)}
    return facts | {"test_accuracy": right, "epochs": EPOCHS, "torch": torch.__version__}


def main(arguments: list[str] | None = None) -> None:
    parser = arguments_of(__doc__, dataset=True)
    parser.add_argument("--validation", type=float, default=0.04, help="share of the training images to leave out")
    given = parser.parse_args(arguments)
    result = baselines(load_dataset(given.dataset, given.data_dir, validation=given.validation))
    write(given.file, result)
    print(json.dumps(result["test_accuracy"]))


if __name__ == "__main__":
    main()

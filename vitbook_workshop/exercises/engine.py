"""The exercises of chapters/11_engine.ipynb."""

from functools import reduce

import torch

from vitbook_workshop.exercises.grader.inputs import normal
from vitbook_workshop.exercises.grader.judging import Exercise, Personal

CHAPTER = "11_engine"


def _steps(share: int, batch: int, epochs: int) -> Exercise:
    left = 50_000 - 500 * share
    hint = f"{share} % are set apart first; a batch that is not full waits; then {epochs} epochs of that."
    return Exercise(epochs * (left // batch), hint, level="easy") | {
        "The images that are set apart are not trained on.": epochs * (50_000 // batch)
    }


steps = Personal(
    dict(share=(4, 10, 20), batch=(128, 64, 256), epochs=(64, 40, 90)),
    lambda share, batch, epochs: (
        f"50,000 images, of which {share} % are set aside for validation; batches of {batch}; {epochs} epochs."
    ),
    _steps,
).exercise()

ema = Exercise(
    lambda start, weights, beta: reduce(lambda mean, w: beta * mean + (1 - beta) * w, weights, start),
    "one step after another: mean ← beta · mean + (1 − beta) · weights.",
    lambda g: [(normal(g, n), normal(g, t, n), beta) for n, t, beta in ((3, 1, 0.9), (5, 4, 0.5), (2, 7, 0.99))],
    level="easy",
) | {
    "Your mean gives beta to the new weights; beta belongs to the mean.": lambda m, w, b: ema.reference(m, w, 1 - b),
    "That is the mean of the weights, each counting as much as any other.": lambda _, weights, beta: weights.mean(0),
    "Your mean begins at zero, not at the weights before the first step.": lambda m, w, b: ema.reference(0 * m, w, b),
}

patience = Exercise(
    lambda accuracies, patience: next(
        (epoch for epoch in range(1, len(accuracies)) if epoch - 1 - accuracies[:epoch].argmax() >= patience),
        len(accuracies),
    ),
    "keep the best accuracy and its epoch; end at the first epoch that lies `patience` after that one.",
    # Four values, so that some accuracies are equal.
    lambda g: [(torch.randint(4, (n,), generator=g).double() / 4, 1 + n % 4) for n in range(9, 40)],
) | {
    "You take an equal accuracy for a better one.": lambda a, p: patience.reference(a + 1e-6 * torch.arange(len(a)), p),
    "You wait one epoch too long.": lambda accuracies, p: patience.reference(accuracies, p + 1),
    "You name the best epoch, not the last.": lambda accuracies, p: 1 + int(accuracies.argmax()),
}


def _sum_over_parts(w, x, y, parts):
    pairs = zip(x.tensor_split(parts), y.tensor_split(parts), strict=True)
    return sum(accumulate.reference(w, *pair, 1) for pair in pairs)


accumulate = Exercise(
    lambda w, x, y, parts: 2 * x.T @ (x @ w - y) / len(y),
    "divide each part's sum by the number of images in the whole batch.",
    lambda g: [
        (normal(g, d), normal(g, b, d), normal(g, b), parts) for d, b, parts in ((3, 4, 1), (2, 6, 3), (5, 7, 2))
    ],
    level="hard",
    kind="repair",
) | {
    "Each part is divided by its own size, and the parts are added up.": _sum_over_parts,
    "A mean of the parts' means is right only where all parts have the same size.": (
        lambda w, x, y, parts: _sum_over_parts(w, x, y, parts) / parts
    ),
    "The sum is not divided by the number of images.": lambda w, x, y, parts: 2 * x.T @ (x @ w - y),
}

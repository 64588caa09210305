"""The exercises of chapters/24_contrastive.ipynb."""

import math

import torch
import torch.nn.functional as F

from vitbook import contrastive
from vitbook_workshop.exercises.grader.inputs import normal
from vitbook_workshop.exercises.grader.judging import Exercise, Personal
from vitbook_workshop.faults.mistakes import procedures as wrong

CHAPTER = "24_contrastive"


def _untrained(pairs: int) -> Exercise:
    hint = f"all captions are equally likely: what is the cross-entropy of 1 in {pairs}?"
    return Exercise(math.log(pairs), hint, level="easy") | {
        "That is the loss of a batch with one pair, which has nothing to choose from.": 0.0,
        "Both directions are averaged, not added.": 2 * math.log(pairs),
    }


untrained = Personal(
    dict(pairs=(1000, 256, 512, 4096)), lambda pairs: f"Your batch has {pairs:,} pairs", _untrained
).exercise()

cosines = Exercise(
    contrastive.cosines,
    "divide each vector by its length, x.norm(dim=-1, keepdim=True), before the product.",
    lambda g: [(normal(g, n, d), normal(g, m, d)) for n, m, d in ((5, 7, 4), (6, 3, 9))],
    gradients=True,
    level="easy",
) | {
    wrong.dot_products_for_cosines: wrong.dot_products_for_cosines,
    "You normalize the images alone; the captions have lengths too.": lambda x, y: F.normalize(x, dim=-1) @ y.mT,
    "Your norm runs over the images, dim=0. Each vector has its own length: dim=-1.": (
        lambda x, y: F.normalize(x, dim=0) @ F.normalize(y, dim=0).mT
    ),
}

softmax = Exercise(
    contrastive.softmax_loss,
    "logits.log_softmax(dim=-1).diagonal() is what the rows say of their own captions.",
    lambda g: [(3 * normal(g, b, b),) for b in (5, 8)],
    gradients=True,
) | {
    wrong.only_images_choose: wrong.only_images_choose,
    "You have the columns alone: captions choose, images do not.": lambda logits: wrong.only_images_choose(logits.mT),
    "You add the two directions; take their mean.": lambda logits: 2 * contrastive.softmax_loss(logits),
}

sigmoid = Exercise(
    contrastive.sigmoid_loss,
    "z = 2 * torch.eye(B) - 1; then minus the sum of logsigmoid(z * logits), divided by B.",
    lambda g: [(3 * normal(g, b, b),) for b in (5, 8)],
    gradients=True,
) | {
    wrong.averaged_over_all_pairs: wrong.averaged_over_all_pairs,
    "You ask the pairs alone. Nothing keeps the others apart.": (
        lambda logits: -F.logsigmoid(logits.diagonal()).sum() / len(logits)
    ),
    "Pairs that do not belong together count as 0, not −1: σ(0) is one half whatever the logit.": (
        lambda logits: -F.logsigmoid(torch.eye(len(logits)).to(logits) * logits).sum() / len(logits)
    ),
}


def _bias(pairs: int) -> Exercise:
    return Exercise(-math.log(pairs - 1), f"σ(b) shall be 1/{pairs}.") | {
        "That is the logarithm of the probability. b is its logit, log(p/(1 − p)).": -math.log(pairs),
        "Look at the sign: most pairs are none.": math.log(pairs - 1),
    }


bias = Personal(
    dict(pairs=(16, 8, 32, 128)),
    lambda pairs: (
        f"in batches of {pairs} pairs. At the start all cosines are about 0. Of all combinations of an image and a "
        f"caption, 1 in {pairs} is a pair."
    ),
    _bias,
).exercise()

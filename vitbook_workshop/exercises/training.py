"""The exercises of chapters/10_training.ipynb."""

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from vitbook_workshop.exercises.grader.inputs import normal
from vitbook_workshop.exercises.grader.judging import Exercise, Personal
from vitbook_workshop.faults.mistakes import parts as wrong
from vitbook_workshop.faults.mistakes.procedures import l2_inside_adam

CHAPTER = "10_training"

loss = Exercise(
    lambda logits, labels, smoothing: F.cross_entropy(logits, labels, label_smoothing=smoothing),
    "log_softmax; minus (1 − smoothing) times the true class's entry, minus smoothing times the mean of all.",
    lambda g: [
        (normal(g, b, k), torch.randint(k, (b,), generator=g), smoothing)
        for b, k, smoothing in ((4, 3, 0.0), (5, 7, 0.1), (2, 10, 0.3))
    ],
    gradients=True,
) | {
    wrong.SoftmaxBeforeCrossEntropy: lambda z, y, share: loss.reference(z.softmax(dim=-1), y, share),
    "Your loss does not depend on the smoothing.": lambda z, y, share: F.cross_entropy(z, y),
    "Your losses are added up; take their mean.": lambda z, y, share: len(y) * loss.reference(z, y, share),
    "You return a loss for each image; take their mean.": (
        lambda z, y, share: F.cross_entropy(z, y, label_smoothing=share, reduction="none")
    ),
    "The sign is wrong: a loss is minus the logarithm of a probability.": lambda *given: -loss.reference(*given),
    "The logarithm is missing: the loss is minus log p, not minus p.": (
        lambda z, y, share: torch.lerp(F.nll_loss(p := z.softmax(dim=-1), y), -p.mean(), share)
    ),
    "The softmax is missing: take the logits' log_softmax.": lambda z, y, s: torch.lerp(F.nll_loss(z, y), -z.mean(), s),
    "The plain loss keeps its full weight. It has the share 1 − smoothing.": (
        lambda z, y, share: F.cross_entropy(z, y) - share * z.log_softmax(dim=-1).mean()
    ),
    "You add the losses of all classes for the even spread; take their mean.": (
        lambda z, y, share: torch.lerp(F.nll_loss(p := z.log_softmax(dim=-1), y), -p.sum(dim=-1).mean(), share)
    ),
    "You spread the smoothing over the wrong classes alone; the true one gets its share of it too.": (
        lambda z, y, s: loss.reference(z, y, s * (k := z.shape[-1]) / (k - 1))
    ),
}

_WORDS = {10: "ten", 5: "five", 20: "twenty", 100: "a hundred"}


def _first_loss(classes: int) -> Exercise:
    return Exercise(classes * math.log(2), f"each of the {classes} questions is answered with σ(0) = ½.") | {
        f"That is the softmax cross-entropy; the sigmoid asks {classes} questions.": math.log(classes),
        f"That is one of the {classes} questions.": math.log(2),
        "That is in bits: take the natural logarithm.": float(classes),
        f"Each question has two answers, so it costs ln 2 and not ln {classes}.": classes * math.log(classes),
    }


predict = Personal(
    dict(classes=tuple(_WORDS)),
    lambda classes: f"equation 2 (in the aside [above](#how-wrong-is-an-answer)), with {_WORDS[classes]} classes?",
    _first_loss,
).exercise()


def _steps(optimizer, w, gradients, eta, decay):
    parameter = nn.Parameter(w.clone())
    stepper = optimizer([parameter], lr=eta, weight_decay=decay)
    for gradient in gradients:
        parameter.grad = gradient
        stepper.step()
    return parameter.detach()


def _steps_by_hand(w, gradients, eta, decay, corrected=True):
    """AdamW with the decay taken off after the step, or without the corrections of its means."""
    m = v = torch.zeros_like(w)
    for t, g in enumerate(gradients, start=1):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        if corrected:
            w = w - eta * (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-8)
            w = w * (1 - eta * decay)
        else:
            w = w * (1 - eta * decay) - eta * m / (v.sqrt() + 1e-8)
    return w


adamw = Exercise(
    lambda w, gradients, eta, decay: _steps(torch.optim.AdamW, w, gradients, eta, decay),
    "the decay must not enter m and v: take eta · decay · w off the weight itself, before Adam's step.",
    lambda g: [
        (normal(g, n), normal(g, steps, n), eta, decay)
        for n, steps, eta, decay in ((3, 1, 3e-3, 0.1), (5, 4, 0.1, 0.3), (2, 7, 0.02, 0.0))
    ],
    level="hard",
    kind="repair",
) | {
    l2_inside_adam: partial(_steps, torch.optim.Adam),
    "Your decay is missing.": lambda w, gradients, eta, decay: adamw.reference(w, gradients, eta, 0.0),
    "Your decay is not multiplied by eta.": lambda w, gradients, eta, d: adamw.reference(w, gradients, eta, d / eta),
    "Your decay takes its share of the new weight, after Adam's step. Take it off before.": _steps_by_hand,
    "The corrections 1 − 0.9ᵗ and 1 − 0.999ᵗ are missing.": partial(_steps_by_hand, corrected=False),
}

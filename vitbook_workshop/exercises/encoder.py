"""The exercises of chapters/08_encoder.ipynb."""

import torch.nn.functional as F

from vitbook_workshop.exercises.grader.inputs import normal
from vitbook_workshop.exercises.grader.judging import Exercise
from vitbook_workshop.exercises.my_vit.components import COMPONENTS
from vitbook_workshop.faults.mistakes import parts as wrong

CHAPTER = "08_encoder"


def _normalized(deviation, axis=-1, correction=0):
    """LayerNorm with something else in place of the root. deviation: (variance, ε) → what to divide by."""

    def layer_norm(x, gain, bias, eps):
        variance = x.var(dim=axis, correction=correction, keepdim=True)
        return gain * (x - x.mean(dim=axis, keepdim=True)) / deviation(variance, eps) + bias

    return layer_norm


layer_norm = Exercise(
    lambda x, gain, bias, eps: F.layer_norm(x, gain.shape, gain, bias, eps),
    "mean and variance run over the last axis; divide the variance by D, not D − 1; add ε under the square root.",
    lambda g: [
        (normal(g, 2, 5, 12), normal(g, 12), normal(g, 12), 1e-6),
        (0.01 * normal(g, 3, 7), normal(g, 7), normal(g, 7), 1e-4),
    ],
    gradients=True,
    level="easy",
) | {
    wrong.UnbiasedVariance: _normalized(lambda variance, eps: (variance + eps).sqrt(), correction=1),
    "Your ε stands outside the square root.": _normalized(lambda variance, eps: variance.sqrt() + eps),
    "Your ε is added to the standard deviation, and your variance is divided by D − 1: correction=0.": (
        _normalized(lambda variance, eps: variance.sqrt() + eps, correction=1)
    ),
    "Your ε is not the argument eps.": _normalized(lambda variance, eps: (variance + 1e-5).sqrt()),
    "Your ε is missing.": _normalized(lambda variance, eps: variance.sqrt()),
    "You divide by the variance instead of its square root.": _normalized(lambda variance, eps: variance + eps),
    "Mean and variance run over the tokens. LayerNorm normalizes one token at a time: dim=-1.": (
        _normalized(lambda variance, eps: (variance + eps).sqrt(), axis=-2)
    ),
    "Gain and bias are missing.": lambda x, gain, bias, eps: F.layer_norm(x, gain.shape, eps=eps),
}

EncoderBlock = COMPONENTS["EncoderBlock"]
Encoder = COMPONENTS["Encoder"]

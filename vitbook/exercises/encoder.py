"""The exercises of chapters/08_encoder.ipynb."""

import torch.nn.functional as F

from vitbook import mistakes as wrong
from vitbook.encoder import EncoderBlock
from vitbook.exercises.grading import Exercise, combined
from vitbook.exercises.inputs import normal, tokens_and_module


def _normalized(deviation, axis=-1, correction=0):
    """LayerNorm with something else in place of the root. deviation: (variance, ε) → what to divide by."""

    def layer_norm(x, gain, bias, eps):
        variance = x.var(dim=axis, correction=correction, keepdim=True)
        return gain * (x - x.mean(dim=axis, keepdim=True)) / deviation(variance, eps) + bias

    return layer_norm


layer_norm = Exercise(
    lambda x, gain, bias, eps: F.layer_norm(x, gain.shape, gain, bias, eps),
    "mean and variance run over the last axis; the variance is divided by D, not D − 1; ε stands under the root.",
    lambda g: [
        (normal(g, 2, 5, 12), normal(g, 12), normal(g, 12), 1e-6),
        (0.01 * normal(g, 3, 7), normal(g, 7), normal(g, 7), 1e-4),
    ],
    gradients=True,
    level="easy",
) | {
    wrong.UnbiasedVariance: _normalized(lambda variance, eps: (variance + eps).sqrt(), correction=1),
    "Your ε stands outside the root.": _normalized(lambda variance, eps: variance.sqrt() + eps),
    "Your ε is added to the standard deviation, and your variance is divided by D − 1: correction=0.": (
        _normalized(lambda variance, eps: variance.sqrt() + eps, correction=1)
    ),
    "Your ε is not that of the argument.": _normalized(lambda variance, eps: (variance + 1e-5).sqrt()),
    "Your ε is missing.": _normalized(lambda variance, eps: variance.sqrt()),
    "You divide by the variance instead of its root.": _normalized(lambda variance, eps: variance + eps),
    "Mean and variance run over the tokens. LayerNorm looks at one token at a time: dim=-1.": (
        _normalized(lambda variance, eps: (variance + eps).sqrt(), axis=-2)
    ),
    "Gain and bias are missing.": lambda x, gain, bias, eps: F.layer_norm(x, gain.shape, eps=eps),
}

parameters = Exercise(12 * (12 * 192**2 + 13 * 192), "768 = 4 · 192: a block has 12D² + 13D parameters.") | {
    "That is one of the twelve blocks.": 12 * 192**2 + 13 * 192,
    "That leaves out biases and norms.": 12 * 12 * 192**2,
    "That counts the LayerNorm after the encoder.": 12 * (12 * 192**2 + 13 * 192) + 2 * 192,
    "That leaves out the norms.": 12 * (12 * 192**2 + 9 * 192),
    "That is the attention alone.": 12 * (4 * 192**2 + 4 * 192),
}

_FIRST_NORMALIZED = "You add the attention to the normalized z: z itself bypasses the first LayerNorm."
_SECOND_NORMALIZED = "You add the MLP to the normalized z: z itself bypasses the second LayerNorm."


def _block(made, z, block):
    x = block.norm1(z)
    z = block.attn(x) + (x if _FIRST_NORMALIZED in made else z)
    x = block.norm2(z)
    change = block.mlp(x)
    return (F.gelu(change) if wrong.GeluTwice in made else change) + (x if _SECOND_NORMALIZED in made else z)


block = Exercise(
    lambda z, block: block(z),
    "each LayerNorm stands before what it feeds, the residual is not normalized, and there is one GELU.",
    tokens_and_module(EncoderBlock, (2, 5, 12, 3, 20), (3, 4, 10, 2, 40)),
    gradients=True,
    level="hard",
    kind="repair",
) | {
    **combined(_block, _FIRST_NORMALIZED, _SECOND_NORMALIZED, wrong.GeluTwice),
    "Each LayerNorm stands after its sum. That is post-norm, the way of 2017.": (
        lambda z, block: block.norm2((z := block.norm1(block.attn(z) + z)) + block.mlp(z))
    ),
    "Nothing is added to the output of the attention: the first residual is missing.": (
        lambda z, block: (z := block.attn(block.norm1(z))) + block.mlp(block.norm2(z))
    ),
    "Nothing is added to the output of the MLP: the second residual is missing.": (
        lambda z, block: block.mlp(block.norm2(block.attn(block.norm1(z)) + z))
    ),
    "Both norms are norm1. The MLP has its own, norm2.": lambda z, f: (z := f.attn(f.norm1(z)) + z) + f.mlp(f.norm1(z)),
    "There is no GELU between the two linear maps.": (
        lambda z, block: (z := block.attn(block.norm1(z)) + z) + block.mlp.fc2(block.mlp.fc1(block.norm2(z)))
    ),
}

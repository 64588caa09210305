"""The mistakes of the wild, named: each the smallest wrong variant of the right code, beside its symptom.

Each names a public file or thread where somebody made it, or is our own, as are all of Parts VI and VII. None raises
an error: a model with one of them runs, and mostly it even trains.
`MISTAKES` holds them by name, `broken_vit` builds a Vision Transformer that has some of them.
"""

from collections.abc import Callable
from contextlib import ExitStack
from unittest.mock import patch

import torch.nn.functional as F
from torch import Tensor, nn

from vitbook import encoder, vit
from vitbook._common.suggestions import unknown
from vitbook.attention import attention
from vitbook.embedding import ImageEmbedding
from vitbook.encoder import EncoderBlock
from vitbook.multihead import MultiHeadSelfAttention
from vitbook.patches import PatchEmbedding, patchify
from vitbook.vit import VisionTransformer, ViTConfig
from vitbook_workshop.faults.mistakes import parts, procedures
from vitbook_workshop.faults.mistakes.card import Cards, Mistake

MISTAKES = parts.MISTAKES | procedures.MISTAKES

# where a class is looked up when a VisionTransformer is built
_USED_IN = {
    MultiHeadSelfAttention: encoder,
    EncoderBlock: encoder,
    ImageEmbedding: vit,
    PatchEmbedding: vit,
    nn.LayerNorm: nn,
}


def broken_vit(config: ViTConfig, *names: str) -> VisionTransformer:
    """A Vision Transformer that has the named mistakes, each one of `IN_A_VIT`, with random weights.

    Raises ValueError for any other name.
    """
    build = VisionTransformer
    with ExitStack() as stack:
        for name in names:
            if name not in IN_A_VIT:
                raise ValueError(unknown("mistake of a Vision Transformer", name, IN_A_VIT))
            right, wrong = as_class(MISTAKES[name])
            if right is VisionTransformer:
                build = wrong
            else:
                stack.enter_context(patch.object(_USED_IN[right], right.__name__, wrong))
        return build(config)


def make_mistakes(model: nn.Module, *names: str) -> None:
    """Let the parts of a right model make the named mistakes, in place and with the weights that it has."""
    classes = [as_class(MISTAKES[name]) for name in names]
    for module in list(model.modules()):
        if variants := tuple(wrong for right, wrong in classes if right is type(module)):
            module.__class__ = type("Mistaken", variants, {})


def as_class(mistake: Mistake) -> tuple[Callable, Callable]:
    """The class of modules in which the mistake is made, as it should be and with the mistake."""
    right, wrong = mistake.instead_of, mistake.variant
    if right is attention:

        class WrongAttention(parts.StepByStep):
            def weigh(self, q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
                return wrong(q, k, k, mask)[1]  # the weights do not depend on the values

        return MultiHeadSelfAttention, WrongAttention
    if right is patchify:

        class WrongPatches(PatchEmbedding):
            def forward(self, images: Tensor) -> Tensor:
                return F.linear(wrong(images, self.patch_size), self.proj.weight.flatten(1), self.proj.bias)

        return PatchEmbedding, WrongPatches
    return right, wrong


IN_A_VIT = [
    name
    for name, wrong in MISTAKES.items()
    if as_class(wrong)[0] in (VisionTransformer, *_USED_IN) and "mask" not in name  # a Vision Transformer hides nothing
]


def cards(*names: str) -> Cards:
    """The named mistakes, each as a card: what one sees, its cause, the tests that catch it, where it was found."""
    return Cards(tuple(MISTAKES[name] for name in names))

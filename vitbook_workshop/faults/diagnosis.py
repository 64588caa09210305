"""What is wrong with a Vision Transformer: what must hold of any, tried on a model of the reader's own.

`diagnose` prints the report; `examine` gives it as a list. The model is only looked at: everything is tried on copies.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from vitbook.vit import VisionTransformer
from vitbook_workshop.faults.findings import Finding, ask, report, skip_if
from vitbook_workshop.faults.invariants import INVARIANTS, MustHold
from vitbook_workshop.faults.model_under_test import ModelUnderTest

answer = partial(ask, certain="measured, and it holds of every right design")


def diagnose(
    model: nn.Module,
    image_shape: tuple[int, int, int] | None = None,
    num_classes: int | None = None,
    *,
    order_counts: bool = True,
    untrained: bool = True,
    overfit: bool = False,
    export: bool = False,
    progress: Callable[[str], None] | None = None,
) -> None:
    """Ask a model all that can be asked of one, and print what holds, what does not, and what that suggests.

    model: any module that makes logits (B, K) of images (B, C, H, W); image_shape: (C, H, W) and num_classes: K, both
    needed unless the model is a `VisionTransformer`. order_counts: whether the model is meant to know where its patches
    are; untrained: whether it is as it was initialized; overfit: whether to see, too, if it can learn a few images by
    heart, which takes up to 500 steps of training; export: whether to try torch.export; progress: is called with what
    is asked before each question.
    """
    report(examine(model, image_shape, num_classes, order_counts, untrained, overfit, export, progress))


def examine(
    model: nn.Module,
    image_shape: tuple[int, int, int] | None = None,
    num_classes: int | None = None,
    order_counts: bool = True,
    untrained: bool = True,
    overfit: bool = False,
    export: bool = False,
    progress: Callable[[str], None] | None = None,
) -> list[Finding]:
    """The report of `diagnose`, as a list. The same arguments.

    Raises ValueError where the shape of the images or the number of classes is neither given nor known.
    """
    if isinstance(model, VisionTransformer):
        image_shape = image_shape or (model.config.channels, *model.config.image_size)
        num_classes = model.config.num_classes if num_classes is None else num_classes
    if image_shape is None or len(image_shape) != 3 or not num_classes:
        raise ValueError(
            f"diagnose needs image_shape (C, H, W) and num_classes, got {image_shape} and {num_classes}; "
            "a model without a head has no logits to ask about"
        )
    with torch.random.fork_rng(), torch.enable_grad():
        torch.manual_seed(0)
        tested = ModelUnderTest(model, tuple(image_shape), num_classes, order_counts, untrained, overfit, export)
        findings = []
        for must_hold in OF_A_MODEL:
            if progress:
                progress(must_hold.about)
            findings.append(_ask(must_hold, tested))
    return findings


OF_A_MODEL = [must_hold for must_hold in INVARIANTS.values() if must_hold.of_model]


def _ask(must_hold: MustHold, tested: ModelUnderTest) -> Finding:
    """What comes of one question. A model that cannot be run is asked nothing but whether it can."""
    if not tested.batch and must_hold.name != "logits_come_out":
        return answer(must_hold, skip_if, True, "the model does not run")
    try:
        return answer(must_hold, must_hold.of_model, tested)
    except Exception as error:  # whatever a model of unknown making may do
        broken = tested.in_training.error and "backward raises an error"
        return answer(must_hold, skip_if, True, broken or f"asking stops with {type(error).__name__}: {error}")

"""What is wrong with a Vision Transformer: what must hold of any, tried on a model of the reader's own.

`diagnose` prints the report; `examine` gives it as a list. The model is only looked at: everything is tried on copies.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import nn

from vitbook.vit import VisionTransformer
from vitbook_workshop.faults.findings import ATTENTION_SEEN, Finding, ask, report, skip_if
from vitbook_workshop.faults.invariants import INVARIANTS, MustHold
from vitbook_workshop.faults.model_under_test import ModelUnderTest
from vitbook_workshop.faults.recorders.plain_kernels import plain_kernels
from vitbook_workshop.faults.whose_error import arose_here, in_one_line, with_place_here

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

    model: any module that makes logits (B, K) of images (B, C, H, W), or can be taken so; image_shape: (C, H, W),
    needed unless the model is a `VisionTransformer`; num_classes: K, as many as it has logits if not given.
    order_counts: whether the model is meant to know where its patches are; untrained: whether it is as it was
    initialized; overfit: whether to see, too, if it can learn a few images by heart, which takes up to 500 steps of
    training; export: whether to try torch.export; progress: is called with what is asked before each question.
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

    Raises ValueError where the shape of the images is neither given nor known.
    """
    if isinstance(model, VisionTransformer):
        image_shape = image_shape or (model.config.channels, *model.config.image_size)
        num_classes = model.config.num_classes if num_classes is None else num_classes
    if image_shape is None or len(image_shape) != 3 or (num_classes is not None and num_classes < 1):
        raise ValueError(
            f"diagnose needs image_shape (C, H, W) and num_classes, got {image_shape} and {num_classes}; "
            "a model without a head has no logits to ask about"
        )
    with repeatable():
        tested = ModelUnderTest(model, tuple(image_shape), num_classes, order_counts, untrained, overfit, export)
        return ask_all(tested, progress)


@contextmanager
def repeatable() -> Iterator[None]:
    """Meanwhile, random numbers are the same at every call, and gradients are kept."""
    with torch.random.fork_rng(), torch.enable_grad(), plain_kernels():
        torch.manual_seed(0)
        yield


def ask_all(
    tested: ModelUnderTest,
    progress: Callable[[str], None] | None = None,
    found: Callable[[Finding], None] | None = None,
) -> list[Finding]:
    """Every question, and how much could be seen. found: is called with each finding."""
    findings = []
    for must_hold in [*OF_A_MODEL, None]:
        if progress and must_hold:
            progress(must_hold.about)
        findings.append(_ask(must_hold, tested) if must_hold else _how_much_was_seen(tested))
        if found:
            found(findings[-1])
    return findings


OF_A_MODEL = [must_hold for must_hold in INVARIANTS.values() if must_hold.of_model]


def _ask(must_hold: MustHold, tested: ModelUnderTest) -> Finding:
    """What comes of one question. A model that cannot be run is asked nothing but whether it can."""
    if not tested.batch and must_hold.name != "logits_come_out":
        return answer(must_hold, skip_if, True, _why_not_asked(tested))
    try:
        with torch.enable_grad():  # whatever its forward has set
            return answer(must_hold, must_hold.of_model, tested)
    except (Exception, SystemExit) as error:  # whatever a model of unknown making may do
        if arose_here(error):
            details = f"could not look inside: {with_place_here(error)}"
            return Finding(must_hold.name, must_hold.about, "ERROR", details)
        if isinstance(error, NotImplementedError):
            return answer(must_hold, skip_if, True, f"torch cannot do that here: {in_one_line(error)}")
        if tested.in_training.error:
            return answer(must_hold, skip_if, True, "backward raises an error")
        return Finding(
            must_hold.name, must_hold.about, "STOPPED", in_one_line(error), must_hold.suspect, must_hold.where
        )


def _why_not_asked(tested: ModelUnderTest) -> str:
    return "its logits are not finite" if tested.not_finite else "the model does not run"


def _how_much_was_seen(tested: ModelUnderTest) -> Finding:
    """Whether attention was recognized in each block, which the questions about it need."""
    said = ATTENTION_SEEN, "attention can be looked at in each block"
    if not tested.batch:
        return Finding(*said, "not asked", _why_not_asked(tested))
    try:
        seen, blocks = tested.attention_seen
    except Exception:  # of which the questions about attention have told
        return Finding(*said, "UNSEEN", "attention could not be looked for")
    if not seen:
        return Finding(*said, "UNSEEN", "no attention is recognized, so that nothing could be asked of it")
    return Finding(
        *said, "passed" if seen == blocks else "UNSEEN", f"attention recognized in {seen} of {blocks} blocks"
    )

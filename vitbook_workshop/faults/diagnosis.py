"""What is wrong with a Vision Transformer: what must hold of any, tried on a model of the reader's own.

`diagnose` prints the report; `examine` gives it as a list. The model is only looked at: everything is tried on copies.
"""

import textwrap
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from vitbook._common.site import chapters_address
from vitbook.vit import VisionTransformer
from vitbook_workshop.faults import checks_of_operations  # noqa: F401, its questions
from vitbook_workshop.faults.checks_of_models import QUESTIONS, Failed, Question, logits_come_out
from vitbook_workshop.faults.model_under_test import ModelUnderTest, NotAsked, skip_if


@dataclass(frozen=True)
class Finding:
    """The answer to one question."""

    name: str  # of the function that asks
    about: str  # what must hold
    result: str  # "passed", "FAILED" or "not asked"
    details: str = ""  # what was seen, or why it was not asked
    suspect: str = ""  # what the failure suggests
    where: str = ""  # the section that explains it, as a link from another chapter
    certainty: str = ""  # of a failure: "certain" or "likely"
    reason: str = ""  # why

    @property
    def link(self) -> str:
        """The public address of the section, or its place in the repository where that address is not known."""
        chapter, _, section = self.where.partition(".ipynb")
        return f"{chapters_address()}{chapter}.html{section}" if chapters_address() else f"chapters/{self.where}"

    @property
    def lines(self) -> list[str]:
        """What a report says of a failure, below what must hold."""
        doubt = [f"Not certain: {self.reason}."] if self.certainty == "likely" else []
        suspect = "Suspect" if self.certainty == "certain" else "Perhaps"
        return [self.details, f"{suspect}: {self.suspect}", *doubt, f"Read {self.link}"]


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


def report(findings: list[Finding]) -> None:
    """Print what holds, what does not, and what that suggests."""
    for finding in findings:
        reason = f": {finding.details}" if finding.result == "not asked" else ""
        print(wrapped(f"{finding.result:<9}  {finding.about}{reason}", 11))
        if finding.result == "FAILED":
            print(*(wrapped(f"{'':11}{line}", 11) for line in finding.lines), sep="\n")
    failed = sum(finding.result == "FAILED" for finding in findings)
    asked = sum(finding.result != "not asked" for finding in findings)
    print(f"\n{failed} of {asked} failed." if failed else f"\nNothing found in {asked} questions.")


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
        for question in QUESTIONS:
            if progress:
                progress(question.about)
            findings.append(_answer(question, tested))
    return findings


def _answer(question: Question, tested: ModelUnderTest) -> Finding:
    """What comes of one question. A model that cannot be run is asked nothing but whether it can."""
    why_not = "" if tested.batch or question.ask is logits_come_out else "the model does not run"
    try:
        return answer(question, tested, why_not=why_not)
    except Exception as error:  # whatever a model of unknown making may do
        return answer(question, tested, why_not=f"asking stops with {type(error).__name__}: {error}")


def answer(
    question: Question, *about: object, why_not: str = "", certain: str = "measured, and it holds of every right design"
) -> Finding:
    """What comes of one question. why_not: why it is not asked; certain: the reason to be certain of a failure."""
    result, details, suspect, where, certainty, reason = "passed", "", question.suspect, question.where, "", ""
    try:
        skip_if(why_not, why_not)
        question.ask(*about)
    except NotAsked as reason_not_to:
        result, details = "not asked", str(reason_not_to)
    except Failed as failure:
        result, details = "FAILED", failure.evidence
        suspect, where = failure.suspect or suspect, failure.where or where
        likely = failure.likely or question.likely
        certainty, reason = ("likely", likely) if likely else ("certain", certain)
    return Finding(question.ask.__name__, question.about, result, details, suspect, where, certainty, reason)


def wrapped(text: str, indent: int = 0) -> str:
    """No line longer than 90, but for one that ends in an address."""
    if "https://" in text:
        return text
    return textwrap.fill(text, 90, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)

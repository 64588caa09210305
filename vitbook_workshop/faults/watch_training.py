"""What is wrong with a training run: `watch` follows anybody's loop, which takes the steps that it would take alone."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from vitbook._common.validation import check_kind
from vitbook_workshop.faults.findings import Finding, ask, wrapped
from vitbook_workshop.faults.invariants import INVARIANTS
from vitbook_workshop.faults.recorders.loops import LoopRecorder

OF_TRAINING = [must_hold for must_hold in INVARIANTS.values() if must_hold.of_training]
answer = partial(ask, certain="measured, and it holds of every right training run")


@contextmanager
def watch(model: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator["TrainingReport"]:
    """Follow a training loop, whoever wrote it: `with watch(model, optimizer) as report: …`, then `print(report)`.

    The report may be asked during the loop too. All hooks are removed afterwards, also on an exception. Seen are
    the model's calls, `F.cross_entropy` and `F.nll_loss` (also as modules), the optimizer's steps and torch's
    schedulers: the first 20 steps each, then one in twenty. One loop at a time.

    Raises TypeError for anything but a module and an optimizer of torch's kind.
    """
    check_kind(nn.Module, model=model)
    optimizer = getattr(optimizer, "optimizer", optimizer)  # Accelerate's wrapper, and others
    check_kind(torch.optim.Optimizer, optimizer=optimizer)
    recorder = LoopRecorder(model, optimizer)
    with ExitStack() as stack:
        recorder.attach(stack)
        yield TrainingReport(recorder)


@dataclass(frozen=True)
class TrainingReport:
    """What is known of a training run so far."""

    recorder: LoopRecorder

    @property
    def findings(self) -> list[Finding]:
        """The answers to all questions, of which some may need more steps."""
        return [answer(must_hold, must_hold.of_training, self.recorder) for must_hold in OF_TRAINING]

    @property
    def failures(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.result == "FAILED"]

    def __str__(self) -> str:
        lines = []
        for finding in self.failures:
            lines += [f"FAILED  {finding.about}", *finding.lines, ""]
        asked = sum(finding.result != "not asked" for finding in self.findings)
        lines.append(f"{len(self.failures)} of {asked} questions failed in {self.recorder.step} steps.")
        return "\n".join(map(wrapped, lines))

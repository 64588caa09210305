"""Anybody's model under its name, examined in a process of its own; this one needs neither torch nor the models."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitbook_workshop import limited_process
from vitbook_workshop.faults.findings import EXAMINATION_ENDS, Finding

EXAMINE = "vitbook_workshop.faults.diagnose_in_child:examine_here"


@dataclass(frozen=True)
class Examination:
    """What comes of examining a model in a process of its own."""

    findings: list[Finding]
    printed: str = ""  # by the model's code
    interrupted: bool = False  # by Ctrl-C; the findings are then those until then


def examine_by_name(
    target: str,
    arguments: dict[str, Any] | None = None,
    image_shape: tuple[int, int, int] | None = None,
    num_classes: int | None = None,
    *,
    weights: str = "",
    trained: bool = False,
    overfit: bool = False,
    export: bool = False,
    like: str = "",
    like_arguments: dict[str, Any] | None = None,
    data: str = "",
    timeout: float = 300,
    progress: Callable[[str], None] | None = None,
) -> Examination:
    """What `examine` finds, and what the code printed meanwhile.

    target: "package.module:build", "model.py:ViT", "timm:NAME", "transformers:ViT", a named size of this package, the
    folder of a training run, a file of weights, or a name that `load_pretrained` knows; arguments: what to build the
    model with; image_shape: (C, H, W), the first of the usual ones that the model takes if neither given nor known;
    num_classes: as many as there are logits if not given; weights: a file with the state_dict of what is built;
    trained: whether the model has been trained, as weights have; like: another target, which should give the same
    logits with the same weights, built with like_arguments; data: a data set or a folder of images, on which
    `examine_on_data` tries the model; timeout: in seconds; progress: is called with what is done now.

    Where its time is over, or Python itself ends, the findings until then have a last one that says so.
    Raises ValueError, in one line, where there is no model to examine or no end to it; OSError where there is no file.
    """
    places = [name.rpartition(":")[0] for name in (target, like)]
    for place in [place for place in places if place.endswith(".py")] + [weights] * bool(weights):
        limited_process.ordinary_file(Path(place))
    asked = dict(target=target, arguments=arguments or {}, image_shape=image_shape, num_classes=num_classes)
    asked |= dict(weights=weights, trained=trained, overfit=overfit, export=export)
    asked |= dict(like=like, like_arguments=like_arguments, data=data)
    limits, facts = limited_process.Limits(timeout, printed=2**50), {}
    try:
        outcome = limited_process.run(EXAMINE, asked, limits, progress, facts)
    except KeyboardInterrupt:
        end = Finding(*EXAMINATION_ENDS, "ERROR", f"interrupted, at: {facts.get('doing', 'starting Python')}")
        return Examination([*_told(facts), end], interrupted=True)
    findings, at = _told(facts), facts.get("doing", "starting Python")
    more = "; --timeout gives it more" if outcome.late else f"; {outcome.last or 'nothing was said'}"
    error = facts.get("error", f"{outcome.ended}, at: {at}{more}" if outcome.ended or not findings else "")
    if error and not findings:
        raise ValueError(f"{target}: {error}")
    if error:
        findings.append(Finding(*EXAMINATION_ENDS, "ERROR", f"{error}. What comes after it was not asked"))
    return Examination(findings, outcome.printed)


def _told(facts: dict[str, Any]) -> list[Finding]:
    """The findings that the process beside has told of."""
    return [Finding(**fields) for name, fields in facts.items() if name.startswith("finding ")]

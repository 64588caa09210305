"""Anybody's model under its name, examined in a process of its own; this one needs neither torch nor the models."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from vitbook_workshop import limited_process
from vitbook_workshop.faults.findings import Finding

EXAMINE = "vitbook_workshop.faults.diagnose_import:examine_here"


def examine_by_name(
    target: str,
    arguments: dict[str, Any] | None = None,
    image_shape: tuple[int, int, int] | None = None,
    num_classes: int | None = None,
    *,
    trained: bool = False,
    export: bool = False,
    like: str = "",
    like_arguments: dict[str, Any] | None = None,
    data: str = "",
    timeout: float = 300,
    progress: Callable[[str], None] | None = None,
) -> tuple[list[Finding], str]:
    """What `examine` finds, and what the code printed meanwhile.

    target: "package.module:build", "model.py:ViT", "timm:NAME", "transformers:ViT", a named size of this package, the
    folder of a training run, a file of weights, or a name that `load_pretrained` knows; arguments: what to build the
    model with; image_shape: (C, H, W), (3, 224, 224) if neither given nor known; num_classes: as many as there are
    logits if not given; trained: whether the model has been trained, as weights have; like: another target, which
    should give the same logits with the same weights, built with like_arguments; data: a data set or a folder of
    images, on which `examine_on_data` tries the model; timeout: in seconds; progress: is called with what is done now.

    Raises ValueError, in one line, where there is no model to examine or no end to it; OSError where there is no file.
    """
    for name in (target, like):
        place = name.rpartition(":")[0]
        if place.endswith(".py"):
            limited_process.ordinary_file(Path(place))
    asked = dict(target=target, arguments=arguments or {}, image_shape=image_shape, num_classes=num_classes)
    asked |= dict(trained=trained, export=export, like=like, like_arguments=like_arguments, data=data)
    outcome = limited_process.run(EXAMINE, asked, limited_process.Limits(timeout), progress)
    findings, error = outcome.facts.get("findings"), outcome.facts.get("error")
    if not findings:
        more = ". --timeout gives it more" if outcome.late else f"; {outcome.last or 'nothing was said'}"
        at = outcome.facts.get("doing", "starting Python")
        raise ValueError(f"{target}: {error or f'{outcome.ended}, at: {at}{more}'}")
    return [Finding(**fields) for fields in findings], outcome.printed

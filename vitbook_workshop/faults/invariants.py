"""What must hold of a Vision Transformer, one entry each: in words, and as what asks it of a part, a model or a run.

The package's tests ask it of each part, and of the wrong variants in `mistakes`, which name what catches them;
`diagnose` asks it of a model, `watch` of a training run. A new entry needs words in invariants.toml, a check of that
name in one of the modules below, and a wrong variant that fails it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from vitbook._common.files import read_table
from vitbook.data import Dataset
from vitbook_workshop.faults.checks import data, learning, models, operations, parts, precision, procedures, training
from vitbook_workshop.faults.model_under_test import ModelUnderTest
from vitbook_workshop.faults.recorders.loops import LoopRecorder


@dataclass(frozen=True)
class MustHold:
    """One thing that must hold, and the checks of it, which have its name; at least one is there."""

    about: str  # what must hold
    where: str  # the section that explains it, as a link from another chapter
    suspect: str = ""  # what to suspect where it does not; of parts, the mistakes say it
    likely: str = ""  # why a failure is likely a mistake and not certainly; "" if it is certainly one
    # of a function or class that implements a part of this package; raises AssertionError
    of_part: Callable[[Callable], None] | None = None
    # of anybody's model, of a training loop, of a data set; these raise Failed or NotAsked
    of_model: Callable[[ModelUnderTest], str | None] | None = None
    of_training: Callable[[LoopRecorder], None] | None = None
    of_data: Callable[[Dataset], None] | None = None

    @property
    def name(self) -> str:
        """That of its checks; the key in `INVARIANTS`."""
        return next(check.__name__ for check in self.checks)

    @property
    def checks(self) -> list[Callable]:
        """Those that it has."""
        return [check for check in (self.of_part, self.of_model, self.of_training, self.of_data) if check]


_CHECKS: dict[str, tuple[ModuleType, ...]] = {
    "of_part": (parts, procedures),
    "of_model": (models, learning, precision, operations),
    "of_training": (training,),
    "of_data": (data,),
}


def _must_hold(name: str, said: dict[str, str]) -> MustHold:
    """An entry of the file, with the checks of its name."""
    places = [(kind, vars(module)) for kind, modules in _CHECKS.items() for module in modules]
    checks = {kind: place[name] for kind, place in places if name in place}
    return MustHold(**said | checks | {"where": said["where"].replace("#", ".ipynb#")})


_SAID = read_table(Path(__file__).with_name("invariants.toml"))
INVARIANTS = {name: _must_hold(name, said) for name, said in _SAID.items()}

"""`pytest --vit my_package:build`: each question of `vitbook diagnose` as a test.

It stands here because pytest imports it at every start: this folder needs neither torch nor the models.
"""

from functools import cached_property
from typing import TYPE_CHECKING

import pytest

from vitbook_workshop.commands.model_arguments import arguments_of

if TYPE_CHECKING:
    from vitbook_workshop.faults.findings import Finding


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("vit", "Vision Transformers (vitbook)")
    say = group.addoption
    say("--vit", action="append", default=[], metavar="TARGET", help="a model to diagnose, as my_package.model:build")
    say("--vit-args", default="{}", metavar="JSON", help="what to build it with, or a .json or .yaml file of that")
    say("--vit-weights", default="", metavar="FILE", help="the state_dict of what is built; it then counts as trained")
    say("--vit-image-shape", type=int, nargs=3, metavar=("C", "H", "W"), help="else the usual ones are tried")
    say("--vit-num-classes", type=int, metavar="K", help="as many as it has logits, if not given")
    say("--vit-timeout", type=float, default=300, metavar="SECONDS", help="after how many seconds to stop")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "vit: asks a Vision Transformer, which --vit names, a question")


@pytest.hookimpl(tryfirst=True)  # before -m and -k choose
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    for target in config.getoption("--vit"):
        items.extend(Model.from_parent(session, name=target).collect())


class Model(pytest.Collector):
    """A model, examined once, when the first of its tests runs."""

    def collect(self) -> list["Asked"]:
        from vitbook_workshop.faults.diagnosis import OF_A_MODEL
        from vitbook_workshop.faults.findings import ATTENTION_SEEN

        names = [*(must_hold.name for must_hold in OF_A_MODEL), ATTENTION_SEEN]
        return [Asked.from_parent(self, name=name) for name in names]

    @cached_property
    def findings(self) -> "dict[str, Finding] | Exception":
        from vitbook_workshop.faults.diagnose_by_name import examine_by_name

        names = ("weights", "image_shape", "num_classes", "timeout")
        asked = {name: self.config.getoption(f"--vit-{name.replace('_', '-')}") for name in names}
        try:
            came = examine_by_name(self.name, arguments_of("--vit-args", self.config.getoption("--vit-args")), **asked)
        except (ValueError, OSError, ImportError) as error:
            return error
        if came.interrupted:
            raise KeyboardInterrupt
        if came.printed:
            print(came.printed)
        return {finding.name: finding for finding in came.findings}


class Asked(pytest.Item):
    """One question to a model."""

    parent: Model

    def __init__(self, **fields):
        super().__init__(**fields)
        self.add_marker("vit")

    def runtest(self) -> None:
        findings = self.parent.findings
        if isinstance(findings, Exception):
            raise Failure(str(findings))
        # the last one says why there are no more
        finding = findings.get(self.name) or list(findings.values())[-1]
        if finding.result == "not asked":
            pytest.skip(finding.details)
        if finding.result != "passed":
            said = finding.lines if finding.result == "FAILED" else [f"{finding.result}: {finding.details}"]
            raise Failure("\n".join([f"Expected: {finding.about}", *said]))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style=None):
        return str(excinfo.value) if excinfo.errisinstance(Failure) else super().repr_failure(excinfo, style)

    def reportinfo(self):
        return self.path, None, f"{self.parent.name}: {self.name}"


class Failure(Exception):
    """What a question saw, or why it could not be asked."""

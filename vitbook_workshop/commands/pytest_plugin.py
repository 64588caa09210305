"""`pytest --vit my_package:build`: each question of `vitbook diagnose` as a test.

It stands here because pytest imports it at every start: this folder needs neither torch nor the models.
"""

import json
from functools import cached_property
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from vitbook_workshop.faults.findings import Finding


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("vit", "Vision Transformers (vitbook)")
    say = group.addoption
    say("--vit", action="append", default=[], metavar="TARGET", help="a model to diagnose, as my_package.model:build")
    say("--vit-args", type=_json_object, default={}, metavar="JSON", help="what to build it with")
    say("--vit-image-shape", type=int, nargs=3, metavar=("C", "H", "W"), help="3 224 224 if neither given nor known")
    say("--vit-num-classes", type=int, metavar="K", help="as many as it has logits, if not given")
    say("--vit-timeout", type=float, default=300, metavar="SECONDS", help="after how many seconds to stop")


def _json_object(text: str) -> dict:
    arguments = json.loads(text)
    if not isinstance(arguments, dict):
        raise ValueError
    return arguments


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

        return [Asked.from_parent(self, name=must_hold.name) for must_hold in OF_A_MODEL]

    @cached_property
    def findings(self) -> "dict[str, Finding] | ValueError | OSError":
        from vitbook_workshop.faults.diagnose_by_name import examine_by_name

        asked = {name: self.config.getoption(f"--vit-{name.replace('_', '-')}") for name in ("image_shape", "timeout")}
        classes, arguments = self.config.getoption("--vit-num-classes"), self.config.getoption("--vit-args")
        try:
            findings, printed = examine_by_name(self.name, arguments, num_classes=classes, **asked)
        except (ValueError, OSError) as error:
            return error
        if printed:
            print(printed)
        return {finding.name: finding for finding in findings}


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
        finding = findings[self.name]
        if finding.result == "not asked":
            pytest.skip(finding.details)
        if finding.result == "FAILED":
            raise Failure("\n".join([f"Expected: {finding.about}", *finding.lines]))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style=None):
        return str(excinfo.value) if excinfo.errisinstance(Failure) else super().repr_failure(excinfo, style)

    def reportinfo(self):
        return self.path, None, f"{self.parent.name}: {self.name}"


class Failure(Exception):
    """What a question saw, or why it could not be asked."""

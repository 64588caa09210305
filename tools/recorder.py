"""A pytest plugin that writes down what a run found: per test its outcome, its seconds and the differences it measured.

    python -m pytest -p tools.recorder --ledger NAME …

writes `.ledger/NAME.json` when everything has passed. Measured is every comparison of numbers with a tolerance that
passed: those by `torch.testing.assert_close`, on which the helpers of the tests rest, and by `pytest.approx`.
`tools/ledger.py` makes a page of the book of these records.
"""

import json
import os
import platform
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

FOLDER = ".ledger"


def machine() -> dict[str, str | int]:
    """The kind of machine: nothing of whose it is or where it stands."""
    cpu = platform.processor() or platform.machine()
    try:
        if platform.system() == "Darwin":
            cpu = subprocess.check_output(["sysctl", "-n", "machdep.cpu.brand_string"], text=True).strip()
        else:
            lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
            cpu = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), cpu)
    except (OSError, subprocess.CalledProcessError):
        pass  # Windows, or a machine that does not tell
    system = {"Darwin": "macOS"}.get(platform.system(), platform.system())
    found = {"cpu": cpu, "cores": os.cpu_count() or 1, "system": f"{system} ({platform.machine()})", "gpu": ""}
    found |= {"python": platform.python_version(), "torch": "none", "colab": os.environ.get("COLAB_RELEASE_TAG", "")}
    try:
        found["torch"] = version("torch")
        import torch

        if torch.cuda.is_available():
            found["gpu"] = torch.cuda.get_device_name()
    except (ImportError, PackageNotFoundError):
        pass
    return found


def commit(root: Path) -> tuple[str, bool]:
    """(short name of the last commit, whether files differ from it); without git, ("", False)."""

    def git(*command: str) -> str:
        return subprocess.check_output(["git", *command], cwd=root, text=True, stderr=subprocess.DEVNULL).strip()

    try:
        return git("rev-parse", "--short=10", "HEAD"), bool(git("status", "--porcelain"))
    except (OSError, subprocess.CalledProcessError):
        return "", False


def write(root: Path, name: str, started: datetime, seconds: float, **more) -> Path:
    """Replace the record `name` in one step. `seconds` are by the clock on the wall."""
    path = root / FOLDER / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    last, changed = commit(root)
    date = started.isoformat(timespec="minutes")
    record = dict(date=date, commit=last, changed=changed, seconds=seconds, machine=machine(), **more)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(record, ensure_ascii=False, indent=0), encoding="utf-8")
    os.replace(part, path)
    return path


def pairs(got, expected) -> Iterator[tuple]:
    """The tensors or numbers that `assert_close` compares, out of lists and dictionaries."""
    if isinstance(expected, Mapping):
        for key in expected:
            yield from pairs(got[key], expected[key])
    elif isinstance(expected, Sequence) and not isinstance(expected, str):
        for one, other in zip(got, expected, strict=True):
            yield from pairs(one, other)
    elif expected is not None:
        yield got, expected


def keep(measured: dict, dtype: str, difference: float, allowed: float, expected: float) -> None:
    """Add one comparison to those of a test: per dtype the largest difference, what was allowed there, how many.

    Those that allow more than a thousandth stand apart, as "wide": no rounding shows beside them.
    """
    kind = "wide" if allowed > 1e-3 * max(1.0, abs(expected)) else dtype
    largest = measured.setdefault(kind, {"difference": -1.0, "allowed": 0.0, "comparisons": 0})
    largest["comparisons"] += 1
    if difference > largest["difference"]:
        # plain numbers, not NumPy's: only such pass from one process to another
        largest |= {"difference": float(difference), "allowed": float(allowed)}


class Recorder:
    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.measured: dict = {}
        self.tests: dict[str, dict] = {}
        self.started, self.clock = datetime.now(UTC), time.monotonic()
        if not getattr(config.option, "nbval", False):
            self.measure_assert_close()
            self.measure_approx()

    def measure_assert_close(self) -> None:
        import numpy as np
        import torch
        from torch.testing._comparison import get_tolerances

        plain = torch.testing.assert_close

        def assert_close(actual, expected, *arguments, rtol=None, atol=None, **more):
            __tracebackhide__ = True
            plain(actual, expected, *arguments, rtol=rtol, atol=atol, **more)
            for got, wanted in pairs(actual, expected):
                a, b = (
                    torch.as_tensor(x if isinstance(x, torch.Tensor) else np.asarray(x)).detach().cpu()
                    for x in (got, wanted)
                )
                if not a.numel():
                    continue
                r, at = get_tolerances(a, b, rtol=rtol, atol=atol)
                wide = torch.complex128 if a.is_complex() else torch.float64
                a_wide, b_wide = torch.broadcast_tensors(a.to(wide), b.to(wide))
                apart = (a_wide - b_wide).abs().nan_to_num(0.0).flatten()  # equal infinities, and NaN where allowed
                index = apart.argmax()
                size = b_wide.flatten()[index].abs().nan_to_num(0.0, posinf=0.0).item()
                dtype = str(a.dtype).removeprefix("torch.")
                keep(self.measured, dtype, apart[index].item(), at + r * size, size)

        torch.testing.assert_close = assert_close

    def measure_approx(self) -> None:
        scalar = type(pytest.approx(1.0))  # those of lists and dictionaries compare by such, one by one
        plain = scalar.__eq__

        def equal(approx, actual) -> bool:
            same = plain(approx, actual)
            if same and all(isinstance(x, (int, float)) for x in (actual, approx.expected)):
                apart = 0.0 if actual == approx.expected else abs(actual - approx.expected)
                keep(self.measured, "float64", apart, approx.tolerance, approx.expected)
            return same

        scalar.__eq__ = equal

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self.measured = {}
        facts = {"browser": "browser" in getattr(item, "fixturenames", ())}
        facts["hypothesis"] = item.get_closest_marker("hypothesis") is not None
        if hasattr(item, "cell"):  # of nbval: an output that is there is compared unless the cell says otherwise
            facts["compared"] = bool(item.cell.outputs) and item.options["check"] and not item.options["skip"]
        item.user_properties += [("measured", self.measured), ("facts", facts)]

    # Where several processes test, all reports come together in the first.

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = self.tests.setdefault(report.nodeid, {"outcome": "passed", "seconds": 0.0})
        test["seconds"] += report.duration
        properties = dict(report.user_properties)
        test |= {name: value for name, value in properties.get("facts", {}).items() if value}
        if properties.get("measured"):
            test["measured"] = properties["measured"]
        self.note_outcome(test, report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:  # a whole file
            self.note_outcome(self.tests.setdefault(report.nodeid, {"outcome": "passed", "seconds": 0.0}), report)

    @staticmethod
    def note_outcome(test: dict, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped:
            told = getattr(report, "wasxfail", None) or report.longrepr[2]
            test |= {"outcome": "skipped", "reason": told.removeprefix("Skipped: ").split("\n")[0]}
        elif report.failed:
            test["outcome"] = "failed"

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if hasattr(self.config, "workerinput") or exitstatus or not self.tests or self.config.option.keyword:
            return
        more = dict(workers=getattr(self.config.option, "numprocesses", None) or 1, args=self.config.args)
        seconds = time.monotonic() - self.clock
        write(self.config.rootpath, self.config.option.ledger, self.started, seconds, **more, tests=self.tests)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--ledger", metavar="NAME", help=f"write what this run found to {FOLDER}/NAME.json if all passes")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.ledger:
        config.pluginmanager.register(Recorder(config), "ledger-recorder")

"""A pytest plugin: a table of the CPU seconds that each chapter took, with all that its kernel started.

    PYTHONPATH=tools python -m pytest -p chapter_costs --nbval … chapters

What `forked_kernels` imports once for all of them is not counted; what exceeds `LIMIT` is marked. The table is for
people: machines differ, so that no test fails for it.
"""

import pytest

try:
    import resource
except ImportError:  # Windows does not count the time of processes that have ended
    resource = None

pytest_plugins = ["forked_kernels"]

LIMIT = 40  # CPU seconds of a chapter on a machine of today
reported: dict[str, float] = {}  # by the file of the chapter


def of_ended_processes() -> float:
    """CPU seconds, the system's included, of all processes that this one has started and seen end."""
    import forked_kernels  # not before pytest does, as a plugin

    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime + forked_kernels.ended_seconds


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None):
    """With its last cell a chapter's kernel ends: what ended processes took until then, and did not before, is its."""
    before = of_ended_processes() if resource else 0.0
    result = yield
    if resource and (nextitem is None or nextitem.path != item.path):
        item.user_properties.append(("cpu_seconds", of_ended_processes() - before))
    return result


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    seconds = dict(report.user_properties).get("cpu_seconds")
    if report.when == "teardown" and seconds is not None:
        reported[report.nodeid.partition("::")[0]] = seconds


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if reported:
        terminalreporter.section(f"CPU seconds of each chapter, {sum(reported.values()):.0f} in all")
        for name, seconds in sorted(reported.items(), key=lambda pair: -pair[1]):
            mark = f"  over {LIMIT}" if seconds > LIMIT else ""
            terminalreporter.write_line(f"{seconds:6.1f}  {name}{mark}")

"""`pytest --vit` in the folder of a stranger."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from vitbook_workshop.commands import pytest_plugin
from vitbook_workshop.faults import diagnose_by_name
from vitbook_workshop.faults.diagnose_by_name import Examination
from vitbook_workshop.faults.diagnosis import OF_A_MODEL
from vitbook_workshop.faults.findings import ATTENTION_SEEN, Finding

pytest_plugins = ["pytester"]

ASKED = [*(must_hold.name for must_hold in OF_A_MODEL), ATTENTION_SEEN]
LINEAR = """
from torch import nn
def build(classes, softmax=False):
    return nn.Sequential(nn.Flatten(), nn.Linear(192, classes), *[nn.Softmax(-1)] * softmax)
"""


@pytest.fixture
def run(tmp_path):
    (tmp_path / "linear.py").write_text(LINEAR)
    (tmp_path / "test_own.py").write_text("import sys\ndef test_own(): assert 'torch' not in sys.modules")

    def run(*options: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-v"]
        paths = os.pathsep.join([str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")])
        environment = os.environ | {"PYTHONPATH": paths, "COLUMNS": "200"}
        return subprocess.run([*command, *options], cwd=tmp_path, env=environment, capture_output=True, text=True)

    return run


def test_each_finding_is_a_test(pytester, monkeypatch):
    asked = []

    def examined(*target, **options):
        asked.append((*target, options))
        results = {"images_count": "FAILED", "scores_are_scaled": "not asked", "blocks_add": "STOPPED"}
        results |= {"order_counts": "ERROR", ATTENTION_SEEN: "UNSEEN"}
        return Examination([Finding(name, "", results.get(name, "passed")) for name in ASKED])

    monkeypatch.setattr(diagnose_by_name, "examine_by_name", examined)
    pytester.makepyfile("def test_own(): pass")
    options = ["--vit-args", '{"classes": 4}', "--vit-image-shape", "3", "8", "8", "--vit-timeout", "9"]
    done = pytester.runpytest_inprocess("-v", "-p", "no:cacheprovider", "-m", "vit", "--vit", "linear:build", *options)
    settings = dict(weights="", num_classes=None, image_shape=[3, 8, 8], timeout=9.0)
    assert asked == [("linear:build", {"classes": 4}, settings)], "once"
    for line in ("images_count FAILED", "scores_are_scaled SKIPPED", "order_counts FAILED"):
        done.stdout.fnmatch_lines(f"*linear:build::{line}*")
    done.assert_outcomes(passed=len(ASKED) - 5, failed=4, skipped=1, deselected=1)


def test_a_model_that_cannot_be_examined_fails_in_a_line(pytester):
    """No process is needed to see that there is no such file."""
    done = pytester.runpytest_inprocess("-p", "no:cacheprovider", "--vit", "none.py:build")
    done.assert_outcomes(failed=len(ASKED))
    done.stdout.fnmatch_lines(["*No such file or directory: 'none.py'"])
    done.stdout.no_fnmatch_line("*Traceback*")


@pytest.mark.slow
def test_each_question_is_a_test(run):
    shape = ["--vit-image-shape", "3", "8", "8"]
    done = run("--vit", "linear:build", "--vit-args", '{"classes": 4, "softmax": true}', *shape, "-m", "vit")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "linear:build::images_count PASSED" in done.stdout
    assert "linear:build::scores_are_scaled SKIPPED" in done.stdout
    assert "linear:build::logits_are_no_probabilities FAILED" in done.stdout
    assert "Suspect: a softmax in the model" in done.stdout and "Traceback" not in done.stdout
    assert "linear:build::attention_is_seen FAILED" in done.stdout and "UNSEEN: no attention" in done.stdout
    assert " 2 failed" in done.stdout and "1 deselected" in done.stdout
    done = run()
    assert done.returncode == 0, "without a model to examine, torch stays away\n" + done.stdout


def test_the_workflow_that_is_documented_is_a_command_that_there_is():
    page = (Path(__file__).parents[3] / "running.md").read_text(encoding="utf-8")
    (workflow,) = map(yaml.safe_load, re.findall(r"```yaml\n(.*?)```", page, re.DOTALL))
    steps = workflow["jobs"]["diagnose"]["steps"]
    *_, install, command = [step["run"] for step in steps if "run" in step]
    assert "vitbook" in install
    program, options = command.split("pytest ")
    parser = pytest.Parser(_ispytest=True)
    pytest_plugin.pytest_addoption(parser)
    parsed, unknown = parser.parse_known_and_unknown_args(shlex.split(options))
    assert program == "python -m " and not unknown
    assert parsed.vit == ["model.py:build"] and parsed.vit_image_shape == [3, 224, 224]

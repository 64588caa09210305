"""Models written blind, by people who had seen neither the questions nor the galleries.

A folder holds a set of them and `manifest.json`: for each its file, the shape of its images and its classes, whether it
is right, and of a wrong one the mistake, the "question" that finds it (null while none does) and words of its "cause".
"""

import importlib.util
import json
import sys
from pathlib import Path

import pytest
import torch

from vitbook_workshop.faults.diagnosis import examine
from vitbook_workshop.faults.findings import exit_status

pytestmark = [pytest.mark.slow, pytest.mark.door]  # the models are anybody's

SETS = sorted(Path(__file__).with_name("blind").glob("*/manifest.json"))
MODELS = [(path.parent, row) for path in SETS for row in json.loads(path.read_text(encoding="utf-8"))]


@pytest.mark.parametrize(("folder", "row"), MODELS, ids=[f"{folder.name}/{row['file']}" for folder, row in MODELS])
def test_models_written_blind_are_told_right_from_wrong(folder, row, monkeypatch):
    spec = importlib.util.spec_from_file_location(f"blind_{folder.name}_{row['file'][:-3]}", folder / row["file"])
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    torch.manual_seed(0)
    findings = examine(module.build(), tuple(row["image_shape"]), row["num_classes"])
    failed = {finding.name: finding.suspect for finding in findings if finding.result == "FAILED"}
    if row["right"]:
        assert exit_status(findings) == 0, [f for f in findings if f.result not in ("passed", "not asked")]
    elif row["question"]:
        assert row["cause"] in failed[row["question"]]
    else:
        assert not failed

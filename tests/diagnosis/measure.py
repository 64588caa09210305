"""How much `diagnose` finds, and whether it ever accuses a right model: over all Vision Transformers of the gallery.

    PYTHONPATH=.:tests/support python tests/diagnosis/measure.py vitbook/assets/runs/diagnosis.json

writes the shares, and what was missed, accused wrongly or named wrongly. A fault is found where its question fails,
and named rightly where the suspect names the true cause too; a false alarm is any failure that the gallery does not
expect.
"""

import argparse
import json
from pathlib import Path

import torch
from gallery import IMAGE, RIGHT, WRONG, shape_for
from properties import K
from styles import TWICE_WRONG, UNSEEN

from vitbook.diagnosis import Finding, examine


def failures(build, image_shape) -> dict[str, Finding]:
    torch.manual_seed(0)
    findings = examine(build(), image_shape, K)
    return {finding.name: finding for finding in findings if finding.result == "FAILED"}


def measure() -> dict:
    alarms = {name: sorted(failures(build, shape_for(name))) for name, build in RIGHT.items()}
    record = {"right": {"models": len(RIGHT), "alarms": {name: failed for name, failed in alarms.items() if failed}}}
    missed, misnamed, unexpected = sorted(UNSEEN), [], []
    for kind, models in (("one_fault", WRONG), ("two_faults", TWICE_WRONG)):
        found_all = named_all = 0
        for name, (build, causes) in models.items():
            failed = failures(build, IMAGE)
            found = set(causes) & set(failed)
            named = {question for question in found if causes[question] in failed[question].suspect}
            missed += [f"{name}: {question}" for question in set(causes) - found]
            misnamed += [f"{name}: {question}" for question in found - named]
            unexpected += [f"{name}: {question}" for question in set(failed) - set(causes)]
            found_all += found == set(causes)
            named_all += named == set(causes) == set(failed)
        total = len(models) + (len(UNSEEN) if kind == "one_fault" else 0)
        record[kind] = {"models": total, "found": found_all, "named_rightly": named_all}
    unexpected += [f"{name}: {question}" for name, build in UNSEEN.items() for question in failures(build, IMAGE)]
    return record | {"missed": missed, "named_wrongly": misnamed, "not_expected": unexpected}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    path = parser.parse_args().path
    record = measure()
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(path.read_text(encoding="utf-8"))

"""How much `diagnose` finds, and whether it ever accuses a right model: over all Vision Transformers of the galleries.

    PYTHONPATH=.:tests/support python tests/workshop/faults/measure.py vitbook/assets/runs/diagnosis.json

writes the shares, and what was missed, accused wrongly or named wrongly. A fault is found where its question fails,
and named rightly where the suspect names the true cause too; a false alarm is any failure that the gallery does not
expect. The models held out were written after the questions; "held_out_at_first" is what came of the first asking,
before the questions learned from them, and stays as it was. So do "first_blind" and "second_blind", each read once from
what `vitbook diagnose` said of the models in blind/.
"""

import argparse
import json
from pathlib import Path

import held_out
import torch
from gallery import IMAGE, RIGHT, WRONG, shape_for
from small_models import K
from styles import TWICE_WRONG, UNSEEN
from unlearned import RIGHT_UNLEARNED, TWICE_UNLEARNED, WRONG_UNLEARNED

from vitbook_workshop.faults.diagnosis import examine
from vitbook_workshop.faults.findings import Finding


def failures(build, image_shape) -> dict[str, Finding]:
    torch.manual_seed(0)
    findings = examine(build(), image_shape, K)
    return {finding.name: finding for finding in findings if finding.result == "FAILED"}


def measure(right: dict, wrong: dict, twice_wrong: dict, unseen: dict) -> dict:
    alarms = {name: sorted(failures(build, shape_for(name))) for name, build in right.items()}
    record = {"right": {"models": len(right), "alarms": {name: failed for name, failed in alarms.items() if failed}}}
    missed, misnamed, unexpected = sorted(unseen), [], []
    for kind, models in (("one_fault", wrong), ("two_faults", twice_wrong)):
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
        total = len(models) + (len(unseen) if kind == "one_fault" else 0)
        record[kind] = {"models": total, "found": found_all, "named_rightly": named_all}
    unexpected += [f"{name}: {question}" for name, build in unseen.items() for question in failures(build, IMAGE)]
    return record | {"missed": sorted(missed), "named_wrongly": misnamed, "not_expected": unexpected}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    path = parser.parse_args().path
    with_questions = RIGHT | RIGHT_UNLEARNED, WRONG | WRONG_UNLEARNED, TWICE_WRONG | TWICE_UNLEARNED, UNSEEN
    record = measure(*with_questions)
    record["held_out"] = measure(held_out.RIGHT, held_out.WRONG, held_out.TWICE_WRONG, held_out.UNSEEN)
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    record["held_out_at_first"] = before.get("held_out_at_first", record["held_out"])
    record |= {name: before[name] for name in ("first_blind", "second_blind") if name in before}
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(path.read_text(encoding="utf-8"))

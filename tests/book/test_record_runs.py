"""Chapter 10 reports of CIFAR-10 what was recorded."""

import json
from pathlib import Path

import notebooks

from vitbook import runs


def test_chapter_10_reports_of_cifar10_what_was_recorded():
    chapter = notebooks.read(Path(__file__).parents[2] / "chapters" / "10_training.ipynb")
    section = next(cell.source for cell in chapter.cells if "on CIFAR-10?" in cell.source)
    names = ("data", "cifar10_quick", "cifar10_alone", "cifar10_hour")
    data, *hybrids = (json.loads(runs.RECORDED[name].read_text()) for name in names)
    plain = max((record for record in data if record["model"] == "ViT"), key=lambda record: record["pictures"])
    for record, digits in ((plain, 1), *((record, 2) for record in hybrids)):
        assert f"| {100 * record['test_accuracy']:.{digits}f} % |" in section
    for record in hybrids:
        assert f"| {record['config']['epochs']} epochs, " in section

"""A report says what scikit-learn says, and a page of it shows names as they are and runs none of them."""

import json
from pathlib import Path

import pytest
import torch
from bs4 import BeautifulSoup
from PIL import Image
from sklearn import metrics

from vitbook.data import Split, digits
from vitbook.imbalance import balanced_accuracy, macro_f1
from vitbook.training import Evaluation
from vitbook_workshop.commands import main
from vitbook_workshop.commands.report import (
    WORST,
    lines,
    report,
    report_page,
    report_targets,
    target_lines,
    write_report,
)

NAMES = ("cat", "<script>alert(1)</script>", "\x1b[31mred", "never")


@pytest.fixture(scope="module")
def seen() -> tuple[Evaluation, Split]:
    """120 images of four classes, of which the last is never named."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(4, (120,), generator=generator)
    logits = torch.randn(120, 4, generator=generator) + 2 * torch.nn.functional.one_hot(labels, 4)
    logits[:, 3] = -9.0
    images = torch.randint(256, (120, 3, 8, 8), generator=generator, dtype=torch.uint8)
    return Evaluation(logits, labels), Split(images, labels)


def test_the_numbers_are_scikit_learns_and_those_that_the_book_derives(seen):
    result, split = seen
    facts = report(result, NAMES, split, validation=result)
    theirs = metrics.classification_report(result.labels, result.predictions, output_dict=True, zero_division=0)
    for k, row in enumerate(facts["classes"]):
        assert row["n"] == theirs[str(k)]["support"] and row["recall"] == pytest.approx(theirs[str(k)]["recall"])
    assert facts["balanced_accuracy"] == pytest.approx(balanced_accuracy(result.confusion))
    assert facts["macro_f1"] == pytest.approx(macro_f1(result.confusion))
    assert torch.equal(torch.tensor(facts["confusion"]), result.confusion)
    assert facts["never_named"] == ["never"]
    low, high = facts["accuracy_interval"]
    assert low < facts["accuracy"] < high
    assert sum(row["n"] for row in facts["calibration"]) == 120
    gaps = [row["n"] / 120 * abs(row["right"] - row["probability"]) for row in facts["calibration"]]
    assert sum(gaps) == pytest.approx(facts["calibration_error"]) == pytest.approx(result.calibration_error)
    assert facts["loss_with_temperature"] < facts["loss"]
    worst = facts["worst"]
    assert 0 < len(worst) <= WORST and all(row["is"] != row["called"] for row in worst)
    assert [row["probability"] for row in worst] == sorted((row["probability"] for row in worst), reverse=True)


def test_both_kinds_of_file_are_whole_and_run_nothing(seen, tmp_path):
    result, split = seen
    facts = report(result, NAMES, split)
    write_report(facts, tmp_path / "new" / "it.json", "")
    read = json.loads((tmp_path / "new" / "it.json").read_text())
    assert tuple(row["name"] for row in read["classes"]) == NAMES and {row["is"] for row in read["worst"]} <= {*NAMES}
    assert "\x1b" not in "".join(lines(facts))
    assert read["classes"][3]["precision"] is None and read["images"] == 120 and "temperature" not in read
    write_report(facts, tmp_path / "it.html", report_page(facts, split, "a <run>"))
    page = BeautifulSoup((tmp_path / "it.html").read_text(), "html.parser")
    assert not page.find_all("script") and "\x1b" not in str(page)
    assert len(page.find_all("img")) == len(facts["worst"]) and page.h1.text == "a <run>"
    assert NAMES[1] in page.find_all("table")[0].text


def test_labels_are_named_as_they_are_and_escaped_where_they_are_shown(seen):
    logits = seen[0].logits
    facts = report_targets(Evaluation(logits, (logits > 0).float(), "labels"), NAMES, (0.0, 1.0))
    assert tuple(row["name"] for row in facts["labels"]) == NAMES
    assert "\x1b" not in "".join(target_lines(facts)) and r"\x1b[31mred" in "".join(target_lines(facts))


def test_evaluate_writes_a_report(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    sizes = "--dim 12 --depth 1 --num-heads 3 --mlp-dim 20 --patch-size 4 --epochs 1 --affine 0 --no-progress"
    assert main(["train", *sizes.split(), "--best", "macro-f1"]) == 0
    assert main(["evaluate", "--report", "out.json"]) == 0
    said = capsys.readouterr().out
    facts = json.loads(Path("out.json").read_text())
    assert facts["images"] == 360 and facts["temperature"] > 0
    assert f"balanced accuracy {facts['balanced_accuracy']:.1%}" in said and said.endswith("in out.json\n")
    assert main(["evaluate", "--report", "out.pdf"]) == 2


@pytest.mark.slow
def test_predict_says_none_of_these_as_often_as_it_may(tmp_path, monkeypatch, capsys):
    """Of the test images; and of noise more often, if far from always."""
    monkeypatch.chdir(tmp_path)
    sizes = "--dim 24 --depth 2 --num-heads 3 --mlp-dim 48 --epochs 10 --learning-rate 0.01 --affine 0 --validation 0.3"
    assert main(["train", "--no-progress", *sizes.split()]) == 0
    data, files, known = digits(), [], 80
    noise = torch.randint(256, (40, 1, 8, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    for i, image in enumerate([*data.test.images[:known], *noise]):
        Image.fromarray(image[0].numpy()).save(f"{i}.png")
        files.append(f"{i}.png")
    capsys.readouterr()
    for by in ("energy", "probability"):
        assert main(["predict", *files, "--unknown", "0.1", "--by", by]) == 0
        said = capsys.readouterr().out.splitlines()
        away = [line.endswith(": none of these") for line in said]
        assert sum(away[:known]) <= known * 0.1 + 3 * (known * 0.1 * 0.9) ** 0.5, by
        assert sum(away[known:]) / len(noise) > 1.5 * sum(away[:known]) / known, by
    kept = json.loads(Path("runs/vit_digits/validation_scores.json").read_text())
    assert len(kept["energy"]) == len(kept["probability"]) == 434
    for options, code, says in (
        (["--unknown", "1.5"], 2, "unknown is a share of false alarms between 0 and 1, got 1.5"),
        (["--unknown", "0.001"], 1, "a share of 0.001 needs at least 999 validation images, got 434"),
        (["--unknown", "0.1", "--weights", "vitbook:cifar10"], 2, "unknown needs the validation images of a run"),
        (["--unknown", "0.1", "--checkpoint", "nowhere"], 1, "there is no trained model at nowhere"),
    ):
        assert main(["predict", "0.png", *options]) == code
        assert says in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["labels", pytest.param("number", marks=pytest.mark.slow)])
def test_labels_and_numbers_go_through_the_same_commands(tmp_path, monkeypatch, capsys, kind):
    monkeypatch.chdir(tmp_path)
    rows = [f"file,{kind}"]
    Path("flat").mkdir()
    for i in range(60):
        level = 4 * i
        Image.new("RGB", (8, 8), (level, 255 - level, 90)).save(f"flat/{i}.png")
        rows.append(
            f"{i}.png,{('bright' if i > 30 else '') + (';tail' if i % 2 else '') if kind == 'labels' else level}"
        )
    Path("table.csv").write_text("\n".join(rows))
    sizes = "--image-size 8 --patch-size 4 --dim 12 --depth 1 --num-heads 3 --mlp-dim 20 --epochs 30 --affine 0"
    options = (
        f"--dataset flat --labels table.csv --batch-size 8 --folder ../run-{kind} --no-progress --label-smoothing 0"
    )
    assert main(["train", *sizes.split(), *options.split()]) == 0
    for suffix in ("json", "html"):
        assert main(["evaluate", f"../run-{kind}", "--report", f"out.{suffix}"]) == 0
    capsys.readouterr()
    facts = json.loads(Path("out.json").read_text())
    assert facts["images"] == 12 and "<pre>" in Path("out.html").read_text()
    assert main(["predict", "flat/58.png", "--checkpoint", f"../run-{kind}"]) == 0
    said = capsys.readouterr().out.strip().removeprefix("flat/58.png: ")
    if kind == "number":
        assert facts["r2"] > 0.7 and abs(float(said) - 232) < 70
    else:
        assert facts["labels"][0]["average_precision"] > 0.9 and said.startswith("bright ")
    assert main(["predict", "flat/58.png", "--checkpoint", f"../run-{kind}", "--unknown", "0.2"]) == 1
    assert "unknown is for classes" in capsys.readouterr().err
    (tmp_path / "moved").mkdir()
    for path in (tmp_path / "flat", tmp_path / "table.csv"):
        path.rename(tmp_path / "moved" / path.name)
    assert main(["evaluate", f"../run-{kind}"]) == 1
    assert "there is no folder flat: say with --data-dir in which folder flat is now" in capsys.readouterr().err
    assert main(["evaluate", f"../run-{kind}", "--data-dir", "moved"]) == 0

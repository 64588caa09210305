"""Several labels and numbers: read strictly from a table, learned, and scored as scikit-learn scores them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn import metrics

from vitbook.data import load_dataset, load_folder
from vitbook.engine import TrainConfig, fit
from vitbook.targets import mean_average_precision, target_loss, target_score
from vitbook.vit import create_vit


def test_losses_and_scores_are_their_formulas():
    generator = torch.Generator().manual_seed(0)
    logits, targets = torch.randn(60, 4, generator=generator), (torch.rand(60, 4, generator=generator) < 0.3).float()
    probability = logits.sigmoid()
    expected = -(targets * probability.log() + (1 - targets) * (1 - probability).log()).mean()
    assert target_loss(logits, targets, "labels") == pytest.approx(expected.item(), rel=1e-5)
    assert target_loss(logits, targets, "labels", 0.2) > target_loss(logits, targets, "labels") - 1
    assert target_score(logits, targets, "labels") == pytest.approx(((logits > 0) == targets.bool()).float().mean())
    assert mean_average_precision(logits, targets) == pytest.approx(
        metrics.average_precision_score(targets, logits, average="macro")
    )
    assert target_score(torch.zeros(50, 1), torch.ones(50, 1), "number") == 0


def table(folder: Path, kind: str = "labels", count: int = 48) -> Path:
    """Squares of which any may be red, green or blue on top; their number is how bright they are."""
    random = np.random.RandomState(0)
    rows = [f"file,{kind}"]
    for i in range(count):
        some = random.rand(3) < 0.5
        pixels = np.repeat(np.repeat((some * 200 + random.randint(40, size=3))[None, None], 8, 0), 8, 1).astype(
            np.uint8
        )
        (folder / "images").mkdir(exist_ok=True)
        Image.fromarray(pixels).save(folder / "images" / f"{i}.png")
        said = "; ".join(name for name, there in zip(("red", "green", "blue"), some, strict=True) if there)
        rows.append(f"images/{i}.png,{said if kind == 'labels' else 100 + 3.0 * pixels.mean()}")
    (folder / "table.csv").write_text("\ufeff" + "\n".join(rows) + "\n", encoding="utf-8")
    return folder / "table.csv"


@pytest.mark.parametrize("in_files", [False, True])
def test_a_table_is_a_data_set_of_labels(tmp_path, in_files):
    labels = table(tmp_path)
    data = load_dataset(tmp_path, image_size=8, labels=labels, validation=0.25, in_files=in_files, workers=0)
    assert (data.task, data.class_names) == ("labels", ("blue", "green", "red"))
    assert [len(part) for part in (data.train, data.validation, data.test)] == [28, 10, 10] or len(data.test) == 10
    bright = torch.stack([data.test.images[i] for i in range(10)])[:, :, 0, 0] > 120
    assert torch.equal(bright[:, [2, 1, 0]].float(), data.test.labels)


@pytest.mark.parametrize("kind", ["labels", "number"])
def test_they_are_learned(tmp_path, kind):
    data = load_folder(tmp_path, 8, labels=table(tmp_path, kind)).with_validation(0.25)
    torch.manual_seed(0)
    sizes = dict(dim=24, depth=1, num_heads=3, mlp_dim=24, channels=3, num_classes=len(data.class_names))
    model = create_vit(
        "vit_digits", image_size=8, patch_size=4, **{k: v for k, v in sizes.items() if k != "image_size"}
    )
    config = TrainConfig(epochs=40, batch_size=14, affine=0.0, label_smoothing=0.0, learning_rate=5e-3)
    records = fit(model, data, config, progress=False)
    assert records[-1]["validation_loss"] < 0.4 * records[0]["validation_loss"]
    assert records[-1]["validation_accuracy"] > 0.85
    if kind == "number":
        values = torch.cat([part.labels for part in (data.train, data.validation)])
        assert values.mean().abs() < 1e-5 and values.std() == pytest.approx(1, abs=1e-5) and data.scale[0] > 300


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda text: text.replace("file,labels", "file,label"),
            "must have the columns file, and labels or number, has",
        ),
        (lambda text: "", "must have the columns file, and labels or number, has none"),
        (lambda text: text + "images/3.png,red\n", r"line 50: a second row for images/3.png"),
        (lambda text: text + "./images//3.png,red\n", r"line 50: a second row for ./images//3.png"),
        (lambda text: text + "images/99.png,red\n", r"line 50: there is no file 'images/99.png' in"),
        (lambda text: text + "images/3.png\n", r"line 50: expected 2 cells, got 1"),
        (lambda text: text.replace("labels", "number", 1), "line 2: .* is no number"),
        (lambda text: text + '"images', "is no CSV file in UTF-8"),
    ],
)
def test_a_table_is_read_strictly(tmp_path, spoil, message):
    path = table(tmp_path)
    path.write_text(spoil(path.read_text(encoding="utf-8")), encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        load_folder(tmp_path, 8, labels=path)


def numbered(folder: Path, numbers: list[float]) -> Path:
    path = table(folder, count=len(numbers))
    rows = [f"images/{i}.png,{number}" for i, number in enumerate(numbers)]
    path.write_text("\n".join(["file,number", *rows]), encoding="utf-8")
    return path


@pytest.mark.parametrize("first", [1.7e9, 1e39])
def test_numbers_far_from_zero_stay_apart(tmp_path, first):
    step = first / 1e8
    data = load_folder(tmp_path, 8, labels=numbered(tmp_path, [first + step * i for i in range(10)]))
    labels, (mean, std) = torch.cat([data.train.labels, data.test.labels]), data.scale
    assert labels.dtype == torch.float32 and len(labels.unique()) == 10
    back = labels.double() * std + mean
    assert ((back - first) / step).sort(dim=0).values[:, 0].tolist() == pytest.approx(range(10), abs=1e-3)


@pytest.mark.parametrize("numbers", [[1, 2], [5] * 10, [1e300, -1e300] * 5])
def test_numbers_that_have_no_scale_are_refused(tmp_path, numbers):
    with pytest.raises(ValueError, match="table.csv: the numbers of the training images must differ, and be below"):
        load_folder(tmp_path, 8, labels=numbered(tmp_path, numbers))


def test_what_is_for_classes_alone_is_named(tmp_path):
    data = load_folder(tmp_path, 8, labels=table(tmp_path))
    model = create_vit("vit_digits", image_size=8, channels=3, num_classes=3, patch_size=4)
    for changes in (dict(mixup=0.2), dict(balance="loss"), dict(best="balanced")):
        with pytest.raises(ValueError, match="is for classes, and these images have labels"):
            fit(model, data, TrainConfig(batch_size=8, **changes), progress=False)

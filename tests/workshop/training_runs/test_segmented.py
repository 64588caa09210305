"""From a folder with masks to a mask of a new photograph, by the commands."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from vitbook.data import album, album_masks
from vitbook.pretrained import load_pretrained
from vitbook.task_heads import Segmenter
from vitbook_workshop.commands import main
from vitbook_workshop.training_runs.results import evaluate_run
from vitbook_workshop.training_runs.segmented import palette, pixel_classes
from vitbook_workshop.training_runs.trained_models import open_model

SIZES = "--init vitbook:cifar10_plain --tune probe --epochs 3 --batch-size 4 --learning-rate 0.02 --workers 0"


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A folder with data and a run in it."""
    folder = tmp_path_factory.mktemp("work")
    places, masks = album_masks(128)
    for name in ("images", "masks"):
        (folder / "data" / name).mkdir(parents=True)
    for n, (pixels, mask) in enumerate(zip(album(128).images[places], masks, strict=True)):
        Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(folder / "data" / "images" / f"{n}.jpg")
        Image.fromarray(mask.numpy().astype(np.uint8)).save(folder / "data" / "masks" / f"{n}.png")
    (folder / "data" / "classes.txt").write_text("background\n<b>subject\x1b[31m\n")
    options = f"{SIZES} --task segment --dataset {folder}/data --folder {folder}/run --no-progress"
    assert main(["train", *options.split()]) == 0
    return folder


def test_train_leaves_a_model_that_evaluate_tests_by_class(run, tmp_path, capsys):
    kept = json.loads((run / "run" / "run.json").read_text())
    assert kept["task"] == "segment" and (kept["train"]["resize"], kept["train"]["best"]) == ("random", "miou")
    for suffix in ("json", "html"):
        assert main(["evaluate", str(run / "run"), "--report", str(tmp_path / f"it.{suffix}")]) == 0
    said = capsys.readouterr().out
    facts = json.loads((tmp_path / "it.json").read_text())
    counts = np.array(facts["confusion"])
    iou = counts.diagonal() / (counts.sum(axis=0) + counts.sum(axis=1) - counts.diagonal())
    assert [row["iou"] for row in facts["masks"]] == pytest.approx(iou.tolist())
    assert facts["mean_iou"] == pytest.approx(iou.mean()) and counts.sum() == facts["images"] * 32 * 32
    assert f"mean IoU {iou.mean():.1%}" in said and f"{'background':<24}{iou[0]:>8.1%}" in said
    page = (tmp_path / "it.html").read_text()
    found = evaluate_run(run / "run")
    worst = int(found.right.argmin())
    assert page.count("<figure>") == facts["images"] and f": {found.right[worst]:.0%} right" in page
    assert found.right.mean() == pytest.approx(facts["accuracy"], abs=1e-6)  # all images have as many pixels
    assert "&lt;b&gt;subject\\x1b[31m" in page and "\x1b" not in page + said


def test_look_says_which_share_of_the_pixels_each_class_has(run, capsys):
    assert main(["look", str(run / "data")]) == 0
    said = capsys.readouterr().out
    share = album_masks(128)[1].float().mean()
    assert said.startswith("12 images with masks of 2 classes\n") and "ignored, level 255: 0.0%" in said
    assert re.search(rf"<b>subject\\x1b\[31m\s+{share:.1%}\s+12\n", said) and "\x1b" not in said
    (run / "data" / "classes.txt").write_text("background\n<b>subject\x1b[31m\nnobody\n")
    assert main(["look", str(run / "data")]) == 0 and "no mask has class nobody\n" in capsys.readouterr().out
    (run / "data" / "classes.txt").write_text("background\n<b>subject\x1b[31m\n")


def test_predict_writes_a_mask_to_compute_with_and_an_overlay(run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    wide = album(128).images[3].permute(1, 2, 0).numpy()[30:90]
    Image.fromarray(wide).save("wide.png")
    assert main(["predict", "wide.png", "--checkpoint", str(run / "run")]) == 0
    said = capsys.readouterr().out
    mask, overlay = Image.open("predicted/wide_mask.png"), np.asarray(Image.open("predicted/wide_overlay.png"))
    classes = np.asarray(mask)
    assert mask.mode == "P" and classes.shape == overlay.shape[:2] == (60, 128) and classes.max() < 2
    assert np.array_equal(np.asarray(mask.convert("RGB")), palette()[classes])
    assert f"background {(classes == 0).mean():.1%}" in said and "drawn in predicted/wide_overlay.png" in said
    inside = (classes[1:, 1:] == classes[:-1, 1:]) & (classes[1:, 1:] == classes[1:, :-1])
    mixed = (wide.astype(int) + palette()[classes]) / 2
    assert np.abs(overlay[1:, 1:] - mixed[1:, 1:])[inside].max() <= 1
    assert main(["predict", "wide.png", "--checkpoint", str(run / "run")]) == 1
    assert "predicted/wide_mask.png is there already" in capsys.readouterr().err


@pytest.mark.parametrize("turned", [False, True])
def test_squares_that_cover_an_image_are_put_together_where_they_belong(run, turned):
    """A model that reads the color of a patch finds a stripe where it is, in an image four times as long as high."""
    weights = open_model(run / "run")
    height, width = 96, 400
    levels = np.full((height, width, 3), 30, np.uint8)
    levels[:, 140:300] = 220
    levels = levels.transpose(1, 0, 2) if turned else levels

    def by_color(x):
        return torch.stack([-x.mean(dim=1), x.mean(dim=1)], dim=1)

    weights.model.forward = by_color
    found = pixel_classes(weights, Image.fromarray(np.ascontiguousarray(levels)))
    assert found.shape == levels.shape[:2] and (found == (levels[..., 0] > 100)).mean() > 0.98


def test_its_backbone_begins_another_run_and_what_it_is_not_made_for_is_a_line(run, tmp_path, capsys):
    assert isinstance(open_model(run / "run").model, Segmenter)
    backbone = load_pretrained(run / "run", num_classes=0)
    assert not isinstance(backbone.model, Segmenter) and backbone.model.config.num_classes == 0
    picture, checkpoint = str(run / "data" / "images" / "0.jpg"), str(run / "run")
    for command, code, says in (
        (f"explain {picture} --checkpoint {checkpoint}", 1, "a Segmenter has no attention to draw"),
        (f"embed {run}/data --checkpoint {checkpoint}", 1, "a Segmenter has no tokens to take features of"),
        (f"card {checkpoint} --license mit --out {tmp_path}/card", 1, "a card is of a classifier"),
        (f"predict {picture} --checkpoint {checkpoint} --unknown 0.3", 1, "unknown is for classes"),
        (f"train --dataset {run}/data --folder {tmp_path}/x", 1, "has images and masks, and no classes"),
        (f"train --task segment --teacher {checkpoint}", 2, "drop cnn, teacher and labels"),
        ("train --task segment", 1, "masks are for a folder of your own images; those of digits have classes"),
        (f"train {SIZES} --dataset {run}/data --folder {tmp_path}/x --best miou --labels x.csv", 1, "x.csv"),
    ):
        assert main(command.split()) == code, command
        assert says in capsys.readouterr().err, command


def test_it_goes_on_from_its_last_checkpoint(run, tmp_path, capsys):
    shutil.copytree(run / "run", tmp_path / "run")
    again = f"train --config {tmp_path}/run --resume --workers 1 --no-progress".split()
    assert main(again) == 0
    (tmp_path / "run" / "last.json").write_text("{}")
    assert main(again) == 1 and "must be the JSON of a checkpoint" in capsys.readouterr().err

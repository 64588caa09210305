"""Runs of two models on shares of the images: which rate they get, when they end, and that a command goes on."""

import json

import pytest
import torch
import until_flat as record

from vitbook.data import Split, digits
from vitbook.recorded import evidence

pytestmark = pytest.mark.slow

TINY = "--dataset digits --dim 32 --batch-size 64 --tune 1 --rates 0.004 0.008 0.016 --patience 1".split()


def test_a_shrunk_pixel_is_the_mean_of_its_square():
    images = torch.randint(256, (3, 2, 4, 6), dtype=torch.uint8)
    smaller = record.shrunk(Split(images, torch.arange(3)), 2).images
    means = images.double().view(3, 2, 2, 2, 3, 2).mean(dim=(3, 5))
    assert smaller.shape == (3, 2, 2, 3) and (smaller - means).abs().max() <= 0.5


def test_every_share_makes_an_epoch_as_long():
    few, count = record.share_of(digits(), 0.05, seed=1)
    assert (len(few.train), count) == (1437, 70)
    assert len(few.train.images.flatten(1).unique(dim=0)) == 70


def test_a_run_ends_where_its_curve_is_flat_and_a_repeated_command_goes_on(tmp_path, capsys):
    file = tmp_path / "flat.json"
    record.main([str(file), *TINY, "--shares", "0.05", "--models", "ViT", "--seeds", "0", "--most", "2"])
    record.main([str(file), *TINY, "--shares", "0.05", "1", "--seeds", "0", "1", "--most", "2"])
    rows = json.loads(file.read_text())["rows"]
    tuned = {(row["arm"], row["rate"]): row["validation_accuracy"] for row in rows if row["tuning"]}
    runs = {(row["arm"], row["seed"]): row for row in rows if not row["tuning"]}
    assert len(runs) == 8 and len(rows) == len(tuned) + 8 and evidence(rows).seeds == 2
    for (arm, _), one in runs.items():  # whatever the processor makes of the numbers
        tried = {rate: accuracy for (of, rate), accuracy in tuned.items() if of == arm}
        assert one["rate"] == max(tried, key=tried.get) and len(tried) >= 3
        curve = one["curve"]
        assert one["best_epoch"] == 1 + curve.index(max(curve))
        assert len(curve) == min(one["best_epoch"] + 1, 2), "one epoch of patience, or the end"
        assert one["flat"] == (one["best_epoch"] < len(curve))
    capsys.readouterr()
    before = file.read_bytes()
    record.main([str(file), *TINY, "--shares", "0.05", "1", "--seeds", "0", "1", "--most", "2"])
    assert file.read_bytes() == before and not capsys.readouterr().out

"""Which feature is compared how, and that both numbers are right where the answer is known."""

import json

import pytest
import torch
import transfer
import which_feature as record
from PIL import Image

from vitbook.data import Split, album
from vitbook.pretrained import load_pretrained

pytestmark = pytest.mark.slow


def test_a_perfect_ranking_and_one_that_puts_all_others_first():
    known = torch.arange(20).repeat_interleave(30)
    asked = torch.arange(20)
    same = (asked[:, None] == known).float()
    assert record.measured(same, known, asked) == {"accuracy": 1.0, "retrieval": 1.0, "n": 20}
    worst = record.measured(-same, known, asked)
    assert worst["accuracy"] == 0 and worst["retrieval"] < 0.05


@torch.no_grad()
def test_the_last_block_after_the_norm_is_what_the_model_reads():
    images = album().images[:3]
    weights = load_pretrained("vitbook:dino")
    found = record.features_of("dino", Split(images, torch.zeros(3, dtype=torch.int64)))
    expected = weights.model.features(weights.preprocessing.normalize(images))
    torch.testing.assert_close(found["class", "last"], expected)
    assert found["both", "half"].shape == (3, 256)
    assert (found["class", "half"] - expected).abs().max() > 0.1


def test_likeness_knows_an_image_again_however_long_its_feature_is():
    known = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))
    for compared in ("length 1", "as it is", "standardized"):
        assert record.LIKENESS[compared](known, known).argmax(dim=1).tolist() == list(range(7))
    longer = record.LIKENESS["length 1"](3 * known, known)
    torch.testing.assert_close(longer, record.LIKENESS["length 1"](known, known))


def test_every_way_is_recorded_once(tmp_path, monkeypatch):
    monkeypatch.setattr(transfer, "STORED", 2)
    (tmp_path / "val" / "images").mkdir(parents=True)
    rows = []
    for k, wnid in enumerate(transfer.CLASSES):
        (tmp_path / "train" / wnid).mkdir(parents=True)
        for i in range(2):
            Image.new("RGB", (64, 64), (12 * k, 40 * i, 99)).save(tmp_path / "train" / wnid / f"{i}.JPEG")
        Image.new("RGB", (64, 64), (12 * k, 100, 99)).save(tmp_path / "val" / "images" / f"{k}.JPEG")
        rows.append(f"{k}.JPEG\t{wnid}\t0\t0\t63\t63\n")
    (tmp_path / "val" / "val_annotations.txt").write_text("".join(rows))
    file = tmp_path / "which.json"
    for _ in range(2):
        record.main([str(file), "--tiny", str(tmp_path), "--models", "mae", "--asked", "1"])
        found = json.loads(file.read_text())
        assert len({row["arm"] for row in found}) == len(found) == 24 and {row["n"] for row in found} == {20}

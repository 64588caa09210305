"""The runs of chapter 16, as short as can be: what they write down, and that a second call goes on where one was."""

import json

import pytest
import torch
import transfer
from PIL import Image
from safetensors.torch import load_file

pytest_plugins = ["shared_fixtures"]
pytestmark = pytest.mark.slow


@pytest.fixture
def places(tmp_path, cifar10) -> list[str]:
    """Six photographs of each class to learn from and one to test on, and the arguments that name them."""
    tiny = tmp_path / "tiny"
    (tiny / "val" / "images").mkdir(parents=True)
    rows = []
    for k, wnid in enumerate(transfer.CLASSES):
        (tiny / "train" / wnid / "images").mkdir(parents=True)
        for i in range(6):
            Image.new("RGB", (64, 64), (12 * k, 40 * i, 99)).save(tiny / "train" / wnid / "images" / f"{i}.JPEG")
        Image.new("RGB", (64, 64), (12 * k, 100, 99)).save(tiny / "val" / "images" / f"{k}.JPEG")
        rows.append(f"{k}.JPEG\t{wnid}\t0\t0\t63\t63\n")
    (tiny / "val" / "val_annotations.txt").write_text("".join(rows))
    folders = ["--features", str(tmp_path / "features"), "--tiny", str(tiny), "--cifar", str(cifar10)]
    return [str(tmp_path / "transfer.json"), *folders, *"--seeds 2 --most 5 --old 4".split()]


def test_every_way_is_recorded_once(places, tmp_path, monkeypatch):
    monkeypatch.setattr(transfer, "RATES", {"lora": (1e-3, 3e-3), "scratch": (1e-3,)})
    monkeypatch.setattr(transfer, "EPOCHS", {5: 1, 50: 1})
    transfer.main(places)
    records = json.loads((tmp_path / "transfer.json").read_text())
    key = ("method", "features", "labels", "seed", "tried", "rate", "C")
    kept = [tuple(record.get(name) for name in key) for record in records]
    assert len(set(kept)) == len(kept)
    tried = {record["rate"]: record["test_accuracy"] for record in records if record.get("tried") == "lora"}
    tuned = [record for record in records if record.get("method") == "lora"]
    assert {record["rate"] for record in tuned} == {max(tried, key=tried.get)} and len(tried) >= 2
    assert [record["seed"] for record in tuned] == [0, 1]
    assert 0 <= next(r["old_accuracy"] for r in records if r.get("method") == "before") <= 1
    assert {record["trained_numbers"] for record in tuned} == {4 * 8 * (128 + 384) + 20 * 129}
    stored = load_file(tmp_path / "features")
    assert stored["train"].shape == (120, 128) and stored["test"].dtype == torch.int8
    transfer.main(places)
    assert json.loads((tmp_path / "transfer.json").read_text()) == records


def test_draws_hold_each_class_alike_and_a_small_one_is_within_a_large_one():
    labels = torch.arange(10).repeat(7)
    split = transfer.Split(torch.zeros(70, 3, 1, 1, dtype=torch.uint8), labels)
    small, large = transfer.few(split, 2, 0), transfer.few(split, 5, 0)
    assert labels[small].bincount().tolist() == [2] * 10 and set(small.tolist()) < set(large.tolist())
    assert not set(transfer.few(split, 2, 0, after=5).tolist()) & set(large.tolist())
    assert small.tolist() != transfer.few(split, 2, 1).tolist()

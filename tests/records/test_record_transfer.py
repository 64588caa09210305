"""The runs of chapter 16, as short as can be: what they write down, and that a second call goes on where one was."""

import json

import pytest
import torch
import transfer
from PIL import Image
from safetensors.torch import load_file

from vitbook.recorded import evidence

pytest_plugins = ["shared_fixtures"]
pytestmark = pytest.mark.slow


@pytest.fixture
def places(tmp_path, cifar10) -> list[str]:
    """Six photographs of each class to learn from and two to test on, and the arguments that name them."""
    tiny = tmp_path / "tiny"
    (tiny / "val" / "images").mkdir(parents=True)
    rows = []
    for k, wnid in enumerate(transfer.CLASSES):
        (tiny / "train" / wnid / "images").mkdir(parents=True)
        for i in range(7):
            Image.new("RGB", (64, 64), (12 * k, 40 * i, 99)).save(tiny / "train" / wnid / "images" / f"{i}.JPEG")
        Image.new("RGB", (64, 64), (12 * k, 100, 99)).save(tiny / "val" / "images" / f"{k}.JPEG")
        rows.append(f"{k}.JPEG\t{wnid}\t0\t0\t63\t63\n")
    (tiny / "val" / "val_annotations.txt").write_text("".join(rows))
    folders = ["--features", str(tmp_path / "features"), "--tiny", str(tiny), "--cifar", str(cifar10)]
    return [str(tmp_path / "transfer.json"), *folders, *"--seeds 0 1 --counts 5 --old 4".split()]


def test_every_way_is_recorded_once(places, tmp_path, monkeypatch):
    monkeypatch.setattr(transfer, "STORED", 6)
    monkeypatch.setattr(transfer, "HELD", 1)
    monkeypatch.setattr(transfer, "RATES", {"lora": (1e-3, 3e-3, 1e-2), "scratch": (1e-3, 3e-3, 1e-2)})
    monkeypatch.setattr(transfer, "PASSES", {5: 1})
    monkeypatch.setattr(transfer, "FROM_SCRATCH", {5: 1})
    transfer.main(places)
    document = json.loads((tmp_path / "transfer.json").read_text())
    rows = [row for row in document["rows"] if "arm" in row]
    key = ("arm", "rate", "seed", "tuning", "k", "C")
    kept = [tuple(row.get(name) for name in key) for row in rows]
    assert len(set(kept)) == len(kept)
    trained = evidence([row for row in rows if row["rate"] is not None])
    assert (trained.arms, trained.seeds, trained.n) == (2, 2, (40, 40)) and trained.rates[0] >= 3
    final = [row for row in rows if not row["tuning"]]
    for row in final:
        assert f"{int(row['right'], 16):040b}".count("1") / 40 == pytest.approx(row["test_accuracy"])
    assert {row["trained_numbers"] for row in final if row["arm"] == "lora, 5"} == {4 * 8 * (128 + 384) + 20 * 129}
    assert all(0 <= row["old_accuracy"] <= 1 for row in final if row["arm"] == "lora, 5")
    assert {"neighbors, pixels standardized, 5", "probe, augmented, 5"} <= {row["arm"] for row in final}
    stored = load_file(tmp_path / "features")
    assert stored["train"].shape == (120, 128) and stored["test"].dtype == torch.int8
    transfer.main(places)
    assert json.loads((tmp_path / "transfer.json").read_text()) == document


def test_draws_hold_each_class_alike_and_a_small_one_is_within_a_large_one():
    labels = torch.arange(10).repeat(7)
    split = transfer.Split(torch.zeros(70, 3, 1, 1, dtype=torch.uint8), labels)
    small, large = transfer.few(split, 2, 0), transfer.few(split, 5, 0)
    assert labels[small].bincount().tolist() == [2] * 10 and set(small.tolist()) < set(large.tolist())
    assert not set(transfer.few(split, 2, 0, after=5).tolist()) & set(large.tolist())
    assert small.tolist() != transfer.few(split, 2, 1).tolist()

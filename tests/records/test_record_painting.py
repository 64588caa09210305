"""Chapter 29's arms differ in what their names say, its judges know real digits, and a stopped run goes on the same."""

import json
from dataclasses import replace
from types import SimpleNamespace

import painting as record
import pytest
import torch

from vitbook.checkpoint import load_checkpoint
from vitbook.data import Split, digits
from vitbook.painting import Painter
from vitbook.vit import ViTConfig


def test_an_adaptive_painter_has_no_tokens_for_time_and_class_and_starts_without_telling_them():
    model = record.AdaptivePainter(record.SMALL)
    lengths = []
    model.backbone.encoder.blocks[0].attn.register_forward_hook(lambda module, given, out: lengths.append(out.shape[1]))
    torch.nn.init.normal_(model.to_pixels.weight)
    z, t, labels = torch.randn(2, 1, 8, 8), torch.rand(2), torch.tensor([1, 2])
    guess = model(z, t, labels)
    assert lengths == [16]
    assert torch.equal(guess, model(z, t / 2, labels - 1))
    for modulation in model.modulations:
        torch.nn.init.normal_(modulation.weight)
    guess = model(z, t, labels)
    assert not torch.equal(guess, model(z, t / 2, labels)) and not torch.equal(guess, model(z, t, labels - 1))


def test_each_arm_has_the_aim_and_the_patches_that_its_name_says():
    for arm, (aim, patch) in record.ARMS.items():
        assert arm.startswith(f"{aim}, {patch}")


@pytest.mark.slow
def test_what_is_measured_of_real_digits_and_a_command_goes_on_where_it_was_stopped(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(record, "WORK", [tmp_path])
    record.judges.cache_clear()
    data = digits()
    copies = record.measured(record.from_levels(data.train.images[:360]), data.train.labels[:360], data.test)
    assert copies["named"] > 0.98 and copies["nearest"] < 1e-3
    assert 0.4 < copies["told_apart"] < 0.6 and copies["frechet"] < 2
    noise = record.measured(torch.randn(360, 1, 8, 8), data.train.labels[:360], data.test)
    assert noise["named"] < 0.2 and noise["told_apart"] > 0.95 and noise["frechet"] > 10
    few = [str(tmp_path / "aims.json"), "aims", "--work", str(tmp_path), "--epochs", "1", "--seeds", "0"]
    few += ["--rates", "0.002", "--arms", "image, 8", record.ADAPTIVE]
    record.main(few)
    rows = json.loads((tmp_path / "aims.json").read_text())["rows"]
    assert {row["arm"] for row in rows if not row["tuning"]} == {"image, 8", record.ADAPTIVE}
    assert all(row["n"] == record.PAINTED for row in rows)
    capsys.readouterr()
    record.main(few)
    assert not capsys.readouterr().out


@pytest.mark.slow
def test_a_stopped_run_on_photographs_goes_on_as_if_nothing_had_happened(tmp_path, monkeypatch):
    tiny = ViTConfig(image_size=8, patch_size=4, channels=1, num_classes=10, dim=12, depth=1, num_heads=2, mlp_dim=12)
    monkeypatch.setattr(record, "PHOTOGRAPHS", tiny)
    monkeypatch.setattr(record, "CHUNK", 2)
    monkeypatch.setattr(record, "load_dataset", lambda *given, **more: replace(digits(), name="cifar10"))
    clock = SimpleNamespace(now=0.0)

    def process_time() -> float:
        clock.now += 30.0
        return clock.now

    monkeypatch.setattr(record.time, "process_time", process_time)

    def weights(place, *minutes: float) -> dict:
        for limit in minutes:
            where = ["--assets", str(place), "--work", str(place / "work"), "--minutes", str(limit)]
            record.main([str(place / "run.json"), "photographs", *where])
        return load_checkpoint(place / "painters" / "photographs.json")[0]

    at_once, stopped = weights(tmp_path / "one", 2), weights(tmp_path / "two", 1, 2)
    assert all(torch.equal(tensor, stopped[name]) for name, tensor in at_once.items())
    assert json.loads((tmp_path / "one" / "run.json").read_text())["step"] == 8
    Painter(tiny).load_state_dict(at_once)


def test_every_epoch_shows_each_image_at_most_once_in_an_order_of_its_own(monkeypatch):
    monkeypatch.setattr(record, "BATCH", 4)
    split = Split(torch.arange(10).view(10, 1, 1, 1).byte(), torch.arange(10))
    seen = [record.batch(split, step)[1].tolist() for step in range(4)]
    assert len(set(seen[0] + seen[1])) == 8 and seen[:2] != seen[2:]

"""The recorded comparison is on equal terms: the same steps, batches and recipe for both models and every share."""

import json

import pytest
import record_data_curve as tool
import torch

from vitbook.data import digits


def test_every_run_has_the_same_terms_and_its_own_result(tmp_path, capsys):
    file = tmp_path / "runs" / "data.json"
    tool.main([str(file), "--dataset", "digits", "--steps", "4", "--batch-size", "16", "--shares", "0.05", "1"])
    records = json.loads(file.read_text())
    assert [(r["model"], r["share"]) for r in records] == [("ViT", 0.05), ("CNN", 0.05), ("ViT", 1.0), ("CNN", 1.0)]
    assert {r["steps"] for r in records} == {4}
    assert all(r["config"] == records[0]["config"] for r in records)
    assert [r["pictures"] for r in records] == [64] * 4, "4 batches of 16 show no more"
    assert len({r["parameters"] for r in records}) == 2 and len({r["train_loss"] for r in records}) == 4
    assert all(0 <= r["test_accuracy"] <= 1 and r["seconds"] > 0 for r in records)
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_what_is_done_is_kept_where_a_later_run_fails(tmp_path, monkeypatch):
    calls = []

    def build(*sizes, **named):
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("out")
        return tool.vit(*sizes, **named)

    monkeypatch.setattr(tool, "MODELS", {"one": build, "two": build})
    with pytest.raises(RuntimeError, match="out"):
        tool.main([str(tmp_path / "a.json"), "--dataset", "digits", "--steps", "1", "--batch-size", "8"])
    assert [record["model"] for record in json.loads((tmp_path / "a.json").read_text())] == ["one"]


@pytest.mark.parametrize(("steps", "epochs", "length"), [(20, 1, 640), (90, 2, 1440), (450, 10, 1440)])
def test_epochs_and_their_length_make_exactly_the_steps(steps, epochs, length):
    config, pictures = tool.recipe(digits(), steps, 32, seed=5)
    assert (config.epochs, pictures, config.batch_size, config.seed) == (epochs, length, 32, 5)
    assert epochs * (pictures // 32) == steps


def test_steps_that_make_no_whole_epochs_are_refused():
    with pytest.raises(ValueError, match="a multiple of 2, the epochs they make, got 91"):
        tool.recipe(digits(), 91, 32, 0)


@pytest.mark.parametrize("name", tool.MODELS)
def test_models_take_the_data_sets_images(name):
    model = tool.MODELS[name]((12, 8), 3, 7)
    assert model(torch.rand(2, 3, 12, 8)).shape == (2, 7)


@pytest.mark.parametrize("share", [0.05, 0.999])
def test_the_images_of_a_share_are_counted(share):
    data = digits()
    record = next(tool.runs(data, [share], 45, 32, 0))
    assert record["pictures"] == len(data.with_share(share).train.images.flatten(1).unique(dim=0))

"""The longer run of chapter 23, as short as can be: what it writes down, that its weights load, that it goes on."""

import json

import pytest
import record_dino

from vitbook.pretrained import load_pretrained

TINY = ["--dataset", "digits", "--epochs", "1", "--batch-size", "256", "--large", "8", "--small", "4"]
TINY += ["--patch-size", "2", "--dim", "12", "--depth", "1", "--num-heads", "2", "--prototypes", "8"]


def run(place, *options):
    record_dino.main(["--assets", str(place), "--folder", str(place / "run"), *TINY, *options])
    return json.loads((place / "runs" / "dino.json").read_text())


def test_what_is_recorded_and_the_weights_load(tmp_path):
    record = run(tmp_path)
    assert (record["steps"], record["images_seen"]) == (5, 1280)
    assert {0 < share < 1 for when in ("before", "after") for share in record[when].values()} == {True}
    loaded = load_pretrained(tmp_path / "weights" / "dino.json")
    assert (loaded.model.config.num_classes, loaded.notes) == (0, ())


def test_time_ends_it_as_well(tmp_path):
    assert run(tmp_path, "--seconds", "1e-6")["steps"] == 1


def test_an_interrupted_training_goes_on_as_if_nothing_had_happened(tmp_path, monkeypatch):
    take_step = record_dino.Training.take_step

    def stop(training, progress):
        if training.step == 2:
            raise KeyboardInterrupt
        return take_step(training, progress)

    monkeypatch.setattr(record_dino, "CHECKPOINT_SECONDS", 0)
    with monkeypatch.context() as within, pytest.raises(KeyboardInterrupt):
        within.setattr(record_dino.Training, "take_step", stop)
        run(tmp_path / "in two parts")
    parts, whole = run(tmp_path / "in two parts"), run(tmp_path / "whole")
    assert (parts["curve"], parts["after"]) == (whole["curve"], whole["after"])

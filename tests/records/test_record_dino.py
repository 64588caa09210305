"""The longer run of chapter 23, as short as can be: what it writes down, that its weights load, that it goes on."""

import json

import dino
import pytest

from vitbook.pretrained import load_pretrained

pytestmark = pytest.mark.slow

TINY = ["--dataset", "digits", "--epochs", "1", "--batch-size", "256", "--large", "8", "--small", "4"]
TINY += ["--patch-size", "2", "--dim", "12", "--depth", "1", "--num-heads", "2", "--prototypes", "8"]


METHODS = pytest.mark.parametrize("method", dino.METHODS)


def run(place, method, *options):
    dino.main(["--method", method, "--assets", str(place), "--folder", str(place / "run"), *TINY, *options])
    return json.loads((place / "runs" / f"{method}.json").read_text())


@METHODS
def test_what_is_recorded_and_the_weights_load(tmp_path, method):
    record = run(tmp_path, method)
    assert (record["steps"], record["images_seen"]) == (5, 1280)
    assert {0 < share < 1 for when in ("before", "after") for share in record[when].values()} == {True}
    loaded = load_pretrained(tmp_path / "weights" / f"{method}.json")
    assert (loaded.model.config.num_classes, loaded.notes) == (0, ())
    other = run(tmp_path / "other", method, "--beside", str(tmp_path / "weights" / f"{method}.json"))
    assert other["beside"]["neighbors"] == pytest.approx(record["after"]["neighbors"], abs=0.05)  # in half precision


def test_time_ends_it_as_well(tmp_path):
    assert run(tmp_path, "dino", "--seconds", "1e-6")["steps"] == 1


@METHODS
def test_an_interrupted_training_goes_on_as_if_nothing_had_happened(tmp_path, monkeypatch, method):
    take_step = dino.Training.take_step

    def stop(training, progress):
        if training.step == 2:
            raise KeyboardInterrupt
        return take_step(training, progress)

    monkeypatch.setattr(dino, "CHECKPOINT_SECONDS", 0)
    with monkeypatch.context() as within, pytest.raises(KeyboardInterrupt):
        within.setattr(dino.Training, "take_step", stop)
        run(tmp_path / "in two parts", method)
    parts, whole = run(tmp_path / "in two parts", method), run(tmp_path / "whole", method)
    assert (parts["curve"], parts["after"]) == (whole["curve"], whole["after"])

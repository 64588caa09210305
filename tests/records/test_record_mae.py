"""The longer run of chapter 22, as short as can be: what it writes down, and that its weights load again."""

import json

import mae
import pytest
import torch
from torch.testing import assert_close

from vitbook.checkpoint import load_checkpoint
from vitbook.mae import MaskedAutoencoder
from vitbook.pretrained import load_pretrained

pytestmark = pytest.mark.slow


def test_what_is_recorded_and_the_weights_load_again(tmp_path):
    sizes = ["--patch-size", "2", "--dim", "12", "--depth", "1", "--num-heads", "2"]
    options = ["--assets", str(tmp_path), "--dataset", "digits", "--epochs", "1", *sizes, "--seeds", "0"]
    mae.main(options)
    first = json.loads((tmp_path / "runs" / "mae.json").read_text())
    mae.main([*options, "1"])
    record = json.loads((tmp_path / "runs" / "mae.json").read_text())
    (another,) = record["more_seeds"]
    assert first == record | {"more_seeds": []}, "what is there stays"
    for run in (record, another):
        assert len(run["losses"]) == 1
        assert {0 < share < 1 for when in ("before", "after") for share in run[when].values()} == {True}
    assert another["seed"] == 1 and another["losses"] != record["losses"]
    tensors, _ = load_checkpoint(tmp_path / "weights" / "mae.json")
    assert all(tensor.dtype == torch.float16 for tensor in tensors.values())
    loaded = load_pretrained(tmp_path / "weights" / "mae.json")
    assert any(note.startswith("dropped what is not the image tower's") for note in loaded.notes)
    model = MaskedAutoencoder(loaded.model, 8, 2, 2)
    model.load_state_dict(tensors)
    images = torch.randn(2, 1, 8, 8)
    assert_close(model.eval().backbone.features(images), loaded.model.features(images))

"""The longer run of chapter 22, as short as can be: what it writes down, and that its weights load again."""

import json

import record_mae
import torch

from vitbook._support.json_config import from_json
from vitbook.checkpoint import load_checkpoint
from vitbook.mae import MaskedAutoencoder
from vitbook.vit import VisionTransformer, ViTConfig


def test_what_is_recorded_and_the_weights_load_again(tmp_path):
    sizes = ["--patch-size", "2", "--dim", "12", "--depth", "1", "--num-heads", "2"]
    where = [str(tmp_path / "mae.json"), "--weights", str(tmp_path / "weights")]
    record_mae.main([*where, "--dataset", "digits", "--epochs", "1", *sizes])
    tensors, facts = load_checkpoint(tmp_path / "weights" / "mae.json")
    assert facts == json.loads((tmp_path / "mae.json").read_text())
    assert len(facts["losses"]) == 1
    assert {0 < share < 1 for when in ("before", "after") for share in facts[when].values()} == {True}
    model = MaskedAutoencoder(VisionTransformer(from_json(ViTConfig, facts["vit"])), 8, 2, 2)
    model.load_state_dict(tensors)
    assert all(tensor.dtype == torch.float16 for tensor in tensors.values())

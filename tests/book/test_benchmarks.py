"""The peers of the benchmarks do equal work, and what a run measures is written down."""

import json
import sys
from pathlib import Path

import pytest
import torch

from vitbook.vit import ViTConfig

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
import benchmark  # noqa: E402
import peers  # noqa: E402

TINY = ViTConfig(image_size=8, patch_size=4, num_classes=5, dim=24, depth=3, num_heads=3, mlp_dim=40)


@pytest.mark.peers
def test_the_peers_that_are_here_do_equal_work():
    models, missing = peers.build(TINY)
    assert set(models) | set(missing) == set(peers.PEERS)
    assert {peers.OURS, peers.OURS_MEAN, "TransformerEncoder", "transformers"} <= set(models)
    counts = {name: sum(p.numel() for p in model.parameters()) for name, model in models.items()}
    for name, model in models.items():
        assert model(torch.zeros(2, 3, 8, 8)).shape == (2, 5)
        assert (counts[name] == counts[peers.OURS]) == (not peers.PEERS[name].differs), name


def test_the_peer_of_plain_torch_is_the_same_function_of_the_same_weights():
    """A ViT of this shape, and not merely something of this size."""
    ours, theirs = (peers.PEERS[name].build(TINY).double() for name in (peers.OURS, "TransformerEncoder"))
    torch.nn.init.normal_(ours.head.weight)
    names = {
        "embedding.patch_embed.proj": "patches",
        "embedding.positions.": "",
        "embedding.": "",
        "attn.qkv.": "self_attn.in_proj_",
        "attn.proj": "self_attn.out_proj",
        "mlp.fc1": "linear1",
        "mlp.fc2": "linear2",
        "encoder.blocks": "encoder.layers",
    }
    renamed = {}
    for key, tensor in ours.state_dict().items():
        for mine, its in names.items():
            key = key.replace(mine, its)
        renamed["encoder." + key if key.startswith("norm.") else key] = tensor
    theirs.load_state_dict(renamed)
    images = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    torch.testing.assert_close(theirs(images), ours(images), rtol=1e-10, atol=1e-10)


@pytest.mark.slow
def test_what_is_measured_is_written_down(tmp_path):
    options = ["--only", "time", "--rows", "batch 1 forward", "--rounds", "1", "--turn", "0", "--folder", str(tmp_path)]
    benchmark.main(options)
    (raw,), (page,) = tmp_path.glob("*.json"), tmp_path.glob("*.md")
    rows = json.loads(raw.read_text(encoding="utf-8"))["rows"]
    assert rows and all(row["seconds"][peers.OURS][0] > 0 for row in rows)
    said = page.read_text(encoding="utf-8")
    assert all(f"| {row['name']} | 1 |" in said for row in rows) and "4,028,170" in said

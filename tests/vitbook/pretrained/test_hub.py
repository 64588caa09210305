"""Any model of the Hugging Face Hub, by its own client, beside a Hub on this machine."""

import json
import shutil
import sys

import pytest
import torch
from huggingface_hub import constants
from torch.testing import assert_close

from vitbook.pretrained import load_pretrained
from vitbook.pretrained.hub import fetch_from_hub
from vitbook_workshop.commands import main

transformers = pytest.importorskip("transformers")
pytest_plugins = ["local_hub"]
BESIDE = {"config.json", "preprocessor_config.json"}


@pytest.fixture
def theirs(hub, tmp_path):
    """A small model of transformers, which lies on the Hub as somebody/tiny."""
    torch.manual_seed(0)
    sizes = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=1, intermediate_size=96)
    config = transformers.ViTConfig(**sizes, image_size=32, patch_size=8, layer_norm_eps=1e-6)
    model, folder = transformers.ViTForImageClassification(config).eval(), tmp_path / "tiny"
    model.save_pretrained(folder)
    transformers.ViTImageProcessorPil(size={"height": 32, "width": 32}).save_pretrained(folder)
    (folder / "README.md").write_text("about it")
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    hub.models["somebody/tiny"] = folder
    return model


def test_only_what_is_needed_is_fetched_and_once(hub, theirs):
    folder = fetch_from_hub("somebody/tiny", progress=False)
    assert {path.name for path in folder.iterdir()} == {*BESIDE, "model.safetensors"}
    assert sorted(hub.files()) == sorted({*BESIDE, "model.safetensors"})
    assert fetch_from_hub("somebody/tiny@main", progress=False) == folder
    assert len(hub.files()) == 3


def test_weights_of_the_hub_compute_what_their_library_computes(theirs):
    weights, x = load_pretrained("hf:somebody/tiny", progress=False), torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        assert_close(weights.model(x), theirs(x).logits, rtol=1e-4, atol=1e-5)


def test_a_training_run_begins_with_weights_of_the_hub(theirs, tmp_path):
    """Nothing of it but the head is trained, so that what it began with is still there."""
    options = "--tune probe --epochs 1 --batch-size 512 --no-progress".split()
    assert main(["train", "--init", "hf:somebody/tiny@main", *options, "--folder", str(tmp_path / "run")]) == 0
    assert json.loads((tmp_path / "run" / "run.json").read_text())["init"] == "hf:somebody/tiny@main"
    state, trained = theirs.state_dict(), load_pretrained(tmp_path / "run").model
    assert_close(trained.norm.weight, state["vit.layernorm.weight"], rtol=0, atol=0)
    assert_close(trained.encoder.blocks[1].mlp.fc1.weight, state["vit.layers.1.mlp.fc1.weight"], rtol=0, atol=0)


def test_shards_and_pickles_are_fetched_where_nothing_better_is_there(hub, theirs, tmp_path):
    theirs.save_pretrained(hub.models["somebody/tiny"], max_shard_size="100KB")
    (hub.models["somebody/tiny"] / "model.safetensors").unlink(missing_ok=True)
    fetched = {path.name for path in fetch_from_hub("somebody/tiny", progress=False).iterdir()}
    parts = {name for name in fetched if name.startswith("model-0000")}
    assert fetched == {*BESIDE, "model.safetensors.index.json", *parts} and len(parts) > 1
    hub.models["somebody/old"] = tmp_path / "old"
    hub.models["somebody/old"].mkdir()
    shutil.copy(hub.models["somebody/tiny"] / "pytorch_model.bin", tmp_path / "old")
    assert [path.name for path in fetch_from_hub("somebody/old", progress=False).iterdir()] == ["pytorch_model.bin"]


def test_a_gated_model_takes_the_token_of_the_environment(hub, theirs, monkeypatch):
    hub.gated.add("somebody/tiny")
    with pytest.raises(PermissionError, match="somebody/tiny is gated.*needs a token in HF_TOKEN"):
        fetch_from_hub("somebody/tiny")
    monkeypatch.setenv("HF_TOKEN", "another")
    with pytest.raises(PermissionError, match="HF_TOKEN may not read it"):
        fetch_from_hub("somebody/tiny")
    monkeypatch.setenv("HF_TOKEN", "good")
    assert (fetch_from_hub("somebody/tiny") / "model.safetensors").exists()


@pytest.mark.parametrize("how", ["offline", "no network"])
def test_without_the_hub_its_cache_is_used(hub, theirs, monkeypatch, how):
    folder = fetch_from_hub("somebody/tiny", progress=False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", how == "offline")
    if how == "no network":
        hub.stop()
    reason = "HF_HUB_OFFLINE is set" if how == "offline" else "does not answer"
    assert fetch_from_hub("somebody/tiny") == folder
    with pytest.raises(
        ConnectionError, match=f"hf:somebody/else: .*{reason}.*not in the cache.*somebody/else/tree/main"
    ):
        fetch_from_hub("somebody/else")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ConnectionError, match="lacks the weights"):
        fetch_from_hub("somebody/tiny")


def test_a_cache_that_lacks_a_part_of_the_weights_says_so(hub, theirs, monkeypatch):
    theirs.save_pretrained(hub.models["somebody/tiny"], max_shard_size="100KB")
    (hub.models["somebody/tiny"] / "model.safetensors").unlink(missing_ok=True)
    folder = fetch_from_hub("somebody/tiny", progress=False)
    part = max(folder.glob("model-*"))
    part.unlink()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ConnectionError, match=f"lacks {part.name}"):
        fetch_from_hub("somebody/tiny")


@pytest.mark.parametrize("file", ["model.safetensors", "config.json"])
def test_a_file_that_was_half_written_is_fetched_again(hub, theirs, file):
    damaged = fetch_from_hub("somebody/tiny", progress=False) / file
    whole = damaged.read_bytes()
    damaged.resolve().write_bytes(whole[:100])
    assert (fetch_from_hub("somebody/tiny", progress=False) / file).read_bytes() == whole
    assert hub.files().count(file) == 2


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("somebody/nobody", "there is no such model"),
        ("somebody/tiny@nowhere", "somebody/tiny has no revision 'nowhere'"),
        ("somebody/tiny@", "expected hf:ORGANIZATION/NAME"),
        ("some body/tiny", "expected hf:ORGANIZATION/NAME"),
        ("", "expected hf:ORGANIZATION/NAME"),
    ],
)
def test_a_name_that_is_not_there_is_one_line(hub, theirs, capsys, name, message):
    assert main(["predict", "photo.jpg", "--weights", f"hf:{name}"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and f"hf:{name}" in lines[0] and message in lines[0]


def test_a_model_without_weights_names_its_files(hub, tmp_path):
    hub.models["somebody/empty"] = tmp_path / "empty"
    hub.models["somebody/empty"].mkdir()
    (tmp_path / "empty" / "tf_model.h5").write_bytes(b"")
    with pytest.raises(ValueError, match=r"holds no weights.*model.safetensors.*got tf_model.h5"):
        fetch_from_hub("somebody/empty")


def test_without_the_client_the_files_to_get_are_named(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert main(["predict", "photo.jpg", "--weights", "hf:facebook/dinov2-small"]) == 1
    line = capsys.readouterr().err
    assert line.count("\n") == 1 and 'pip install "vitbook[hub]"' in line
    assert "model.safetensors of https://huggingface.co/facebook/dinov2-small/tree/main" in line
    assert "--weights FOLDER" in line

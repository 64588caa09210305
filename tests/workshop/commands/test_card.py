"""A model's card, and files that other libraries load with the same logits."""

import json
import re
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from vitbook.finetuning import add_lora
from vitbook.pretrained import load_pretrained
from vitbook_workshop.commands import main
from vitbook_workshop.commands.card import write_card
from vitbook_workshop.training_runs.lora_files import save_adapter
from vitbook_workshop.training_runs.trained_models import open_model

pytest_plugins = ["shared_fixtures"]
SMALL = "--dim 12 --depth 2 --num-heads 3 --mlp-dim 20 --epochs 1 --affine 0 --no-progress --no-bf16".split()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A model trained for an epoch on handwritten digits."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    assert main(["train", *SMALL, "--folder", str(folder)]) == 0
    return folder


def metadata(readme: str) -> dict:
    """What stands between the lines of a card's head, which is JSON line by line."""
    head = readme.split("---\n")[1]
    return {name: json.loads(value) for name, value in (line.split(": ", 1) for line in head.splitlines())}


def test_the_card_says_how_good_on_how_many_and_under_which_license(run, tmp_path, capsys):
    assert main(["evaluate", str(run)]) == 0
    accuracy, right, count = re.search(r"accuracy ([\d.]+)% \((\d+) of (\d+)\)", capsys.readouterr().out).groups()
    assert main(["card", str(run), "--license", "cc-by-4.0", "--out", str(tmp_path / "card")]) == 0
    readme = (tmp_path / "card" / "README.md").read_text()
    facts = metadata(readme)
    assert (facts["license"], facts["library_name"]) == ("cc-by-4.0", "transformers")
    metric = facts["model-index"][0]["results"][0]["metrics"][0]
    assert metric["value"] == pytest.approx(float(accuracy) / 100, abs=1e-4) and count in metric["name"]
    assert f"{right} of {count} images (95 % interval" in readme
    low, high = map(float, re.search(r"interval ([\d.]+)% to ([\d.]+)%", readme).groups())
    assert low < float(accuracy) < high


def test_transformers_loads_the_folder_with_equal_logits(run, tmp_path):
    transformers = pytest.importorskip("transformers")
    card = write_card(run, tmp_path / "card", "mit")
    assert card.off < 1e-5 and not card.without
    theirs = transformers.ViTForImageClassification.from_pretrained(card.folder).eval()
    ours, x = open_model(run).model.cpu(), torch.randn(3, 1, 8, 8)
    with torch.no_grad():
        assert_close(theirs(pixel_values=x).logits, ours(x), rtol=0, atol=1e-5)
    assert theirs.config.id2label == {k: str(k) for k in range(10)}
    again = load_pretrained(card.folder)
    assert again.class_names == tuple(map(str, range(10)))
    assert_close(again.preprocessing.mean, open_model(run).preprocessing.mean)


def test_a_name_that_is_no_utf_8_is_written_as_json_has_it(run, tmp_path, monkeypatch):
    """As Python names a folder of a system that wrote Latin-1."""
    weights = open_model(run)
    names = ("Bl\udcfcte", "Käse", *weights.class_names[2:])
    monkeypatch.setattr("vitbook_workshop.commands.card.open_model", lambda _: replace(weights, class_names=names))
    card = write_card(run, tmp_path / "card", "mit")
    assert not card.without and load_pretrained(card.folder).class_names == names
    assert json.loads((card.folder / "timm" / "config.json").read_text(encoding="utf-8"))["label_names"] == [*names]
    assert "Käse" in (card.folder / "config.json").read_text(encoding="utf-8")


@pytest.mark.peers
def test_timm_loads_its_folder_with_equal_logits(run, tmp_path, torchvision):
    timm = pytest.importorskip("timm")
    folder = write_card(run, tmp_path / "card", "mit").folder / "timm"
    theirs, x = timm.create_model(f"local-dir:{folder}", pretrained=True).eval(), torch.randn(3, 1, 8, 8)
    with torch.no_grad():
        assert_close(theirs(x), open_model(run).model.cpu()(x), rtol=0, atol=1e-5)
    assert theirs.pretrained_cfg["mean"] == pytest.approx(open_model(run).preprocessing.mean)


def test_lora_of_a_run_is_written_alone(tmp_path):
    """On its own base it computes what the run's model computes."""
    transformers = pytest.importorskip("transformers")
    sizes = dict(hidden_size=12, num_hidden_layers=2, num_attention_heads=3, intermediate_size=20)
    config = transformers.ViTConfig(**sizes, image_size=8, patch_size=4, num_channels=1, layer_norm_eps=1e-6)
    base, run, card = (tmp_path / name for name in ("base", "run", "card"))
    transformers.ViTForImageClassification(config).save_pretrained(base)
    options = "--tune lora --lora-rank 3 --epochs 1 --batch-size 256 --no-progress".split()
    assert main(["train", "--init", str(base), *options, "--folder", str(run)]) == 0
    write_card(run, card, "mit")
    assert "PeftModel" in (card / "README.md").read_text()
    adapted, x = open_model(str(card / "adapter")).model.cpu(), torch.randn(3, 1, 8, 8)
    assert adapted.encoder.blocks[0].attn.qkv.lora_b.any()
    with torch.no_grad():
        assert_close(adapted(x), open_model(run).model.cpu()(x), rtol=0, atol=1e-5)


def test_lora_beside_published_weights_names_them(tmp_path):
    base = "vitbook:cifar10_plain"
    model, x = load_pretrained(base).model, torch.randn(2, 3, 32, 32)
    add_lora(model, 2)
    nn.init.normal_(model.encoder.blocks[0].attn.qkv.lora_b)
    save_adapter(model, tmp_path, base)
    with torch.no_grad():
        assert_close(open_model(str(tmp_path)).model.cpu()(x), model(x), rtol=1e-4, atol=1e-5)


def test_a_model_that_they_have_no_class_for_stays_a_checkpoint_of_ours(tmp_path, capsys):
    assert main(["train", *SMALL, "--pool", "mean", "--folder", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    assert main(["card", str(tmp_path / "run"), "--license", "mit", "--out", str(tmp_path / "card")]) == 0
    assert "none for transformers and timm: hf has pool 'class'" in capsys.readouterr().out
    readme, x = (tmp_path / "card" / "README.md").read_text(), torch.randn(3, 1, 8, 8)
    assert metadata(readme)["library_name"] == "vitbook" and "hf has pool 'class'" in readme
    with torch.no_grad():
        assert_close(load_pretrained(tmp_path / "card").model(x), open_model(tmp_path / "run").model.cpu()(x))


def test_a_folder_that_holds_something_is_left_alone(run, capsys):
    assert main(["card", str(run), "--license", "mit", "--out", str(run)]) == 1
    assert f"{run} is not empty" in capsys.readouterr().err

"""LoRA in peft's names: what peft computes with transformers' ViT, and what it makes of ours."""

import json

import pytest
import torch
from foreign import shaken
from safetensors.torch import load_file, save_file
from torch.testing import assert_close

from vitbook._common.files import ASSETS
from vitbook.finetuning import LoRALinear, add_lora, merge_lora
from vitbook.pretrained import load_pretrained
from vitbook.pretrained.layouts import TIMM
from vitbook.vit import VisionTransformer, ViTConfig
from vitbook_workshop.commands import main
from vitbook_workshop.training_runs.lora_files import load_adapter, save_adapter

transformers = pytest.importorskip("transformers")
pytest_plugins = ["shared_fixtures"]
pytestmark = pytest.mark.usefixtures("double")
D, SIDE, K = 24, 32, 5
OURS = ViTConfig(image_size=SIDE, patch_size=8, num_classes=K, dim=D, depth=2, num_heads=3, mlp_dim=40)


def base(**changes) -> torch.nn.Module:
    sizes = dict(hidden_size=D, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40, image_size=SIDE)
    config = transformers.ViTConfig(**sizes | changes, patch_size=8, num_labels=K, layer_norm_eps=1e-6)
    return shaken(transformers.ViTForImageClassification(config))


def ours(folder, model) -> VisionTransformer:
    model.save_pretrained(folder / "base")
    return load_pretrained(folder / "base").model


def shake(model: torch.nn.Module) -> None:
    """Give every matrix of LoRA numbers that matter."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.normal_(std=0.3)


def with_lora() -> VisionTransformer:
    model = VisionTransformer(OURS).eval()
    add_lora(model, rank=3, alpha=6.0)
    shake(model)
    torch.nn.init.normal_(model.head.weight)
    return model


@pytest.mark.peers
@pytest.mark.parametrize(
    ("targets", "saved"),
    [(["q_proj", "v_proj"], ["classifier"]), (["k_proj", "o_proj", "fc1", "fc2"], []), (["q_proj", "k_proj"], [])],
)
@pytest.mark.parametrize("rank", [3, 20])  # of 20 + 20, more than there are columns
def test_what_peft_computes(targets, saved, rank, tmp_path, torchvision):
    peft = pytest.importorskip("peft")
    theirs, x = base(), torch.randn(2, 3, SIDE, SIDE)
    model = ours(tmp_path, theirs)
    config = peft.LoraConfig(r=rank, lora_alpha=7, target_modules=targets, modules_to_save=saved)
    adapted = peft.get_peft_model(theirs, config).double().eval()
    shake(adapted)
    adapted.save_pretrained(tmp_path / "adapter")
    load_adapter(model, tmp_path / "adapter")
    with torch.no_grad():
        logits = adapted(pixel_values=x).logits
        assert_close(model(x), logits, rtol=0, atol=1e-9)
        merge_lora(model)
        assert not any(isinstance(part, LoRALinear) for part in model.modules())
        assert_close(model(x), logits, rtol=0, atol=1e-9)
        assert_close(adapted.merge_and_unload()(pixel_values=x).logits, model(x), rtol=0, atol=1e-9)


@pytest.mark.peers
def test_what_peft_makes_of_ours(tmp_path, torchvision):
    peft = pytest.importorskip("peft")
    theirs, x = base(), torch.randn(2, 3, SIDE, SIDE)
    model = ours(tmp_path, theirs)
    add_lora(model, rank=3, alpha=6.0)
    shake(model)
    torch.nn.init.normal_(model.head.weight)
    save_adapter(model, tmp_path / "adapter", base=str(tmp_path / "base"))
    adapted = peft.PeftModel.from_pretrained(theirs, tmp_path / "adapter").eval()
    with torch.no_grad():
        assert_close(adapted(pixel_values=x).logits, model(x), rtol=0, atol=1e-9)


@pytest.mark.parametrize("names", ["transformers", "timm"])
def test_an_adapter_comes_back_as_it_went(names, tmp_path):
    model, x = with_lora(), torch.randn(2, 3, SIDE, SIDE)
    save_adapter(model, tmp_path, base="a/b", **({"layout": TIMM} if names == "timm" else {}))
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["base_model_name_or_path"]) == (3, 6.0, "a/b")
    head, maps = ("head", ["qkv"]) if names == "timm" else ("classifier", ["k_proj", "q_proj", "v_proj"])
    assert (config["target_modules"], config["modules_to_save"]) == (maps, [head])
    other = VisionTransformer(OURS).eval()
    other.load_state_dict(model.state_dict(), strict=False)
    load_adapter(other, tmp_path)
    assert other.encoder.blocks[0].attn.qkv.lora_a.shape == (3, D)
    with torch.no_grad():
        assert_close(other(x), model(x), rtol=0, atol=1e-12)
    learns = {name for name, parameter in other.named_parameters() if parameter.requires_grad}
    assert all("lora_" in name or name.startswith("head.") for name in learns) and len(learns) == 6


def test_a_head_of_other_classes_takes_the_place_of_the_models(tmp_path):
    save_adapter(with_lora(), tmp_path)
    model = VisionTransformer(ViTConfig(**vars(OURS) | dict(num_classes=0)))
    load_adapter(model, tmp_path)
    assert model(torch.randn(1, 3, SIDE, SIDE)).shape == (1, K) and model.config.num_classes == K


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(depth=1), "an adapter for another model: one of 1 blocks has no vit.layers.1"),
        (dict(dim=36), r"an adapter for another model: .* maps 36 to 36 numbers, got \(3, 24\) and \(24, 3\)"),
    ],
)
def test_an_adapter_for_another_model_changes_nothing(changes, message, tmp_path):
    save_adapter(with_lora(), tmp_path)
    tensors = {n: t for n, t in load_file(tmp_path / "adapter_model.safetensors").items() if "classifier" not in n}
    save_file(tensors, tmp_path / "adapter_model.safetensors")
    model = VisionTransformer(ViTConfig(**vars(OURS) | changes))
    before = model.state_dict()
    with pytest.raises(ValueError, match=f"^{tmp_path}: {message}"):
        load_adapter(model, tmp_path)
    assert model.state_dict().keys() == before.keys() and all(p.requires_grad for p in model.parameters())


@pytest.mark.parametrize(
    "fact", [dict(peft_type="LOHA"), dict(use_dora=True), dict(use_rslora=True), dict(alpha_pattern={"q_proj": 2})]
)
def test_adapters_of_other_kinds_are_refused_by_what_they_are(fact, tmp_path):
    save_adapter(with_lora(), tmp_path)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    (tmp_path / "adapter_config.json").write_text(json.dumps(config | fact))
    with pytest.raises(ValueError, match=f"expected a plain LoRA of peft, got {next(iter(fact))}"):
        load_adapter(VisionTransformer(OURS), tmp_path)


def test_a_model_without_lora_has_nothing_to_write(tmp_path):
    with pytest.raises(ValueError, match="expected LoRA of one rank, got none"):
        save_adapter(VisionTransformer(OURS), tmp_path)


def test_the_command_takes_an_adapter_that_names_its_model(tmp_path, capsys):
    """A folder, which names the base in its own file; the base is any that `--weights` takes."""
    model, photo = with_lora(), ASSETS / "album" / "cat_yarn.jpg"
    base().save_pretrained(tmp_path / "base")
    save_adapter(model, tmp_path / "adapter", base=str(tmp_path / "base"))
    said = []
    for weights in ("base", "adapter"):
        assert main(["predict", str(photo), "--weights", str(tmp_path / weights)]) == 0
        said.append(capsys.readouterr().out)
    assert "class" in said[1] and said[0] != said[1]
    save_adapter(model, tmp_path / "adapter")
    capsys.readouterr()
    assert main(["predict", str(photo), "--weights", str(tmp_path / "adapter")]) == 1
    assert "an adapter that does not name its model" in capsys.readouterr().err

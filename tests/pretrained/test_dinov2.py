"""DINOv2 and DINOv3 in our model: the outputs that its own classes compute, from random weights, in float64."""

import pytest
import torch
from torch.testing import assert_close

from vitbook.modern import ModernViT
from vitbook.pretrained import load_pretrained
from vitbook.vit import VisionTransformer

transformers = pytest.importorskip("transformers")
SIDE, P, D, DEPTH = 28, 7, 36, 2
SIZES = dict(image_size=SIDE, patch_size=P, hidden_size=D, num_hidden_layers=DEPTH, num_attention_heads=3, mlp_ratio=2)
HUB = {  # Hugging Face's names in its own files, and those of DINOv2's code
    "embeddings.patch_embeddings.projection": "patch_embed.proj",
    "embeddings.position_embeddings": "pos_embed",
    "embeddings.": "",
    "layernorm.": "norm.",
    "encoder.layer.": "blocks.",
    "attention.output.dense": "attn.proj",
    "layer_scale1.lambda1": "ls1.gamma",
    "layer_scale2.lambda1": "ls2.gamma",
    "weights_in": "w12",
    "weights_out": "w3",
}
FILE = {".attention.q_proj": ".attention.attention.query", ".attention.k_proj": ".attention.attention.key"}
FILE |= {".attention.v_proj": ".attention.attention.value", ".attention.o_proj": ".attention.output.dense"}


def theirs(registers: int, swiglu: bool):
    """Hugging Face's model in float64, with numbers so large that every one of them matters."""
    names = ("Dinov2WithRegistersConfig", "Dinov2WithRegistersModel") if registers else ("Dinov2Config", "Dinov2Model")
    config, model = (getattr(transformers, name) for name in names)
    extra = {"num_register_tokens": registers} if registers else {}
    model = model(config(**SIZES, use_swiglu_ffn=swiglu, **extra)).double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, mean=0.1, std=0.3)
    return model


def in_names_of(state: dict, whose: str) -> dict:
    """The same weights as Hugging Face's library has them in memory, in its files, or as DINOv2's own files."""
    if whose == "memory":
        return state
    for old, new in FILE.items():
        state = {name.replace(old, new): tensor for name, tensor in state.items()}
    for i in range(DEPTH):
        mlp = f"encoder.layer.{i}.mlp."
        for part in ("weight", "bias") if f"{mlp}gate_proj.weight" in state else ():
            both = [state.pop(f"{mlp}{name}.{part}") for name in ("gate_proj", "up_proj")]
            state[f"{mlp}weights_in.{part}"] = torch.cat(both)
            state[f"{mlp}weights_out.{part}"] = state.pop(f"{mlp}down_proj.{part}")
    if whose == "file":
        return state
    for i in range(DEPTH):
        heads = f"encoder.layer.{i}.attention.attention."
        for part in ("weight", "bias"):
            three = [state.pop(f"{heads}{name}.{part}") for name in ("query", "key", "value")]
            state[f"encoder.layer.{i}.attn.qkv.{part}"] = torch.cat(three)
    for old, new in HUB.items():
        state = {name.replace(old, new): tensor for name, tensor in state.items()}
    return state


@pytest.fixture(autouse=True)
def double():
    """Our model is float64 too."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@torch.no_grad()
@pytest.mark.parametrize("whose", ["memory", "file", "hub"])
@pytest.mark.parametrize(("registers", "swiglu"), [(0, False), (3, False), (0, True), (3, True)])
def test_the_tokens_are_those_of_hugging_face(whose, registers, swiglu):
    model, x = theirs(registers, swiglu), torch.randn(2, 3, SIDE, SIDE)
    loaded = load_pretrained(in_names_of(model.state_dict(), whose), num_heads=3)
    assert loaded.layout == "dinov2"
    assert type(loaded.model) is (ModernViT if registers or swiglu else VisionTransformer)
    expected = model(x)
    assert_close(loaded.model.tokens(x), expected.last_hidden_state, rtol=0, atol=1e-6)
    assert_close(loaded.model(x), expected.pooler_output, rtol=0, atol=1e-6)
    assert any(note.startswith("LayerScale folded into the map before it: ") for note in loaded.notes)


@torch.no_grad()
@pytest.mark.parametrize("registers", [0, 3])
def test_larger_images_get_the_positions_that_theirs_have(registers):
    """In their code positions are interpolated in float32."""
    model, x = theirs(registers, swiglu=False), torch.randn(1, 3, 2 * SIDE, SIDE)
    ours = load_pretrained(model.state_dict(), num_heads=3, image_size=(2 * SIDE, SIDE)).model
    assert_close(ours.tokens(x), model(x).last_hidden_state, rtol=0, atol=1e-4)


def test_a_head_starts_on_the_features_that_mask_tokens_do_not_touch():
    model = load_pretrained(theirs(0, False).state_dict(), num_heads=3, num_classes=5).model
    assert model(torch.randn(2, 3, SIDE, SIDE)).tolist() == [[0.0] * 5] * 2


@pytest.mark.door
def test_a_scale_of_another_width_is_refused():
    state = theirs(0, False).state_dict()
    state["encoder.layer.1.layer_scale2.lambda1"] = torch.ones(7)
    with pytest.raises(ValueError, match=r"layer.1.layer_scale2.lambda1: expected shape \(36,\), got \(7,\)"):
        load_pretrained(state, num_heads=3)


def dinov3(gated: bool):
    sizes = {name: value for name, value in SIZES.items() if name != "mlp_ratio"}
    settings = dict(intermediate_size=52, num_register_tokens=2)
    settings |= dict(use_gated_mlp=True, hidden_act="silu") if gated else {}
    model = transformers.DINOv3ViTModel(transformers.DINOv3ViTConfig(**sizes, **settings)).double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, mean=0.1, std=0.3)
    return model


@torch.no_grad()
@pytest.mark.parametrize("root", ["", "model."])
@pytest.mark.parametrize("gated", [False, True])
def test_dinov3_of_any_image_size(gated, root):
    """Their angles are float32, which the softmax of large scores shows."""
    model, x = dinov3(gated), torch.randn(2, 3, 21, 35)
    state = {name.removeprefix("model."): tensor for name, tensor in model.state_dict().items()}
    state = {root + name if name.startswith("layer.") else name: tensor for name, tensor in state.items()}
    loaded = load_pretrained(state, num_heads=3, image_size=(21, 35))
    assert loaded.layout == "dinov3" and loaded.model.config.norm_eps == model.config.layer_norm_eps
    assert_close(loaded.model.tokens(x), model(x).last_hidden_state, rtol=0, atol=1e-5)
    loaded = load_pretrained(state, num_heads=3)
    assert loaded.model.config.image_size == loaded.preprocessing.image_size == (224, 224)

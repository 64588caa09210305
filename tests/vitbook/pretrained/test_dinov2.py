"""DINOv2, DINOv3 and DeiT-III in our model: what Hugging Face's classes compute, from random weights, in float64."""

import pytest
import torch
from foreign import fused, renamed, shaken
from torch.testing import assert_close

from vitbook.pretrained import Pretrained, load_pretrained, to_source

transformers = pytest.importorskip("transformers")
pytest_plugins = ["shared_fixtures"]
pytestmark = pytest.mark.usefixtures("double")
SIDE, P, D, DEPTH = 28, 7, 36, 2
SIZES = dict(image_size=SIDE, patch_size=P, hidden_size=D, num_hidden_layers=DEPTH, num_attention_heads=3, mlp_ratio=2)
# Hugging Face's names in its own files, and those of DINOv2's code
HUB = {"embeddings.patch_embeddings.projection": "patch_embed.proj", "embeddings.position_embeddings": "pos_embed"}
HUB |= {"embeddings.": "", "layernorm.": "norm.", "encoder.layer.": "blocks.", "attention.output.dense": "attn.proj"}
HUB |= {"layer_scale1.lambda1": "ls1.gamma", "layer_scale2.lambda1": "ls2.gamma"}
HUB |= {"weights_in": "w12", "weights_out": "w3"}
FILE = {".attention.q_proj": ".attention.attention.query", ".attention.k_proj": ".attention.attention.key"}
FILE |= {".attention.v_proj": ".attention.attention.value", ".attention.o_proj": ".attention.output.dense"}


def theirs(registers: int, swiglu: bool):
    """Hugging Face's model."""
    names = ("Dinov2WithRegistersConfig", "Dinov2WithRegistersModel") if registers else ("Dinov2Config", "Dinov2Model")
    config, model = (getattr(transformers, name) for name in names)
    extra = {"num_register_tokens": registers} if registers else {}
    return shaken(model(config(**SIZES, use_swiglu_ffn=swiglu, **extra)))


def in_names_of(state: dict, whose: str) -> dict:
    """The same weights as Hugging Face's library has them in memory, in its files, or as DINOv2's own files."""
    if whose == "memory":
        return state
    state = renamed(state, FILE)
    for i in range(DEPTH):
        mlp = f"encoder.layer.{i}.mlp."
        for part in ("weight", "bias") if f"{mlp}gate_proj.weight" in state else ():
            both = [state.pop(f"{mlp}{name}.{part}") for name in ("gate_proj", "up_proj")]
            state[f"{mlp}weights_in.{part}"] = torch.cat(both)
            state[f"{mlp}weights_out.{part}"] = state.pop(f"{mlp}down_proj.{part}")
    if whose == "file":
        return state
    three = tuple(f"attention.attention.{name}." for name in ("query", "key", "value"))
    return renamed(fused(state, three, "attn.qkv."), HUB)


def same_again(loaded: Pretrained, state: dict, without: tuple[str, ...] = ("mask_token",)) -> None:
    """What we write is what was read, bit for bit."""
    written, state = to_source(loaded), {name: t for name, t in state.items() if not name.endswith(without)}
    assert written.keys() == state.keys()
    assert all(torch.equal(written[name], tensor) for name, tensor in state.items())


@torch.no_grad()
@pytest.mark.parametrize("whose", ["memory", "file", "hub"])
@pytest.mark.parametrize(("registers", "swiglu"), [(0, False), (3, False), (0, True), (3, True)])
def test_the_tokens_are_those_of_hugging_face(whose, registers, swiglu):
    model, x = theirs(registers, swiglu), torch.randn(2, 3, SIDE, SIDE)
    state = in_names_of(model.state_dict(), whose)
    loaded = load_pretrained(state, num_heads=3)
    assert loaded.layout == "dinov2"
    expected = model(x)
    assert_close(loaded.model.tokens(x), expected.last_hidden_state, rtol=0, atol=1e-6)
    assert_close(loaded.model(x), expected.pooler_output, rtol=0, atol=1e-6)
    same_again(loaded, state)


def without_class_position(state: dict) -> dict:
    """As timm has DINOv2 with registers, and DeiT-III: the position of the class token is part of the token."""
    table = state["pos_embed"]
    return state | {"pos_embed": table[:, 1:], "cls_token": state["cls_token"] + table[:, :1]}


@torch.no_grad()
def test_timms_names_for_dinov2_with_registers():
    model, x = theirs(3, False), torch.randn(2, 3, SIDE, SIDE)
    state = without_class_position(in_names_of(model.state_dict(), "hub"))
    del state["mask_token"]
    state["reg_token"] = state.pop("register_tokens")
    loaded = load_pretrained(state, num_heads=3)
    assert loaded.layout == "dinov2"
    assert_close(loaded.model.tokens(x), model(x).last_hidden_state, rtol=0, atol=1e-6)
    same_again(loaded, state)


@torch.no_grad()
@pytest.mark.parametrize("names", [("ls1.gamma", "ls2.gamma"), ("gamma_1", "gamma_2")], ids=["timm", "authors"])
def test_deit3_is_dinov2_with_a_head_and_no_position_for_the_class_token(names):
    model, x, head = theirs(0, False), torch.randn(2, 3, SIDE, SIDE), torch.nn.Linear(D, 5)
    state = without_class_position(in_names_of(model.state_dict(), "hub"))
    del state["mask_token"]
    state = renamed(state, dict(zip(("ls1.gamma", "ls2.gamma"), names, strict=True)))
    state |= {f"head.{name}": tensor for name, tensor in head.state_dict().items()}
    loaded = load_pretrained(state, num_heads=3)
    assert loaded.layout == "deit3" and loaded.preprocessing.crop == 1.0
    assert_close(loaded.model(x), head(model(x).pooler_output), rtol=0, atol=1e-6)
    same_again(loaded, state)
    bare = {name: tensor for name, tensor in state.items() if not name.startswith("head")}
    assert load_pretrained(bare, num_heads=3).layout == "deit3"


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


def dinov3(gated: bool, **changes):
    sizes = {name: value for name, value in SIZES.items() if name != "mlp_ratio"}
    settings = dict(intermediate_size=52, num_register_tokens=2) | changes
    settings |= dict(use_gated_mlp=True, hidden_act="silu") if gated else {}
    return shaken(transformers.DINOv3ViTModel(transformers.DINOv3ViTConfig(**sizes | settings)))


def in_names_of_its_authors(state: dict) -> dict:
    """Queries, keys and values in one, a bias of keys that a mask takes away, and the periods of rotation."""
    state = {name.removeprefix("model."): tensor for name, tensor in state.items()}
    for i in range(DEPTH):
        state[f"layer.{i}.attention.k_proj.bias"] = torch.randn(D)
        state[f"layer.{i}.attention.qkv.bias_mask"] = torch.tensor([1.0, 0, 1]).repeat_interleave(D)
    state = fused(state, ("q_proj.", "k_proj.", "v_proj."), "qkv.")
    names = {"embeddings.register_tokens": "storage_tokens", "embeddings.patch_embeddings.": "patch_embed.proj."}
    names |= {"embeddings.": "", r"layer\.": "blocks.", ".attention.o_proj": ".attn.proj", ".attention.": ".attn."}
    names |= {"layer_scale1.lambda1": "ls1.gamma", "layer_scale2.lambda1": "ls2.gamma"}
    gated = any("gate_proj" in name for name in state)
    first, second = ("w2", "w3") if gated else ("fc1", "fc2")
    names |= {"mlp.gate_proj": "mlp.w1", "mlp.up_proj": f"mlp.{first}", "mlp.down_proj": f"mlp.{second}"}
    state = renamed(state, names)
    state["rope_embed.periods"] = (100 ** (torch.arange(3) / 3)).bfloat16()
    return state


def in_timms_names(state: dict) -> dict:
    """Without a bias of keys, and gates apart from what they let through."""
    state = in_names_of_its_authors(state)
    del state["rope_embed.periods"], state["mask_token"]
    for i in range(DEPTH):
        attn = f"blocks.{i}.attn."
        del state[f"{attn}qkv.bias_mask"]
        state[f"{attn}q_bias"], _, state[f"{attn}v_bias"] = state.pop(f"{attn}qkv.bias").chunk(3)
    names = {"storage_tokens": "reg_token", "ls1.gamma": "gamma_1", "ls2.gamma": "gamma_2"}
    names |= {"mlp.w1.": "mlp.fc1_g.", "mlp.w2.": "mlp.fc1_x.", "mlp.w3.": "mlp.fc2."}
    return renamed(state, names)


@torch.no_grad()
@pytest.mark.parametrize("names", ["", "model.", "authors", "timm"])
@pytest.mark.parametrize("gated", [False, True])
def test_dinov3_of_any_image_size(gated, names):
    """Their angles are float32, which the softmax of large scores shows."""
    model, x = dinov3(gated), torch.randn(2, 3, 21, 35)
    state = {name.removeprefix("model."): tensor for name, tensor in model.state_dict().items()}
    if names == "authors":
        state, heads = in_names_of_its_authors(state), None  # the periods tell
    elif names == "timm":
        state, heads = in_timms_names(state), 3
    else:
        state, heads = {names + name if name.startswith("layer.") else name: t for name, t in state.items()}, 3
    loaded = load_pretrained(state, num_heads=heads, image_size=(21, 35))
    assert loaded.layout == "dinov3" and loaded.model.config.norm_eps == model.config.layer_norm_eps
    assert_close(loaded.model.tokens(x), model(x).last_hidden_state, rtol=0, atol=1e-5)
    for i in range(DEPTH if names == "authors" else 0):
        bias = f"blocks.{i}.attn.qkv.bias"
        state[bias] = state[bias] * state[f"{bias}_mask"]
    same_again(loaded, state, ("mask_token", "bias_mask", "periods"))
    loaded = load_pretrained(state, num_heads=heads)
    assert loaded.model.config.image_size == loaded.preprocessing.image_size == (224, 224)


def test_heads_of_dinov3_are_64_wide_where_those_of_a_vit_are_80():
    model = dinov3(False, hidden_size=1280, num_attention_heads=20, num_hidden_layers=1)
    assert load_pretrained(model.state_dict()).model.config.num_heads == 20


def test_a_bias_of_keys_that_was_trained_has_no_place_in_dinov3():
    model = dinov3(False)
    loaded = load_pretrained(model.state_dict(), num_heads=3)
    torch.nn.init.ones_(loaded.model.encoder.blocks[1].attn.qkv.bias)
    with pytest.raises(ValueError, match="dinov3 has no place for encoder.blocks.1.attn.qkv.bias"):
        to_source(loaded)


@pytest.mark.door
def test_other_periods_than_dinov3s_are_refused():
    state = in_names_of_its_authors(dinov3(False).state_dict())
    state["rope_embed.periods"] = 10_000 ** (torch.arange(3) / 3)
    with pytest.raises(ValueError, match=r"rope_embed.periods: expected 1.0, 4.64.*, got 1.0, 21.5"):
        load_pretrained(state)

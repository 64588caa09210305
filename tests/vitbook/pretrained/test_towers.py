"""The image towers of CLIP and SigLIP in our model: what Hugging Face's classes compute, from random weights."""

import re

import pytest
import torch
from einops import rearrange
from foreign import fused, renamed, shaken
from PIL import Image
from torch import Tensor
from torch.testing import assert_close

from vitbook.data import photograph
from vitbook.pretrained import load_pretrained, to_source
from vitbook.pretrained.preprocessing import STYLES, Preprocessing

transformers = pytest.importorskip("transformers")
pytest_plugins = ["shared_fixtures"]
pytestmark = pytest.mark.usefixtures("double")
SIDE, P, D, H, HIDDEN, DEPTH, E = 28, 7, 36, 3, 52, 2, 10
SIZES = dict(image_size=SIDE, patch_size=P, hidden_size=D, num_hidden_layers=DEPTH, num_attention_heads=H)
SIZES |= dict(intermediate_size=HIDDEN)
TEXT = dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=9, vocab_size=11)
TEXT |= dict(max_position_embeddings=5)


def clip(**changes) -> torch.nn.Module:
    """CLIP's image tower with its projection."""
    return shaken(
        transformers.CLIPVisionModelWithProjection(transformers.CLIPVisionConfig(**SIZES | changes, projection_dim=E))
    )


def siglip(**changes) -> torch.nn.Module:
    return shaken(transformers.SiglipVisionModel(transformers.SiglipVisionConfig(**SIZES | changes)))


THREE = ("q_proj.", "k_proj.", "v_proj.")


def in_openais_names(state: dict[str, Tensor]) -> dict[str, Tensor]:
    names = {r"^vision_model\.(embeddings\.)?": "visual.", "patch_embedding": "conv1", "self_attn": "attn"}
    names |= {r"position_embedding\.weight": "positional_embedding", "pre_layrnorm": "ln_pre"}
    names |= {"post_layernorm": "ln_post", r"encoder\.layers": "transformer.resblocks", "layer_norm": "ln_"}
    state = renamed(fused(state, THREE, "in_proj_"), names | {"fc1": "c_fc", "fc2": "c_proj"})
    return state | {"visual.proj": state.pop("visual_projection.weight").T}


def in_timms_names(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Without what follows the last LayerNorm."""
    names = {r"^vision_model\.": "", r"^embeddings\.": "", "patch_embedding": "patch_embed.proj", "self_attn": "attn"}
    names |= {r"position_embedding\.weight": "pos_embed", "class_embedding": "cls_token", "pre_layrnorm": "norm_pre"}
    names |= {"post_layernorm": "norm", r"encoder\.layers": "blocks", "out_proj": "proj", "layer_norm": "norm"}
    state = renamed(fused(state, THREE, "qkv."), names)
    return {
        name: t[None] if name == "pos_embed" else t[None, None] if name == "cls_token" else t
        for name, t in state.items()
    }


def clip_at_timm(state: dict[str, Tensor]) -> dict[str, Tensor]:
    state = in_timms_names(state)
    return state | {"head.weight": state.pop("visual_projection.weight"), "head.bias": torch.zeros(E)}


def siglip_at_timm(state: dict[str, Tensor]) -> dict[str, Tensor]:
    state = in_timms_names(state)
    for part in ("weight", "bias"):
        q, kv = state.pop(f"head.attention.in_proj_{part}").split([D, 2 * D])
        state |= {f"head.q.{part}": q, f"head.kv.{part}": kv}
    return renamed(state, {r"^head\.": "attn_pool.", "layernorm": "norm", "probe": "latent", r"attention\.": ""})


def siglip_at_google(state: dict[str, Tensor]) -> dict:
    """In the names and axes of big_vision, under params/img, with the beginning of a text tower beside it."""
    arrays = {}
    for part in ("weight", "bias"):
        three = state.pop(f"head.attention.in_proj_{part}").chunk(3)
        state |= {f"head.attention.{letter}_proj.{part}": t for letter, t in zip("qkv", three, strict=True)}
    names = {"embeddings.patch_embedding": "embedding", "post_layernorm": "Transformer/encoder_norm"}
    names |= {r"embeddings.position_embedding\.weight": "pos_embedding", "head.probe": "MAPHead_0/probe"}
    names |= {r"encoder\.layers\.(\d+)": r"Transformer/encoderblock_\1", "head": "MAPHead_0"}
    names |= {"self_attn|attention": "MultiHeadDotProductAttention_0", r"mlp\.fc1": "MlpBlock_0/Dense_0"}
    names |= {r"mlp\.fc2": "MlpBlock_0/Dense_1", "layer_norm1|layernorm": "LayerNorm_0", "layer_norm2": "LayerNorm_1"}
    names |= {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "out", r"\.": "/"}
    names |= {r"((encoder_norm|LayerNorm_.)/)weight": r"\1scale", "weight": "kernel"}
    for name, tensor in renamed(state, names).items():
        if re.search("(query|key|value)/kernel", name):
            tensor = tensor.T.unflatten(1, (H, -1))
        elif re.search("(query|key|value)/bias", name):
            tensor = tensor.unflatten(0, (H, -1))
        elif name.endswith("out/kernel"):
            tensor = tensor.T.unflatten(0, (H, -1))
        elif name == "embedding/kernel":
            tensor = tensor.permute(2, 3, 1, 0)
        elif name.endswith("kernel"):
            tensor = tensor.T
        arrays[f"params/img/{name}"] = (tensor[None] if name == "pos_embedding" else tensor).numpy()
    return arrays | {"params/txt/Embed_0/embedding": torch.ones(3, 2).numpy(), "params/t": torch.ones(1).numpy()}


def same_again(source: dict, loaded) -> None:
    """What we write is what was read of the tower, bit for bit."""
    written = to_source(loaded)
    beside = source.keys() - written.keys()
    assert not any(name.startswith(("vision_model", "visual", "params/img", "blocks")) for name in beside)
    assert all(torch.equal(tensor, torch.as_tensor(source[name])) for name, tensor in written.items())


@torch.no_grad()
@pytest.mark.parametrize(
    ("names", "activation"),
    [(dict, None), (in_openais_names, None), (clip_at_timm, "quick_gelu"), (in_openais_names, "gelu")],
)
def test_clip(names, activation):
    theirs, x = clip(**dict(hidden_act=activation) if activation else {}), torch.randn(2, 3, SIDE, SIDE)
    state = names(dict(theirs.state_dict()))
    loaded = load_pretrained(state, num_heads=H, activation=activation)
    assert loaded.layout == "clip"
    assert_close(loaded.model(x), theirs(x).image_embeds, rtol=0, atol=1e-6)
    last = theirs.vision_model.post_layernorm(theirs(x).last_hidden_state)
    assert_close(loaded.model.tokens(x), last, rtol=0, atol=1e-6)
    assert ("OpenAI's have quick_gelu, most of LAION's gelu" in "; ".join(loaded.notes)) == (activation is None)
    same_again(state, loaded)


@torch.no_grad()
@pytest.mark.parametrize("names", [dict, siglip_at_timm, siglip_at_google])
def test_siglip(names):
    theirs, x = siglip(), torch.randn(2, 3, SIDE, SIDE)
    state = names(dict(theirs.state_dict()))
    loaded = load_pretrained(state, num_heads=None if names is siglip_at_google else H)
    assert loaded.layout == "siglip"
    assert_close(loaded.model.tokens(x), theirs(x).last_hidden_state, rtol=0, atol=1e-6)
    assert_close(loaded.model(x), theirs(x).pooler_output, rtol=0, atol=1e-6)
    same_again(state, loaded)


@pytest.mark.parametrize(("patch_size", "activation"), [(16, "gelu"), (14, "gelu"), (32, "gelu_tanh")])
def test_timms_siglip_has_the_gelu_of_its_patches(patch_size, activation):
    state = siglip_at_timm(dict(siglip(patch_size=patch_size, image_size=2 * patch_size).state_dict()))
    loaded = load_pretrained(state, num_heads=H)
    assert loaded.model.config.activation == activation
    assert any("some have gelu and some gelu_tanh" in note for note in loaded.notes)


def naflex() -> torch.nn.Module:
    """SigLIP 2's image tower of variable resolution, with positions for 4×4 patches."""
    sizes = {name: size for name, size in SIZES.items() if name != "image_size"} | dict(num_patches=16)
    return shaken(transformers.Siglip2VisionModel(transformers.Siglip2VisionConfig(**sizes)))


@torch.no_grad()
@pytest.mark.parametrize("prefix", ["", "vision_model."])
@pytest.mark.parametrize("grid", [(4, 4), (5, 3), (6, 8)])
def test_siglip2_of_variable_resolution(grid, prefix):
    """Their positions are interpolated in float32. Padding, which they hide by a mask, changes nothing."""
    theirs, (rows, columns) = naflex(), grid
    state = {prefix + name: tensor for name, tensor in theirs.state_dict().items()}
    loaded = load_pretrained(state, num_heads=H, image_size=(P * rows, P * columns))
    assert loaded.layout == "siglip" and loaded.preprocessing.interpolation == "bilinear"
    x = torch.randn(2, 3, P * rows, P * columns)
    patches = rearrange(x, "b c (h p) (w q) -> b (h w) (p q c)", p=P, q=P)
    padded = torch.cat([patches, torch.randn(2, 3, 3 * P * P)], dim=1)
    real = (torch.arange(rows * columns + 3) < rows * columns).long().expand(2, -1)
    expected = theirs(padded, real, torch.tensor([grid] * 2))
    assert_close(loaded.model.tokens(x), expected.last_hidden_state[:, : rows * columns], rtol=0, atol=1e-6)
    assert_close(loaded.model(x), expected.pooler_output, rtol=0, atol=1e-6)
    same_again(state, load_pretrained(state, num_heads=H))


@torch.no_grad()
def test_a_photograph_through_siglip2s_own_processor():
    """In the size that it chooses: at most 26 patches, in the proportions of the photograph."""
    theirs, image = naflex(), Image.fromarray(photograph("china").permute(1, 2, 0).numpy())
    processor = transformers.models.siglip2.image_processing_pil_siglip2.Siglip2ImageProcessorPil
    given = processor(patch_size=P, max_num_patches=26)(image, return_tensors="pt")
    rows, columns = given["spatial_shapes"][0].tolist()
    assert rows < columns and rows * columns < 26  # so that there is padding
    loaded = load_pretrained(theirs.state_dict(), num_heads=H, image_size=(P * rows, P * columns))
    ours = loaded.model(loaded.preprocessing(image).double())
    given["pixel_values"] = given["pixel_values"].double()
    assert_close(ours, theirs(**given).pooler_output, rtol=0, atol=1e-4)  # theirs are prepared in float32


@torch.no_grad()
@pytest.mark.parametrize("family", ["CLIP", "Siglip"])
def test_of_a_file_with_both_towers_the_images_are_read(family, tmp_path):
    config = getattr(transformers, f"{family}Config")
    parts = dict(vision_config=SIZES, text_config=TEXT) | (dict(projection_dim=E) if family == "CLIP" else {})
    theirs, x = shaken(getattr(transformers, f"{family}Model")(config(**parts))), torch.randn(2, 3, SIDE, SIDE)
    theirs.save_pretrained(tmp_path)
    loaded = load_pretrained(tmp_path / "model.safetensors", num_heads=H)
    expected = theirs.get_image_features(x)
    expected = expected if isinstance(expected, Tensor) else expected.pooler_output
    assert_close(loaded.model(x), expected, rtol=0, atol=1e-6)
    assert any(note.startswith("dropped what is not the image tower's: logit_") for note in loaded.notes)


@torch.no_grad()
def test_the_tower_alone_gives_features():
    theirs, x = clip().vision_model, torch.randn(2, 3, SIDE, SIDE)
    state = {name.removeprefix("vision_model."): t for name, t in theirs.state_dict().items()}
    loaded = load_pretrained(state, num_heads=H)
    assert_close(loaded.model(x), theirs(x).pooler_output, rtol=0, atol=1e-6)


@torch.no_grad()
@pytest.mark.slow
@pytest.mark.parametrize("make", [clip, siglip])
def test_full_width_and_the_number_of_heads(make):
    """One block of CLIP's H/14 and of SigLIP's So400m/14, whose heads are 80 and 72 wide."""
    dim = 1280 if make is clip else 1152
    sizes = dict(hidden_size=dim, num_attention_heads=16, num_hidden_layers=1, patch_size=14)
    theirs, x = make(**sizes, intermediate_size=4 * dim if make is clip else 4304), torch.randn(1, 3, SIDE, SIDE)
    for parameter in theirs.parameters():
        parameter.mul_(0.1)
    loaded, expected = load_pretrained(theirs.state_dict()), theirs(x)
    assert loaded.model.config.num_heads == 16
    assert_close(loaded.model(x), expected.image_embeds if make is clip else expected.pooler_output, rtol=0, atol=1e-6)


@torch.no_grad()
@pytest.mark.parametrize("make", [clip, siglip])
def test_larger_images_get_the_positions_that_theirs_have(make):
    theirs, x = make(), torch.randn(1, 3, 2 * SIDE, SIDE)
    ours = load_pretrained(theirs.state_dict(), num_heads=H, image_size=(2 * SIDE, SIDE)).model
    expected = theirs(x, interpolate_pos_encoding=True)
    assert_close(ours(x), expected.image_embeds if make is clip else expected.pooler_output, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("names", "rule"),
    [(dict, "bicubic"), (siglip_at_timm, "timm does it: bicubic, antialias"), (siglip_at_google, "google does it")],
)
def test_positions_of_siglip_are_interpolated_as_in_the_library_that_wrote_the_file(names, rule):
    state = names(dict(siglip().state_dict()))
    loaded = load_pretrained(state, num_heads=None if names is siglip_at_google else H, image_size=2 * SIDE)
    assert any(rule in note for note in loaded.notes)
    assert any("SigLIP 2's is bilinear" in note for note in loaded.notes)


@pytest.mark.parametrize("name", ["china", "portrait"])
@pytest.mark.parametrize("family", ["CLIP", "Siglip"])
def test_their_own_processors_agree(family, name):
    """With an odd number of columns too many, Hugging Face's cuts one column further left than ours and OpenAI's."""
    image = Image.fromarray(photograph(name).permute(1, 2, 0).numpy())
    size = {"height": 98, "width": 98}
    settings = dict(size={"shortest_edge": 98}, crop_size=size) if family == "CLIP" else dict(size=size)
    theirs = getattr(transformers, f"{family}ImageProcessorPil")(**settings)(image, return_tensors="np")
    ours = Preprocessing(image_size=(98, 98), **STYLES[family.lower()])(image)
    assert_close(ours, torch.as_tensor(theirs["pixel_values"]), rtol=0, atol=1e-6, check_dtype=False)


def test_a_bias_that_was_trained_has_no_place_in_clip():
    loaded = load_pretrained(clip().state_dict(), num_heads=H)
    torch.nn.init.ones_(loaded.model.head.bias)
    with pytest.raises(ValueError, match="clip has no place for head.bias"):
        to_source(loaded)


@pytest.mark.door
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"vision_model.embeddings.patch_embedding.weight": torch.ones(D, 3 * P * P)}, "expected 4 axes"),
        (
            {"vision_model.pre_layrnorm.weight": torch.ones(3)},
            r"pre_layrnorm.weight: expected shape \(36,\), got \(3,\)",
        ),
        ({"vision_model.encoder.layers.1.rel_pos": torch.ones(3)}, "layout clip, do not fit: unexpected .*rel_pos"),
    ],
)
def test_a_tower_that_does_not_fit_is_refused(damage, message):
    with pytest.raises(ValueError, match=message):
        load_pretrained(clip().state_dict() | damage, num_heads=H)


@pytest.mark.door
def test_other_naflex_files_are_refused_by_name():
    state = siglip_at_google(dict(siglip().state_dict()))
    state["params/img/embedding/kernel"] = state["params/img/embedding/kernel"].reshape(-1, D)
    with pytest.raises(ValueError, match=r"embedding/kernel: expected axes .*, got \(147, 36\): flattened.*NaFlex"):
        load_pretrained(state)
    with pytest.raises(ValueError, match="by its names this is a NaFlex model of timm"):
        load_pretrained({"embeds.proj.weight": torch.ones(D, 3 * P * P)})


@pytest.mark.door
def test_flattened_patches_that_are_not_square_are_refused():
    state = naflex().state_dict()
    state["embeddings.patch_embedding.weight"] = torch.ones(D, 3 * P * P + 3)
    with pytest.raises(ValueError, match=r"patch_embedding.weight: expected axes D \(p q c\).*, got \(36, 150\)"):
        load_pretrained(state, num_heads=H)

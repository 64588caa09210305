"""What a library states beside weights is taken, and logits and images are then that library's own."""

import json

import pytest
import torch
from foreign import shaken
from PIL import Image
from safetensors.torch import save_file
from torch.testing import assert_close

from vitbook.data import photograph
from vitbook.pretrained import load_pretrained
from vitbook.pretrained.config_files import Stated, read_stated
from vitbook_workshop.training_runs.trained_models import classifier

transformers = pytest.importorskip("transformers")
pytest_plugins = ["shared_fixtures"]
SIZES = dict(image_size=24, patch_size=8, hidden_size=64, num_hidden_layers=2, intermediate_size=52)
ARGUMENTS = dict(num_heads=3, img_size=[32, 64], qk_norm=False, pos_embed="learn", norm_layer=None)  # defaults but two
CHINA = Image.fromarray(photograph("china").permute(1, 2, 0).numpy())


def saved(folder, **changes) -> torch.nn.Module:
    """A small classifier of transformers, saved as it saves itself."""
    config = transformers.ViTConfig(**SIZES | dict(num_attention_heads=4) | changes)
    model = shaken(transformers.ViTForImageClassification(config))
    model.save_pretrained(folder)
    return model


@torch.no_grad()
@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("inside", ["", "model.safetensors"])
@pytest.mark.parametrize(
    "changes",
    [
        dict(num_attention_heads=2),
        dict(hidden_act="relu"),
        dict(hidden_act="gelu_new"),
        dict(hidden_act="quick_gelu"),
        dict(layer_norm_eps=0.1),
        dict(patch_size=[8, 8]),
        dict(image_size=(8, 72)),  # as many patches as a square has
        dict(num_labels=3, id2label={0: "cat", 1: "dog", 2: "moose"}),
    ],
    ids=str,
)
def test_a_config_is_taken_and_nothing_of_it_is_assumed(tmp_path, changes, inside):
    theirs = saved(tmp_path, **changes)
    ours = load_pretrained(tmp_path / inside)
    x = torch.randn(2, 3, *theirs.vit.embeddings.patch_embeddings.image_size)
    assert_close(ours.model(x), theirs(x).logits, rtol=0, atol=1e-6)
    assert ours.class_names == (tuple(changes["id2label"].values()) if "id2label" in changes else None)
    assert [note for note in ours.notes if note.endswith("the weights do not tell")] == [
        "mean, std, crop and interpolation are assumed to be those of hf: the weights do not tell"
    ]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("ViTImageProcessorPil", dict(size={"height": 24, "width": 24}, resample=3, image_mean=[0.1, 0.2, 0.3])),
        ("ViTImageProcessorPil", dict(size={"height": 24, "width": 24}, do_normalize=False)),
        ("ViTImageProcessorPil", dict(size={"height": 24, "width": 24}, rescale_factor=1 / 127.5)),
        ("CLIPImageProcessorPil", dict(size={"shortest_edge": 32}, crop_size={"height": 24, "width": 24})),
        ("DeiTImageProcessorPil", dict(size={"height": 32, "width": 32}, crop_size={"height": 24, "width": 24})),
    ],
    ids=str,
)
def test_an_image_becomes_what_their_processor_makes_of_it(tmp_path, name, settings):
    saved(tmp_path)
    processor = getattr(transformers, name)(**settings)
    processor.save_pretrained(tmp_path)
    ours = load_pretrained(tmp_path)
    expected = torch.as_tensor(processor(CHINA, return_tensors="np")["pixel_values"])
    got = ours.preprocessing(CHINA)
    shift = 1 if name.startswith("CLIP") else 0  # transformers cuts an odd margin one column further left
    same = (got - expected).abs().max() < 1e-5 or (shift and (got[..., :-1] - expected[..., 1:]).abs().max() < 1e-5)
    assert same and not any("assumed" in note for note in ours.notes)


@pytest.mark.parametrize(
    ("labels", "named"),
    [
        ({"1": "dog", "0": "cat"}, True),
        ({"1": "cat", "2": "dog"}, False),
        ({"cat": "cat", "dog": "dog"}, False),
        (["cat", "dog"], False),
        (2, False),
        ({"0": "cat"}, False),
    ],
    ids=str,
)
def test_names_that_fit_no_class_cost_the_names_and_a_note(tmp_path, labels, named):
    saved(tmp_path, num_labels=2)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"id2label": labels}))
    loaded = load_pretrained(tmp_path)
    assert loaded.class_names == (("cat", "dog") if named else None)
    assert any(note.startswith("class names: ") for note in loaded.notes) == (not named)


@pytest.mark.parametrize(
    ("changes", "task"),
    [
        (dict(num_labels=3, problem_type="multi_label_classification"), "labels"),
        (dict(num_labels=3, problem_type="single_label_classification"), "classes"),
        (dict(num_labels=1), "labels"),
        (dict(num_labels=1, problem_type="regression"), "number"),
        (dict(num_labels=2, problem_type="regression"), "number"),
    ],
    ids=str,
)
def test_an_answer_is_what_their_pipeline_makes_of_the_head(tmp_path, changes, task):
    theirs = saved(tmp_path, **changes, id2label={k: f"name {k}" for k in range(changes["num_labels"])}).float()
    processor = transformers.ViTImageProcessorPil(size={"height": 24, "width": 24})
    processor.save_pretrained(tmp_path)
    CHINA.save(tmp_path / "china.png")
    assert (load_pretrained(tmp_path).task, load_pretrained(tmp_path, num_classes=4).task) == (task, "classes")
    pipeline = transformers.pipeline("image-classification", model=theirs, image_processor=processor)
    expected = {one["label"]: one["score"] for one in pipeline(CHINA)}
    answer = dict(classifier(str(tmp_path))(tmp_path / "china.png"))
    if task != "number":
        assert answer == pytest.approx(expected, abs=1e-5)
    elif len(expected) == 1:
        assert [*map(float, answer)] == pytest.approx([*expected.values()], rel=1e-3)
    else:
        assert {*answer} == {f"{name} {number:.4g}" for name, number in expected.items()}


@pytest.mark.parametrize("file", ["preprocessor_config.json", "processor_config.json"])
def test_an_error_names_the_file_that_was_read(tmp_path, file):
    saved(tmp_path)
    processor = {"size": 24, "image_std": [0.5] * 3}
    (tmp_path / file).write_text(json.dumps({"image_processor": processor} if file.startswith("proc") else processor))
    with pytest.raises(ValueError, match=f"{file}: image_mean: expected a number for each channel, got nothing"):
        load_pretrained(tmp_path)


def test_timm_and_openclip_state_their_own_way(tmp_path):
    cfg = dict(mean=[0, 0, 0], std=[1, 1, 1], crop_pct=0.95, crop_mode="squash", interpolation="bilinear", tag="x")
    config = dict(architecture="vit_base_patch32_siglip_256", global_pool="avg", pretrained_cfg=cfg, label_names=["a"])
    (tmp_path / "config.json").write_text(json.dumps(config | {"model_args": ARGUMENTS}))
    stated = read_stated(tmp_path)
    assert stated.model == dict(activation="gelu_tanh", num_heads=3, pool="mean", image_size=(32, 64))
    assert stated.seen == dict(mean=(0,) * 3, std=(1,) * 3, crop=0.95, squeeze=True, interpolation="bilinear")
    assert (stated.class_names, stated.kernel) == (("a",), "timm")
    (tmp_path / "config.json").unlink()
    tower = dict(width=64, head_width=16, image_size=32)
    whole = dict(model_cfg=dict(quick_gelu=True, vision_cfg=tower), preprocess_cfg=cfg | {"resize_mode": "shortest"})
    (tmp_path / "open_clip_config.json").write_text(json.dumps(whole))
    quick = dict(num_heads=4, norm_eps=1e-5, activation="quick_gelu", image_size=(32, 32), dim=64)
    assert read_stated(tmp_path).model == quick
    assert read_stated(tmp_path).seen["scale_first"] and not read_stated(tmp_path).notes


def openclip(folder, preprocess: dict | None = None, **tower) -> Stated:
    """What is stated of an image tower of OpenCLIP."""
    tower = dict(width=64, layers=2, patch_size=8, image_size=32, mlp_ratio=4.0, qk_norm=False) | tower
    config = dict(model_cfg=dict(embed_dim=16, vision_cfg=tower), preprocess_cfg=dict(mean=[0] * 3, std=[1] * 3))
    config["preprocess_cfg"] |= preprocess or {}
    (folder / "open_clip_config.json").write_text(json.dumps(config))
    return read_stated(folder)


def test_the_layers_of_openclip_are_as_it_states(tmp_path):
    plain = dict(num_heads=1, norm_eps=1e-5, activation="gelu", image_size=(32, 32), dim=64, depth=2, patch_size=8)
    assert openclip(tmp_path).model == plain
    assert openclip(tmp_path, norm_kwargs={"eps": 1e-2}).model == plain | dict(norm_eps=1e-2)
    assert openclip(tmp_path, act_kwargs={"approximate": "tanh"}).model == plain | dict(activation="gelu_tanh")
    assert openclip(tmp_path, patch_size=[8, 8]).model == plain
    assert openclip(tmp_path, dict(interpolation="random")).seen["interpolation"] == "bicubic"
    assert openclip(tmp_path, dict(resize_mode="longest")).notes[0].startswith("resize_mode 'longest' is not read")


@pytest.mark.parametrize(
    ("tower", "message"),
    [
        (dict(qk_norm=True), "vision_cfg: what 'qk_norm' would change is not known here"),
        (dict(final_ln_after_pool=True, scale_fc=True), "what 'final_ln_after_pool', 'scale_fc' would change"),
        (dict(norm_kwargs={"bias": False}), "norm_kwargs {'eps': 1e-05, 'bias': False} and .*: known are eps"),
        (dict(act_kwargs={"approximate": "erf"}), "act_kwargs {'approximate': 'erf'}"),
        (dict(patch_size=[8, 16]), "patch_size: expected square patches"),
    ],
    ids=str,
)
def test_what_a_tower_of_openclip_has_beyond_ours_is_refused_by_name(tmp_path, tower, message):
    with pytest.raises(ValueError, match=f"open_clip_config.json: .*{message}"):
        openclip(tmp_path, **tower)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (dict(hidden_size=32), "config.json.*dim is 32 there, 64 in the weights"),
        (dict(patch_size=[8, 16]), r"config.json: patch_size: expected square patches, got \[8, 16\]"),
        (dict(problem_type="ranking"), "problem_type 'ranking': known are single_label_classification, multi"),
        (dict(hidden_act="mish"), "activation 'mish': known are gelu"),
        (dict(model_type="beit"), "this is 'beit' of transformers; known are vit"),
        (dict(num_attention_heads="two"), "num_attention_heads: expected a whole number above 0, got 'two'"),
        (dict(architecture="vit_base_patch16_rope_ape_224"), "a RoPE-ViT, whose rotation our model lacks"),
        (dict(architecture="resnet50"), "timm's resnet50 is no plain Vision Transformer"),
        (dict(architecture="vit_base_patch16_224", model_args={"block_fn": "x"}), "what 'block_fn' would change"),
        (dict(architecture="vit_base_patch16_224", model_args={"qk_norm": True}), "what 'qk_norm' would change"),
        (
            dict(architecture="vit_base_patch16_224", global_pool="max"),
            "global_pool 'max': known are token, avg and map",
        ),
    ],
)
def test_another_model_is_never_taken_in_silence(tmp_path, config, message):
    saved(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    with pytest.raises(ValueError, match=message):
        load_pretrained(tmp_path)


def test_a_config_of_something_else_states_nothing(tmp_path):
    assert read_stated(tmp_path) == Stated()
    (tmp_path / "config.json").write_text('{"lr": 0.1}')
    assert read_stated(tmp_path) == Stated()


@pytest.mark.parametrize("kind", ["model.safetensors", "pytorch_model.bin", "shards"])
def test_folders_hold_weights_in_several_ways(tmp_path, kind):
    model = saved(tmp_path, num_labels=2, id2label={0: "a", 1: "b"})
    state = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    (tmp_path / "model.safetensors").unlink()
    if kind == "shards":
        parts = {"one.safetensors": list(state)[:9], "two.safetensors": list(state)[9:]}
        for file, names in parts.items():
            save_file({name: state[name] for name in names}, tmp_path / file)
        index = {name: file for file, names in parts.items() for name in names}
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    else:
        save_file(state, tmp_path / kind) if "safe" in kind else torch.save(state, tmp_path / kind)
    assert load_pretrained(tmp_path).class_names == ("a", "b")


@torch.no_grad()
@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("name", ["pytorch_model.bin.index.json", "model.fp16.safetensors", "mine.pth"])
def test_a_config_is_read_beside_weights_of_any_name(tmp_path, name):
    theirs = saved(tmp_path, hidden_act="relu", num_labels=2, id2label={0: "a", 1: "b"})
    torch.save(state := theirs.state_dict(), tmp_path / "mine.pth")
    (tmp_path / "model.safetensors").rename(tmp_path / "model.fp16.safetensors")
    index = {"weight_map": dict.fromkeys(state, "mine.pth")}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    ours, x = load_pretrained(tmp_path / name), torch.randn(1, 3, 24, 24)
    assert_close(ours.model(x), theirs(x).logits, rtol=0, atol=1e-6)
    assert ours.class_names == ("a", "b") and not any("not read" in note for note in ours.notes)
    assert any(note.startswith("read beside it: config.json") for note in ours.notes) == ("index" not in name)


@pytest.mark.parametrize(
    ("stated", "why"),
    [
        (dict(hidden_size=32), "config.json: dim is 32 there, 64 in the weights"),
        (dict(num_hidden_layers=1), "config.json: depth is 1 there, 2 in the weights"),
        (dict(patch_size=4), "config.json: patch_size is 4 there, 8 in the weights"),
        (dict(model_type="dinov2", use_swiglu_ffn=True, image_size=0), "config.json: image_size: expected height"),
        (dict(architecture="vit_giant_patch14_dinov2"), "config.json: swiglu is True there, False in the weights"),
        (dict(architecture="vit_base_patch16_224", model_args={"num_heads": "x"}), "config.json: num_heads: expected"),
        (dict(model_type="bert"), "the configuration beside it, which is of no model that is known here"),
        (dict(architecture="vit_base_patch16_224", num_features=768), "dim is 768 there, 64 in the weights"),
        (dict(model_type=None), None),
    ],
    ids=str,
)
def test_a_config_of_another_model_beside_weights_is_left_and_said(tmp_path, stated, why):
    saved(tmp_path, hidden_act="relu")
    path = tmp_path / "config.json"
    config = json.loads(path.read_text()) | stated
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))
    (tmp_path / "model.safetensors").rename(tmp_path / "mine.safetensors")
    loaded = load_pretrained(tmp_path / "mine.safetensors", num_heads=4)
    said = [note for note in loaded.notes if note.startswith("not read: ")]
    assert len(said) == (why is not None) and (why or "") in "".join(said)
    assert getattr(loaded.model.config, "activation", "gelu") == "gelu"

"""Weights of every source give that source's logits; what does not fit is named, and nothing is changed."""

from dataclasses import asdict, replace

import foreign
import numpy as np
import pytest
import torch
from foreign import DEPTH, HIDDEN, SIDE, C, D, H, K, P, images
from safetensors.torch import save_file
from torch import nn
from torch.testing import assert_close

from vitbook._downloads.datasets import CIFAR10_CLASSES
from vitbook.checkpoint import load_checkpoint, save_checkpoint
from vitbook.data import album
from vitbook.distillation import DistilledVisionTransformer
from vitbook.pretrained import load_pretrained, load_weights, to_source
from vitbook.pretrained.published import ASSETS
from vitbook.vit import CONFIGS, VisionTransformer, ViTConfig

pytest_plugins = ["shared_fixtures"]
CONFIG = ViTConfig(SIDE, P, C, K, D, DEPTH, H, HIDDEN)


@torch.no_grad()
def same_logits(model: nn.Module, expected: torch.Tensor, x: torch.Tensor) -> None:
    assert_close(model(x), expected.detach(), rtol=0, atol=1e-6)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize(
    ("make", "settings", "layout", "changes"),
    [
        ("google", dict(), "google", {}),
        ("google", dict(big_vision=True), "big_vision", {}),
        ("google", dict(big_vision=True, token=False), "big_vision", dict(pool="mean", class_token=False)),
        ("torchvision", dict(), "torchvision", {}),
        ("torchvision", dict(published=True), "torchvision", {}),
    ],
)
def test_logits(make, settings, layout, changes):
    state = getattr(foreign, make)(**settings)
    weights = load_pretrained(state, num_heads=None if make == "google" else H)
    same_logits(weights.model, getattr(foreign, f"{make}_logits")(state, images()), images())
    assert (weights.layout, weights.model.config) == (layout, replace(CONFIG, **changes))


def test_what_lies_beside_the_weights_is_left_out():
    """A prefix that all names have, and an optimizer's state beside big_vision's params/."""
    state = {f"module.{name}": tensor for name, tensor in foreign.timm().items()}
    model = load_pretrained(state, num_heads=H).model
    assert torch.equal(model.embedding.cls_token, foreign.timm()["cls_token"].float())
    state = foreign.google(big_vision=True)
    weights = load_pretrained(state | {"opt/mu/cls": np.ones(3), "chrono/steps": np.array(3)})
    same_logits(weights.model.double(), foreign.google_logits(state, images()), images())


def test_only_deits_own_nest_brings_deits_preprocessing():
    state = foreign.timm()
    plain = load_pretrained(state, num_heads=H).preprocessing
    for nest in ("state_dict", "model_state_dict"):
        assert load_pretrained({nest: state, "epoch": 3}, num_heads=H).preprocessing == plain
    assert load_pretrained({"model": state}, num_heads=H).preprocessing.mean == (0.485, 0.456, 0.406) != plain.mean


def test_a_folder_that_transformers_has_saved_is_read(tmp_path):
    state = {name: tensor.float().contiguous() for name, tensor in foreign.timm().items()}
    save_file(state, tmp_path / "model.safetensors")
    assert torch.equal(load_pretrained(tmp_path, num_heads=H).model.embedding.cls_token, state["cls_token"])


SMALL = dict(image_size=SIDE, patch_size=P, hidden_size=D, num_hidden_layers=DEPTH)
SMALL |= dict(num_attention_heads=H, intermediate_size=HIDDEN, num_labels=K)


@pytest.mark.usefixtures("double")
class TestHuggingFace:
    @pytest.fixture(scope="class")
    def transformers(self):
        return pytest.importorskip("transformers")

    @staticmethod
    def theirs(transformers, distilled: bool = False, **sizes) -> nn.Module:
        """A random model, float64, with positions and class token so large that they matter."""
        name = "DeiT" if distilled else "ViT"
        config = getattr(transformers, f"{name}Config")(layer_norm_eps=1e-6, **sizes)
        cls = "DeiTForImageClassificationWithTeacher" if distilled else "ViTForImageClassification"
        model = getattr(transformers, cls)(config).double().eval()
        for parameter in model.parameters():
            parameter.data.add_(torch.randn_like(parameter), alpha=0.2 if config.hidden_size < 100 else 0.02)
        return model

    @pytest.mark.parametrize("distilled", [False, True])
    @pytest.mark.parametrize("qkv_bias", [False, True])
    def test_logits_of_the_model_in_memory_and_of_its_file(self, transformers, tmp_path, distilled, qkv_bias):
        theirs = self.theirs(transformers, distilled, qkv_bias=qkv_bias, **SMALL)
        theirs.save_pretrained(tmp_path)
        for source in (theirs.state_dict(), tmp_path / "model.safetensors"):
            weights = load_pretrained(source, num_heads=H)
            same_logits(weights.model, theirs(images()).logits, images())
            assert weights.layout == "hf"
            assert isinstance(weights.model, DistilledVisionTransformer) == distilled

    def test_its_own_interpolation_of_positions(self, transformers):
        theirs, larger = self.theirs(transformers, **SMALL), images(2, 20)
        weights = load_pretrained(theirs.state_dict(), num_heads=H, image_size=20)
        same_logits(weights.model, theirs(larger, interpolate_pos_encoding=True).logits, larger)


def test_heads_are_64_wide_by_default_and_80_in_h():
    default, given = (load_pretrained(foreign.timm(dim=192, depth=1), num_heads=h) for h in (None, 4))
    assert (default.model.config.num_heads, given.model.config.num_heads) == (3, 4)
    assert "num_heads: 3, if a head is 64 wide: the weights do not tell" in default.notes
    assert not any("num_heads" in note for note in (*given.notes, *load_pretrained(foreign.google()).notes))
    wide = load_pretrained(foreign.timm(dim=1280, depth=1))
    assert wide.model.config.num_heads == CONFIGS["vit_h_14"].num_heads == 16


@pytest.mark.parametrize("state", [foreign.timm(), VisionTransformer(CONFIG).state_dict()])
def test_other_widths_and_our_own_names_need_the_heads(state):
    assert load_pretrained(state, num_heads=H).model.config == CONFIG
    with pytest.raises(ValueError, match="20 wide, do not tell num_heads: name it with num_heads="):
        load_pretrained(state)


def test_heads_that_the_weights_tell_are_not_overruled():
    with pytest.raises(ValueError, match="num_heads: the weights have 5, got 4"):
        load_pretrained(foreign.google(), num_heads=4)


@pytest.mark.parametrize("big_vision", [False, True])
def test_positions_that_are_no_square_need_the_image_size(big_vision):
    """Ten patches: with big_vision's class token, which has no position, not nine in a square and one more."""
    name, state = "pos_embed", foreign.timm() | {"pos_embed": torch.randn(1, 1 + 2 * 5, D)}
    if big_vision:
        name, state = "pos_embedding", foreign.google(big_vision=True)
        state["params/pos_embedding"] = np.random.rand(1, 2 * 5, D)
    with pytest.raises(ValueError, match=f"{name}: expected 1 position.s. .* got 11: for another grid name its"):
        load_pretrained(state, num_heads=H)
    model = load_pretrained(state, num_heads=H, image_size=(8, 20)).model
    assert model.embedding.grid == (2, 5)
    assert model(torch.randn(1, C, 8, 20)).shape == (1, K)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize(
    ("make", "name"),
    [
        (foreign.timm, "head.bias"),
        (foreign.google, "head/bias"),
        (foreign.torchvision, "heads.head.bias"),
        (lambda: foreign.timm(distilled=True), "head_dist.bias"),
    ],
)
def test_a_head_without_bias_has_zeros(make, name):
    state = {key: value for key, value in make().items() if key != name}
    weights = load_pretrained(state, num_heads=H)
    head = weights.model.head_dist if "dist" in name else weights.model.head
    assert torch.equal(head.bias, torch.zeros(K))
    same_logits(weights.model, load_pretrained(state | {name: torch.zeros(K)}, num_heads=H).model(images()), images())
    assert to_source(weights).keys() == state.keys()
    assert load_pretrained(state, num_heads=H, num_classes=0).model.config.num_classes == 0


@pytest.mark.parametrize(
    ("patches", "asked", "said"),
    [(36, None, True), (36, (16, 36), False), (36, 24, False), (36, 32, True), (4, None, False), (9, None, False)],
)
def test_a_grid_that_nothing_states_is_called_a_square_where_it_may_be_another(patches, asked, said):
    state = foreign.timm(dim=64) | {"pos_embed": torch.randn(1, 1 + patches, 64)}
    notes = load_pretrained(state, image_size=asked).notes
    assert ("image_size: (24, 24), if the patches fill a square: the weights do not tell" in notes) == said


def ours(vit: VisionTransformer, folder, half: bool = False, **facts):
    """A checkpoint of ours in a folder."""
    tensors = {name: tensor.half() if half else tensor for name, tensor in vit.state_dict().items()}
    names = [f"thing {k}" for k in range(vit.config.num_classes)]
    facts = dict(model=asdict(vit.config), class_names=names, mean=[0.4, 0.5, 0.6], std=[0.2, 0.3, 0.1]) | facts
    return save_checkpoint(folder, "best", tensors, facts)


class TestOurs:
    @pytest.mark.parametrize("cls", [VisionTransformer, DistilledVisionTransformer])
    def test_a_checkpoint_tells_everything(self, tmp_path, cls):
        model = cls(ViTConfig((8, 12), P, C, 3, D, DEPTH, H, HIDDEN, positions="sincos_2d")).eval()
        for name, parameter in model.named_parameters():
            nn.init.normal_(parameter) if "head" in name else None
        for source in (ours(model, tmp_path), tmp_path):
            weights, x = load_pretrained(source), torch.randn(2, C, 8, 12)
            assert torch.equal(weights.model(x), model(x)) and model(x).any()
            assert weights.class_names == ("thing 0", "thing 1", "thing 2")
            assert (weights.preprocessing.mean, weights.preprocessing.std) == ((0.4, 0.5, 0.6), (0.2, 0.3, 0.1))
            assert (weights.layout, weights.notes) == ("vitbook", ())
        assert load_pretrained(tmp_path, num_classes=4).class_names is None

    def test_those_in_the_package_go_by_name_and_may_be_half(self, tmp_path, monkeypatch):
        monkeypatch.setattr("vitbook.pretrained.loading.ASSETS", tmp_path)
        model = VisionTransformer(CONFIG)
        path = ours(model, tmp_path / "weights", half=True)
        path.rename(path.with_name("small_vit.json"))
        got = load_pretrained("vitbook:small_vit").model.state_dict()
        for name, tensor in model.state_dict().items():
            assert got[name].dtype == torch.float32 and torch.equal(got[name], tensor.half().float())
        with pytest.raises(ValueError, match="unknown weights 'vitbook:smal_vit', did you mean 'vitbook:small_vit'"):
            load_pretrained("vitbook:smal_vit")

    @pytest.mark.parametrize(
        "facts",
        [{"model": None}, {"mean": [0.4, float("nan"), 0.6]}, {"mean": [0.5], "std": [0.5]}, {"class_names": ["one"]}],
    )
    def test_one_that_does_not_tell_what_is_needed_is_refused(self, tmp_path, facts):
        path = ours(VisionTransformer(CONFIG), tmp_path, **facts)
        with pytest.raises(ValueError, match=r"best\.json: .* does not tell its model, mean, std and class_names"):
            load_pretrained(path)

    @pytest.mark.parametrize(("name", "least"), [("cifar10", 17), ("cifar10_plain", 14)])
    def test_the_weights_in_the_package_are_what_their_facts_say(self, name, least):
        """A hybrid and a plain ViT, trained on CIFAR-10; the album shows what its classes name."""
        weights, photographs = load_pretrained(f"vitbook:{name}"), album()
        _, facts = load_checkpoint(ASSETS / "weights" / f"{name}.json")
        assert weights.class_names == tuple(CIFAR10_CLASSES) == tuple(facts["class_names"])
        assert 0.82 < facts["test_accuracy"] < 1
        logits = weights.model(weights.preprocessing.normalize(photographs.images))
        assert (logits.argmax(dim=1) == photographs.labels).sum() >= least  # of 22; by chance 2
        assert sum(path.stat().st_size for path in (ASSETS / "weights").glob("cifar10*")) < 6e6


@pytest.mark.parametrize("make", [foreign.google, foreign.timm, lambda: VisionTransformer(CONFIG).state_dict()])
def test_weights_go_into_a_model_that_exists(make):
    state, model = make(), VisionTransformer(CONFIG)
    expected, parameters = load_pretrained(state, num_heads=H).model.state_dict(), list(model.parameters())
    load_weights(model, state)
    assert all(torch.equal(tensor, expected[name]) for name, tensor in model.state_dict().items())
    assert all(one is other for one, other in zip(parameters, model.parameters(), strict=True))


def without(name):
    return lambda state: {key: value for key, value in state.items() if key != name}


def with_(name, value):
    return lambda state: state | {name: value}


def changed(name, change):
    return lambda state: state | {name: change(state[name])}


FITS_NO_MODEL = [
    (without("norm.bias"), "layout timm, do not fit: missing norm.bias"),
    (without("blocks.1.attn.qkv.bias"), "missing encoder.blocks.1.attn.qkv.bias"),
    (with_("fc_norm.weight", torch.ones(D)), "unexpected fc_norm.weight"),
    (with_("blocks.7.norm1.bias", torch.ones(D)), "missing blocks.2.norm1.weight.* unexpected blocks.7.norm1.bias"),
    (changed("cls_token", lambda t: t[..., 1:]), r"cls_token: expected shape \(1, 1, 20\), got \(1, 1, 19\)"),
    (changed("blocks.1.mlp.fc1.weight", lambda t: t.T), r"fc1.weight: expected shape \(33, 20\), got \(20, 33\)"),
    (changed("norm.bias", lambda t: t.long()), "norm.bias: expected torch.float32, got torch.int64"),
    (with_("cls_token", torch.full((1, 1, D), torch.nan)), "cls_token: expected finite numbers, got NaN or infinity"),
    (with_("norm.bias", torch.tensor(1.0)), r"norm.bias: expected axes that agree, got \(\)"),
    (with_("epoch", 3), "epoch.: expected a tensor of floating-point numbers .*got int"),
    (
        lambda state: {},
        "no Vision Transformer in a known layout .google, big_vision, timm, torchvision, vitbook, hf.*noth",
    ),
]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        *FITS_NO_MODEL,
        (lambda state: foreign.timm(distilled=True), "unexpected dist_token"),
        (lambda state: foreign.timm(classes=0), "missing head.bias; missing head.weight"),
        (lambda state: foreign.timm(depth=3), "unexpected blocks.2.attn.proj.bias"),
        (lambda state: foreign.google(hidden=True), "unexpected pre_logits/kernel, pre_logits/bias: before this head"),
    ],
)
def test_weights_that_do_not_fit_are_named_and_leave_the_model_as_it_was(damage, message):
    model = VisionTransformer(CONFIG)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(ValueError, match=message):
        load_weights(model, damage(foreign.timm()))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        *FITS_NO_MODEL,
        (changed("head.weight", lambda t: t[:4]), r"head.bias: expected shape \(4,\), got \(7,\)"),
        (changed("patch_embed.proj.weight", lambda t: t[..., 1:]), "proj.weight: expected square patches, got 4×3"),
        (changed("pos_embed", lambda t: t[:, :1]), r"pos_embed: expected 1 position\(s\) and .*, got 1:"),
    ],
)
def test_weights_that_do_not_fit_together_make_no_model(damage, message):
    with pytest.raises(ValueError, match=message):
        load_pretrained(damage(foreign.timm()), num_heads=H)

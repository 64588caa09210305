"""Weights of every source give that source's scores; what is asked to change changes; what does not fit is named."""

import json
from dataclasses import replace

import foreign
import numpy as np
import pytest
import torch
from foreign import DEPTH, HIDDEN, SIDE, C, D, H, K, N, P, images
from PIL import Image
from safetensors.torch import save_file
from scipy import ndimage
from torch import nn
from torch.testing import assert_close

from vitbook.checkpoint import load_checkpoint, save_checkpoint
from vitbook.data import album, normalise
from vitbook.distillation import DistilledVisionTransformer
from vitbook.downloads.datasets import CIFAR10_CLASSES
from vitbook.embedding import resize_positions
from vitbook.pretrained import (
    KERNELS,
    huggingface_config,
    load_pretrained,
    load_weights,
    to_huggingface,
    to_timm,
)
from vitbook.pretrained.published import ASSETS
from vitbook.runs import open_weights
from vitbook.vit import CONFIGS, VisionTransformer, ViTConfig

POS = "embedding.positions.pos_embed"


@pytest.fixture
def double():
    """New tensors and modules are float64."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def same_scores(model: nn.Module, expected, pictures: torch.Tensor) -> None:
    with torch.no_grad():
        assert_close(model(pictures), torch.as_tensor(expected), rtol=0, atol=1e-6)


# The same scores as the source


@pytest.mark.usefixtures("double")
class TestScores:
    @pytest.mark.parametrize(("big_vision", "token"), [(False, True), (True, True), (True, False)])
    def test_googles_arrays(self, big_vision, token):
        state = foreign.google(big_vision=big_vision, token=token)
        weights = load_pretrained(state)
        same_scores(weights.model, foreign.google_scores(state, images()), images())
        assert weights.layout == ("big_vision" if big_vision else "google")
        assert weights.model.config.num_heads == H
        assert weights.model.config.pool == ("class" if token else "mean")

    @pytest.mark.parametrize("distilled", [False, True])
    @pytest.mark.parametrize("qkv_bias", [False, True])
    def test_timm_and_deit(self, distilled, qkv_bias):
        state = foreign.timm(distilled, qkv_bias)
        weights = load_pretrained(state, num_heads=H)
        same_scores(weights.model, foreign.timm_scores(state, images()), images())
        assert isinstance(weights.model, DistilledVisionTransformer) == distilled
        assert weights.model.config.qkv_bias == qkv_bias

    @pytest.mark.parametrize("old", [False, True])
    def test_torchvision(self, old):
        state = foreign.torchvision(old)
        weights = load_pretrained(state, num_heads=H)
        same_scores(weights.model, foreign.torchvision_scores(state, images()), images())
        assert weights.layout == "torchvision"


@pytest.fixture(scope="module")
def transformers():
    return pytest.importorskip("transformers")


def their_model(transformers, distilled: bool = False, **sizes):
    """A model of Hugging Face's, random, float64; its positions and class token are so large that they matter."""
    name = "DeiT" if distilled else "ViT"
    config = getattr(transformers, f"{name}Config")(layer_norm_eps=1e-6, **sizes)
    cls = "DeiTForImageClassificationWithTeacher" if distilled else "ViTForImageClassification"
    model = getattr(transformers, cls)(config).double().eval()
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.data.add_(noise, alpha=0.2 if config.hidden_size < 100 else 0.02)
    return model


SMALL = dict(image_size=SIDE, patch_size=P, hidden_size=D, num_hidden_layers=DEPTH)
SMALL |= dict(num_attention_heads=H, intermediate_size=HIDDEN, num_labels=K)


@pytest.mark.usefixtures("double")
class TestHuggingFace:
    @pytest.mark.parametrize("distilled", [False, True])
    @pytest.mark.parametrize("qkv_bias", [False, True])
    def test_scores_of_the_model_in_memory(self, transformers, distilled, qkv_bias):
        theirs = their_model(transformers, distilled, qkv_bias=qkv_bias, **SMALL)
        weights = load_pretrained(theirs.state_dict(), num_heads=H)
        same_scores(weights.model, theirs(images()).logits.detach(), images())
        assert weights.layout == "hf"
        assert isinstance(weights.model, DistilledVisionTransformer) == distilled

    def test_scores_of_a_full_width(self, transformers):
        theirs = their_model(transformers, num_hidden_layers=2, num_labels=1000)
        weights = load_pretrained(theirs.state_dict())
        assert weights.model.config == replace(CONFIGS["vit_b_16"], depth=2)
        pictures = images(1, 224)
        same_scores(weights.model, theirs(pictures).logits.detach(), pictures)

    @pytest.mark.parametrize("distilled", [False, True])
    def test_scores_of_its_files(self, transformers, tmp_path, distilled):
        theirs = their_model(transformers, distilled, **SMALL)
        theirs.save_pretrained(tmp_path)
        weights = load_pretrained(tmp_path / "model.safetensors", num_heads=H)
        same_scores(weights.model, theirs(images()).logits.detach(), images())

    @pytest.mark.parametrize("in_memory", [False, True])
    def test_a_model_without_a_head_gives_features(self, transformers, tmp_path, in_memory):
        theirs = transformers.ViTModel(transformers.ViTConfig(layer_norm_eps=1e-6, **SMALL)).double().eval()
        theirs.save_pretrained(tmp_path)
        weights = load_pretrained(theirs.state_dict() if in_memory else tmp_path / "model.safetensors", num_heads=H)
        same_scores(weights.model, theirs(images()).last_hidden_state[:, 0].detach(), images())
        assert "dropped pooler.dense.weight" in weights.notes
        assert "dropped pooler.dense.bias" in weights.notes

    @pytest.mark.parametrize("distilled", [False, True])
    def test_it_reads_what_we_write(self, transformers, tmp_path, distilled):
        ours = load_pretrained(foreign.timm(distilled), num_heads=H).model
        save_file(to_huggingface(ours), tmp_path / "model.safetensors", metadata={"format": "pt"})
        (tmp_path / "config.json").write_text(json.dumps(huggingface_config(ours)))
        name = "DeiTForImageClassificationWithTeacher" if distilled else "ViTForImageClassification"
        theirs = getattr(transformers, name).from_pretrained(tmp_path, dtype=torch.float64).eval()
        same_scores(ours, theirs(images()).logits.detach(), images())

    def test_its_own_interpolation_of_positions(self, transformers):
        theirs = their_model(transformers, **SMALL)
        larger = images(2, 20)
        weights = load_pretrained(theirs.state_dict(), num_heads=H, image_size=20)
        same_scores(weights.model, theirs(larger, interpolate_pos_encoding=True).logits.detach(), larger)


# There and back


@pytest.mark.parametrize("distilled", [False, True])
@pytest.mark.parametrize("write", [to_timm, to_huggingface])
def test_what_is_written_and_read_again_is_the_same(distilled, write):
    state = foreign.timm(distilled)
    model = load_pretrained(state, num_heads=H).model
    again = load_pretrained(write(model), num_heads=H).model
    assert again.config == model.config
    for name, tensor in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor)
    if write is to_timm:
        assert list(to_timm(model)) and to_timm(model).keys() == state.keys()
        assert all(torch.equal(to_timm(model)[name], tensor.float()) for name, tensor in state.items())


def test_what_is_written_is_a_copy():
    model = load_pretrained(foreign.timm(), num_heads=H).model
    written = to_timm(model)
    written["cls_token"].zero_()
    assert model.embedding.cls_token.any()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(pool="mean"), "timm has pool 'class' and positions 'learned', got 'mean' and 'learned'"),
        (dict(positions="learned_2d"), "got 'class' and 'learned_2d'"),
    ],
)
def test_what_others_have_no_names_for_is_not_written(changes, message):
    config = ViTConfig(SIDE, P, C, K, D, DEPTH, H, HIDDEN)
    with pytest.raises(ValueError, match=message):
        to_timm(VisionTransformer(replace(config, **changes)))


# Changes on request


class TestPositions:
    """Interpolation against the original formulas, written down anew. (rows, columns, D) → (rows', columns', D)."""

    @staticmethod
    def reference(name: str, table: np.ndarray, grid: tuple[int, int]) -> np.ndarray:
        if name == "google":
            zoom = (grid[0] / table.shape[0], grid[1] / table.shape[1], 1)
            return ndimage.zoom(table, zoom, order=1)
        if name == "timm":  # Pillow's resampling, in which a smaller picture is a mean of the larger
            planes = [Image.fromarray(plane.astype(np.float32)) for plane in table.transpose(2, 0, 1)]
            resized = [np.asarray(plane.resize(grid[::-1], Image.Resampling.BICUBIC)) for plane in planes]
            return np.stack(resized, axis=-1)
        aligned = name == "torchvision"
        kernel = linear if name == "timm_npz" else cubic
        down, right = (weights_of(kernel, *pair, aligned) for pair in zip(table.shape, grid, strict=False))
        return np.einsum("rR,sS,RSd->rsd", down, right, table)

    @pytest.mark.parametrize("grid", [(5, 5), (2, 2), (4, 7)])
    @pytest.mark.parametrize("name", KERNELS)
    def test_each_kernel(self, name, grid):
        state = foreign.timm()
        size = (grid[0] * P, grid[1] * P)
        positions = load_pretrained(state, num_heads=H, image_size=size, resize=name).model.state_dict()[POS]
        before = state["pos_embed"][0]
        assert_close(positions[0, :1], before[:1].float(), rtol=0, atol=0)
        expected = self.reference(name, before[1:].reshape(3, 3, D).numpy(), grid).reshape(-1, D)
        assert_close(positions[0, 1:].numpy(), expected.astype(np.float32), rtol=0, atol=2e-6)

    @pytest.mark.parametrize(
        ("make", "own"),
        [
            (foreign.google, "google"),
            (lambda: foreign.google(big_vision=True), "google"),
            (foreign.timm, "timm"),
            (lambda: foreign.timm(distilled=True), "deit"),
            (lambda: {"model": foreign.timm()}, "deit"),
            (foreign.torchvision, "torchvision"),
        ],
    )
    def test_a_source_has_its_own_kernel(self, make, own):
        heads = None if own == "google" else H
        default = load_pretrained(make(), num_heads=heads, image_size=20).model.state_dict()[POS]
        kernels = {
            name: load_pretrained(make(), num_heads=heads, image_size=20, resize=name).model.state_dict()[POS]
            for name in KERNELS
        }
        equal = {name for name, table in kernels.items() if torch.equal(table, default)}
        assert equal == ({"deit", "hf"} if own == "deit" else {own})

    @pytest.mark.parametrize(
        ("resize", "told"),
        [
            (None, "torchvision does it: bicubic, align_corners"),
            ("google", "google does it: bilinear, align_corners"),
            ("timm", "timm does it: bicubic, antialias"),
            ("timm_npz", "timm_npz does it: bilinear"),
            ("deit", "deit does it: bicubic"),
        ],
    )
    def test_the_notes_name_the_kernel_that_was_used(self, resize, told):
        weights = load_pretrained(foreign.torchvision(), num_heads=H, image_size=20, resize=resize)
        assert weights.notes[-1] == f"positions: (12, 12) pixels resized to (20, 20), as {told}"

    def test_other_positions_than_learned_ones_follow(self, tmp_path):
        model = VisionTransformer(ViTConfig(SIDE, P, C, K, D, DEPTH, H, HIDDEN, positions="learned_2d"))
        larger = load_pretrained(ours(model, tmp_path), image_size=(20, 8))
        assert larger.model(torch.randn(2, C, 20, 8)).shape == (2, K)
        assert larger.notes[-1] == "positions: (12, 12) pixels resized to (20, 8)"


def linear(x: np.ndarray) -> np.ndarray:
    return np.clip(1 - np.abs(x), 0, None)


def cubic(x: np.ndarray, a: float = -0.75) -> np.ndarray:
    """Keys' cubic convolution kernel."""
    x = np.abs(x)
    near, far = (a + 2) * x**3 - (a + 3) * x**2 + 1, a * (x**3 - 5 * x**2 + 8 * x - 4)
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


def weights_of(kernel, old: int, new: int, aligned: bool) -> np.ndarray:
    """How much of each of `old` places each of `new` places gets; what lies outside repeats the border. (new, old)"""
    places = np.arange(new) * (old - 1) / max(new - 1, 1) if aligned else (np.arange(new) + 0.5) * old / new - 0.5
    table = np.zeros((new, old))
    for k, place in enumerate(places):
        for neighbour in range(int(np.floor(place)) - 1, int(np.floor(place)) + 3):
            table[k, np.clip(neighbour, 0, old - 1)] += kernel(np.array(place - neighbour))
    return table


def ours(model: nn.Module, folder, half: bool = False, **facts):
    """A checkpoint of ours in a folder."""
    from dataclasses import asdict

    tensors = {name: tensor.half() if half else tensor for name, tensor in model.state_dict().items()}
    names = [f"thing {k}" for k in range(model.config.num_classes)]
    facts = dict(model=asdict(model.config), class_names=names, mean=[0.4, 0.5, 0.6], std=[0.2, 0.3, 0.1]) | facts
    return save_checkpoint(folder, "best", tensors, facts)


class TestHeads:
    def test_another_number_of_classes_makes_a_new_head_of_zeros(self):
        old, new = (load_pretrained(foreign.google(), num_classes=k) for k in (None, 4))
        assert not new.model.head.weight.any() and not new.model.head.bias.any()
        assert new.model(images().float()).shape == (2, 4)
        assert new.model.config.num_classes == 4
        pictures = images().float()
        assert torch.equal(new.model.features(pictures), old.model.features(pictures))
        assert new.notes[-1] == "head: 7 classes dropped, 4 made new, all zeros"

    def test_the_same_number_keeps_the_head(self):
        assert load_pretrained(foreign.google(), num_classes=K).model.head.weight.any()

    def test_none_gives_features(self):
        weights = load_pretrained(foreign.google(), num_classes=0)
        state = {name: array for name, array in foreign.google().items() if not name.startswith("head")}
        expected = torch.as_tensor(foreign.google_scores(state, images())).float()
        assert_close(weights.model(images().float()).detach(), expected, rtol=1e-5, atol=1e-5)

    def test_both_heads_of_a_distilled_model_are_made_new(self):
        model = load_pretrained(foreign.timm(distilled=True), num_heads=H, num_classes=4).model
        assert not model.head.weight.any() and not model.head_dist.weight.any()
        assert model.both_heads(images().float())[1].shape == (2, 4)

    @pytest.mark.parametrize("num_classes", [0, 3])
    def test_a_hidden_layer_before_the_head_goes_with_it(self, num_classes):
        state = foreign.google(hidden=True)
        weights = load_pretrained(state, num_classes=num_classes)
        assert {"dropped pre_logits/kernel", "dropped pre_logits/bias"} <= set(weights.notes)
        plain = {name: array for name, array in state.items() if "pre_logits" not in name}
        pictures = images().float()
        expected = load_pretrained(plain, num_classes=0).model.features(pictures)
        assert torch.equal(weights.model.features(pictures), expected)

    @pytest.mark.parametrize("num_classes", [None, K])
    def test_a_hidden_layer_before_a_head_that_is_kept_is_refused(self, num_classes):
        with pytest.raises(ValueError, match="pre_logits/kernel: .*a hidden layer, which our model has not"):
            load_pretrained(foreign.google(hidden=True), num_classes=num_classes)

    def test_a_hidden_layer_does_not_go_into_a_model_with_a_head(self):
        model = load_pretrained(foreign.google()).model
        with pytest.raises(ValueError, match="left over, a hidden layer before the head: pre_logits/kernel"):
            load_weights(model, foreign.google(hidden=True))


class TestColours:
    def test_grey_pictures_see_the_sum_of_the_colours(self):
        colour, grey = (load_pretrained(foreign.google(), channels=channels) for channels in (None, 1))
        pictures = images(channels=1).float()
        assert_close(grey.model(pictures), colour.model(pictures.expand(-1, 3, -1, -1)), rtol=1e-5, atol=1e-5)
        assert grey.preprocessing.mean == (0.5,)

    def test_coloured_pictures_share_out_the_grey(self, tmp_path):
        model = VisionTransformer(ViTConfig(SIDE, P, 1, K, D, DEPTH, H, HIDDEN))
        path = ours(model, tmp_path, mean=[0.3], std=[0.2])
        coloured = load_pretrained(path, channels=3)
        pictures = images(channels=1).float()
        expected = load_pretrained(path).model(pictures)
        assert_close(coloured.model(pictures.expand(-1, 3, -1, -1)), expected, rtol=1e-5, atol=1e-5)
        assert coloured.preprocessing.mean == (0.3, 0.3, 0.3)

    def test_any_other_number_is_refused(self):
        with pytest.raises(ValueError, match="channels: the weights have 3, which can become 1 or 3, got 2"):
            load_pretrained(foreign.google(), channels=2)


def test_all_changes_go_together_and_are_told():
    weights = load_pretrained(foreign.google(), num_classes=4, image_size=(8, 20), channels=1)
    assert weights.model(torch.randn(2, 1, 8, 20)).shape == (2, 4)
    assert weights.model.config == ViTConfig((8, 20), P, 1, 4, D, DEPTH, H, HIDDEN)
    assert weights.preprocessing.image_size == (8, 20)
    assert weights.notes[-3:] == (
        "head: 7 classes dropped, 4 made new, all zeros",
        "patch_embed: kernels of 3 channels made into 1",
        "positions: (12, 12) pixels resized to (8, 20), as google does it: bilinear, align_corners",
    )
    assert not weights.model.training


# The shape


def test_heads_are_64_wide_unless_told_and_80_in_h():
    guessed, told = (load_pretrained(foreign.timm(dim=192, depth=1), num_heads=h) for h in (None, 4))
    assert (guessed.model.config.num_heads, told.model.config.num_heads) == (3, 4)
    assert "num_heads: 3, if a head is 64 wide: the weights do not tell" in guessed.notes
    assert not any("num_heads" in note for note in (*told.notes, *load_pretrained(foreign.google()).notes))
    wide = {"head.weight": torch.ones(1, 1280), "head.bias": torch.ones(1)}
    wide |= {name: tensor for name, tensor in foreign.timm(dim=1280, depth=1).items() if "head" not in name}
    assert load_pretrained(wide).model.config.num_heads == CONFIGS["vit_h_14"].num_heads == 16
    with pytest.raises(ValueError, match="20 wide, do not tell num_heads, and heads 64 wide do not fit: name it with"):
        load_pretrained(foreign.timm())


def test_heads_that_are_told_are_not_overruled():
    with pytest.raises(ValueError, match="num_heads: the weights have 5, got 4"):
        load_pretrained(foreign.google(), num_heads=4)
    model = VisionTransformer(ViTConfig(SIDE, P, C, K, D, DEPTH, 4, HIDDEN))
    with pytest.raises(ValueError, match="num_heads: expected 4, got 5"):
        load_weights(model, foreign.google())


def test_positions_that_are_no_square_need_the_image_size():
    state = foreign.timm()
    state["pos_embed"] = torch.randn(1, 1 + 2 * 5, D)
    with pytest.raises(
        ValueError, match="pos_embed: expected 1 position.s. .* got 11: for another grid name its image_size="
    ):
        load_pretrained(state, num_heads=H)
    model = load_pretrained(state, num_heads=H, image_size=(8, 20)).model
    assert torch.equal(model.state_dict()[POS], state["pos_embed"])
    assert model(torch.randn(1, C, 8, 20)).shape == (1, K)


def test_positions_without_the_class_token_get_a_zero_for_it():
    state = foreign.google(big_vision=True)
    positions = load_pretrained(state).model.state_dict()[POS]
    assert positions.shape == (1, N + 1, D)
    assert not positions[:, 0].any()
    assert torch.equal(positions[:, 1:], torch.from_numpy(state["params/pos_embedding"]).float())


def test_half_precision_becomes_the_default_precision():
    state = {name: tensor.half() for name, tensor in foreign.timm().items()}
    model = load_pretrained(state, num_heads=H).model
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert torch.equal(model.embedding.cls_token, state["cls_token"].float())


# Our own checkpoints


class TestOurs:
    def test_a_checkpoint_tells_everything(self, tmp_path):
        model = VisionTransformer(ViTConfig((8, 12), P, C, 3, D, DEPTH, H, HIDDEN, pool="mean", positions="sincos_2d"))
        model.eval()
        nn.init.normal_(model.head.weight)
        for source in (ours(model, tmp_path), tmp_path):
            weights = load_pretrained(source)
            pictures = torch.randn(2, C, 8, 12)
            assert torch.equal(weights.model(pictures), model(pictures))
            assert weights.class_names == ("thing 0", "thing 1", "thing 2")
            assert (weights.preprocessing.mean, weights.preprocessing.std) == ((0.4, 0.5, 0.6), (0.2, 0.3, 0.1))
            assert (weights.layout, weights.notes) == ("vitbook", ())
        assert load_pretrained(tmp_path, num_classes=4).class_names is None

    def test_a_distilled_one_comes_back_distilled(self, tmp_path):
        model = DistilledVisionTransformer(ViTConfig(SIDE, P, C, 3, D, DEPTH, H, HIDDEN)).eval()
        nn.init.normal_(model.head_dist.weight)
        again = load_pretrained(ours(model, tmp_path)).model
        pictures = images().float()
        assert torch.equal(again(pictures), model(pictures)) and again(pictures).any()

    def test_those_in_the_package_go_by_name_and_may_be_half(self, tmp_path, monkeypatch):
        monkeypatch.setattr("vitbook.pretrained.ASSETS", tmp_path)
        model = VisionTransformer(ViTConfig(SIDE, P, C, 3, D, DEPTH, H, HIDDEN))
        path = ours(model, tmp_path / "weights", half=True)
        path.rename(path.with_name("small_vit.json"))
        weights = load_pretrained("vitbook:small_vit")
        for name, tensor in model.state_dict().items():
            got = weights.model.state_dict()[name]
            assert got.dtype == torch.float32 and torch.equal(got, tensor.half().float())
        with pytest.raises(ValueError, match="unknown weights 'vitbook:smal_vit', did you mean 'vitbook:small_vit'"):
            load_pretrained("vitbook:smal_vit")

    def test_tensors_alone_need_the_heads(self):
        model = load_pretrained(foreign.google()).model
        again = load_pretrained(model.state_dict(), num_heads=H).model
        assert again.config == model.config
        with pytest.raises(ValueError, match="20 wide, do not tell num_heads: name it with num_heads="):
            load_pretrained(model.state_dict())

    def test_one_that_does_not_tell_its_model_is_refused(self, tmp_path):
        path = save_checkpoint(tmp_path, "best", foreign.timm(), {"model": None})
        with pytest.raises(ValueError, match="does not tell its model, mean, std and class_names"):
            load_pretrained(path)

    @pytest.mark.parametrize("moments", [{"mean": [0.4, float("nan"), 0.6]}, {"std": [0.2, float("inf"), 0.1]}])
    @pytest.mark.parametrize("load", [load_pretrained, open_weights])
    def test_one_with_moments_that_are_not_finite_is_refused(self, load, moments, tmp_path):
        path = ours(load_pretrained(foreign.google()).model, tmp_path, **moments)
        with pytest.raises(ValueError, match=r"best\.json does not tell .*mean and std must be finite, std above 0"):
            load(path)


# In place


@pytest.mark.parametrize("make", [foreign.google, foreign.timm, foreign.torchvision])
def test_weights_go_into_a_model_that_is_there(make):
    state = make()
    expected = load_pretrained(state, num_heads=H).model
    model = VisionTransformer(expected.config)
    parameters = list(model.parameters())
    load_weights(model, state)
    for name, tensor in expected.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor)
    assert all(one is other for one, other in zip(parameters, model.parameters(), strict=True))


def test_any_model_of_ours_takes_its_own_names():
    config = ViTConfig(SIDE, P, C, K, D, DEPTH, H, HIDDEN, positions="learned_2d")
    one, other = VisionTransformer(config), VisionTransformer(config)
    load_weights(one, other.state_dict())
    assert all(torch.equal(tensor, one.state_dict()[name]) for name, tensor in other.state_dict().items())


def without(name):
    return lambda state: {key: value for key, value in state.items() if key != name}


def with_(name, value):
    return lambda state: state | {name: value}


def changed(name, change):
    return lambda state: state | {name: change(state[name])}


NAN, INFINITE = torch.full((1, 1, D), torch.nan), torch.full((1, 1, D), torch.inf)
BAD = [
    (without("norm.bias"), "layout timm, do not fit: missing norm.bias"),
    (without("blocks.1.attn.qkv.bias"), "missing encoder.blocks.1.attn.qkv.bias"),
    (without("head.bias"), "missing head.bias"),
    (without("blocks.0.mlp.fc1.weight"), "missing blocks.0.mlp.fc1.weight"),
    (with_("fc_norm.weight", torch.ones(D)), "left over fc_norm.weight"),
    (with_("blocks.0.ls1.gamma", torch.ones(D)), "left over blocks.0.ls1.gamma"),
    (with_("blocks.7.norm1.bias", torch.ones(D)), "missing blocks.2.norm1.weight.* left over blocks.7.norm1.bias"),
    (changed("cls_token", lambda t: t[..., 1:]), r"cls_token: expected shape \(1, 1, 20\), got \(1, 1, 19\)"),
    (changed("blocks.1.mlp.fc1.weight", lambda t: t.T), r"fc1.weight: expected shape \(33, 20\), got \(20, 33\)"),
    (changed("head.weight", lambda t: t[:4]), r"head.(weight|bias): expected shape"),
    (changed("norm.bias", lambda t: t.long()), "norm.bias: expected floating-point numbers, got torch.int64"),
    (changed("norm.bias", lambda t: t.bool()), "norm.bias: expected floating-point numbers, got torch.bool"),
    (with_("cls_token", NAN), "cls_token: expected finite numbers, got NaN or infinity"),
    (with_("cls_token", INFINITE), "cls_token: expected finite numbers, got NaN or infinity"),
    (with_("cls_token", NAN.nan_to_num(1e300).double() * 1e200), "cls_token: expected finite numbers"),
    (with_("epoch", 3), "epoch: expected a tensor of floating-point numbers, got int"),
    (with_("norm.bias", np.array(["a"])), "norm.bias: expected a tensor of floating-point numbers, got <U1"),
    (
        lambda state: {},
        "no Vision Transformer in a known layout .google, big_vision, timm, torchvision, vitbook, hf.*noth",
    ),
    (lambda state: {"conv1.weight": torch.ones(3)}, "no Vision Transformer in a known layout.*found conv1.weight"),
    (lambda state: {"patch_embed.proj.weight": torch.ones(3)}, "layout timm, do not fit: missing cls_token"),
    (lambda state: [1, 2], "weights must be tensors by name, got list"),
    (lambda state: foreign.timm(distilled=True), "left over dist_token"),
    (lambda state: foreign.timm(classes=0), "missing head.bias; missing head.weight"),
    (lambda state: foreign.timm(depth=3), "left over blocks.2.attn.proj.bias"),
    (lambda state: foreign.timm(depth=1), "missing encoder.blocks.1.attn.proj.bias"),
]


@pytest.mark.parametrize(("damage", "message"), BAD, ids=range(len(BAD)))
def test_bad_weights_are_named_and_leave_the_model_as_it_was(damage, message):
    model = VisionTransformer(ViTConfig(SIDE, P, C, K, D, DEPTH, H, HIDDEN))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(ValueError, match=message):
        load_weights(model, damage(foreign.timm()))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        *BAD[:2],
        *BAD[3:9],
        *BAD[10:21],
        (changed("head.weight", lambda t: t[:4]), r"head.bias: expected shape \(4,\), got \(7,\)"),
        (changed("head.weight", lambda t: t[0]), r"head.weight: expected 2 axes, got shape \(20,\)"),
        (changed("patch_embed.proj.weight", lambda t: t[..., 1:]), "proj.weight: expected square patches, got 4×3"),
        (changed("patch_embed.proj.weight", lambda t: t[0]), r"proj.weight: expected 4 axes, got shape \(3, 4, 4\)"),
        (changed("pos_embed", lambda t: t[0]), r"pos_embed: expected 3 axes, got shape \(10, 20\)"),
        (
            changed("pos_embed", lambda t: t[:, :1]),
            r"pos_embed: expected 1 position\(s\) and those of a square of patches, got 1:",
        ),
    ],
)
def test_bad_weights_make_no_model(damage, message):
    with pytest.raises(ValueError, match=message):
        load_pretrained(damage(foreign.timm()), num_heads=H)


BLOCK = "Transformer/encoderblock_1/MultiHeadDotProductAttention_1"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            changed(f"{BLOCK}/key/kernel", lambda a: a[:, 1:]),
            r"key/kernel: expected shape .20, 5, 4. as .*query/kernel, got .20, 4",
        ),
        (
            changed(f"{BLOCK}/key/kernel", lambda a: a[:, :, 1:]),
            r"key/kernel: expected shape \(20, 5, 4\) as .*query/kernel",
        ),
        (
            changed(f"{BLOCK}/key/kernel", lambda a: a.reshape(D, D)),
            r"key/kernel: expected axes \(D, h, d\), got shape",
        ),
        (changed(f"{BLOCK}/out/kernel", lambda a: a.reshape(4, 5, D)), "out/kernel: expected 5 heads.*, got 4"),
        (changed("embedding/kernel", lambda a: a[0]), r"embedding/kernel: expected axes \(p, q, c, D\), got shape"),
        (changed("cls", lambda a: a.astype(int)), "cls: expected a tensor of floating-point numbers, got int64"),
        (without("Transformer/posembed_input/pos_embedding"), "missing Transformer/posembed_input/pos_embedding"),
        (with_("conv_root/kernel", np.ones(3)), "left over conv_root/kernel"),
    ],
)
def test_bad_arrays_of_googles_are_named(damage, message):
    with pytest.raises(ValueError, match=message):
        load_pretrained(damage(foreign.google()))


def test_an_optimisers_state_beside_big_visions_weights_is_left():
    state = foreign.google(big_vision=True)
    weights = load_pretrained(state | {"opt/mu/cls": np.ones(3), "chrono/steps": np.array(3)})
    same_scores(weights.model.double(), foreign.google_scores(state, images()), images())


@pytest.mark.parametrize("prefix", ["module.", "student."])
def test_a_prefix_that_all_names_have_is_seen_through(prefix):
    state = {prefix + name: tensor for name, tensor in foreign.timm().items()}
    model = load_pretrained(state, num_heads=H).model
    assert torch.equal(model.embedding.cls_token, foreign.timm()["cls_token"].float())


def test_an_unknown_kernel_is_named():
    with pytest.raises(ValueError, match="unknown kernel 'tim', did you mean 'timm'"):
        load_pretrained(foreign.google(), resize="tim")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(num_classes=-1), "num_classes must be at least 0, got -1"),
        (dict(image_size=10), "image 10×10 is not divisible by patch size 4"),
        (dict(image_size=(4, 4, 4)), "image_size must be a number or"),
    ],
)
def test_impossible_changes_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        load_pretrained(foreign.timm(), num_heads=H, **changes)


def test_what_is_assumed_is_said():
    assert load_pretrained(foreign.timm(), num_heads=H).notes == (
        "mean, std, crop and interpolation are assumed to be those of timm: the weights do not tell",
    )
    nested = load_pretrained({"model": foreign.timm(), "epoch": 3}, num_heads=H)
    assert "those of deit" in nested.notes[0]
    assert nested.preprocessing.mean == (0.485, 0.456, 0.406)


def test_a_resized_table_is_what_the_function_gives():
    state = foreign.torchvision()
    got = load_pretrained(state, num_heads=H, image_size=8).model.state_dict()[POS]
    expected = resize_positions(state["encoder.pos_embedding"].float(), (3, 3), (2, 2), **KERNELS["torchvision"])
    assert torch.equal(got, expected)


def test_the_weights_in_the_package_are_what_their_facts_say():
    """A hybrid, trained on CIFAR-10; the album shows what its classes name."""
    ours = load_pretrained("vitbook:cifar10")
    _, facts = load_checkpoint(ASSETS / "weights" / "cifar10.json")
    assert ours.class_names == tuple(CIFAR10_CLASSES) == tuple(facts["class_names"])
    assert 0.75 < facts["test_accuracy"] < 1
    moments = (torch.tensor(moment) for moment in (ours.preprocessing.mean, ours.preprocessing.std))
    pictures = album()
    right = ours.model(normalise(pictures.images, *moments)).argmax(dim=1) == pictures.labels
    assert right.sum() >= 11  # of 22; by chance 2
    assert sum(path.stat().st_size for path in (ASSETS / "weights").glob("cifar10*")) < 6e6


def test_a_hybrid_takes_other_classes_sizes_and_channels():
    changed = load_pretrained("vitbook:cifar10", num_classes=7, image_size=(32, 48), channels=1)
    assert changed.model(torch.zeros(2, 1, 32, 48)).shape == (2, 7)
    grey = torch.rand(2, 1, 32, 32)
    whole, one = load_pretrained("vitbook:cifar10").model, load_pretrained("vitbook:cifar10", channels=1).model
    torch.testing.assert_close(one(grey), whole(grey.expand(-1, 3, -1, -1)), rtol=1e-4, atol=1e-4)

"""What the scripts compute in a browser is what torch and Pillow compute."""

import base64
import json
from copy import deepcopy
from dataclasses import replace
from importlib import resources

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from vitbook import activation_patching
from vitbook._common.images import decode_image
from vitbook.attention_maps import logit_lens, recorded_attention, residual_stream
from vitbook.attribution import occlusion
from vitbook.data import album, album_credits, photograph
from vitbook.distillation import DistilledVisionTransformer
from vitbook.finetuning import add_lora
from vitbook.modern import ACTIVATIONS, ModernConfig, ModernViT
from vitbook.patches import patchify, unpatchify
from vitbook.pretrained import Preprocessing, Pretrained, load_pretrained
from vitbook.vit import VisionTransformer, ViTConfig
from vitbook_workshop.live.bundles import worker_source
from vitbook_workshop.live.figure_data import packed_model

TOLERANCE = dict(atol=1e-5, rtol=0)


class Scripts:
    """The worker's scripts in a page; its answers as tensors."""

    def __init__(self, browser, tmp_path):
        self.browser = browser
        # The page is its own worker: what it posts to itself is what a worker would post to a page.
        posted = "self.postMessage = (message) => { self.posted = message; };"
        (tmp_path / "page.html").write_text(
            f"<!DOCTYPE html><meta charset=utf-8><script>{posted}{worker_source('ask')}</script>"
        )
        browser.open(tmp_path / "page.html")

    def call(self, kind: str, **question) -> dict:
        return self.run("(question) => onmessage({ data: question })", dict(kind=kind, id=1, **question))

    def run(self, script: str, given=None):
        """What the worker posts when a script calls it; arrays of numbers come as tensors."""
        got = self.browser.page.evaluate(
            f"""async (given) => {{
                await ({script})(given);
                const text = (x) => Array.from(new Uint8Array(x.buffer), (byte) => String.fromCharCode(byte)).join("");
                return JSON.stringify(self.posted, (_, x) =>
                    ArrayBuffer.isView(x) ? {{ type: x.constructor.name, packed: btoa(text(x)) }} : x);
            }}""",
            given,
        )
        got = json.loads(got, object_hook=unpacked)
        assert got.get("error") is None, got["error"]
        return got.get("result")  # `load` has none

    def load(self, trained: Pretrained) -> None:
        self.call("load", **packed_model(trained))

    def see(self, image: np.ndarray) -> np.ndarray:
        """What the model sees of an RGB image, uint8 (H, W, 3)."""
        opaque = np.concatenate([image, np.full_like(image[..., :1], 255)], axis=-1)
        content = base64.b64encode(opaque.tobytes()).decode()
        height, width = image.shape[:2]
        return pixels(self.run(SEE, [width, height, content]))

    def ask(self, **change) -> tuple[torch.Tensor, ...]:
        """Logits (K,), attention weights (L, h, T, T), the logit lens (L + 1, K), tokens' cosines (L + 1, T, T)."""
        said = self.call("ask", name="it", change=change)
        tokens = self.browser.value("loaded.model.config.tokens")
        attention = torch.stack(said["attention"]).unflatten(1, (-1, tokens, tokens))
        return (
            said["logits"],
            attention,
            torch.stack(said["lens"]),
            torch.stack(said["alike"]).unflatten(1, (tokens, -1)),
        )


SEE = """([width, height, all]) =>
    onmessage({ data: { kind: "see", name: "it", image: { width, height, data: fromBase64(all) } } })"""


def unpacked(found: dict):
    """Numbers that came as base64, as a tensor; another JSON object as it is."""
    if "packed" not in found:
        return found
    kind = {"Float32Array": np.float32, "Uint8ClampedArray": np.uint8}[found["type"]]
    return torch.from_numpy(np.frombuffer(base64.b64decode(found["packed"]), kind).copy())


def pixels(image: dict) -> np.ndarray:
    return image["data"].view(image["height"], image["width"], 3).numpy()


@pytest.fixture(scope="module")
def page(shared_browser, tmp_path_factory):
    return Scripts(shared_browser, tmp_path_factory.mktemp("page"))


@pytest.fixture
def scripts(page):
    yield page
    assert page.browser.errors == []


@pytest.fixture(scope="module")
def trained() -> Pretrained:
    return load_pretrained("vitbook:cifar10")


def small_vit(kind: type = VisionTransformer, **changes) -> Pretrained:
    """Two blocks of three heads, every size different, with weights large enough that attention is far from even."""
    torch.manual_seed(3)
    settings = dict(image_size=(12, 20), patch_size=4, num_classes=7, dim=24, depth=2, num_heads=3, mlp_dim=44)
    config = ModernConfig if kind is ModernViT else ViTConfig
    model = kind(config(**settings | changes)).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    preprocessing = Preprocessing(
        (0.4, 0.5, 0.6)[: model.config.channels], (0.2, 0.3, 0.25)[: model.config.channels], model.config.image_size
    )
    return Pretrained(model, preprocessing, None, "vitbook", ())


def torch_says(trained: Pretrained, images: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Logits, attention weights, lens and tokens' cosines of one image, (1, C, H, W)."""
    with torch.no_grad(), recorded_attention(trained.model) as weights:
        logits = trained.model(images)[0]
        weights = torch.stack(weights)[:, 0]
        states = residual_stream(trained.model, images)
        alike = F.cosine_similarity(states[:, 0, :, None], states[:, 0, None], dim=-1)
        return logits, weights, logit_lens(trained.model, states)[:, 0], alike


def assert_same(got: tuple, expected: tuple, of: str = "") -> None:
    for mine, theirs in zip(got, expected, strict=True):
        torch.testing.assert_close(mine, theirs, **TOLERANCE, msg=lambda said: f"{of}: {said}")


def test_logits_and_every_attention_weight_of_the_album_are_those_of_torch(scripts, trained):
    scripts.load(trained)
    images = album().images
    for image in images:
        scripts.see(image.permute(1, 2, 0).numpy())
        assert_same(scripts.ask(), torch_says(trained, trained.preprocessing.normalize(image[None])))


KINDS = [{}, dict(pool="mean", class_token=False), dict(pool="mean"), dict(channels=1), dict(dim=18, mlp_dim=10)]
KINDS += [dict(positions="sincos_2d"), dict(positions="none"), dict(qkv_bias=False), dict(num_classes=0)]
KINDS += [dict(num_classes=0, pool="mean"), dict(stem=(8,), patch_size=4), dict(stem=(8, 8, 12))]


@pytest.mark.parametrize("changes", KINDS, ids=str)
def test_every_kind_of_model_is_computed(scripts, changes):
    trained = small_vit(**changes)
    assert_same(said_by(scripts, trained), torch_says(trained, seen_by(trained)))


def seen_by(trained: Pretrained) -> torch.Tensor:
    """A photograph, as a small model takes it."""
    return trained.preprocessing(photograph("flower"))


def said_by(scripts: Scripts, trained: Pretrained, **change) -> tuple[torch.Tensor, ...]:
    """What the scripts say of the same."""
    scripts.load(trained)
    scripts.see(photograph("flower").permute(1, 2, 0).numpy())
    return scripts.ask(**change)


# What came after 2021, each part alone and as models have them together
ROTARY = dict(positions="none", rotary_base=100.0)
DINOV2 = dict(registers=4, swiglu=True, layer_scale=0.5)
DINOV3 = ROTARY | dict(registers=4, layer_scale=0.5, norm_eps=1e-5, num_classes=0)
CLIP = dict(embedding_norm=True, activation="quick_gelu", norm_eps=1e-5, num_classes=0)
SIGLIP = dict(attention_pool=True, activation="gelu_tanh", class_token=False, pool="mean")
TODAY = ROTARY | dict(norm="rms", qk_norm=True, swiglu=True, qkv_bias=False, registers=2)
LATER = [{}, dict(norm="rms"), dict(norm_eps=0.1, embedding_norm=True), dict(rotary_base=30.0), dict(qk_norm=True)]
LATER += [dict(layer_scale=0.5), dict(swiglu=True), *(dict(activation=name) for name in ACTIVATIONS)]
LATER += [dict(registers=2), dict(registers=2, class_token=False, pool="mean")]
LATER += [dict(attention_pool=True, swiglu=True, norm_eps=0.1), ROTARY, DINOV2, DINOV3, CLIP, SIGLIP, TODAY]


def test_what_came_after_2021_is_computed(scripts):
    for changes in LATER:
        trained = small_vit(ModernViT, **changes)
        assert_same(said_by(scripts, trained), torch_says(trained, seen_by(trained)), str(changes))


def test_a_head_is_carried_from_another_photograph_and_each_patch_is_covered_alone(scripts):
    trained = small_vit()
    scripts.load(trained)
    images = {name: photograph(name) for name in ("china", "flower")}
    here, there = (trained.preprocessing(image) for image in images.values())
    for name in ("flower", "china"):
        scripts.see(images[name].permute(1, 2, 0).numpy())
        scripts.run("(name) => { photographs.set(name, photographs.get('it')); }", name)
    for block in range(2):
        for number in range(3):
            part = activation_patching.head(trained.model, block, number)
            mine = scripts.ask(carried={"from": "flower", "block": block, "head": number})[0]
            theirs = activation_patching.patched(trained.model, here, there, [part])[0]
            torch.testing.assert_close(mine, theirs, **TOLERANCE)
            assert (mine - scripts.ask()[0]).abs().max() > 1e-3
    k = scripts.ask()[0].argmax().item()
    all_covered = scripts.call("coverEach", name="it").view(16, 7)[:, k]
    fallen = occlusion(trained.model, here, torch.tensor([k]), (3, 5))
    torch.testing.assert_close((all_covered[0] - all_covered[1:]).view(1, 3, 5), fallen, **TOLERANCE)


def test_both_tokens_of_a_distilled_model_are_heard(scripts):
    for changes in ({}, dict(num_classes=0)):
        trained = small_vit(DistilledVisionTransformer, **changes)
        assert_same(said_by(scripts, trained), torch_says(trained, seen_by(trained)), str(changes))


@pytest.mark.parametrize("name", ["dino", "lejepa", "mae"])
def test_shipped_models_without_classes_give_their_features(scripts, name):
    trained = load_pretrained(f"vitbook:{name}")
    scripts.load(trained)
    scripts.see(album().images[0].permute(1, 2, 0).numpy())
    assert_same(scripts.ask(), torch_says(trained, trained.preprocessing.normalize(album().images[:1])))


def test_lora_is_merged(scripts):
    trained = small_vit()
    add_lora(trained.model, rank=2)
    torch.manual_seed(0)
    for parameter in trained.model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    assert_same(said_by(scripts, trained), torch_says(trained, seen_by(trained)))


# Interfering with it


@pytest.fixture
def asked(scripts, trained):
    """The kingfisher, as the model takes it."""
    scripts.load(trained)
    kingfisher = [credit["file"] for credit in album_credits()].index("bird_kingfisher.jpg")
    image = album().images[kingfisher]
    scripts.see(image.permute(1, 2, 0).numpy())
    return trained.preprocessing.normalize(image[None])


def shuffled(trained: Pretrained) -> torch.Tensor:
    """An order of the patches."""
    rows, columns = trained.model.embedding.grid
    return torch.randperm(rows * columns, generator=torch.Generator().manual_seed(1))


def hooked(trained: Pretrained, module: torch.nn.Module, prefix: int, images: torch.Tensor) -> tuple:
    """What torch says where a module's output has its patches shuffled, the tokens before them in their places."""

    def shuffle(module, arguments, output):
        return torch.cat([output[:, :prefix], output[:, prefix + shuffled(trained)]], dim=1)

    handle = module.register_forward_hook(shuffle)
    try:
        return torch_says(trained, images)
    finally:
        handle.remove()


def test_without_positions(scripts, trained, asked):
    model = deepcopy(trained.model)
    model.embedding.positions.pos_embed.data.zero_()
    expected = torch_says(replace(trained, model=model), asked)
    assert_same(scripts.ask(withoutPositions=True), expected)
    assert (expected[0] - torch_says(trained, asked)[0]).abs().max() > 1e-2


def test_tokens_shuffled_before_their_positions(scripts, trained, asked):
    expected = hooked(trained, trained.model.embedding.patch_embed, 0, asked)
    assert_same(scripts.ask(before=shuffled(trained).tolist()), expected)
    assert (expected[0] - torch_says(trained, asked)[0]).abs().max() > 1e-2


def test_tokens_shuffled_after_their_positions_give_the_same_answer(scripts, trained, asked):
    expected = hooked(trained, trained.model.embedding, 1, asked)
    got = scripts.ask(after=shuffled(trained).tolist())
    assert_same(got, expected)
    assert_same((got[0], got[2]), torch_says(trained, asked)[::2])


def test_patches_of_pixels_shuffled(scripts, trained, asked):
    config = trained.model.config
    patches = patchify(asked, config.patch_size)[:, shuffled(trained)]
    expected = torch_says(trained, unpatchify(patches, config.patch_size, config.image_size))
    assert_same(scripts.ask(pixels=shuffled(trained).tolist()), expected)


def test_covered_patches_have_the_mean_of_the_training_images(scripts, trained, asked):
    config = trained.model.config
    patches = patchify(asked, config.patch_size).clone()
    covered = [0, 27, 28, patches.shape[1] - 1]
    patches[:, covered] = 0
    expected = torch_says(trained, unpatchify(patches, config.patch_size, config.image_size))
    assert_same(scripts.ask(covered=covered), expected)


def test_removed_heads_say_nothing(scripts, trained, asked):
    """Their columns of W_O are zero; each head's removal in turn gives the same as one by one."""
    config = trained.model.config
    width, last = config.dim // config.num_heads, config.depth - 1
    model = deepcopy(trained.model)
    for block, head in ((0, 1), (last, 0), (last, 2)):
        model.encoder.blocks[block].attn.proj.weight.data[:, head * width : (head + 1) * width] = 0
    expected = torch_says(replace(trained, model=model), asked)
    assert_same(scripts.ask(removed=["0.1", f"{last}.0", f"{last}.2"]), expected)
    assert (expected[0] - torch_says(trained, asked)[0]).abs().max() > 1e-2
    each = torch.stack(scripts.call("withoutEach", name="it", change={}))
    assert each.shape == (config.depth * config.num_heads, config.num_classes)
    torch.testing.assert_close(each[2 * config.num_heads + 1], scripts.ask(removed=["2.1"])[0])


@pytest.mark.parametrize(
    ("kind", "changes"),
    [(ModernViT, TODAY), (ModernViT, DINOV3), (ModernViT, CLIP), (ModernViT, SIGLIP | dict(rotary_base=30.0))]
    + [(DistilledVisionTransformer, {})],
    ids=["today", "dinov3", "clip", "siglip", "distilled"],
)
def test_later_models_are_interfered_with_as_in_torch(scripts, kind, changes):
    trained = small_vit(kind, **changes)
    model, images = trained.model, seen_by(trained)
    prefix, order = len(model.embedding.prefix_tokens), shuffled(trained)
    untouched = torch_says(trained, images)
    without = deepcopy(trained)
    for positions in without.model.embedding.positions.parameters():
        positions.data.zero_()
    moved = deepcopy(trained)
    for block, still in zip(moved.model.encoder.blocks, without.model.encoder.blocks, strict=True):
        if (angles := getattr(block.attn, "angles", None)) is not None:
            still.attn.angles, block.attn.angles = None, torch.cat([angles[:prefix], angles[prefix + order]])
    headless = deepcopy(trained)
    for name in ("0.1", "1.2"):
        block, head = map(int, name.split("."))
        headless.model.encoder.blocks[block].attn.proj.weight.data[:, 8 * head : 8 * (head + 1)] = 0
    patches, size = patchify(images, 4), model.config.image_size
    covered = patches.clone()
    covered[:, [0, 7]] = 0
    expected = {
        "withoutPositions": (True, torch_says(without, images)),
        "after": (order.tolist(), hooked(moved, moved.model.embedding, prefix, images)),
        "before": (order.tolist(), hooked(trained, model.embedding.patch_embed, 0, images)),
        "removed": (["0.1", "1.2"], torch_says(headless, images)),
        "pixels": (order.tolist(), torch_says(trained, unpatchify(patches[:, order], 4, size))),
        "covered": ([0, 7], torch_says(trained, unpatchify(covered, 4, size))),
    }
    said_by(scripts, trained)
    for name, (value, said) in expected.items():
        assert_same(scripts.ask(**{name: value}), said, name)
        differs = (said[0] - untouched[0]).abs().max()
        assert differs < 1e-5 if name == "after" else differs > 1e-3, name


# Images


SIZES = [(128, 128), (97, 160), (333, 50), (20, 31), (12, 20), (640, 427)]


@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
@pytest.mark.parametrize("crop", [1.0, "scaled first", 0.9, None])
@pytest.mark.parametrize("channels", [1, 3])
def test_an_image_is_resized_as_pillow_does_it_to_the_bit(scripts, interpolation, crop, channels):
    trained = small_vit(channels=channels)
    cropped = dict(crop=1.0, scale_first=True) if crop == "scaled first" else dict(crop=crop)
    preprocessing = replace(trained.preprocessing, interpolation=interpolation, **cropped)
    scripts.load(replace(trained, preprocessing=preprocessing))
    noise = np.random.RandomState(0)
    for height, width in SIZES:
        image = noise.randint(0, 256, (height, width, 3), np.uint8)
        image[: height // 2] = np.linspace(0, 255, width)[None, :, None]  # smooth, and noise
        expected = preprocessing.view(Image.fromarray(image))[0].permute(1, 2, 0).numpy()
        assert np.array_equal(scripts.see(image)[..., :channels], expected)


DECODE = """async (file) => {
    const bitmap = await createImageBitmap(new Blob([fromBase64(file)]), { colorSpaceConversion: "none" });
    const context = new OffscreenCanvas(bitmap.width, bitmap.height).getContext("2d");
    context.drawImage(bitmap, 0, 0);
    const image = context.getImageData(0, 0, bitmap.width, bitmap.height);
    await onmessage({ data: { kind: "see", name: "it", image } });
}"""


def test_the_albums_files_are_decoded_as_pillow_decodes_them(scripts, trained):
    """The whole way of a photograph: JPEG, pixels, resampling."""
    scripts.load(trained)
    for credit in album_credits():
        file = resources.files("vitbook").joinpath("assets", "album", credit["file"]).read_bytes()
        seen = pixels(scripts.run(DECODE, base64.b64encode(file).decode()))
        expected = trained.preprocessing.view(decode_image(file, credit["file"]))[0]
        assert np.array_equal(seen, expected.permute(1, 2, 0).numpy())

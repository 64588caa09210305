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

from vitbook._support.images import decode_image
from vitbook.attention_maps import logit_lens, recorded_attention, residual_stream
from vitbook.data import album, album_credits, photograph
from vitbook.distillation import DistilledVisionTransformer
from vitbook.explorer.live import packed_model, worker_source
from vitbook.patches import patchify, unpatchify
from vitbook.pretrained import Preprocessing, Pretrained, load_pretrained
from vitbook.vit import VisionTransformer, ViTConfig

pytest_plugins = ["browser"]
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
        return got["result"]

    def load(self, trained: Pretrained, simd: bool = True) -> None:
        loaded = self.call("load", plain=not simd, **packed_model(trained))
        assert loaded["simd"] == simd

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


@pytest.fixture
def scripts(browser, tmp_path):
    made = Scripts(browser, tmp_path)
    yield made
    assert browser.errors == []


@pytest.fixture(scope="module")
def trained() -> Pretrained:
    return load_pretrained("vitbook:cifar10")


def small_vit(**changes) -> Pretrained:
    """Two blocks of three heads, every size different, with weights large enough that attention is far from even."""
    torch.manual_seed(3)
    settings = dict(image_size=(12, 20), patch_size=4, num_classes=7, dim=24, depth=2, num_heads=3, mlp_dim=44)
    model = VisionTransformer(ViTConfig(**settings | changes)).eval()
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


def assert_same(got: tuple, expected: tuple) -> None:
    for mine, theirs in zip(got, expected, strict=True):
        torch.testing.assert_close(mine, theirs, **TOLERANCE)


@pytest.mark.parametrize("simd", [True, False], ids=["wasm", "js"])
def test_logits_and_every_attention_weight_of_the_album_are_those_of_torch(scripts, trained, simd):
    scripts.load(trained, simd)
    images = album().images
    for image in images:
        scripts.see(image.permute(1, 2, 0).numpy())
        assert_same(scripts.ask(), torch_says(trained, trained.preprocessing.normalize(image[None])))


@pytest.mark.parametrize("simd", [True, False], ids=["wasm", "js"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        dict(pool="mean", class_token=False),
        dict(pool="mean"),
        dict(channels=1),
        dict(positions="sincos_2d"),
        dict(qkv_bias=False),
        dict(stem=(8,), patch_size=4),
        dict(stem=(8, 8, 12)),
        dict(dim=18, mlp_dim=10),
    ],
    ids=str,
)
def test_every_kind_of_model_is_computed(scripts, changes, simd):
    trained = small_vit(**changes)
    scripts.load(trained, simd)
    image = photograph("flower")[:, 100:112, 200:220].permute(1, 2, 0).numpy()
    view = torch.from_numpy(scripts.see(image)).permute(2, 0, 1)[None, : trained.model.config.channels]
    assert_same(scripts.ask(), torch_says(trained, trained.preprocessing.normalize(view)))


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


@pytest.mark.door
def test_a_model_that_is_not_computed_is_refused():
    with pytest.raises(ValueError, match="model must be a VisionTransformer with classes"):
        packed_model(small_vit(num_classes=0))
    distilled = DistilledVisionTransformer(small_vit().model.config)
    with pytest.raises(ValueError, match="got DistilledVisionTransformer"):
        packed_model(replace(small_vit(), model=distilled))
    with pytest.raises(ValueError, match="at most 25,000,000 parameters to answer in a page, got 26,"):
        packed_model(small_vit(mlp_dim=270_000))

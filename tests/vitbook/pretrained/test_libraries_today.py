"""What the chapters say of the libraries of today. `make peers` runs these; test_peers.py compares logits."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import load_file
from torch import nn
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

pytest_plugins = ["shared_fixtures"]
pytestmark = [pytest.mark.peers, pytest.mark.usefixtures("torchvision")]  # which timm and transformers import
SIZES = dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40)
SIZES |= dict(image_size=16, patch_size=4)
transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def timm(torchvision):
    return pytest.importorskip("timm", reason="timm is not installed; make peers installs it")


class Names(TorchDispatchMode):
    """The operations that PyTorch is asked for."""

    def __init__(self):
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.names.append(operation.overloadpacket.__name__)
        return operation(*args, **(kwargs or {}))


def fused(call) -> bool:
    with Names() as seen:
        call()
    explicit, kernel = (any(part in name for name in seen.names) for part in ("softmax", "scaled_dot_product"))
    assert explicit != kernel, seen.names
    return kernel


class TestChapter20:
    def test_one_default_turns_the_fused_kernel_off(self, timm):
        x = torch.randn(2, 17, 24, requires_grad=True)
        attention = nn.MultiheadAttention(24, 3, batch_first=True)
        assert not fused(lambda: attention(x, x, x))
        assert fused(lambda: attention(x, x, x, need_weights=False))
        layer = nn.TransformerEncoderLayer(24, 3, dropout=0.0, batch_first=True)
        assert fused(lambda: layer(x))
        layer.self_attn.dropout = 0.1
        assert not fused(lambda: layer(x))
        assert fused(lambda: timm.layers.Attention(24, num_heads=3)(x))
        timm.layers.set_fused_attn(False)
        explicit = timm.layers.Attention(24, num_heads=3)
        timm.layers.set_fused_attn(True)
        assert not fused(lambda: explicit(x))
        config = transformers.ViTConfig(**SIZES)
        model = transformers.ViTModel(config)
        assert config._attn_implementation == "sdpa" and fused(lambda: model(torch.randn(1, 3, 16, 16)))
        config = transformers.ViTConfig(**SIZES, attn_implementation="eager")
        model = transformers.ViTModel(config)
        assert not fused(lambda: model(torch.randn(1, 3, 16, 16)))

    @pytest.mark.parametrize(
        ("dynamic", "expected"), [(None, [1, 2, 2, 2, 3]), (True, [1, 1, 1, 1, 2]), (False, [1, 2, 3, 4, 5])]
    )
    def test_a_compiled_model_is_compiled_again_for_a_second_size_of_batch(self, dynamic, expected):
        made = []

        def backend(graph, inputs):
            made.append(graph)
            return graph.forward

        torch._dynamo.reset()
        model = torch.compile(nn.Sequential(nn.Linear(5, 7), nn.GELU()).eval(), backend=backend, dynamic=dynamic)
        counts = []
        for batch in (64, 48, 40, 24, 1):
            model(torch.zeros(batch, 5))
            model(torch.zeros(batch, 5))
            counts.append(len(made))
        assert counts == expected


class TestChapter2:
    def test_timm_draws_small_weights(self, timm):
        sizes = dict(img_size=8, patch_size=4, embed_dim=192, depth=1, num_heads=3)
        weight = timm.models.vision_transformer.VisionTransformer(**sizes).blocks[0].attn.qkv.weight
        assert_close(weight.std(), torch.tensor(0.02), rtol=0.02, atol=0)


class TestChapter15:
    @pytest.mark.parametrize("family", ["CLIP", "Siglip"])
    def test_a_vision_tower_is_saved_without_its_prefix(self, family, tmp_path):
        config = getattr(transformers, f"{family}VisionConfig")(**SIZES)
        getattr(transformers, f"{family}VisionModel")(config).save_pretrained(tmp_path)
        names = load_file(tmp_path / "model.safetensors")
        assert not any(name.startswith("vision_model.") for name in names) and "post_layernorm.weight" in names

    def test_a_vit_is_saved_under_the_names_of_earlier_releases(self, tmp_path):
        model = transformers.ViTModel(transformers.ViTConfig(**SIZES))
        model.save_pretrained(tmp_path)
        assert "layers.0.attention.q_proj.weight" in model.state_dict()
        assert "encoder.layer.0.attention.attention.query.weight" in load_file(tmp_path / "model.safetensors")

    def test_dinov3_in_training_shakes_its_positions(self):
        config = transformers.DINOv3ViTConfig(**SIZES)
        assert config.attention_dropout == config.drop_path_rate == 0
        model, x = transformers.DINOv3ViTModel(config), torch.randn(1, 3, 16, 16)
        again = {mode: [model.train(mode)(x).last_hidden_state for _ in range(2)] for mode in (True, False)}
        assert not torch.allclose(*again[True], atol=1e-3) and torch.equal(*again[False])

    def test_dinov3_in_bfloat16_depends_on_the_way_there(self, tmp_path):
        model, x = transformers.DINOv3ViTModel(transformers.DINOv3ViTConfig(**SIZES)), torch.randn(1, 3, 16, 16)
        model.save_pretrained(tmp_path)
        ways = (
            transformers.DINOv3ViTModel.from_pretrained(tmp_path).to(torch.bfloat16),
            transformers.DINOv3ViTModel.from_pretrained(tmp_path, dtype=torch.bfloat16),
        )
        periods = [dict(way.named_buffers())["rope_embeddings.inv_freq"].dtype for way in ways]
        assert periods == [torch.bfloat16, torch.float32]
        features = [way.eval()(x.bfloat16()).last_hidden_state for way in ways]
        assert not torch.equal(*features)

    @pytest.mark.parametrize("family", ["CLIP", "Siglip"])
    def test_an_image_of_16_bits_turns_white(self, family):
        ramp = Image.fromarray(np.linspace(0, 65535, 32 * 32).reshape(32, 32).astype(np.uint16))
        assert ramp.mode == "I;16"
        pixels = getattr(transformers, f"{family}ImageProcessor")()(ramp, return_tensors="pt")["pixel_values"]
        white = (pixels == pixels.amax(dim=(2, 3), keepdim=True)).double().mean()
        assert white > 0.95

    def test_timms_siglip_has_two_kinds_of_gelu(self, timm):
        with torch.device("meta"):
            kinds = {
                name: timm.create_model(f"vit_{name}").blocks[0].mlp.act
                for name in ("base_patch16_siglip_224", "base_patch32_siglip_256")
            }
        assert isinstance(kinds["base_patch16_siglip_224"], nn.GELU)
        assert isinstance(kinds["base_patch32_siglip_256"], timm.layers.GELUTanh)
        assert transformers.SiglipVisionConfig().hidden_act == "gelu_pytorch_tanh"

    def test_timms_dinov3_answers_with_the_mean_of_its_patches(self, timm):
        sizes = dict(img_size=32, embed_dim=24, depth=2, num_heads=3)
        model, x = timm.models.eva.vit_small_patch16_dinov3(**sizes, num_classes=0).eval(), torch.randn(1, 3, 32, 32)
        tokens = model.forward_features(x)
        assert model.num_prefix_tokens == 5  # the class token and four registers
        assert_close(model(x), tokens[:, 5:].mean(dim=1))

    def test_timm_resamples_the_patches_kernels(self, timm):
        sizes = dict(embed_dim=24, depth=1, num_heads=3, num_classes=5)
        make = timm.models.vision_transformer.VisionTransformer
        large = make(img_size=32, patch_size=8, **sizes)
        with pytest.raises(RuntimeError, match="size mismatch"):
            make(img_size=32, patch_size=4, **sizes).load_state_dict(large.state_dict())
        kernel = large.patch_embed.proj.weight
        patch = torch.randn(1, 3, 8, 8)
        larger = F.interpolate(patch, (16, 16), mode="bicubic", antialias=True)
        resampled = timm.layers.resample_patch_embed(kernel, [16, 16])
        assert_close((resampled * larger).sum((1, 2, 3)), (kernel * patch).sum((1, 2, 3)), rtol=0, atol=1e-3)
        large.set_input_size(img_size=64, patch_size=16)
        assert large.patch_embed.proj.weight.shape == (24, 3, 16, 16)
        assert large(torch.zeros(1, 3, 64, 64)).shape == (1, 5)


class TestChapter26:
    @pytest.mark.parametrize("open_batch", [True, False])
    def test_what_torch_writes_of_timms_model(self, timm, open_batch, tmp_path):
        onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
        pytest.importorskip("onnxscript")
        sizes = dict(img_size=16, patch_size=8, embed_dim=24, depth=1, num_heads=3, num_classes=5)
        model = timm.models.vision_transformer.VisionTransformer(**sizes).eval()
        file = tmp_path / "model.onnx"
        shapes = {"dynamic_shapes": ({0: torch.export.Dim("batch")},)} if open_batch else {}
        torch.onnx.export(model, (torch.zeros(2, 3, 16, 16),), file, verbose=False, **shapes)
        session, x = runtime.InferenceSession(file), torch.randn(3, 3, 16, 16)
        (name,) = (given.name for given in session.get_inputs())
        if open_batch:
            assert_close(torch.from_numpy(session.run(None, {name: x.numpy()})[0]), model(x), rtol=0, atol=1e-4)
        else:
            with pytest.raises(Exception, match="invalid dimensions"):
                session.run(None, {name: x.numpy()})
        written = onnx.load(file, load_external_data=False)
        assert not written.metadata_props, "neither mean nor class names"
        traces = [entry.value for node in written.graph.node for entry in node.metadata_props]
        assert any("vision_transformer.py" in trace and "/" in trace for trace in traces)
        assert file.with_name("model.onnx.data").exists(), "the weights, in a second file"

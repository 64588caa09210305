"""Exported models give the model's logits, for any number of images and any size; weights in 8 bits stay near."""

from importlib.util import find_spec

import pytest
import torch
from small_models import backbone, of_every_kind
from torch.testing import assert_close

from vitbook.cnn import CNNConfig, WhiteningCNN
from vitbook.export import FORMATS, AnySize, export, load_exported, quantize, traced
from vitbook.pretrained import Preprocessing, Pretrained, load_pretrained
from vitbook.vit import VisionTransformer

pytest_plugins = ["shared_fixtures"]

pytestmark = pytest.mark.door  # a check of shapes would make symbolic sizes fixed ones
MISSING = [name for name in ("onnx", "onnxscript", "onnxruntime") if find_spec(name) is None]
of_some_kinds = pytest.mark.parametrize(  # each with much in it, since an export takes seconds
    "changes",
    [
        pytest.param({}, id="plain", marks=pytest.mark.slow),
        pytest.param({"distilled": True, "positions": "learned_2d"}, id="two tokens", marks=pytest.mark.slow),
        pytest.param(
            dict(rotary_base=100.0, positions="sincos_2d", registers=1, attention_pool=True, norm="rms"),
            id="rotary and pooled by attention",
        ),
    ],
)
with_onnx = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {MISSING}")


def small(**changes) -> VisionTransformer:
    return backbone(**changes).float()


def weights_of(model: VisionTransformer) -> Pretrained:
    half = (0.5, 0.5, 0.5)
    seen = Preprocessing(mean=half, std=half, image_size=model.config.image_size)
    return Pretrained(model, seen, tuple("abcdefghi"), "vitbook", ())


@torch.no_grad()
@of_every_kind
def test_of_any_size_equals_the_model_that_was_resized(changes):
    model, images = small(**changes), torch.randn(2, 3, 12, 16)
    same = images[:, :, :8, :12]
    assert_close(AnySize(model)(same), model(same))
    assert AnySize(model).model.head.weight is model.head.weight
    assert_close(AnySize(model)(images), model(images, any_size=True), rtol=0.1, atol=0.1)  # bilinear against bicubic
    with pytest.raises(ValueError, match="images must be 8×12, as the positions are, got 12×16"):
        model(images)


@torch.no_grad()
@of_some_kinds
def test_a_graph_takes_any_number_of_images_and_any_size(changes):
    model = small(**changes)
    for batch in (1, 5):
        assert_close(traced(model).module()(images := torch.randn(batch, 3, 8, 12)), model(images))
    program = traced(model, any_size=True).module()
    for shape in ((1, 3, 8, 12), (4, 3, 12, 8), (2, 3, 16, 24)):
        assert_close(program(images := torch.randn(shape)), AnySize(model)(images))


@torch.no_grad()
def test_a_convolutional_network_has_a_graph_too():
    model = WhiteningCNN(CNNConfig((12, 10), channels=2, num_classes=7, widths=(5,))).eval()
    assert_close(traced(model).module()(images := torch.randn(4, 2, 12, 10)), model(images))


def test_images_of_any_size_are_for_a_vision_transformer(tmp_path):
    for door in (AnySize, lambda model: export(weights_of(model), tmp_path / "model.pt2", "pt2", any_size=True)):
        with pytest.raises(ValueError, match="images of any size are for a VisionTransformer, got a WhiteningCNN"):
            door(WhiteningCNN(CNNConfig()))


@with_onnx
@torch.no_grad()
@pytest.mark.parametrize("to", [pytest.param("onnx", marks=pytest.mark.slow), *sorted(set(FORMATS) - {"onnx"})])
def test_a_file_gives_the_logits_of_the_model_and_says_what_it_takes(to, tmp_path):
    model = load_pretrained("vitbook:cifar10").model
    weights = load_pretrained("vitbook:cifar10")
    run, facts = load_exported(export(weights, tmp_path / f"model.{'pt2' if to == 'pt2' else 'onnx'}", to))
    images = torch.randn(3, 3, 32, 32)
    assert_close(run(images), model(images), **(dict(rtol=0, atol=0.5) if to == "int8" else dict(rtol=1e-4, atol=1e-5)))
    assert facts["class_names"] == list(weights.class_names) and facts["image_size"] == [32, 32]
    assert tuple(facts["mean"]) == weights.preprocessing.mean


@with_onnx
@pytest.mark.slow
@torch.no_grad()
@of_some_kinds
def test_an_onnx_file_takes_any_size_where_it_is_asked_to(tmp_path, changes):
    weights = weights_of(small(**changes))
    run, _ = load_exported(export(weights, tmp_path / "model.onnx", any_size=True))
    for shape in ((1, 3, 8, 12), (3, 3, 16, 8)):
        assert_close(run(images := torch.randn(shape)), AnySize(weights.model)(images), rtol=1e-4, atol=1e-5)


@with_onnx
def test_an_operation_that_onnx_lacks_is_named(tmp_path):
    class Odd(VisionTransformer):
        def forward(self, images):
            return super().forward(images) + torch.linalg.matrix_exp(images[..., :8, :8])[..., 0, 0].sum()

    model = Odd(small().config)
    with pytest.raises(ValueError, match="ONNX has no operation for aten.linalg_matrix_exp"):
        export(weights_of(model), tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_what_is_missing_is_named(tmp_path, without_onnxscript):
    with pytest.raises(ImportError, match="ONNX needs onnxscript, which is not installed: pip install"):
        export(weights_of(small()), tmp_path / "model.onnx")


def test_an_unknown_format_is_refused(tmp_path):
    with pytest.raises(ValueError, match="unknown format 'tflite'"):
        export(weights_of(small()), tmp_path / "model", "tflite")


def test_eight_bits_are_off_by_half_a_step_at_most():
    weight = torch.randn(5, 7) * torch.tensor([[1e-3], [1.0], [30.0], [0.0], [2.0]])
    numbers, scale = quantize(weight)
    assert numbers.dtype == torch.int8 and numbers.abs().amax(dim=1).tolist() == [127, 127, 127, 0, 127]
    assert ((numbers * scale - weight).abs() <= scale / 2 * 1.0001).all()
    assert_close(quantize(numbers * scale)[0], numbers)  # what is quantized already stays

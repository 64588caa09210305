"""Exported models give the model's logits, for any number of images and any size; weights in 8 bits stay near."""

import inspect
import json
import os
import resource
import sys
import zipfile
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from small_models import backbone, of_every_kind
from torch.testing import assert_close

import vitbook
from vitbook import export as module
from vitbook.cnn import CNNConfig, WhiteningCNN
from vitbook.export import FORMATS, AnySize, export, load_exported, quantize, traced
from vitbook.pretrained import Preprocessing, Pretrained, load_pretrained
from vitbook.pretrained.preprocessing import STYLES
from vitbook.vit import VisionTransformer

pytest_plugins = ["shared_fixtures"]

pytestmark = pytest.mark.door  # a check of shapes would make symbolic sizes fixed ones
MISSING = [name for name in ("onnx", "onnxscript", "onnxruntime") if find_spec(name) is None]
of_some_kinds = pytest.mark.parametrize(  # each with much in it, since an export takes seconds
    "changes",
    [
        pytest.param({}, id="plain"),
        pytest.param({"distilled": True, "positions": "learned_2d"}, id="two tokens"),
        pytest.param(
            dict(rotary_base=100.0, positions="sincos_2d", registers=1, attention_pool=True, norm="rms"),
            id="rotary and pooled by attention",
        ),
    ],
)
with_onnx = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {MISSING}")
in_every_format = pytest.mark.parametrize(
    "name", ["model.pt2", *(pytest.param(name, marks=pytest.mark.slow) for name in ("model.onnx", "model.int8.onnx"))]
)


def small(**changes) -> VisionTransformer:
    return backbone(**changes).float()


def weights_of(model: VisionTransformer, style: str = "google") -> Pretrained:
    seen = Preprocessing(image_size=model.config.image_size, **STYLES[style])
    return Pretrained(model, seen, tuple("abcdefghi"), "vitbook", ())


def format_of(name: str) -> str:
    return "int8" if "int8" in name else name.rpartition(".")[2]


class Mine(VisionTransformer):
    def forward(self, images):
        a_line_of_my_source = super().forward(images)
        return 2 * a_line_of_my_source


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


@pytest.mark.slow
@torch.no_grad()
@of_some_kinds
def test_a_graph_takes_any_number_of_images_and_any_size(changes):
    model = small(**changes)
    program = traced(model).module()
    for batch in (1, 5):
        assert_close(program(images := torch.randn(batch, 3, 8, 12)), model(images))
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
@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("to", FORMATS)
def test_a_file_gives_the_logits_of_the_model_and_says_what_it_takes(to, tmp_path):
    model = load_pretrained("vitbook:cifar10").model
    weights = load_pretrained("vitbook:cifar10")
    file = export(weights, tmp_path / f"model.{'pt2' if to == 'pt2' else 'onnx'}", to)
    run, facts = load_exported(file)
    images = torch.randn(3, 3, 32, 32)
    assert_close(run(images), model(images), **(dict(rtol=0, atol=0.5) if to == "int8" else dict(rtol=1e-4, atol=1e-5)))
    assert facts["class_names"] == list(weights.class_names) and facts["image_size"] == [32, 32]
    assert json.loads((tmp_path / f"{file.name}.json").read_text()) == facts
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
@pytest.mark.slow
def test_an_operation_that_onnx_lacks_is_named(tmp_path):
    class Odd(VisionTransformer):
        def forward(self, images):
            return super().forward(images) + torch.linalg.matrix_exp(images[..., :8, :8])[..., 0, 0].sum()

    model = Odd(small(depth=1).config)
    with pytest.raises(ValueError, match="ONNX has no operation for aten.linalg_matrix_exp"):
        export(weights_of(model), tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_what_is_missing_is_named(tmp_path, without_onnxscript):
    with pytest.raises(ImportError, match="ONNX needs onnxscript, which is not installed: pip install"):
        export(weights_of(small()), tmp_path / "model.onnx")


@with_onnx
@in_every_format
def test_a_file_holds_nothing_of_where_it_was_made(name, tmp_path):
    weights = weights_of(Mine(small(depth=1).config).eval())
    file = export(weights, tmp_path / name, format_of(name))
    content = file.read_bytes()
    if name.endswith("pt2"):
        parts = zipfile.ZipFile(file)
        content = b"".join(parts.read(part) for part in parts.namelist())
        assert torch.export.load(file).example_inputs is None
    lines = inspect.getsource(vitbook.encoder) + inspect.getsource(vitbook.vit) + inspect.getsource(Mine)
    lines = {line.strip() for line in lines.splitlines() if len(line.strip()) > 12}
    places = {Path(vitbook.__file__).parent, Path(__file__).parent, Path.home(), Path.cwd(), sys.prefix, tmp_path}
    betrayed = [text for text in lines | set(map(str, places)) - {"/"} if text.encode() in content]
    assert not betrayed


@with_onnx
@pytest.mark.slow
@pytest.mark.parametrize("any_size, sizes", [(False, ["batch", 3, 8, 12]), (True, ["batch", 3, "4*rows", "4*columns"])])
def test_the_axes_of_a_graph_have_names(any_size, sizes, tmp_path):
    import onnx
    import onnxruntime

    file = export(weights_of(small(depth=1)), tmp_path / "model.onnx", any_size=any_size)
    options = onnxruntime.SessionOptions()
    assert onnxruntime.InferenceSession(file, options).get_inputs()[0].shape == sizes
    graph = onnx.load(file).graph
    # A weight's shape stands once: before 1.32, ONNX Runtime's quantizer leaves a second one as it was
    stated = {value.name for value in graph.value_info if value.type.tensor_type.HasField("shape")}
    assert stated and stated.isdisjoint(weight.name for weight in graph.initializer)
    named = {dim.dim_param for value in graph.value_info for dim in value.type.tensor_type.shape.dim}
    assert not [name for name in named if name.startswith("s") or name == "None"]
    options.add_free_dimension_override_by_name("batch", 2)
    assert onnxruntime.InferenceSession(file, options).get_inputs()[0].shape[0] == 2


@pytest.mark.parametrize("style", STYLES)
def test_all_of_the_preprocessing_is_stated(style):
    seen = weights_of(small(depth=1), style)
    facts = json.loads(json.dumps(module._facts(seen)))
    assert facts.pop("class_names") == list("abcdefghi")
    stated = {name: tuple(fact) if isinstance(fact, list) else fact for name, fact in facts.items()}
    assert Preprocessing(**stated) == seen.preprocessing


def test_what_a_number_was_standardized_by_is_stated(tmp_path):
    stated = {"task": "number", "scale": [51.0, 7.0]}
    weights = replace(
        weights_of(small(depth=1, num_classes=1)), facts=stated | {"about": "not for others"}, task="number"
    )
    facts = load_exported(export(weights, tmp_path / "new" / "model.pt2", "pt2"))[1]
    assert stated.items() <= facts.items() and "about" not in facts
    assert json.loads((tmp_path / "new" / "model.pt2.json").read_text()) == facts


@with_onnx
@in_every_format
def test_what_was_there_stays_where_writing_fails(name, tmp_path):
    (tmp_path / name).write_bytes(b"a good model")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, before[1]))
    try:
        with pytest.raises(OSError, match=name):
            export(weights_of(small(depth=1)), tmp_path / name, format_of(name))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert os.listdir(tmp_path) == [name] and (tmp_path / name).read_bytes() == b"a good model"


def test_a_file_that_answers_otherwise_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "load_exported", lambda file: (lambda images: images.new_full((2, 9), 0.7), {}))
    with pytest.raises(ValueError, match=r"model.pt2 is not written: its logits would be off by"):
        export(weights_of(small(depth=1)), tmp_path / "model.pt2", "pt2")
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("name, to", [("best.json", "onnx"), ("model.onnx", "pt2"), ("model", "int8")])
def test_a_name_of_another_format_is_refused(name, to, tmp_path):
    suffix = ".pt2" if to == "pt2" else ".onnx"
    with pytest.raises(ValueError, match=rf"in the format {to} must end in {suffix}, got .*{name}"):
        export(weights_of(small()), tmp_path / "new" / name, to)
    assert not (tmp_path / "new").exists()


def test_an_unknown_format_is_refused(tmp_path):
    with pytest.raises(ValueError, match="unknown format 'tflite'"):
        export(weights_of(small()), tmp_path / "model", "tflite")


def test_eight_bits_are_off_by_half_a_step_at_most():
    weight = torch.randn(5, 7) * torch.tensor([[1e-3], [1.0], [30.0], [0.0], [2.0]])
    numbers, scale = quantize(weight)
    assert numbers.dtype == torch.int8 and numbers.abs().amax(dim=1).tolist() == [127, 127, 127, 0, 127]
    assert ((numbers * scale - weight).abs() <= scale / 2 * 1.0001).all()
    assert_close(quantize(numbers * scale)[0], numbers)  # what is quantized already stays

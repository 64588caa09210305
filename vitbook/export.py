"""Out of the notebook: a model as a graph of operations that other programs run, and its weights as whole numbers."""

import importlib.util
import json
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from jaxtyping import Float, Int8
from torch import Tensor, nn

from vitbook._common.suggestions import unknown
from vitbook.patches import Images
from vitbook.pretrained import Pretrained
from vitbook.vit import Logits, VisionTransformer

Runner = Callable[[Images], Logits]
FORMATS = {
    "pt2": "torch's own: Python is gone, torch is still needed",
    "onnx": "for ONNX Runtime and others, float32",
    "int8": "ONNX with weights of 8 bits",
}


def quantize(
    weight: Float[Tensor, "outputs inputs"],
) -> tuple[Int8[Tensor, "outputs inputs"], Float[Tensor, "outputs 1"]]:
    """W ≈ s·Q with whole numbers Q from −127 to 127, and a scale s for each output: its largest weight, over 127.

    Symmetric and per channel, as ONNX Runtime does it: Jacob et al. 2018, section 2.1, with zero-point 0. No weight is
    off by more than s/2. A row of zeros keeps the scale 1.
    """
    largest = weight.abs().amax(dim=1, keepdim=True)
    scale = torch.where(largest > 0, largest / 127, 1.0)
    return (weight / scale).round().to(torch.int8), scale


class AnySize(nn.Module):
    """A model that takes images of any size that patches fill: its positions are interpolated on the way.

    Learned ones bilinearly, without antialiasing, which exporters translate faithfully. Raises ValueError for a model
    of another kind.
    """

    def __init__(self, model: VisionTransformer):
        super().__init__()
        if not isinstance(model, VisionTransformer):
            raise ValueError(f"images of any size are for a VisionTransformer, got a {type(model).__name__}")
        self.model = deepcopy(model, {id(weight): weight for weight in model.parameters()})  # with the same weights
        self.model.embedding.positions.interpolation = {"mode": "bilinear", "antialias": False}

    def forward(self, images: Images) -> Logits:
        return self.model(images, any_size=True)


def traced(model: VisionTransformer, any_size: bool = False) -> torch.export.ExportedProgram:
    """The model in evaluation as a graph of tensor operations, for any number of images at once.

    any_size: also for images of any size that patches fill, from two patches a side on, as in `AnySize`.
    """
    module = AnySize(model) if any_size else model
    config: Any = model.config
    dims = {0: torch.export.Dim("batch", min=1, max=2**31 - 1)}  # torch 2.5 wants a largest
    height, width = config.image_size
    if any_size:  # an example of other sides than the model's, so that no number stands for two
        P = config.patch_size
        height, width = height + P, width + 2 * P
        dims |= {axis: P * torch.export.Dim(name, min=2, max=4096 // P) for axis, name in ((2, "rows"), (3, "columns"))}
    images = torch.zeros(3, config.channels, height, width)
    with _quiet(), torch.no_grad():
        return torch.export.export(module.eval(), (images,), dynamic_shapes=(dims,))


def export(weights: Pretrained, file: str | Path, to: str = "onnx", any_size: bool = False) -> Path:
    """Write a model to a file that needs neither this package nor the code of the model.

    to: a key of `FORMATS`; any_size: as in `traced`. The names of the classes, the size of the images, their mean and
    standard deviation are in the file too, under the name "vitbook", as JSON.

    Raises ValueError for an unknown format, for an operation that ONNX lacks and as `AnySize`, and ImportError where
    onnx, onnxscript or onnxruntime is missing.
    """
    if to not in FORMATS:
        raise ValueError(unknown("format", to, FORMATS))
    file, facts = Path(file), json.dumps(_facts(weights))
    if to != "pt2":
        _need("onnx", "onnxscript", "onnxruntime")
    program = traced(weights.model, any_size)
    if to == "pt2":
        torch.export.save(program, file, extra_files={"vitbook": facts})
        return file
    with TemporaryDirectory() as folder, _quiet():
        whole = file if to == "onnx" else Path(folder) / "float32.onnx"
        try:
            graph = torch.onnx.export(
                program, (), input_names=["images"], output_names=["logits"], dynamo=True, verbose=False
            )
            assert graph is not None  # it is where a file is named
        except torch.onnx.OnnxExporterError as error:
            named = re.search(r"aten[.:]+\w+", str(error)) or str(error).strip().splitlines() or ["?"]
            raise ValueError(f"ONNX has no operation for {named[0]}, which the model uses") from error
        graph.model.metadata_props["vitbook"] = facts
        graph.save(whole)
        if to == "int8":
            from onnxruntime.quantization import QuantType, quantize_dynamic

            # Weights of 7 bits: of 8, x86 processors without VNNI add two products in 16 bits, which overflow.
            linear = ["MatMul", "Gemm"]
            quantize_dynamic(whole, file, linear, per_channel=True, reduce_range=True, weight_type=QuantType.QInt8)
    return file


def load_exported(file: str | Path, threads: int = 1) -> tuple[Runner, Mapping]:
    """An exported model as a function of images, and what the file says about it. ONNX runs in ONNX Runtime."""
    if Path(file).suffix == ".pt2":
        facts = {"vitbook": ""}
        return torch.export.load(file, extra_files=facts).module(), json.loads(facts["vitbook"])
    _need("onnxruntime")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    facts = json.loads(session.get_modelmeta().custom_metadata_map["vitbook"])
    return lambda images: torch.from_numpy(session.run(None, {"images": images.numpy()})[0]), facts


def _facts(weights: Pretrained) -> dict:
    seen = weights.preprocessing
    names = {name: list(getattr(seen, name)) for name in ("mean", "std", "image_size")}
    return names | {"crop": seen.crop, "interpolation": seen.interpolation, "class_names": weights.class_names}


def _need(*modules: str) -> None:
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if missing:
        raise ImportError(f'ONNX needs {", ".join(missing)}, which is not installed: pip install "vitbook[export]"')


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what the exporters say about themselves."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)

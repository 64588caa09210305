"""Out of the notebook: a model as a graph of operations that other programs run, and its weights as whole numbers."""

import importlib.util
import io
import json
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from jaxtyping import Float, Int8
from torch import Tensor, nn

from vitbook._common.files import replace_file
from vitbook._common.suggestions import unknown
from vitbook.patches import Images
from vitbook.pretrained import Pretrained
from vitbook.vit import Logits, VisionTransformer

Runner = Callable[[Images], Logits]
FORMATS = {
    "pt2": "torch's own: Python is gone, torch is still needed",
    "onnx": "ONNX in float32, which most runtimes take",
    "int8": "ONNX with weights of 8 bits, for ONNX Runtime",
}
_SUFFIXES = {"pt2": ".pt2", "onnx": ".onnx", "int8": ".onnx"}
_OFF = 1e-3  # of the largest logit: more than this is no rounding


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


def traced(model: VisionTransformer, any_size: bool = False, most: int | None = None) -> torch.export.ExportedProgram:
    """The model in evaluation as a graph of tensor operations, for any number of images at once.

    any_size: also for images of any size that patches fill, from two patches a side on, as in `AnySize`; most: the
    largest number of images, for which some runtimes plan their memory.
    """
    module = AnySize(model) if any_size else model
    config: Any = model.config
    dims = {0: torch.export.Dim("batch", min=1, max=most or 2**31 - 1)}  # torch 2.5 wants a largest
    height, width = config.image_size
    if any_size:  # an example of other sides than the model's, so that no number stands for two
        P = config.patch_size
        height, width = height + P, width + 2 * P
        dims |= {axis: P * torch.export.Dim(name, min=2, max=4096 // P) for axis, name in ((2, "rows"), (3, "columns"))}
    images = torch.zeros(min(3, most or 3), config.channels, height, width)
    with _quiet(), torch.no_grad():
        program = torch.export.export(module.eval(), (images,), dynamic_shapes=(dims,), strict=False)
    for node in program.graph.nodes:  # no line of the source, no folder of this machine
        for name in ("stack_trace", "from_node", "source_fn_stack"):
            node.meta.pop(name, None)
    program._example_inputs = None  # nor images
    return program


def _slice_chunks(program: torch.export.ExportedProgram) -> None:
    """Cut by slices what is cut by chunk: of chunks, ExecuTorch 1.5.1 makes a program for the example's batch alone."""
    graph, aten = program.graph, torch.ops.aten
    for chunk in graph.find_nodes(op="call_function", target=aten.chunk.default):
        whole, axis = chunk.args[0], (*chunk.args, 0)[2]
        widths = [part.shape[axis] for part in chunk.meta["val"]]
        for part in list(chunk.users):
            first = sum(widths[: part.args[1]])
            with graph.inserting_before(part):
                cut = graph.call_function(aten.slice.Tensor, (whole, axis, first, first + widths[part.args[1]]))
            cut.meta = dict(part.meta)
            part.replace_all_uses_with(cut)
            graph.erase_node(part)
        graph.erase_node(chunk)
    program.graph_module.recompile()


def export(weights: Pretrained, file: str | Path, to: str = "onnx", any_size: bool = False, most: int = 64) -> Path:
    """Write a model to a file that needs neither this package nor the code of the model.

    to: a key of `FORMATS`; any_size: as in `traced`; most: images at once in the format "pt2", since runtimes that
    start from it, as ExecuTorch, plan memory for so many; ONNX has no such limit. The names of the classes and all of
    the preprocessing are in the file too, under the name "vitbook", as JSON, and in a file beside it, `file`.json, for
    runtimes that do not read them. So are, where the weights state them, their task, and scale, the mean and standard
    deviation by which a number was standardized. The new file takes its place when it has been run and gives the
    model's logits; till then, what was there stays.

    Raises ValueError for an unknown format, a name of another suffix, an operation that ONNX lacks, logits that are
    off, and as `AnySize`; ImportError where onnx, onnxscript or onnxruntime is missing; OSError where the disk is full
    or may not be written to.
    """
    if to not in FORMATS:
        raise ValueError(unknown("format", to, FORMATS))
    file, facts = Path(file), json.dumps(_facts(weights))
    if file.suffix != _SUFFIXES[to] or file.is_dir():
        raise ValueError(f"the name of a file in the format {to} must end in {_SUFFIXES[to]}, got {file}")
    if to != "pt2":
        _need("onnx", "onnxscript", "onnxruntime")
    program = traced(weights.model, any_size, most if to == "pt2" else None)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=file.parent, prefix=".") as folder:
            part = Path(folder, file.name)
            if to == "pt2":
                _slice_chunks(program)
                content = io.BytesIO()  # torch's own writer ends the process where the disk is full
                torch.export.save(program, content, extra_files={"vitbook": facts})
                part.write_bytes(content.getvalue())
            else:
                _write_onnx(program, part, facts, to == "int8")
            off, largest = difference(part, weights.model)
            if to != "int8" and not off <= _OFF * max(1.0, largest):
                raise ValueError(f"{file} is not written: its logits would be off by {off:.1e}, of {largest:.1f}")
            part.with_name(f"{file.name}.json").write_text(facts + "\n", encoding="utf-8")
            for written in sorted(Path(folder).iterdir(), reverse=True):  # what lies beside it first
                replace_file(written, file.with_name(written.name))
    except OSError as error:
        error.filename = str(file)  # a full disk names no file
        raise
    return file


def _write_onnx(program: torch.export.ExportedProgram, file: Path, facts: str, int8: bool) -> None:
    with TemporaryDirectory(dir=file.parent) as folder, _quiet():
        whole = Path(folder, file.name) if int8 else file
        try:
            graph = torch.onnx.export(
                program, (), input_names=["images"], output_names=["logits"], dynamo=True, verbose=False
            )
            assert graph is not None  # it is where a file is named
        except torch.onnx.OnnxExporterError as error:
            named = re.search(r"aten[.:]+\w+", str(error)) or str(error).strip().splitlines() or ["?"]
            raise ValueError(f"ONNX has no operation for {named[0]}, which the model uses") from error
        _tidy(graph.model, program)
        graph.model.metadata_props["vitbook"] = facts
        graph.save(whole)
        if int8:
            from onnxruntime.quantization import QuantType, quantize_dynamic

            # Weights of 7 bits: of 8, x86 processors without VNNI add two products in 16 bits, which overflow.
            linear = ["MatMul", "Gemm"]
            quantize_dynamic(whole, file, linear, per_channel=True, reduce_range=True, weight_type=QuantType.QInt8)


def _tidy(model: Any, program: torch.export.ExportedProgram) -> None:
    """Call the axes of an ONNX model what they are, and take out what its operations were in Python."""
    images = next(node for node in program.graph.nodes if node.op == "placeholder" and node.name == "images")
    names = ("batch", "channels", "rows", "columns")
    symbols = {
        str(symbol): name
        for size, name in zip(images.meta["val"].shape, names, strict=True)
        if isinstance(size, torch.SymInt)
        for symbol in size.node.expr.free_symbols
    }

    def renamed(value: Any) -> None:
        value.metadata_props.clear()
        for axis, size in enumerate(value.shape or ()):
            if not isinstance(size, int) and size.value is not None:
                value.shape[axis] = re.sub(r"\w+", lambda found: symbols.get(found[0], found[0]), str(size))

    for value in model.graph.inputs:
        renamed(value)
    for value in model.graph.initializers.values():
        value.metadata_props.clear()
        value.shape = None  # it has its own; for int8, ONNX Runtime before 1.32 transposes that one alone
    for node in model.graph.all_nodes():
        node.metadata_props.clear()
        for value in node.outputs:
            renamed(value)


@torch.no_grad()
def difference(file: str | Path, model: VisionTransformer) -> tuple[float, float]:
    """By how much logits of random images in an exported file and in its model differ at most, and the largest."""
    config: Any = model.config
    images = torch.randn(2, config.channels, *config.image_size, generator=torch.Generator().manual_seed(0))
    run, expected = load_exported(file)[0], model(images)
    return (run(images) - expected).abs().max().item(), expected.abs().max().item()


def load_exported(file: str | Path) -> tuple[Runner, Mapping]:
    """An exported model as a function of images, and what the file says about it. ONNX runs in ONNX Runtime."""
    if Path(file).suffix == ".pt2":
        facts = {"vitbook": ""}
        return torch.export.load(file, extra_files=facts).module(), json.loads(facts["vitbook"])
    _need("onnxruntime")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    facts = json.loads(session.get_modelmeta().custom_metadata_map["vitbook"])
    return lambda images: torch.from_numpy(session.run(None, {"images": images.numpy()})[0]), facts


def _facts(weights: Pretrained) -> dict:
    answer = {"task": weights.task} if weights.task != "classes" else {}
    answer |= {"scale": weights.facts["scale"]} if "scale" in weights.facts else {}
    return asdict(weights.preprocessing) | {"class_names": weights.class_names} | answer


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

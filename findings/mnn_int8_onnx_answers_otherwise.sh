#!/bin/sh
# MNN 3.6.1 takes an ONNX file that onnxruntime 1.32.0 has quantized dynamically (weights in 8 bits, a scale for each
# output) without a warning and gives other answers, off by a large part of the largest; the float32 file is right.
# Guessed: what a converter cannot translate, it refuses. Compare the answers of every new runtime.
set -e
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet numpy==2.4.6 onnx==1.23.2 onnxruntime==1.32.0 MNN==3.6.1
cat > try.py <<'P'
import subprocess
import sys
from importlib.metadata import version

import MNN
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

print(*(f"{name} {version(name)}" for name in ("onnx", "onnxruntime", "MNN")))
draw = np.random.default_rng(0)
first, second = draw.normal(size=(64, 128)).astype("f4"), draw.normal(size=(128, 10)).astype("f4")
nodes = [
    helper.make_node("MatMul", ["x", "first"], ["wide"]),
    helper.make_node("Relu", ["wide"], ["bent"]),
    helper.make_node("MatMul", ["bent", "second"], ["y"]),
]
shape = ["batch", 17]
graph = helper.make_graph(
    nodes,
    "two_maps",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, [*shape, 64])],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, [*shape, 10])],
    [numpy_helper.from_array(first, "first"), numpy_helper.from_array(second, "second")],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
onnx.save(model, "float32.onnx")
quantize_dynamic("float32.onnx", "int8.onnx", per_channel=True, reduce_range=True, weight_type=QuantType.QInt8)
x = draw.normal(size=(4, 17, 64)).astype("f4")
off = {}
for name in ("float32", "int8"):
    expected = onnxruntime.InferenceSession(f"{name}.onnx").run(None, {"x": x})[0]
    convert = [sys.executable.replace("python", "mnnconvert"), "-f", "ONNX", "--modelFile", f"{name}.onnx"]
    subprocess.run([*convert, "--MNNModel", f"{name}.mnn", "--bizCode", "none"], check=True, capture_output=True)
    net = MNN.nn.load_module_from_file(f"{name}.mnn", ["x"], ["y"])
    got = np.array(net.forward(MNN.expr.const(x, x.shape, MNN.expr.NCHW)).read()).reshape(expected.shape)
    off[name] = float(np.abs(got - expected).max() / np.abs(expected).max())
    print(f"{name}: off from onnxruntime by {off[name]:.1%} of the largest output")
assert off["float32"] < 0.01 and off["int8"] > 0.1, off
P
env/bin/python try.py

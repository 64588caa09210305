"""Which runtimes take an exported model, how far from torch are they, and how quick?

    python records/runtimes.py vitbook/assets/runs/runtimes.json

Installs each runtime, in the version that stands here, into a folder of its own (PyPI; npm for the one in JavaScript),
gives it what `vitbook export` writes, and compares logits of 8 photographs with PyTorch's. Each runs in a process of
its own, on one thread. Times are CPU seconds, since a machine may be shared: a row for each of `--rounds` rounds, in
which the runtimes come in another order each time. Some ten minutes, most of them downloads.
"""

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from importlib.metadata import distributions
from pathlib import Path

import numpy as np
from numpy import ndarray

Runner = Callable[[ndarray], ndarray]
BATCHES = (1, 8)


def onnxruntime(file: str) -> Runner:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    return lambda images: session.run(None, {"images": images})[0]


def openvino(file: str, **settings: str) -> Runner:
    import openvino

    settings |= {"INFERENCE_NUM_THREADS": "1"}
    compiled = openvino.Core().compile_model(file, "CPU", settings)
    request = compiled.create_infer_request()
    return lambda images: request.infer({"images": images})[compiled.output(0)].copy()


def openvino_in_float32(file: str) -> Runner:
    return openvino(file, INFERENCE_PRECISION_HINT="f32")


def opencv(file: str) -> Runner:
    import cv2

    cv2.setNumThreads(1)
    net = cv2.dnn.readNetFromONNX(file)

    def run(images: ndarray) -> ndarray:
        net.setInput(images)
        return net.forward().copy()

    return run


def mnn(file: str) -> Runner:
    import MNN

    converted = f"{file}.mnn"
    if not os.path.exists(converted):
        from MNN.tools import mnnconvert

        sys.argv = ["mnnconvert", "-f", "ONNX", "--modelFile", file, "--MNNModel", converted, "--bizCode", "none"]
        mnnconvert.main()
    runtime = MNN.nn.create_runtime_manager(({"backend": "CPU", "numThread": 1, "precision": "high"},))
    module = MNN.nn.load_module_from_file(converted, ["images"], ["logits"], runtime_manager=runtime)
    return lambda images: np.array(module.forward(MNN.expr.const(images, images.shape, MNN.expr.NCHW)).read())


def executorch(file: str) -> Runner:
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower
    from executorch.runtime import Runtime

    torch.set_num_threads(1)
    lowered = f"{file}.pte"
    if not os.path.exists(lowered):
        program = to_edge_transform_and_lower(torch.export.load(file), partitioner=[XnnpackPartitioner()])
        Path(lowered).write_bytes(program.to_executorch().buffer)
    method = Runtime.get().load_program(lowered).load_method("forward")
    return lambda images: method.execute([torch.from_numpy(images)])[0].numpy().copy()


def coremltools(file: str) -> Runner:
    import coremltools
    import torch

    program = torch.export.load(file).run_decompositions({})
    coremltools.convert(program, convert_to="mlprogram", skip_model_load=True)
    raise NotImplementedError("converted; it runs on Apple's systems alone")


def ncnn(file: str) -> Runner:
    import ncnn
    import pnnx

    folder, name = os.path.split(file)
    stem = Path(file).with_suffix("")
    if not os.path.exists(f"{stem}.ncnn.param"):
        program = Path(pnnx.__file__).with_name("pnnx")
        subprocess.run([program, name, "inputshape=[1,3,32,32]"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    net = ncnn.Net()
    net.opt.num_threads = 1
    if net.load_param(f"{stem}.ncnn.param") or net.load_model(f"{stem}.ncnn.bin"):
        raise ValueError("converted, but the result cannot be loaded: it has operations that ncnn lacks")

    def one(image: ndarray) -> ndarray:
        with net.create_extractor() as extractor:
            extractor.input("in0", ncnn.Mat(image).clone())
            return np.array(extractor.extract("out0")[1]).ravel()

    return lambda images: np.stack([one(image) for image in images])


@dataclass(frozen=True)
class Runtime:
    """What is tried: how to install it, what makes a function of a file, and which files."""

    name: str
    packages: str  # the first names its version
    load: Callable[[str], Runner] | None = None  # None for the one in JavaScript
    formats: tuple[str, ...] = ("onnx", "int8")


RUNTIMES = [
    Runtime("ONNX Runtime", "onnxruntime==1.32.0", onnxruntime),
    Runtime("ONNX Runtime Web", "onnxruntime-web@1.30.0"),
    Runtime("OpenVINO", "openvino==2026.4.1", openvino),
    Runtime("OpenVINO, float32", "openvino==2026.4.1", openvino_in_float32),
    Runtime("OpenCV 4", "opencv-python-headless==4.14.0.94", opencv),
    Runtime("OpenCV 5", "opencv-python-headless==5.0.0.93", opencv),
    Runtime("MNN", "MNN==3.6.1", mnn),
    Runtime("ncnn", "ncnn pnnx portalocker tqdm", ncnn),
    Runtime(
        "ExecuTorch",
        "executorch==1.5.1 torchao==0.18.0 pandas ruamel.yaml tabulate expecttest py-cpuinfo parameterized pytz"
        " python-dateutil six tzdata hypothesis sortedcontainers",
        executorch,
        ("pt2",),
    ),
    Runtime("Core ML", "coremltools==9.0 cattrs pyaml", coremltools, ("pt2",)),
]


def measured(run: Runner, images: ndarray, expected: ndarray) -> dict:
    """In a process of its own: how far off, whether an image with a NaN is answered, and CPU milliseconds a batch."""
    found: dict = {"largest_difference": float(np.abs(run(images) - expected).max())}
    broken = images.copy()
    broken[0, 0, 3, 4] = np.nan
    found["answers_nan"] = bool(np.isfinite(run(broken)[0]).all())
    for batch in BATCHES:
        some, times = images[:batch], []
        for _ in range(3):
            run(some)
        for _ in range(15):
            began = time.process_time()
            run(some)
            times.append(time.process_time() - began)
        found[f"milliseconds_of_{batch}"] = 1000 * statistics.median(times)
    return found


def answer(name: str, file: str, data: str) -> None:
    """What one runtime makes of one file, printed as JSON at the end."""
    runtime = next(runtime for runtime in RUNTIMES if runtime.name == name)
    assert runtime.load
    given = np.load(data)
    try:
        found = measured(runtime.load(file), given["images"], given["logits"])
    except NotImplementedError as reached:
        found = {"said": str(reached)}
    except Exception as error:  # whatever a library says of a file
        found = {"refused": " ".join(f"{type(error).__name__}: {error}".split())[:300]}
    print("\n" + json.dumps(found))


def installed(runtime: Runtime, folder: Path) -> tuple[Path, str]:
    """Where a runtime is, and its version."""
    first, *more = runtime.packages.split()
    place = folder / first.replace("==", "-").replace("@", "-")
    if not place.exists():
        place.mkdir(parents=True)
        if runtime.load:
            quiet = ["--quiet", "--disable-pip-version-check", "--no-deps"]
            subprocess.run(
                [sys.executable, "-m", "pip", "install", *quiet, "--target", place, first, *more], check=True
            )
        else:
            subprocess.run(["npm", "install", "--silent", "--no-save", first], cwd=place, check=True)
    if not runtime.load:
        return place, first.rpartition("@")[2]
    name = first.partition("==")[0]
    return place, next(d.version for d in distributions(path=[str(place)]) if d.name.lower() == name.lower())


def asked(runtime: Runtime, place: Path, file: Path, data: Path) -> dict:
    """What a runtime makes of a file, in a new process."""
    environment = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    if runtime.load:
        command = [sys.executable, __file__, "--answer", runtime.name, str(file), str(data)]
        environment |= {"PYTHONPATH": f"{place}:{os.environ.get('PYTHONPATH', '')}"}
    else:
        command = ["node", str(Path(__file__).with_suffix(".mjs")), str(place), str(file), str(data)]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    except subprocess.TimeoutExpired:
        return {"refused": "no answer within ten minutes"}
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        return {"refused": f"the process ends with {done.returncode}: {said[-1][:300] if said else 'nothing was said'}"}
    return json.loads(done.stdout.splitlines()[-1])


def main(arguments: list[str] | None = None) -> None:
    import torch
    from harness import arguments_of, processor, versions, write

    from vitbook.data import album
    from vitbook.export import export
    from vitbook.pretrained import load_pretrained

    parser = arguments_of(__doc__, data_dir=False, weights=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", help="names of runtimes; all if not given")
    parser.add_argument("--folder", type=Path, help="where to install them; without it, they are removed at the end")
    given = parser.parse_args(arguments)
    weights = load_pretrained(given.weights)
    images = weights.preprocessing.normalize(album(weights.preprocessing.image_size[0]).images[:8])
    with torch.no_grad():
        logits = weights.model(images)
    rows: dict[tuple[str, str], dict] = {}
    with tempfile.TemporaryDirectory() as made:
        folder = given.folder or Path(made, "runtimes")
        data = Path(made, "images.npz")
        np.savez(data, images=images.numpy(), logits=logits.numpy())
        images.numpy().tofile(data.with_suffix(".images"))
        logits.numpy().tofile(data.with_suffix(".logits"))
        files = {
            to: export(weights, Path(made, f"{to}.{'pt2' if to == 'pt2' else 'onnx'}"), to)
            for to in ("pt2", "onnx", "int8")
        }
        tried = [runtime for runtime in RUNTIMES if not given.only or runtime.name in given.only]
        for round_ in range(given.rounds):
            for runtime in random.Random(round_).sample(tried, len(tried)):
                place, version = installed(runtime, folder)
                for to in runtime.formats:
                    row = rows.setdefault(
                        (runtime.name, to), {"runtime": runtime.name, "version": version, "format": to}
                    )
                    if {"refused", "said"} & row.keys():
                        continue
                    for name, value in asked(runtime, place, files[to], data).items():
                        row.setdefault(name, []).append(value) if name.startswith("milli") else row.update(
                            {name: value}
                        )
                    print(round_, row, flush=True)
        facts = {"date": date.today().isoformat(), "weights": given.weights, "processor": processor(), **versions()}
        facts |= {"instructions": torch.backends.cpu.get_cpu_capability(), "threads": 1, "images": len(images)}
        facts |= {"bytes": {to: file.stat().st_size for to, file in files.items()}}
        facts |= {"largest_logit": logits.abs().max().item()}
    order = [(runtime.name, to) for runtime in tried for to in runtime.formats]
    write(given.file, facts | {"runtimes": [rows[key] for key in order]})


if __name__ == "__main__":
    if sys.argv[1:2] == ["--answer"]:
        answer(*sys.argv[2:])
    else:
        main()

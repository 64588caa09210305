"""What waits for a GPU, in a quarter of an hour: every chapter, the recipe for a GPU, training steps, latency.

    python records/gpu.py --pack FOLDER --data DIR           where there is a network: what the other machine lacks
    python records/gpu.py --minutes 8 --packed FOLDER        on the GPU: Python 3.11, torch 2.5, and that folder
    python records/gpu.py --tiny --data DIR                  a dry run of every part on a CPU, which measures nothing

The parts run in order of worth, each in a process of its own and with a share of the minutes; what one leaves goes to
those after it. Each writes OUT/PART.json again after every row, so a run that is cut off leaves what it has.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import offline_bundle
import replay

ROOT = Path(__file__).resolve().parent.parent
PARTS = {"chapters": 0.3, "cifar10_gpu": 0.4, "steps": 0.2, "latency": 0.1}  # shares of the minutes


@dataclass
class Part:
    """Where a part finds its images and leaves its rows, how long it may take, and whether it only rehearses."""

    file: Path
    data: Path | None
    seconds: float
    tiny: bool

    def __post_init__(self):
        self.end = time.monotonic() + self.seconds
        self.rows: list[dict] = []

    @property
    def left(self) -> float:
        return self.end - time.monotonic()

    def add(self, **row: object) -> None:
        self.rows.append(row)
        self.write()

    def write(self, **more: object) -> None:
        """The whole file in one step: where it ran, every row so far."""
        import torch
        from harness import processor, versions, write

        found = {"part": self.file.stem, "processor": processor(), **versions(), "cuda": torch.version.cuda}
        write(self.file, found | {"tiny": self.tiny, "rows": self.rows} | more)


# Chapters


def chapters(part: Part) -> None:
    """Every chapter's code on this machine, its printed lines beside those that are stored in the notebook."""
    paths = sorted((ROOT / "chapters").glob("*.ipynb"), key=replay.recorded_seconds, reverse=True)
    paths = [path for path in paths if path.stem == "01_attention"] if part.tiny else paths
    jobs = max(1, min(8, (os.cpu_count() or 2) // 2))
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:

        def played(path: Path) -> dict:
            report = Path(folder, f"{path.stem}.json")
            if part.left > 0:
                run_within(part.left, ["--chapter", str(path), "--out", str(report)])
            return json.loads(report.read_text(encoding="utf-8")) if report.exists() else {"error": "it did not start"}

        found = {pool.submit(played, path): path.stem for path in paths}
        for future in as_completed(found):
            part.add(chapter=found[future], **future.result())


# The recipe for a GPU


def cifar10_gpu(part: Part) -> None:
    """As many seeds of the recipe as fit: seconds of training, seconds of the whole, test accuracy."""
    from vitbook_workshop.training_runs.results import evaluate_run
    from vitbook_workshop.training_runs.settings import run_of
    from vitbook_workshop.training_runs.training import train_run

    recipe, took = run_of(config=Path("cifar10_gpu")), 0.0
    if part.tiny:
        small = replace(recipe.vit, dim=12, depth=1, num_heads=3, mlp_dim=20)
        train = replace(recipe.train, epochs=1, batch_size=4, compile=False)
        recipe = replace(recipe, vit=small, train=train, validation=0.2)
    for seed in range(1 if part.tiny else 10):
        if part.left < 1.05 * took:
            break
        with tempfile.TemporaryDirectory() as folder:
            place, began = Path(folder, "run"), time.monotonic()
            run = replace(recipe, data_dir=part.data, folder=place, train=replace(recipe.train, seed=seed))
            try:
                history = train_run(run, progress=False)
                result = evaluate_run(place, "test")
            except (TimeoutError, FloatingPointError) as error:
                log = (place / "log.jsonl").read_text() if (place / "log.jsonl").exists() else ""
                how = {"cut_off": True} if isinstance(error, TimeoutError) else {"error": str(error)}
                part.add(seed=seed, **how, history=[json.loads(line) for line in log.splitlines()])
                if isinstance(error, TimeoutError):
                    raise
                continue
            took, last = time.monotonic() - began, history[-1]
            part.add(
                seed=seed,
                test_accuracy=result.accuracy,
                test_images=len(result.labels),
                validation_accuracy=max(record["validation_accuracy"] for record in history),
                epochs=last["epoch"],
                seconds=last["seconds"],
                seconds_with_loading_and_test=took,
                images_per_second=[round(record["images_per_second"]) for record in history],
            )


# Speed


@contextmanager
def explicit_attention() -> Iterator[None]:
    """Within the block the models store the softmax's weights, as Equation 1 reads."""
    from vitbook import attention, multihead

    quickest = multihead.quickest_attention
    multihead.quickest_attention = lambda *args, **options: attention.attention(*args, **options)[0]
    try:
        yield
    finally:
        multihead.quickest_attention = quickest


def shapes(part: Part) -> dict[str, tuple]:
    """Name → (config, batch of a training step, batches of the latency)."""
    from vitbook.vit import CONFIGS

    if part.tiny:
        return {"vit_digits": (replace(CONFIGS["vit_digits"], depth=1), 2, [1, 2])}
    batches = [2**power for power in range(11)]
    return {"vit_b_16": (CONFIGS["vit_b_16"], 128, batches), "vit_cifar": (CONFIGS["vit_cifar"], 1024, batches)}


def steps(part: Part) -> None:
    """A training step in bfloat16 beside a large matrix product in turns: eager and compiled, fused and explicit."""
    import torch
    from measure import make_call, matmul_call, ratio, side_by_side

    from vitbook.costs import training_flops
    from vitbook.runtime import device
    from vitbook.vit import VisionTransformer

    product, product_flops = matmul_call("bfloat16", device(), 64 if part.tiny else 0)
    ways = [("fused", "eager"), ("fused", "compiled"), ("explicit", "eager"), ("explicit", "compiled")]
    for attention, form in ways[::2] if part.tiny else ways:
        for name, (config, batch, _) in shapes(part).items():
            row = {"model": name, "batch": batch, "attention": attention, "form": form}
            with as_a_row(part, row), explicit_attention() if attention == "explicit" else nullcontext():
                torch.compiler.reset()
                began, model = time.monotonic(), VisionTransformer(config).to(device())
                network = torch.compile(model) if form == "compiled" else model
                step = make_call(network, config, batch, "step", "bfloat16", device())
                step()
                row["seconds_of_first_step"] = time.monotonic() - began
                rounds, turn = (1, 0) if part.tiny else (7, 0.2)
                times = side_by_side({"step": step, "product": product}, rounds, turn, device())
                flops = batch * training_flops(config)
                row |= {"seconds": times["step"], "flops": flops, **peak_memory()}
                row["product_flops_per_second"] = product_flops / statistics.median(times["product"])
                row["share_of_product"] = ratio(times["product"], times["step"])[1] * flops / product_flops


def latency(part: Part) -> None:
    """Seconds of one batch, weights and images in bfloat16: eager for every size, then as CUDA graphs for a few."""
    import torch
    from measure import forward_call, random_batch, side_by_side

    from vitbook.runtime import device
    from vitbook.vit import VisionTransformer

    for form in ("eager",) if part.tiny else ("eager", "compiled"):
        for name, (config, _, batches) in shapes(part).items():
            for batch in batches if form == "eager" else batches[::5]:
                row = {"model": name, "form": form, "batch": batch}
                with as_a_row(part, row):
                    torch.compiler.reset()
                    model = VisionTransformer(config).to(device(), torch.bfloat16).eval()
                    network = torch.compile(model, mode="reduce-overhead") if form == "compiled" else model
                    images = random_batch(config, batch, device())[0].to(torch.bfloat16)
                    call = forward_call(network, images, "float32")  # no autocast: all of it is bfloat16
                    call()
                    rounds, turn = (1, 0) if part.tiny else (7, 0.05)
                    row["seconds"] = side_by_side({"": call}, rounds, turn, device())[""]
                    row["images_per_second"] = batch / statistics.median(row["seconds"])


@contextmanager
def as_a_row(part: Part, row: dict) -> Iterator[None]:
    """Add the row when the block ends, with what went wrong if that was not the time; then go on."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    try:
        yield
    except Exception as error:  # a form that this version or this memory does not carry
        if part.left <= 0:
            raise TimeoutError from error
        row["error"] = f"{type(error).__name__}: {error}"[:1000]
    part.add(**row)


def peak_memory() -> dict:
    import torch

    return {"bytes": torch.cuda.max_memory_allocated()} if torch.cuda.is_available() else {}


# The whole


def run_within(seconds: float, arguments: list[str], environment: dict[str, str] | None = None) -> int:
    """This file in a process of its own, ended with all that it started once the time is over. Its exit status."""
    command = [sys.executable, str(Path(__file__).resolve()), *arguments]
    child = subprocess.Popen(command, env=environment, process_group=0)
    try:
        return child.wait(max(1.0, seconds))
    except subprocess.TimeoutExpired:
        return -signal.SIGKILL
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def environment_with(folder: Path) -> dict[str, str]:
    """This environment, with the project's modules and what was unpacked in the folder; outputs as in a notebook."""
    paths = [ROOT, ROOT / "benchmarks", os.environ.get("PYTHONPATH"), folder / "site"]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(str(path) for path in paths if path),
        "IPYTHONDIR": str(folder),
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "80",
    }


def play(part: Part) -> int:
    """One part in this process, until its time is over. 1 where it, or one of its rows, went wrong."""

    def over(*_: object) -> None:
        raise TimeoutError("the time of this part is over")

    signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, part.seconds, 5)  # again where a library swallowed the first
    began, ended = time.monotonic(), "done"
    try:
        globals()[part.file.stem](part)
    except TimeoutError:
        ended = "cut off"
    except Exception as error:
        ended = f"{type(error).__name__}: {error}"
    signal.setitimer(signal.ITIMER_REAL, 0)
    part.write(ended=ended, seconds=time.monotonic() - began)
    return int(ended not in ("done", "cut off") or any(row.get("error") for row in part.rows))


def play_all(names: list[str], minutes: float, packed: Path | None, data: Path | None, out: Path, tiny: bool) -> int:
    """Every part, each with its share of the time that is left, and what came of it in a line. 1 if one went wrong."""
    end, failed = time.monotonic() + 60 * minutes, 0
    with tempfile.TemporaryDirectory() as folder:
        if packed:
            offline_bundle.unpack(packed, Path(folder))
            data = data or next(Path(folder).glob("data"), None)
        environment = environment_with(Path(folder))
        for number, name in enumerate(names):
            left = end - time.monotonic()
            seconds = left * PARTS[name] / sum(PARTS[later] for later in names[number:])
            began, file = time.monotonic(), out / f"{name}.json"
            arguments = ["--part", name, "--seconds", str(seconds), "--out", str(file)]
            arguments += ["--data", str(data)] * bool(data) + ["--tiny"] * tiny
            failed |= run_within(seconds + 20, arguments, environment) != 0
            found = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
            rows, ended = found.get("rows", ()), found.get("ended", "ended before its time")
            wrong = sum(row.get("error") is not None for row in rows)
            said = f"{len(rows)} rows, {wrong} with an error, in {time.monotonic() - began:.0f} s"
            print(f"{name:<12} {said}: {ended}", flush=True)
    return int(failed)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=8, help="for all parts together")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="only these")
    parser.add_argument("--packed", type=Path, help="what --pack wrote")
    parser.add_argument("--out", type=Path, default=Path("gpu"), help="the folder to write results in")
    parser.add_argument("--data", type=Path, help="the folder with CIFAR-10's files, to train on or to pack")
    parser.add_argument("--tiny", action="store_true", help="a dry run, on a CPU as well")
    parser.add_argument("--pack", type=Path, metavar="FOLDER", help="write what the GPU's machine lacks there, no more")
    parser.add_argument("--python", default="3.12", help="which Python it has, for --pack")
    parser.add_argument("--there", nargs="*", default=[], metavar="NAME", help="packages that it has, for --pack")
    for hidden, kind in {"--part": str, "--chapter": Path, "--seconds": float}.items():  # how it calls itself
        parser.add_argument(hidden, type=kind, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    data = given.data and given.data.resolve()
    if given.pack:
        return offline_bundle.pack(given.pack, data, given.python, set(given.there)) or 0
    if given.chapter:
        return replay.replay(given.chapter, given.out) or 0
    if given.part:
        return play(Part(given.out, data, given.seconds, given.tiny))
    import torch

    if not (given.tiny or torch.cuda.is_available()):
        parser.error("there is no CUDA GPU here; --tiny tries every part on a CPU")
    return play_all(given.parts, given.minutes, given.packed, data, given.out.resolve(), given.tiny)


if __name__ == "__main__":
    sys.exit(main())

"""All that waits for a GPU, in one command: benchmark, chapters, the record on CIFAR-10, experiments at length.

    make gpu                                     on a GPU: some hours; results in gpu/, one JSON for each part
    python records/gpu.py --tiny             a dry run of every part on a CPU, which measures nothing

Each part is a command of this project, run as one would by hand. results.json says of each whether it passed, what it
printed last and how long it took; a command that is repeated leaves out the parts that passed.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import torch

from records import write

ROOT = Path(__file__).resolve().parent.parent
SEEDS = 5
GOALS = {  # what is hoped for; the records say what was found
    "benchmark": "a training step of B/16 in bfloat16 at 40 % of the peak",
    "cifar10_gpu": "94 % on the test images on average, each run in under 3 minutes",
}


def parts(folder: Path, data_dir: Path | None, tiny: bool) -> dict[str, list[list[str]]]:
    """Each part's commands, one after the other. `tiny` makes every one as short as it can be."""
    data = ["--data-dir", str(data_dir)] if data_dir else []
    record, seeds = folder / "cifar10_gpu", 2 if tiny else SEEDS
    places = [str(record / f"seed_{seed}") for seed in range(seeds)]
    train = ["train", "--config", "cifar10_gpu", "--folder", str(record), "--seeds", str(seeds), "--resume", *data]
    train += ["--no-progress"]
    deletion, ablation = ["--images", "10000"], ["--epochs", "30", "--share", "1"]
    flat = "--augment --dim 128 --tune 4 --most 400 --patience 20".split()
    benchmark, chapters = ["--only", "time"], sorted(map(str, (ROOT / "chapters").glob("*.ipynb")))
    if tiny:
        train += "--epochs 1 --batch-size 4 --dim 12 --depth 1 --num-heads 3 --mlp-dim 20 --no-compile".split()
        train += ["--validation", "0.2"]
        deletion = "--images 2 --points 2".split()
        ablation = "--epochs 1 --batch-size 8 --share 1 --seeds 0 --changes".split() + ["without clipping"]
        flat = "--dim 32 --tune 1 --most 2 --batch-size 4 --rates 0.001 --shares 1 --seeds 0 --validation 0.2".split()
        benchmark += ["--rows", "batch 1 ", "--rounds", "1", "--turn", "0"]
        chapters = chapters[:1]
    nbval = ["-m", "pytest", "-n", "0", "--nbval", "--nbval-current-env"]
    nbval += ["--nbval-sanitize-with", str(ROOT / "tests" / "book" / "approximate.cfg")]

    def experiment(name: str, *options: str) -> list[str]:
        file = name.removeprefix("record_") + ".json"
        return [str(ROOT / "records" / f"{name}.py"), str(folder / file), *data, *options]

    vitbook = ["-c", "from vitbook_workshop.commands import main; main()"]
    return {
        "benchmark": [[str(ROOT / "benchmarks" / "benchmark.py"), "--folder", str(folder / "benchmark"), *benchmark]],
        "chapters": [[*nbval, *chapters]],
        "cifar10_gpu": [[*vitbook, *train], [*vitbook, "evaluate", *places, *data]],
        "deletion": [experiment("record_deletion", *deletion)],
        "ablation": [experiment("record_ablation", *ablation)],
        "until_flat": [experiment("record_until_flat", *flat)],
    }


def run(commands: list[list[str]], environment: dict[str, str]) -> dict:
    """Run a part's commands until one fails. Whether all passed, the end of what they printed, and seconds."""
    began, printed, passed = time.perf_counter(), "", True
    for command in commands:
        streams = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        done = subprocess.run([sys.executable, *command], env=environment, text=True, cwd=ROOT, **streams)
        printed, passed = printed + done.stdout, done.returncode == 0
        if not passed:
            break
    return {
        "passed": passed,
        "commands": commands,
        "printed": printed[-20_000:].splitlines(),
        "seconds": time.perf_counter() - began,
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("gpu"), help="where to keep the results")
    parser.add_argument("--data-dir", type=Path, help="where CIFAR-10's files are; without it they are downloaded")
    parser.add_argument("--tiny", action="store_true", help="a dry run, on a CPU as well")
    parser.add_argument("--parts", nargs="+", help="only these")
    given = parser.parse_args(arguments)
    if not (given.tiny or torch.cuda.is_available()):
        parser.error("there is no CUDA GPU here; --tiny tries every part on a CPU")
    folder = given.folder.resolve()
    every = parts(folder, given.data_dir and given.data_dir.resolve(), given.tiny)
    if unknown := set(given.parts or ()) - set(every):
        parser.error(f"parts are {', '.join(every)}, got {', '.join(unknown)}")
    file = folder / "results.json"
    results = json.loads(file.read_text()) if file.exists() else {"parts": {}}
    results |= {
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "torch": torch.__version__,
        "tiny": given.tiny,
        "goals": GOALS,
    }
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    for name in given.parts or every:
        if results["parts"].get(name, {}).get("passed"):
            continue
        results["parts"][name] = result = run(every[name], os.environ | {"PYTHONPATH": path})
        write(file, results)
        said = "passed" if result["passed"] else "FAILED"
        print(f"{name:<12} {said} after {result['seconds']:.0f} s: {(result['printed'] or [''])[-1]}", flush=True)
    return int(not all(part["passed"] for part in results["parts"].values()))


if __name__ == "__main__":
    sys.exit(main())

"""What the commands here share: rows in a JSON file that is whole after each of them, and goes on where it was stopped.

A row says what was tried (its key, such as arm, rate and seed), what came of it, and what that took: CPU seconds, the
processor, the versions. A command that is repeated adds only the rows that are missing.

A comparison is fair where every arm has its own rate, chosen on validation images with a seed that no other row has,
among rates of which a worse one lies on either side, and where every arm is trained with the same three to five seeds:
`compare` does that, and keeps every row, those of the choice too.
"""

import json
import platform
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from pathlib import Path

import torch

from vitbook._common.files import write_whole

TUNING_SEED = 100  # of the runs that choose a rate


def arguments_of(doc: str, data_dir: bool = True, dataset: bool = False, weights: bool = False) -> ArgumentParser:
    """A parser that knows the file to write and, where asked for, where images are, which, and whose weights."""
    parser = ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("file", type=Path, help="the JSON to write")
    if weights:
        parser.add_argument("--weights", default="vitbook:cifar10", help="the model to look into")
    if dataset:
        parser.add_argument("--dataset", default="cifar10")
    if data_dir:
        parser.add_argument("--data-dir", type=Path, help="where the images' files are; without it they are downloaded")
    return parser


def write(file: Path, found: object) -> None:
    """As JSON, in one step, in a folder that is made where there is none."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, (json.dumps(found, indent=1) + "\n").encode())


class Rows:
    """The rows of a JSON file: all of it; or a list in it of this name, beside facts that hold for every row.

    Raises ValueError where the file holds other facts.
    """

    def __init__(self, file: Path, part: str | None = None, **facts: object):
        self.file, self.part, self.facts = file, part, json.loads(json.dumps(facts))
        there = self._document() if part else {}
        for name, ours in self.facts.items():
            if there.get(name, ours) != ours:
                raise ValueError(f"{file} is of other runs: {name} is {there[name]!r} there, {ours!r} here")

    def _document(self) -> dict | list:
        return json.loads(self.file.read_text(encoding="utf-8")) if self.file.exists() else {} if self.part else []

    def all(self) -> list[dict]:
        document = self._document()
        return document.get(self.part, []) if self.part else document

    def find(self, **key: object) -> dict | None:
        """The first row with these entries, if there is one."""
        return next((row for row in self.all() if key.items() <= row.items()), None)

    def add(self, row: dict) -> dict:
        """Write the file again, with one row more."""
        document = self._document()
        if self.part:
            document = self.facts | document
            document.setdefault(self.part, []).append(row)
        else:
            document.append(row)
        write(self.file, document)
        print(json.dumps(row, ensure_ascii=False)[:200], flush=True)
        return row

    def once(self, make: Callable[..., dict], **key: object) -> dict:
        """The row with this key: found, or made by make() and added."""
        return self.find(**key) or self.add(_made(lambda **_: make(), key))

    def fill(self, make: Callable[..., dict], keys: Iterable[dict], workers: int = 1) -> list[dict]:
        """The rows with these keys; those that are missing are made by make(**key), so many at a time."""
        keys = list(keys)
        left = [key for key in keys if self.find(**key) is None]
        if workers == 1:
            for key in left:
                self.add(_made(make, key))
        else:
            with ProcessPoolExecutor(workers) as pool:
                for row in pool.map(partial(_made, make), left):
                    self.add(row)
        return [self.find(**key) for key in keys]


def _made(make: Callable[..., dict], key: dict) -> dict:
    """A new row. What it says of itself, such as the CPU seconds of training alone, stands."""
    began = time.process_time()
    found = make(**key)
    spent = {"core_seconds": round(time.process_time() - began, 3), "processor": processor(), **versions()}
    return {**key, **found, **{name: value for name, value in spent.items() if name not in found}}


@cache
def processor() -> str:
    """The GPU's name, where there is one, else the CPU's."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    if sys.platform == "darwin":
        return subprocess.check_output(["sysctl", "-n", "machdep.cpu.brand_string"], text=True).strip()
    about = Path("/proc/cpuinfo")
    lines = about.read_text().splitlines() if about.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def versions() -> dict[str, str]:
    return {"python": platform.python_version(), "torch": torch.__version__}


def tune(score: Callable[[float], float], rates: Sequence[float], factor: float = 2.0, most: int = 8) -> dict:
    """Each rate that was tried, and its score: these and more, until the best has a worse one on either side.

    factor: from the last rate to the next one beyond it; most: rates, after which the best is taken wherever it lies.
    """
    tried, left = {}, list(rates)
    while left:
        rate = left.pop(0)
        tried[rate] = score(rate)
        if not left and len(tried) < most:
            best = max(tried, key=tried.get)
            beyond = [best / factor] * (best == min(tried)) + [best * factor] * (best == max(tried))
            left = [float(f"{rate:.3g}") for rate in beyond]
    return tried


def compare(
    rows: Rows,
    run: Callable[..., dict],
    arms: Sequence[str],
    rates: Sequence[float],
    seeds: Sequence[int] = (0, 1, 2),
    workers: int = 1,
    by: str = "validation_accuracy",
) -> list[dict]:
    """Every arm with every seed, at the arm's own rate. Returns their rows; those that chose the rates are in the file.

    run: makes a row's entries from arm, rate, seed and tuning: `by`, more being better, n (images that it was judged
    by) and, unless tuning, what is compared; while tuning it must not look at the test images. Raises ValueError where
    a seed is that of the tuning.
    """
    if TUNING_SEED in seeds:
        raise ValueError(f"seeds must be others than that of the tuning, {TUNING_SEED}, got {list(seeds)}")
    best = {}
    for arm in arms:

        def score(rate: float, arm: str = arm) -> float:
            return rows.fill(run, [dict(arm=arm, rate=rate, seed=TUNING_SEED, tuning=True)])[0][by]

        tried = tune(score, rates)
        best[arm] = max(tried, key=tried.get)
    keys = [dict(arm=arm, rate=best[arm], seed=seed, tuning=False) for seed in seeds for arm in arms]
    return rows.fill(run, keys, workers)

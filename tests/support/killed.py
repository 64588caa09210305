"""A small training run of which any call that changes a file can be the last, or can fail; as a program, it tries them.

    python killed.py FOLDER kill:FIRST:STRIDE      SIGKILL at every STRIDE-th call, then resume
    python killed.py FOLDER fail:FIRST:STRIDE      the disk is full at every STRIDE-th call, then resume
    python killed.py FOLDER kill:CALL:STRIDE       the same at calls of one kind, as "write"
    python killed.py FOLDER chain:SEED:RUNS   SIGKILL at random calls, again and again until a run ends

Each run ends, in a process forked from this one, as the one that was never stopped: the same files, the same
bytes. FOLDER gets the runs, standard output a JSON of the calls, of how many runs were stopped, and of all
that was otherwise. Several tasks may follow each other. Only for POSIX.
"""

import errno
import json
import os
import random
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import torch

from vitbook import engine
from vitbook._common import files
from vitbook.checkpoint import load_checkpoint
from vitbook.data import Dataset, Split, digits
from vitbook.engine import TrainConfig, fit
from vitbook.vit import VisionTransformer, create_vit

CONFIG = TrainConfig(epochs=3, batch_size=8, learning_rate=0.03, ema=0.3, mixup=0.3, checkpoint_steps=2, seed=2)
CONFIG = replace(CONFIG, optimizer="muon")  # of some weights; AdamW of the others


def some_data() -> Dataset:
    """24 digits in 3 batches to train on, 20 to choose by."""
    train, test, names = digits().train, digits().test, digits().class_names
    few, others = Split(train.images[:24], train.labels[:24]), Split(test.images[:20], test.labels[:20])
    return Dataset("digits", few, others, names, others)


DATA = some_data()


def some_model() -> VisionTransformer:
    torch.manual_seed(0)
    return create_vit("vit_digits", dim=12, depth=1, num_heads=3, mlp_dim=20, patch_size=4, dropout=0.1)


def train(folder: Path) -> None:
    """Train in a folder, or resume the run there. The clock that ends up in the files says 1, 2, 3 …"""
    engine.time = SimpleNamespace(perf_counter=count(1).__next__)
    fit(some_model(), DATA, CONFIG, folder, resume=True, progress=False)


class Calls:
    """Hears every call that changes a file in a folder, before it is made, and does something at one of them.

    "write" is the middle of a file: half of it is there. What TensorBoard's thread does comes at no certain time, and
    is left out.
    """

    def __init__(self, folder: Path, chosen: int, act: Callable[[Path | None], None]):
        self.folder, self.chosen, self.act, self.heard = folder, chosen, act, []
        files.os = SimpleNamespace(**{**vars(os), "fsync": self.fsync})
        sys.addaudithook(self.hear)

    def hear(self, event: str, arguments: tuple) -> None:
        """Called by Python, before many of its calls."""
        if event == "open" and (isinstance(arguments[0], int) or not arguments[2] & (os.O_WRONLY | os.O_RDWR)):
            return
        if event in ("open", "os.rename", "os.remove", "os.mkdir"):
            path = Path(os.fsdecode(arguments[0]))
            there = event == "os.mkdir" and path.exists()  # then nothing changes
            if path.is_relative_to(self.folder) and "tensorboard" not in path.parts and not there:
                self.reached(event, path)

    def fsync(self, descriptor: int) -> None:
        self.reached("write", None, lambda: os.ftruncate(descriptor, os.fstat(descriptor).st_size // 2))
        self.reached("fsync", None)
        os.fsync(descriptor)

    def reached(self, event: str, path: Path | None, prepare: Callable[[], None] = lambda: None) -> None:
        self.heard.append(f"{event} {path.name}" if path else event)
        if len(self.heard) == self.chosen:
            prepare()
            self.act(path)


def die(path: Path | None) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def full(path: Path | None) -> None:
    """As the system says it: with the path where the call has one."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), *([str(path)] if path else []))


def forked(work: Callable[[], object]) -> int:
    """What a fork of this process that does some work ends with: 0, 1 after an exception, −9 if it was killed."""
    child = os.fork()
    if not child:
        try:
            work()
            os._exit(0)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def contents(folder: Path) -> dict[str, bytes]:
    """Every file in a folder. TensorBoard's, below it, hold the time of day, and are not looked at."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def killed_at(folder: Path, chosen: int) -> None:
    Calls(folder, chosen, die)
    train(folder)


def failed_at(folder: Path, chosen: int) -> None:
    """A full disk is one error that names a file; it leaves every checkpoint whole, and no part of a file."""
    Calls(folder, chosen, full)
    try:
        train(folder)
    except OSError as error:
        assert error.errno == errno.ENOSPC, error
        assert error.filename and Path(error.filename).parent in (folder, folder.parent), f"{error!r} names no file"
    else:
        raise AssertionError("the error was passed over")
    names = [path.name for path in folder.iterdir()] if folder.exists() else []
    assert not [name for name in names if name.endswith(".part")], names
    for name in ("last", "best"):
        if f"{name}.json" in names:
            load_checkpoint(folder / f"{name}.json")


def counted(folder: Path) -> list[str]:
    """The calls of a run, which is made in a fork."""
    reader, writer = os.pipe()

    def work() -> None:
        calls = Calls(folder, 0, die)
        train(folder)
        os.write(writer, json.dumps(calls.heard).encode())

    assert forked(work) == 0
    os.close(writer)
    with os.fdopen(reader) as pipe:
        return json.load(pipe)


def stopped(folder: Path, chosen: int, mode: str, whole: dict[str, bytes]) -> str:
    """What differs after a run that was stopped and resumed; nothing, where all was well."""
    interrupted, expected = {"kill": (killed_at, -signal.SIGKILL), "fail": (failed_at, 0)}[mode]
    code = forked(lambda: interrupted(folder, chosen))
    left = sorted(contents(folder)) if folder.exists() else []
    again = forked(lambda: train(folder))
    got = contents(folder)
    if (code, again) == (expected, 0) and got == whole:
        return ""
    other = [name for name in whole | got if got.get(name) != whole.get(name)]
    return f"{mode} at call {chosen}: exit codes {code} and {again}; it left {left}; in the end these differ: {other}"


def chain(folder: Path, moments: random.Random, calls: int, whole: dict[str, bytes]) -> tuple[int, str]:
    """How often a run was killed until it ended, and what differs then."""
    kills, code = -1, -signal.SIGKILL
    while code == -signal.SIGKILL:
        chosen = moments.randint(1, calls)  # not in the fork, whose numbers would be the same each time
        code = forked(partial(killed_at, folder, chosen))
        kills += 1
    fine = code == 0 and contents(folder) == whole
    return kills, "" if fine else f"{folder.name} after {kills} kills: exit code {code}, {sorted(contents(folder))}"


def main(place: str, *tasks: str) -> dict:
    torch.set_num_threads(1)
    place = Path(place).resolve()
    train(place / "whole")  # in this process: what torch loads and prepares, every fork has
    whole = contents(place / "whole")
    calls = counted(place / "counted")
    stops, wrong = 0, ["a second run wrote other files"] * (contents(place / "counted") != whole)
    for mode, first, number in (task.split(":") for task in tasks):
        if mode == "chain":
            moments = random.Random(int(first))
            for k in range(int(number)):
                kills, said = chain(place / f"chain{first}_{k}", moments, len(calls), whole)
                stops, wrong = stops + kills, wrong + [said]
            continue
        if first.isdigit():
            places = range(int(first), len(calls) + 1, int(number))
        else:
            places = [k for k, call in enumerate(calls, start=1) if call.startswith(first)][:: int(number)]
        for chosen in places:
            stops, wrong = stops + 1, wrong + [stopped(place / f"{mode}{chosen}", chosen, mode, whole)]
    return {"calls": calls, "stops": stops, "wrong": [said for said in wrong if said]}


if __name__ == "__main__":
    json.dump(main(*sys.argv[1:]), sys.stdout, indent=1)

"""Executes the chapters elsewhere, in random order and random surroundings, and compares their outputs as the tests do.

    python tools/elsewhere.py [--chapters 01 04 …] [--rounds 3] [--minutes 10] [--seed 0]

A round takes every chapter once; when the minutes are over, no other is begun. Each time are drawn: the number of
threads, the locale, the time zone, Python's hash seed, the folder in which the kernel starts, whether there is a
network, whether there is a GPU where one is at hand, and, for root on Linux where a container does not forbid it,
whether the book's folder can be written to. HOME is empty each time. What nbval calls different is reported by chapter
and cell, with its surroundings, and makes the exit code 1. Pictures are not compared. The same seed draws the same
surroundings on the same machine; without one, the clock gives it.
"""

import argparse
import ctypes
import math
import os
import random
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, fields
from functools import cache, partial
from pathlib import Path

if sys.platform == "linux":
    import fcntl

ROOT = Path(__file__).resolve().parent.parent
ZONES = ("UTC", "America/St_Johns", "Asia/Kathmandu", "Pacific/Kiritimati")
LOCALES = ("C", "C.UTF-8", "de_DE.UTF-8", "tr_TR.UTF-8")
PERSONAL = ("IPYTHON", "JUPYTER", "MPL", "MATPLOTLIB", "LC_", "LANG", "PYTHONSTARTUP", "PYTHONWARNINGS", "VITBOOK")
TIMEOUT = 900  # seconds for a chapter


@dataclass(frozen=True)
class Surroundings:
    """Where a chapter is executed."""

    threads: int
    locale: str
    zone: str
    hash_seed: int
    folder: str  # "own", that of the chapters, or "other", an empty one
    network: bool
    gpu: bool
    writable: bool  # whether anything can be written to the book's folder

    def __str__(self) -> str:
        return ", ".join(f"{field.name} {getattr(self, field.name)}" for field in fields(self))


def locales_in(folder: Path) -> list[str]:
    """The locales at hand: those that can be made in a folder, to be named in LOCPATH, or else those that there are."""
    try:
        for name in LOCALES[2:]:
            language, encoding = name.split(".")
            subprocess.run(["localedef", "-i", language, "-f", encoding, str(folder / name)], capture_output=True)
        made = [name for name in LOCALES if (folder / name).exists()]
        said = subprocess.run(["locale", "-a"], capture_output=True, text=True).stdout.lower().replace("-", "").split()
    except OSError:
        made, said = [], []
    return [*LOCALES[:2], *made] if made else [n for n in LOCALES if n == "C" or n.lower().replace("-", "") in said]


def at_hand(locales: list[str]) -> dict[str, list]:
    """What there is to draw from on this machine."""
    return dict(
        threads=[1, 2, 4],
        locale=locales,
        zone=list(ZONES),
        hash_seed=list(range(1, 1000)),
        folder=["own", "other"],
        network=[True, False],
        gpu=[False, True] if has_gpu() else [False],
        writable=[True, False] if can_set_out() else [True],
    )


def has_gpu() -> bool:
    """Whether torch sees one; asked in another process, which holds it no longer afterwards."""
    code = "import sys, torch; sys.exit(not torch.cuda.is_available())"
    return subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def draw(dice: random.Random, choices: dict[str, list]) -> Surroundings:
    return Surroundings(**{name: dice.choice(values) for name, values in choices.items()})


def environment(place: Surroundings, home: Path) -> dict[str, str]:
    """The variables of a chapter's process; nothing of the user's own settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(PERSONAL)}
    kept |= {
        "HOME": str(home),
        "IPYTHONDIR": str(home / "ipython"),
        "JUPYTER_CONFIG_DIR": str(home / "jupyter"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "LC_ALL": place.locale,
        "OMP_NUM_THREADS": str(place.threads),
        "MKL_NUM_THREADS": str(place.threads),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": str(place.hash_seed),
        "PYTHONPATH": str(ROOT),
        "TMPDIR": str(home),
        "TZ": place.zone,
    }
    if not place.gpu:
        kept["CUDA_VISIBLE_DEVICES"] = ""
    if not place.network:  # for those who cannot be cut off: a port where nobody listens
        kept |= {f"{kind}_proxy": "http://127.0.0.1:9" for kind in ("http", "https", "all")}
        kept["no_proxy"] = "localhost,127.0.0.1"
    return kept


@cache
def can_set_out() -> bool:
    """Whether a new process can do here what `set_out` does: on Linux root can, but not in every container."""
    try:
        subprocess.run([sys.executable, "-c", ""], preexec_fn=partial(set_out, network=False, writable=False))
    except (subprocess.SubprocessError, ValueError):  # a ValueError on Windows
        return False
    return True


def set_out(network: bool, writable: bool) -> None:
    """What root's new process does on Linux before anything else: it leaves the network, and locks the book."""
    libc = ctypes.CDLL(None, use_errno=True)

    def do(call: str, *arguments) -> None:
        if getattr(libc, call)(*arguments):
            raise OSError(ctypes.get_errno(), f"{call}: {os.strerror(ctypes.get_errno())}")

    if not network:
        do("unshare", 0x40000000)  # CLONE_NEWNET: a network of its own, without any
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:  # but for lo, over which kernels talk
            fcntl.ioctl(any_socket, 0x8914, struct.pack("16sH22x", b"lo", 0x41))  # SIOCSIFFLAGS: up, running
    if not writable:
        book = os.fsencode(ROOT)
        do("unshare", 0x20000)  # CLONE_NEWNS: mounts of its own
        do("mount", None, b"/", None, 0x44000, None)  # MS_REC | MS_PRIVATE
        do("mount", book, book, None, 0x1000, None)  # MS_BIND
        do("mount", None, book, None, 0x1021, None)  # MS_REMOUNT | MS_BIND | MS_RDONLY


def execute(chapter: Path, place: Surroundings) -> list[str]:
    """What nbval finds different, a text for each cell."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        home.mkdir()
        notebook = chapter
        if place.folder == "other":  # nbval starts the kernel where the notebook is
            notebook = home / "elsewhere" / chapter.name
            notebook.parent.mkdir()
            shutil.copy(chapter, notebook)
        report = home / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "--nbval", "--nbval-current-env", "-p", "no:cacheprovider"]
        command += ["-p", "no:xdist", "-o", "addopts=", f"--rootdir={notebook.parent}", f"--junitxml={report}"]
        command += ["-c", os.devnull, str(notebook)]
        try:
            done = subprocess.run(
                command,
                cwd=home,
                env=environment(place, home),
                preexec_fn=partial(set_out, place.network, place.writable) if can_set_out() else None,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=TIMEOUT,
            )
        except subprocess.TimeoutExpired:
            return [f"did not end in {TIMEOUT} seconds"]
        found = differences(report) if report.exists() else []
        if done.returncode and not found:
            found = [f"pytest ended with {done.returncode}:\n{done.stdout[-2000:]}"]
        return found


def differences(report: Path) -> list[str]:
    """The failures in pytest's report, the cell first."""
    found = []
    for case in ElementTree.parse(report).iter("testcase"):
        for failure in (*case.iter("failure"), *case.iter("error")):
            found.append(f"{case.get('name')}\n{(failure.text or failure.get('message') or '').strip()[:2000]}")
    return found


def wanted(names: list[str]) -> list[Path]:
    """The chapters with these names or numbers; all, without any. Raises ValueError for what is none."""
    chapters = sorted((ROOT / "chapters").glob("*.ipynb"))
    chosen = []
    for name in names:
        found = [path for path in chapters if path.stem.startswith(Path(name).stem)]
        if not found:
            raise ValueError(f"no chapter {name}: there are {', '.join(path.stem for path in chapters)}")
        chosen += found
    return chosen or chapters


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chapters", nargs="*", default=[], help="numbers, names or paths; all if not given")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no other chapter after so many")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1000, help="a new one each time if not given")
    options = parser.parse_args(arguments)
    end = time.monotonic() + 60 * options.minutes
    try:
        chapters = wanted(options.chapters)
    except ValueError as error:
        parser.error(str(error))
    with tempfile.TemporaryDirectory() as folder:
        locales = locales_in(Path(folder))
        if set(locales) - set(LOCALES[:2]) and any(Path(folder).iterdir()):
            os.environ["LOCPATH"] = folder
        os.environ["XDG_CACHE_HOME"] = folder  # matplotlib's list of fonts takes seconds to make
        print(f"Seed {options.seed}")
        return run(chapters, options.rounds, random.Random(options.seed), at_hand(locales), end)


def run(chapters: list[Path], rounds: int, dice: random.Random, choices: dict[str, list], end: float = math.inf) -> int:
    """Execute the chapters so many times, and print what differs. Returns whether anything does.

    end: by the monotonic clock, when to begin no other; the first one is begun in any case.
    """
    print("To draw from: " + "; ".join(f"{name} {values}" for name, values in choices.items() if name != "hash_seed"))
    turns = [(round_, chapter) for round_ in range(1, rounds + 1) for chapter in dice.sample(chapters, len(chapters))]
    executions = failures = 0
    for round_, chapter in turns:
        if executions and time.monotonic() > end:
            print(f"The time is over: {len(turns) - executions} executions were left away")
            break
        place = draw(dice, choices)
        found = execute(chapter, place)
        print(f"round {round_}, {chapter.stem}: {len(found) or 'no'} differences ({place})", flush=True)
        for text in found:
            print("    " + text.replace("\n", "\n    "), flush=True)
        executions += 1
        failures += bool(found)
    print(f"{failures} of {executions} executions differ")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())

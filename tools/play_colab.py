"""Play Colab: run every chapter as a reader does who opens it there, and see whether it comes through.

    python tools/play_colab.py [chapters/01_attention.ipynb …]          in an environment like Colab's, built for it
    python3 tools/play_colab.py --here [chapters/01_attention.ipynb …]  inside Colab's own image: in what is there

Each chapter lies alone in an empty folder, in a virtual environment of its own that sees what Colab holds and nothing
else. Its install cell runs as it stands; git alone is made to fetch the repository's address from this working tree. A
chapter has come through if no cell failed, its install cell installed the package and does nothing when run again, and
no package that was there has been replaced, torch and numpy above all (but see MAY_CHANGE). What it prints is not
compared.

Without `--here`, Python 3.11 or 3.12 builds that environment once, in _build/colab, from colab.txt and the torch of
requirements.txt; PIP_EXTRA_INDEX_URL may name an index with builds for the CPU.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import notebooks as notebook_tool
from jupyter_client import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode

ROOT = notebook_tool.ROOT
HOLDS = ROOT / "tools" / "colab.txt"
CACHE = ROOT / "_build" / "colab"
BIN = "Scripts" if os.name == "nt" else "bin"
CELL_TIMEOUT = 600  # seconds

# Variables by which something of this machine could be seen in Colab's place.
PERSONAL = ("IPYTHON", "JUPYTER", "MATPLOTLIB", "MPL", "PYTHON", "VIRTUAL_ENV", "VITBOOK", "GIT_")

# Colab leaves out jedi, which its IPython asks for; pip then brings it, with a newer parso. No chapter uses either. The
# onnx of today, for chapter 26 alone, asks for a newer protobuf (6.31) than Colab's, which is there for TensorFlow.
MAY_CHANGE = {"parso", "protobuf"}

# What a Python can import by distribution, and where from: printed as JSON by that Python.
PACKAGES = """
import json, sys
from importlib.metadata import distributions
versions = {}
for d in distributions():
    versions.setdefault(d.metadata["Name"].lower().replace("_", "-"), d.version)
print(json.dumps({"versions": versions, "paths": [p for p in sys.path if p.endswith("-packages")]}))
"""


def run(*command: str | Path, **options) -> str:
    """What a command prints; where it fails, ValueError with what it said."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    if done.returncode:
        raise ValueError(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def surroundings(folder: Path, cache: Path) -> dict[str, str]:
    """The environment variables of a chapter's kernel: a home of its own; downloads and fonts are kept between them."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(PERSONAL)}
    return kept | {
        "GIT_CONFIG_GLOBAL": str(cache / "gitconfig"),
        "GIT_TERMINAL_PROMPT": "0",
        "HOME": str(folder),
        "IPYTHONDIR": str(folder / ".ipython"),
        "MKL_NUM_THREADS": "1",
        "MPLCONFIGDIR": str(cache / "matplotlib"),
        "OMP_NUM_THREADS": "1",
        "PIP_CACHE_DIR": os.environ.get("PIP_CACHE_DIR", str(cache / "pip")),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",  # an old debugger's warning at the start of each kernel
    }


def packages(python: Path) -> dict:
    """Versions of all distributions that a Python sees, by name, and the folders that hold them."""
    return json.loads(run(python, "-I", "-c", PACKAGES))


def like_colab(cache: Path) -> Path:
    """The Python of an environment that holds what Colab holds; built where it is missing or of other versions."""
    if sys.version_info[:2] not in ((3, 11), (3, 12)):
        raise ValueError(f"Colab's versions need Python 3.11 or 3.12, got {sys.version.split()[0]}")
    torch = re.search(r"^torch==\S+", (ROOT / "requirements.txt").read_text(encoding="utf-8"), flags=re.M)[0]
    python, stamp = cache / "env" / BIN / "python", cache / "env" / "built"
    key = hashlib.sha256(f"{HOLDS.read_text(encoding='utf-8')}{torch}{sys.version}".encode()).hexdigest()
    if not stamp.exists() or stamp.read_text() != key:
        shutil.rmtree(cache / "env", ignore_errors=True)
        print("building an environment like Colab's …", flush=True)
        run(sys.executable, "-m", "venv", cache / "env")
        run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--requirement", HOLDS)
        run(python, "-m", "pip", "install", "--quiet", torch)
        stamp.write_text(key)
    return python


def publish(cache: Path) -> None:
    """Put the working tree into a repository in `cache`, and lead git there from the public address."""
    git = ("git", "-c", "safe.directory=*")
    listed = run(*git, "ls-files", "--cached", "--others", "--exclude-standard", "-z", cwd=ROOT)
    copy = cache / "repository"
    shutil.rmtree(copy, ignore_errors=True)
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, copy / name)
    author = ("-c", "user.name=reader", "-c", "user.email=reader@localhost", "-c", "commit.gpgsign=false")
    run(*git, "init", "--quiet", cwd=copy)
    run(*git, "add", "--all", "--force", cwd=copy)
    run(*git, *author, "commit", "--quiet", "--no-verify", "--message", "The working tree", cwd=copy)
    instead = f'[url "{copy.as_uri()}"]\n\tinsteadOf = {notebook_tool.repository_url()}\n'
    (cache / "gitconfig").write_text(f"{instead}[safe]\n\tdirectory = *\n", encoding="utf-8")


def own_environment(base: Path, holds: dict, folder: Path) -> Path:
    """The Python of a new environment in `folder` that sees all that `base` holds, and installs beside it."""
    run(base, "-m", "venv", "--without-pip", folder)
    python = folder / BIN / "python"
    beside = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    beside.mkdir(parents=True, exist_ok=True)
    (beside / "colab.pth").write_text("\n".join(holds["paths"]) + "\n", encoding="utf-8")
    return python


def complaints(before: dict[str, str], after: dict[str, str], again: NotebookNode) -> list[str]:
    """What an install cell did that it should not: `again` is that cell, run for the second time."""
    changed = {name: (version, after.get(name)) for name, version in before.items() if after.get(name) != version}
    wrong = [f"{name} {a} has become {b}" for name, (a, b) in sorted(changed.items()) if name not in MAY_CHANGE]
    if "vitbook" in before:
        wrong.append("vitbook was there before the install cell ran")
    if "vitbook" not in after:
        wrong.append("the install cell has not installed vitbook")
    if again.outputs:
        wrong.append(f"run again, the install cell is not silent: {again.outputs}")
    return wrong


def play(path: Path, base: Path, holds: dict, cache: Path) -> tuple[float, list[str]]:
    """Run one chapter. Returns seconds, and what went wrong."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="colab-", ignore_cleanup_errors=True) as name:
        folder = Path(name).resolve()
        (folder / "content").mkdir()
        shutil.copyfile(path, folder / "content" / path.name)
        notebook = notebook_tool.read(folder / "content" / path.name)
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
        install = next(c for c in notebook.cells if notebook_tool.is_generated(c) and c.cell_type == "code")
        notebook.cells.append(again := NotebookNode(install | {"id": "again", "outputs": []}))
        python = own_environment(base, holds, folder / "env")
        manager = notebook_tool.OnePython()
        manager.python = python
        client = NotebookClient(
            notebook,
            km=AsyncKernelManager(kernel_spec_manager=manager),
            timeout=CELL_TIMEOUT,
            resources={"metadata": {"path": str(folder / "content")}},
        )
        try:
            client.execute(env=surroundings(folder, cache))
        except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
            return time.monotonic() - start, [str(error)]
        wrong = complaints(holds["versions"], packages(python)["versions"], again)
        return time.monotonic() - start, wrong


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="*", type=Path, default=sorted((ROOT / "chapters").glob("*.ipynb")))
    parser.add_argument("--here", action="store_true", help="in the packages of the Python that runs this")
    parser.add_argument("--jobs", "-j", type=int, default=min(2, os.cpu_count() or 1), help="chapters at once")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        cache = Path(name).resolve() if options.here else CACHE
        cache.mkdir(parents=True, exist_ok=True)
        base = Path(sys.executable) if options.here else like_colab(cache)
        holds = packages(base)
        publish(cache)
        versions = ", ".join(f"{name} {holds['versions'].get(name)}" for name in ("torch", "numpy", "ipython"))
        print(f"{len(options.paths)} chapters with {versions}", flush=True)
        failures = 0
        with ThreadPoolExecutor(options.jobs) as pool:
            played = pool.map(partial(play, base=base, holds=holds, cache=cache), options.paths)
            for path, (seconds, wrong) in zip(options.paths, played, strict=True):
                print(f"{path.name}: {seconds:.0f} s" + "".join(f"\n  {line}" for line in wrong), flush=True)
                failures += bool(wrong)
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())

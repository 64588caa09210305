"""One measurement in a process of its own: how long an import takes, or how much memory a training step needs at most.

    python benchmarks/fresh.py import MODULE
    python benchmarks/fresh.py memory PEER ROW DEVICE THREADS

Prints one number: seconds, or bytes.
"""

import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

IMPORTS = {
    "torch": "torch",
    "vitbook": "vitbook.vit",
    "timm": "timm",
    "torchvision": "torchvision.models.vision_transformer",
    "transformers": "transformers.models.vit.modeling_vit",
    "vit-pytorch": "vit_pytorch",
}


def import_seconds(module: str) -> float:
    """Seconds until `module` is imported, torch with it."""
    from importlib import import_module

    start = time.perf_counter()
    if module.partition(".")[0] in ("timm", "torchvision", "transformers", "vit_pytorch"):
        from vision import import_torchvision

        with suppress(ImportError):  # all of these import it wherever it is installed
            import_torchvision()
    import_module(module)
    return time.perf_counter() - start


def peak_bytes(peer: str, row: str, device: str, threads: int) -> int:
    """The most that two calls needed: on a GPU what torch allocated, else the resident memory of the whole process."""
    import torch
    from measure import make_call
    from peers import PEERS
    from rows import rows

    torch.set_num_threads(threads)
    where = torch.device(device)
    named = {r.name: r for r in rows(gpu=where.type == "cuda")}[row]
    call = make_call(
        PEERS[peer].build(named.config).to(where), named.config, named.batch, named.kind, named.precision, where
    )
    call(), call()
    if where.type == "cuda":
        return torch.cuda.max_memory_allocated(where)
    return resident_peak()


def resident_peak() -> int:
    """The most memory that this process has had resident, in bytes."""
    status = Path("/proc/self/status")
    if status.exists():  # on Linux getrusage goes on from what the parent had when it started this process
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def in_a_fresh_process(*arguments: object) -> float | None:
    """The number that this file prints for these arguments; None where it fails, as where a library is missing."""
    command = [sys.executable, __file__, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).resolve().parent.parent)
    return float(done.stdout.split()[-1]) if done.returncode == 0 else None


if __name__ == "__main__":
    what, *given = sys.argv[1:]
    print(import_seconds(*given) if what == "import" else peak_bytes(*given[:3], int(given[3])))

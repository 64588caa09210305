"""Measure this package beside what one would take instead: every time in a JSON file, and the tables of RESULTS.md.

    make benchmark                                          everything: an hour or so on two cores
    make benchmark BENCHMARK="--quick"                      the most telling rows: some minutes
    make benchmark BENCHMARK="--rows cifar --threads 1"     rows with a word in their name

Both files go to _build/benchmarks; tables worth keeping are copied to RESULTS.md. How it is done: see
`measure.side_by_side`. What is compared: see `peers`. Which rows there are: see `rows`.
"""

import argparse
import json
import os
import platform
import re
import shlex
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import torch
from fresh import IMPORTS, in_a_fresh_process
from measure import make_call, matmul_call, ratio, side_by_side
from peers import OURS, PEERS, build, version
from report import speed_table, to_markdown
from rows import Row, chosen

from vitbook.costs import forward_flops, training_flops
from vitbook.runtime import has_bfloat16

FOLDER = Path(__file__).resolve().parent.parent / "_build" / "benchmarks"
PEAK = "matmul"
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def machine(device: torch.device) -> str:
    """What it runs on, in words."""
    cpu = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), cpu)
    can = getattr(torch.cpu, "get_capabilities", dict)()
    units = [name for name in ("avx2", "avx512_f", "avx512_bf16", "amx_bf16") if can.get(name)]
    words = f"{cpu}, {os.cpu_count()} cores" + (f" ({', '.join(units)})" if units else "")
    return f"{torch.cuda.get_device_name(device)}; {words}" if device.type == "cuda" else words


def slug(about: dict) -> str:
    """The name of a run's file: one for each kind of machine and number of threads."""
    words = re.sub(r"[^a-z0-9_]+", "-", about["machine"].lower()).strip("-")
    return f"{words}-{about['threads']}-threads"


def check_equal_work(scores: dict[str, torch.Tensor]) -> None:
    """Raise ValueError unless all models gave scores of one shape and one type."""
    seen = {name: (tuple(s.shape), str(s.dtype)) for name, s in scores.items()}
    if len(set(seen.values())) > 1:
        raise ValueError(f"all models must give scores of one shape and type, got {seen}")


def measure_row(row: Row, rounds: int, turn: float, device: torch.device, clock) -> tuple[dict, dict[str, str]]:
    """The record of one row, and which peers are missing and why."""
    models, missing = build(row.config)
    parameters = {name: sum(p.numel() for p in model.parameters()) for name, model in models.items()}
    calls = {
        name: make_call(model.to(device), row.config, row.batch, row.kind, row.precision, device)
        for name, model in models.items()
    }
    check_equal_work({name: call() for name, call in calls.items()})
    calls[PEAK], peak_flops = matmul_call(row.precision, device)
    times = side_by_side(calls, rounds, turn, device, clock)
    flops = row.batch * (forward_flops if row.kind == "forward" else training_flops)(row.config)
    record = {
        "name": row.name,
        "batch": row.batch,
        "kind": row.kind,
        "precision": row.precision,
        "parameters": parameters,
        "flops": flops,
        "seconds": {name: seconds for name, seconds in times.items() if name != PEAK},
        "share_of_peak": ratio(times[PEAK], times[OURS])[1] * flops / peak_flops,
    }
    return record, missing


def measure_memory(rows: list[Row], device: torch.device, threads: int) -> list[dict]:
    """Peak bytes of each peer's training step, in fresh processes."""
    return [
        {
            "name": row.name,
            "batch": row.batch,
            "bytes": {peer: in_a_fresh_process("memory", peer, row.name, device, threads) for peer in PEERS},
        }
        for row in rows
    ]


def measure_imports(times: int) -> dict[str, list[float]]:
    """Seconds of each import, in turns; the first turn only warms the disk up."""
    found: dict[str, list[float]] = {name: [] for name in IMPORTS}
    for number in range(times + 1):
        for name, module in IMPORTS.items():
            seconds = in_a_fresh_process("import", module)
            if seconds is not None and number:
                found[name].append(seconds)
    return found


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="only the most telling rows, fewer rounds")
    parser.add_argument("--rows", nargs="*", default=[], metavar="WORD", help="only rows with one of these in the name")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="of torch, on the CPU")
    parser.add_argument("--rounds", type=int, help="15, or 7 with --quick")
    parser.add_argument("--turn", type=float, default=0.2, help="seconds that one model computes in each round")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu, with --threads 1, on a busy machine")
    parser.add_argument("--only", choices=("time", "memory", "import"), help="leave the others away")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where to write MACHINE.json and MACHINE.md")
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False  # float32 means float32
    device, rounds = torch.device(given.device), given.rounds or (7 if given.quick else 15)
    if device.type not in ("cpu", "cuda"):  # `waiting` knows these two alone
        parser.error(f"--device must be cpu or cuda, got {device}")
    rows, missing = chosen(device.type == "cuda", given.quick, given.rows), {}
    if not has_bfloat16(device):  # there is nothing to compare where a model takes a hundred times as long
        rows = [row for row in rows if row.precision != "bfloat16"]
        missing["bfloat16"] = "this device has none of its own"
    words = sys.argv[1:] if arguments is None else arguments
    results: dict = {
        "about": {
            "date": datetime.now(UTC).date().isoformat(),
            "command": shlex.join(["python", "benchmarks/benchmark.py", *words]),
            "machine": machine(device),
            "threads": given.threads,
            "clock": given.clock,
            "rounds": rounds,
            "versions": {p: v for p in dict.fromkeys(peer.package for peer in PEERS.values()) if (v := version(p))},
            "missing": missing,
        },
        "rows": [],
        "memory": [],
        "imports": {},
    }
    if given.only in (None, "time"):
        for row in rows:
            record, absent = measure_row(row, rounds, given.turn, device, CLOCKS[given.clock])
            missing |= absent
            results["rows"].append(record)
            print(speed_table([record]).splitlines()[-1], flush=True)
    if given.only in (None, "memory"):
        steps = [row for row in rows if row.kind == "step" and row.name.startswith(("cifar", "Ti/16", "1024"))]
        results["memory"] = measure_memory(steps, device, given.threads)
    if given.only in (None, "import"):
        results["imports"] = measure_imports(3 if given.quick else 7)
    given.folder.mkdir(parents=True, exist_ok=True)
    written = given.folder / f"{slug(results['about'])}.json"
    written.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    written.with_suffix(".md").write_text(to_markdown(results), encoding="utf-8")
    print(f"written: {written} and the tables beside it")


if __name__ == "__main__":
    main()

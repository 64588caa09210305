"""The table: what the runs measured, as Markdown.

`python benchmarks/report.py` writes RESULTS.md again from results/*.json.
"""

import json
import statistics
from pathlib import Path

from measure import ratio
from peers import OURS, OURS_MEAN, PEERS

LEVEL = 0.03  # as near as this is level


def verdict(low: float, middle: float, high: float) -> str:
    """Whether we are ahead, level or behind, from the quartiles of our time over a peer's.

    Rounds that contradict each other settle nothing: where the quartiles lie about 1, that is level.
    """
    if middle > 1 + LEVEL and low > 1:
        return "behind"
    return "ahead" if middle < 1 - LEVEL and high < 1 else "level"


def against_the_fastest(times: dict[str, list[float]], ours: str) -> tuple[str, tuple[float, float, float]]:
    """(the fastest of those that do the same work, quartiles of our time over its); the name is "" if there is none."""
    others = [name for name, peer in PEERS.items() if peer.like == ours and name in times and name != ours]
    if not others or ours not in times:
        return "", (1.0, 1.0, 1.0)
    fastest = min(others, key=lambda name: ratio(times[name], times[ours])[1])
    return fastest, ratio(times[ours], times[fastest])


def table(header: list[str], lines: list[list[str]]) -> str:
    """A Markdown table."""
    return "\n".join("| " + " | ".join(line) + " |" for line in [header, ["---"] * len(header), *lines])


def standing_table(measured: list[dict]) -> str:
    """One line for each row: how long we take, and how we stand against the fastest that does the same."""
    lines = []
    for row in measured:
        line = [row["name"], str(row["batch"]), f"{1000 * statistics.median(row['seconds'][OURS]):.1f}"]
        for ours in (OURS, OURS_MEAN):
            fastest, (low, middle, high) = against_the_fastest(row["seconds"], ours)
            said = f"{middle:.2f} ({low:.2f}–{high:.2f}) {verdict(low, middle, high)}" if fastest else "–"
            line += [fastest or "–", said] if ours == OURS else [said]
        lines.append([*line, f"{100 * row['share_of_peak']:.0f} %"])
    header = ["Row", "Images", "Ours, ms", "Fastest peer", "Ours ÷ its", "Ours ÷ SimpleViT", "Of the peak"]
    return table(header, lines)


def peers_table(measured: list[dict]) -> str:
    """One line for each row: every peer's time over ours."""
    names = [name for name in PEERS if name not in (OURS, OURS_MEAN)]
    lines = []
    for row in measured:
        times = row["seconds"]
        both = [(times.get(name), times.get(PEERS[name].like)) for name in names]
        quartiles = [ratio(theirs, own) if theirs and own else None for theirs, own in both]
        lines.append([row["name"], *(f"{q[1]:.2f} ({q[0]:.2f}–{q[2]:.2f})" if q else "–" for q in quartiles)])
    return table(["Row", *names], lines)


def equal_work_table(row: dict) -> str:
    """Who computes what: parameters, and how they differ from ours."""
    lines = []
    for name, count in row["parameters"].items():
        more = count - row["parameters"][OURS]
        lines.append([name, f"{count:,}", f"{more:+,}" if more else "the same", PEERS[name].differs or "nothing"])
    return table(["", f"Parameters, {row['name'].split()[0]}", "Against ours", "What differs"], lines)


METHOD = """\
Every model has random weights and gets the same random images. All take turns, round after round, and each round begins
with another model. Ratios are taken within a round; the tables show their median and quartiles over the rounds. Ahead
or behind is what differs by more than 3 % in the same direction in three rounds of four; the rest is level.

A forward pass is without gradients; a step is forward, cross-entropy, backward and fused AdamW; bfloat16 is autocast.
SimpleViT has no class token and is compared with ours in the same shape. The peak is the speed that a large matrix
product reached in the same rounds, and the share of it counts FLOPs by formula; a step is three forward passes."""


def to_markdown(runs: list[dict]) -> str:
    """The whole page: one part for each machine."""
    title = "# Side by side with other libraries"
    return "\n\n".join([title, METHOD, *("\n\n".join(parts_of(run)) for run in runs)]) + "\n"


def parts_of(results: dict) -> list[str]:
    """What one run found, headings and tables; and, in between, what its reader has written about it."""
    about = results["about"]
    parts = [
        f"## {about['machine']}",
        f"Measured on {about['date']} by `{about['command']}`, {about['rounds']} rounds"
        + "".join(
            f"; what that did not measure, on {run['date']} by `{run['command']}`, {run['rounds']} rounds"
            for run in reversed(about.get("earlier", []))
        )
        + f". Threads: {about['threads']}. Clock: {about['clock']}. "
        "Versions: " + ", ".join(f"{name} {version}" for name, version in about["versions"].items()) + ".",
    ]
    if about["missing"]:
        parts.append("Not measured: " + "; ".join(f"{name} ({why})" for name, why in about["missing"].items()) + ".")
    if results["rows"]:
        parts += [
            "### Against the fastest",
            standing_table(results["rows"]),
            *([results["remarks"]] if results.get("remarks") else []),
            "### Against each",
            "The peer's time over ours: above 1, the peer is slower.",
            peers_table(results["rows"]),
            "### Equal work",
            "Checked in every row: all give logits of the same shape and type.",
            equal_work_table(results["rows"][0]),
        ]
    if results["memory"]:
        names = list(results["memory"][0]["bytes"])
        lines = [
            [row["name"], str(row["batch"]), *(f"{b / 1e6:,.0f}" if b else "–" for b in row["bytes"].values())]
            for row in results["memory"]
        ]
        parts += [
            "### Memory",
            "Peak of a fresh process over two steps, in MB: of the whole process with its libraries on a CPU, of "
            "torch's allocations on a GPU.",
            table(["Row", "Images", *names], lines),
        ]
    if results["imports"]:
        lines = [
            [name, f"{statistics.median(times):.2f}", f"{min(times):.2f}–{max(times):.2f}"]
            for name, times in results["imports"].items()
            if times
        ]
        parts += [
            "### Import",
            "Seconds of a fresh process, torch's own included.",
            table(["", "median", "range"], lines),
        ]
    if results["commands"]:
        parts += [
            "### The project's own commands",
            "Seconds on the clock; in brackets, those of the slowest parts alone.",
            table(["Command", "Seconds", "Processes", "Slowest"], command_lines(results)),
        ]
    return parts


def write(folder: Path) -> Path:
    """RESULTS.md from the files in `results`; gives its path. MACHINE.md beside MACHINE.json are remarks on it."""
    runs = []
    for path in sorted((folder / "results").glob("*.json")):
        runs.append(json.loads(path.read_text(encoding="utf-8")))
        remarks = path.with_suffix(".md")
        runs[-1]["remarks"] = remarks.read_text(encoding="utf-8").strip() if remarks.exists() else ""
    page = folder / "RESULTS.md"
    page.write_text(to_markdown(runs), encoding="utf-8")
    return page


def command_lines(results: dict) -> list[list[str]]:
    """Tests, chapters and build: seconds in all, and the slowest with theirs."""
    lines = []
    for name, command in results["commands"].items():
        slowest = ", ".join(f"{part} ({seconds:.0f})" for part, seconds in command["slowest"].items())
        lines.append([name, f"{command['seconds']:.0f}", str(command["at_once"]), slowest])
    return lines


if __name__ == "__main__":
    print(f"written: {write(Path(__file__).resolve().parent)}")

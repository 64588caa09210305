"""The table: what a run measured, as Markdown."""

import statistics

from measure import ratio
from peers import OURS, OURS_MEAN, PEERS

LEVEL = 0.03  # as near as this is level


def verdict(ours_over_fastest: float) -> str:
    """Whether we are ahead, level or behind."""
    if ours_over_fastest > 1 + LEVEL:
        return "behind"
    return "ahead" if ours_over_fastest < 1 - LEVEL else "level"


def against_the_fastest(times: dict[str, list[float]], ours: str) -> tuple[str, float]:
    """(the fastest of those that do the same work, our time over its), ("", 1.0) where there is none."""
    others = [name for name, peer in PEERS.items() if peer.like == ours and name in times and name != ours]
    if not others or ours not in times:
        return "", 1.0
    fastest = min(others, key=lambda name: ratio(times[name], times[ours])[1])
    return fastest, ratio(times[ours], times[fastest])[1]


def table(header: list[str], lines: list[list[str]]) -> str:
    """A Markdown table."""
    return "\n".join("| " + " | ".join(line) + " |" for line in [header, ["---"] * len(header), *lines])


def speed_table(measured: list[dict]) -> str:
    """One line for each row: our time, every peer's over it, and how we stand against the fastest."""
    names = [name for name in PEERS if name not in (OURS, OURS_MEAN)]
    lines = []
    for row in measured:
        times = row["seconds"]
        line = [row["name"], str(row["batch"]), f"{1000 * statistics.median(times[OURS]):.1f}"]
        for name in names:
            own = PEERS[name].like
            cells = "–"
            if name in times and own in times:
                low, middle, high = ratio(times[name], times[own])
                cells = f"{middle:.2f} ({low:.2f}–{high:.2f})"
            line.append(cells)
        for ours in (OURS, OURS_MEAN):
            fastest, standing = against_the_fastest(times, ours)
            line.append(f"{standing:.2f} {verdict(standing)}" if fastest else "–")
        lines.append([*line, f"{100 * row['share_of_peak']:.0f} %"])
    header = ["Row", "Pictures", "ours, ms", *names, "ours ÷ fastest", "ours ÷ SimpleViT", "of matmul peak"]
    return table(header, lines)


def equal_work_table(row: dict) -> str:
    """Who computes what: parameters, and how they differ from ours."""
    lines = []
    for name, count in row["parameters"].items():
        more = count - row["parameters"][OURS]
        lines.append([name, f"{count:,}", f"{more:+,}" if more else "the same", PEERS[name].differs or "nothing"])
    return table(["", f"Parameters, {row['name'].split()[0]}", "Against ours", "What differs"], lines)


def to_markdown(runs: list[dict]) -> str:
    """The whole page: one part for each machine."""
    return "\n\n".join(["# Side by side", *("\n\n".join(parts_of(run)) for run in runs)]) + "\n"


def parts_of(results: dict) -> list[str]:
    """What one run found, headings and tables."""
    about = results["about"]
    parts = [
        f"## {about['machine']}",
        f"Measured on {about['date']} by `{about['command']}`; the numbers behind the tables are in `results`. "
        f"Threads: {about['threads']}. Clock: {about['clock']}. "
        "Versions: " + ", ".join(f"{name} {version}" for name, version in about["versions"].items()) + ".",
    ]
    if about["missing"]:
        parts.append("Not measured: " + "; ".join(f"{name} ({why})" for name, why in about["missing"].items()) + ".")
    if results["rows"]:
        parts += [
            "### Time",
            "Every model has random weights and gets the same random pictures. All take turns, round after round; each "
            "round begins with another. A cell is the peer's time over ours in the same round, median and quartiles "
            f"over {about['rounds']} rounds: above 1, the peer is slower. SimpleViT has no class token and is compared "
            "with ours in the same shape. Within 3 % counts as level. The last column is the share of what a large "
            "matrix product reached in the same rounds, with FLOPs by formula (a step is three forward passes). "
            "A forward pass is without gradients; a step is forward, cross-entropy, backward and fused AdamW; "
            "bfloat16 is autocast.",
            speed_table(results["rows"]),
            "#### Equal work",
            "Checked in every row: all give scores of the same shape and type.",
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
            table(["Row", "Pictures", *names], lines),
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
        parts += ["### The project's own commands", table(["Command", "Seconds", "Slowest"], command_lines(results))]
    return parts


def command_lines(results: dict) -> list[list[str]]:
    """Tests, chapters and build: seconds in all, and the slowest with theirs."""
    lines = []
    for name, times in results["commands"].items():
        slowest = ", ".join(f"{what} {seconds:.1f}" for what, seconds in list(times.items())[:5])
        lines.append([name, f"{sum(times.values()):.0f}", slowest if len(times) > 1 else ""])
    return lines

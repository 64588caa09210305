"""What a run measured, as a Markdown page: one table of speed, then memory, imports, and who computes what."""

import statistics

from measure import ratio
from peers import OURS, OURS_MEAN, PEERS

THEIRS = [name for name in PEERS if name not in (OURS, OURS_MEAN)]


def table(header: list[str], lines: list[list[str]]) -> str:
    """A Markdown table."""
    return "\n".join("| " + " | ".join(line) + " |" for line in [header, ["---"] * len(header), *lines])


def speed_table(measured: list[dict]) -> str:
    """One line for each row: our milliseconds, our share of the peak, and every peer's time over ours."""
    lines = []
    for row in measured:
        times = row["seconds"]
        line = [row["name"], str(row["batch"]), f"{1000 * statistics.median(times[OURS]):.1f}"]
        line.append(f"{100 * row['share_of_peak']:.0f} %")
        for name in THEIRS:
            like = PEERS[name].like
            line.append(f"{ratio(times[name], times[like])[1]:.2f}" if name in times and like in times else "–")
        lines.append(line)
    return table(["Row", "Images", "Ours, ms", "Of the peak", *THEIRS], lines)


def memory_table(memory: list[dict]) -> str:
    """One line for each row: the peak of each, in MB."""
    lines = [
        [row["name"], str(row["batch"]), *(f"{b / 1e6:,.0f}" if b else "–" for b in row["bytes"].values())]
        for row in memory
    ]
    return table(["Peak memory, MB", "Images", *memory[0]["bytes"]], lines)


def import_table(imports: dict[str, list[float]]) -> str:
    """One line: the median seconds of each import."""
    found = {name: times for name, times in imports.items() if times}
    seconds = [f"{statistics.median(times):.2f}" for times in found.values()]
    return table(["Import, seconds", *found], [["torch's own included", *seconds]])


def equal_work_table(row: dict) -> str:
    """Who computes what: parameters, and how they differ from ours."""
    lines = [[name, f"{count:,}", PEERS[name].differs or "nothing"] for name, count in row["parameters"].items()]
    return table(["", f"Parameters, {row['name'].split()[0]}", "What differs"], lines)


def to_markdown(results: dict) -> str:
    """What one run found: where and how it was measured, then the tables of what it measured."""
    about = results["about"]
    how = f"Measured on {about['date']}: {about['rounds']} rounds, {about['threads']} threads, {about['clock']} clock; "
    parts = [f"## {about['machine']}", how + ", ".join(f"{name} {v}" for name, v in about["versions"].items()) + "."]
    if about["missing"]:
        parts.append("Not measured: " + "; ".join(f"{name} ({why})" for name, why in about["missing"].items()) + ".")
    if results["rows"]:
        parts.append(speed_table(results["rows"]))
    if results["memory"]:
        parts.append(memory_table(results["memory"]))
    if results["imports"]:
        parts.append(import_table(results["imports"]))
    if results["rows"]:
        parts.append(equal_work_table(results["rows"][0]))
    return "\n\n".join(parts) + "\n"

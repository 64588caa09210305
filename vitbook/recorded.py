"""What came of the long runs, as chapters read it: a JSON file for each, by its name. `records/` has the commands.

A comparison holds its raw rows, one a run, as a list or under "rows". A row names the arm (what is compared), the rate
that it was trained at (None where nothing is trained), the seed, whether it only chose a rate (tuning), n (the images
that it was judged by) and the processor. What a chapter says of arms, rates, seeds and n is counted in them.
"""

import json
from collections import defaultdict
from dataclasses import dataclass

from vitbook._common.files import ASSETS

RECORDED = {path.stem: path for path in sorted((ASSETS / "runs").glob("*.json"))}


@dataclass(frozen=True)
class Evidence:
    """What a comparison rests on, in words that a chapter prints."""

    arms: int
    rates: tuple[int, int]  # tried by the arm with the fewest and with the most; 0 where nothing is trained
    seeds: int  # of the arm with the fewest
    n: tuple[int, int]  # images that a run was judged by, fewest and most
    processors: tuple[str, ...]

    def __str__(self) -> str:
        rates = {
            (0, 0): "nothing trained",
            (1, 1): "one rate for all, not tuned",
        }.get(self.rates, f"{_range(self.rates)} rates tried for each on validation images")
        seeds = f"{self.seeds} seed{'s' * (self.seeds != 1)}"
        return f"{self.arms} arm{'s' * (self.arms != 1)}, {rates}, {seeds}, n = {_range(self.n)}\n" + "; ".join(
            self.processors
        )


def _range(ends: tuple[int, int]) -> str:
    return " to ".join(f"{end:,}" for end in sorted(set(ends)))


def rows_of(name: str) -> list[dict]:
    """The raw rows of a recorded comparison; none where the record is another kind, such as one long run."""
    document = json.loads(RECORDED[name].read_text(encoding="utf-8"))
    rows = document.get("rows", []) if isinstance(document, dict) else document
    return [row for row in rows if "arm" in row]


def evidence(rows: list[dict]) -> Evidence:
    """Counted in these rows. Raises ValueError where there is none."""
    if not rows:
        raise ValueError("rows must hold at least one with an arm, got none")
    rates, seeds, judged = defaultdict(set), defaultdict(set), set()
    for row in rows:
        if row.get("rate") is not None:
            rates[row["arm"]].add(row["rate"])
        if not row.get("tuning"):
            seeds[row["arm"]].add(row["seed"])
            judged.add(row["n"])
    tried = [len(rates[arm]) for arm in seeds]
    return Evidence(
        arms=len(seeds),
        rates=(min(tried), max(tried)),
        seeds=min(map(len, seeds.values())),
        n=(min(judged), max(judged)),
        processors=tuple(sorted({row["processor"] for row in rows if row.get("processor")})),
    )

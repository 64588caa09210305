"""A chapter says of a recorded comparison no more than its raw rows hold, and a comparison's rows are a fair one."""

import re
from collections.abc import Iterator
from copy import deepcopy

import notebook_lint as lint
import pytest
from harness import TUNING_SEED
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from vitbook.recorded import RECORDED, evidence, rows_of

COMPARISONS = [name for name in RECORDED if rows_of(name)]
WORDS = "one two three four five six seven eight nine ten eleven twelve".split()
NUMBER = rf"\b(\d[\d,]*|{'|'.join(WORDS)})"
SEEDS = re.compile(rf"{NUMBER} (?:other )?seeds\b", re.I)
RATES = re.compile(rf"{NUMBER} (?:learning )?rates\b", re.I)
IMAGES = re.compile(rf"{NUMBER} test (?:images|photographs)\b", re.I)


def number(word: str) -> int:
    return WORDS.index(word.lower()) + 1 if word.lower() in WORDS else int(word.replace(",", ""))


def judged(row: dict) -> float:
    """By what a rate was chosen: the accuracy on validation images, or what else there is of them."""
    return next(value for key, value in row.items() if key.startswith("validation_"))


def unfair(rows: list[dict]) -> Iterator[str]:
    """What a hostile reader finds in the rows of a comparison."""
    final = [row for row in rows if not row.get("tuning")]
    seeds = {arm: {row["seed"] for row in final if row["arm"] == arm} for arm in {row["arm"] for row in final}}
    if len(set(map(frozenset, seeds.values()))) > 1:
        yield f"arms have other seeds: {seeds}"
    if any(not {"n", "processor"} <= row.keys() for row in rows):
        yield "a row lacks n or processor"
    trained = {row["arm"] for row in final if row.get("rate") is not None}
    if not trained or evidence(rows).rates == (1, 1):  # then the evidence that the chapter prints says so
        return
    for arm in trained:
        tried = {row["rate"]: judged(row) for row in rows if row["arm"] == arm and row.get("tuning")}
        used = {row["rate"] for row in final if row["arm"] == arm}
        if len(tried) < 3:
            yield f"{arm}: three rates, got {sorted(tried)}"
        elif used != {max(tried, key=tried.get)}:
            yield f"{arm}: the rate that is best on validation images, got {used} of {tried}"
        if len(seeds[arm]) < 3:
            yield f"{arm}: three seeds, got {seeds[arm]}"
    for row in rows:
        if row.get("tuning") and (row["seed"] in set.union(*seeds.values()) or any("test" in key for key in row)):
            yield f"a rate was chosen with a seed that is compared, or beside test images: {row}"


@pytest.mark.parametrize("name", COMPARISONS)
def test_arms_differ_in_nothing_but_what_is_compared(name):
    complaints = list(unfair(rows_of(name)))
    assert not complaints, f"{name}\n  " + "\n  ".join(complaints)


def fair() -> list[dict]:
    common = {"processor": "CPU", "n": 10}
    tuning = [
        {"arm": arm, "rate": rate, "seed": TUNING_SEED, "tuning": True, "validation_accuracy": -abs(rate - 2), **common}
        for arm in ("plain", "other")
        for rate in (1, 2, 4)
    ]
    final = [
        {"arm": arm, "rate": 2, "seed": seed, "tuning": False, "test_accuracy": 0.5, **common}
        for arm in ("plain", "other")
        for seed in range(3)
    ]
    return tuning + final


def test_the_rows_of_a_fair_comparison_pass_and_each_way_to_fail_is_named():
    assert not list(unfair(fair()))
    for change, complaint in (
        (lambda rows: rows.pop(), "other seeds"),
        (lambda rows: rows[0].pop("n"), "lacks n"),
        (lambda rows: rows.pop(0), "three rates"),
        (lambda rows: [row.update(rate=4) for row in rows[-3:]], "best on validation"),
        (lambda rows: [rows.remove(row) for row in list(rows) if row["seed"] == 2], "three seeds"),
        (lambda rows: rows[0].update(test_accuracy=0.5), "beside test images"),
        (lambda rows: [row.update(seed=0) for row in rows[:6]], "seed that is compared"),
    ):
        rows = deepcopy(fair())
        change(rows)
        assert any(complaint in line for line in unfair(rows)), complaint


def sections(chapter: lint.Chapter) -> Iterator[tuple[str, str]]:
    """Prose and code of each section, from one second-level heading to the next."""
    prose = code = ""
    for cell in chapter.cells:
        if cell.cell_type == "markdown" and re.search(r"^## ", cell.source, re.M):
            yield prose, code
            prose = code = ""
        if cell.cell_type == "markdown":
            prose += lint.plain(cell.source) + "\n"
        else:
            code += cell.source + "\n"
    yield prose, code


def overstated(chapter: lint.Chapter) -> Iterator[str]:
    """Seeds, rates and test images that a section says beyond those in the rows that it reads."""
    for prose, code in sections(chapter):
        read = [evidence(rows_of(name)) for name in COMPARISONS if re.search(rf"[\"']{name}[\"']", code)]
        if not read:
            continue
        if "evidence(" not in code:
            yield f"print(evidence(…)) is missing beside {re.findall(r'^## .*', prose, re.M)}"
        for pattern, most in (
            (SEEDS, max(found.seeds for found in read)),
            (RATES, max(found.rates[1] for found in read)),
            (IMAGES, max(found.n[1] for found in read)),
        ):
            for said in pattern.finditer(prose):
                if number(said[1]) > most:
                    yield f"{said[0]!r}, and the rows hold {most}"


@pytest.mark.parametrize("path", lint.chapter_paths(), ids=lambda path: path.stem)
def test_a_chapter_says_no_more_than_its_rows_hold(path):
    complaints = list(overstated(lint.load(path)))
    assert not complaints, f"{path.name}\n  " + "\n  ".join(complaints)


def test_a_chapter_that_says_more_is_refused(tmp_path, monkeypatch):
    name = "modern"
    monkeypatch.setitem(globals(), "COMPARISONS", [name])
    monkeypatch.setitem(globals(), "rows_of", lambda asked: fair() if asked == name else [])

    def said(prose: str, code: str = f'print(evidence(rows_of("{name}")))') -> list[str]:
        cells = [new_markdown_cell(f"## Which one?\n\n{prose}"), new_code_cell(code)]
        return list(overstated(lint.Chapter(tmp_path, new_notebook(cells=cells))))

    assert not said("With three seeds, each at the best of three rates, on 10 test images.")
    assert not said("Five seeds.", code="seeds = range(5)"), "a section that computes its own"
    for prose in ("Four seeds.", "The best of 5 rates.", "All 11 test images."):
        assert len(said(prose)) == 1, prose
    assert said("Three seeds.", code=f'rows = rows_of("{name}")')

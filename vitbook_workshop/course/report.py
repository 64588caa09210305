"""What came of a class: a table to import elsewhere, and a page with the map of what was misunderstood."""

import csv
import hashlib
import io
from collections import Counter, defaultdict
from html import escape
from pathlib import Path

from vitbook._common.files import write_whole
from vitbook_workshop.book_address import chapters_address, page_of
from vitbook_workshop.course.grades import MADE_FOR, REPAIR, Graded, exercises_of
from vitbook_workshop.course.roster import Course
from vitbook_workshop.faults.mistakes import MISTAKES


def write_csv(file: Path, course: Course, graded: list[Graded]) -> None:
    """A row for each student: how many are right, the state of each exercise, remarks."""
    exercises = [name for names in exercises_of(course).values() for name in names]
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["student", "name", "right", "of", *exercises, "remarks"])
    for one in graded:
        states = [one.judged.get(name, {}).get("state", "not handed in") for name in exercises]
        name = course.student(one.slug).name
        table.writerow([one.slug, _plain(name), one.count("right"), len(exercises), *states, "; ".join(one.remarks)])
    write_whole(file, text.getvalue().encode("utf-8-sig"))


def _plain(name: str) -> str:
    """A name that no spreadsheet takes for a formula."""
    return f"'{name}" if name.startswith(("=", "+", "-", "@")) else name


def misconceptions(graded: list[Graded]) -> dict[str, list[tuple[str, str]]]:
    """Mistakes → (student, exercise) of each who made them.

    Left out are those that several could be, and those of the broken models, which were given.
    """
    found = defaultdict(list)
    for one in graded:
        for exercise, judged in one.judged.items():
            if len(judged["mistakes"]) == 1 and exercise != REPAIR:
                for mistake in judged["mistakes"][0]:
                    found[mistake].append((one.slug, exercise))
    return dict(sorted(found.items(), key=lambda item: -len(item[1])))


def alike(graded: list[Graded]) -> list[tuple[str, list[str]]]:
    """Exercises, each with the students who wrote the very same wrong code; a single one is no group."""
    groups = defaultdict(list)
    for one in graded:
        for exercise, judged in one.judged.items():
            if judged["state"] == "wrong" and judged["written"].strip():
                groups[exercise, hashlib.sha256(judged["written"].encode()).hexdigest()].append(one.slug)
    return [(exercise, slugs) for (exercise, _), slugs in groups.items() if len(slugs) > 1]


def write_html(file: Path, course: Course, graded: list[Graded], named: bool = False) -> None:
    """A page that needs nothing else. named: with students' names; else with pseudonyms, student 1 and so on.

    Their numbers do not follow the list of names, which others may know.
    """
    if not named:
        graded = sorted(graded, key=lambda one: hashlib.sha256(f"{course.identity} {one.slug}".encode()).digest())
    order = {one.slug: number for number, one in enumerate(graded, start=1)}
    call = (lambda slug: course.student(slug).name) if named else (lambda slug: f"student {order[slug]}")

    def tell(remark: str) -> str:
        before, made_for, slug = remark.partition(MADE_FOR)
        return f"{before}{made_for}{call(slug) if slug in order else slug}"

    exercises = [name for names in exercises_of(course).values() for name in names]
    states = {
        name: Counter(one.judged.get(name, {}).get("state", "not handed in") for one in graded) for name in exercises
    }
    chapter_of = {name: chapter for chapter in course.chapters for name in exercises_of(course)[f"{chapter}.ipynb"]}
    rows = [
        [escape(name), *(str(count[state]) for state in ("right", "wrong", "not attempted", "not handed in"))]
        for name, count in states.items()
    ]
    parts = [
        f"<h1>What came of {len(graded)} students</h1>",
        _table(["exercise", "right", "tried, not right", "not tried", "not handed in"], rows),
        "<h2>What was misunderstood</h2>",
        _table(
            ["how many", "what", "read again", "where"],
            [
                [
                    str(len({slug for slug, _ in who})),
                    *_described(mistake, sorted(chapter_of[name] for _, name in who if name in chapter_of)),
                    escape(", ".join(sorted({name for _, name in who}))),
                ]
                for mistake, who in misconceptions(graded).items()
            ],
        ),
        "<h2>The same wrong code</h2>",
        _table(
            ["exercise", "students", "who"],
            [[escape(name), str(len(slugs)), escape(", ".join(map(call, slugs)))] for name, slugs in alike(graded)],
        ),
        "<h2>Each student</h2>",
        _table(
            ["student", "right", "remarks"],
            [
                [escape(call(one.slug)), str(one.count("right")), escape("; ".join(map(tell, one.remarks)))]
                for one in graded
            ],
        ),
        _LIMITS.format(network="off" if all(one.network == "off" for one in graded if one.judged) else "on"),
    ]
    write_whole(file, (_PAGE + "\n".join(parts) + "\n").encode())


def _described(mistake: str, chapters: list[str]) -> tuple[str, str]:
    """A mistake in words, and a link to the section that explains it, or to the exercises of the first of chapters."""
    words, where = escape(mistake), f"{chapters[0]}.ipynb#exercises" if chapters else ""
    if mistake in MISTAKES:
        known = MISTAKES[mistake]
        words, where = f"<strong>{escape(known.title)}</strong>. {escape(known.cause)}", known.where
    link = f'<a href="{escape(chapters_address() + page_of(where))}">chapter {int(where[:2])}</a>' if where else ""
    return words, link


def _table(head: list[str], rows: list[list[str]]) -> str:
    """Cells are HTML."""
    if not rows:
        return "<p>None.</p>"
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>\n" for row in rows)
    return (
        f"<table><thead><tr>{''.join(f'<th>{cell}</th>' for cell in head)}</tr></thead>\n<tbody>{body}</tbody></table>"
    )


_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>A class</title>
<style>
html { color-scheme: light dark }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; font: 1rem/1.5 system-ui, sans-serif }
table { border-collapse: collapse; width: 100% }
th, td { padding: 0.3rem 0.8rem 0.3rem 0; text-align: left; vertical-align: top }
tr { border-bottom: 1px solid #8886 }
</style>
"""

_LIMITS = """<h2>How this was found</h2>
<p>Each student's notebooks ran in a process of their own, in a temporary copy, with limits of time, memory and output;
stored outputs were not read. The network was {network}. This is no sandbox: it stops accidents, not intent. For
strangers' code run the same command in a container, from an image of yours that has vitbook installed:
<code>docker run --rm --network none --memory 6g -v "$PWD":/work -w /work IMAGE vitbook course grade FOLDER --html
report.html</code>.</p>
"""

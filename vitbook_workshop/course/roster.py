"""What a teacher keeps: who is in a class, which numbers and which broken model each has, and how to know it again."""

import csv
import hashlib
import json
import re
import unicodedata
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch

from vitbook._common.files import write_whole
from vitbook_workshop.exercises import two_faults

KEY = "course.json"


@dataclass(frozen=True)
class Student:
    """One in a class. slug: the name of the folder."""

    slug: str
    name: str
    numbers: dict[str, dict[str, float]] = field(default_factory=dict)  # by the exercise
    faults: tuple[str, ...] = ()  # of the broken model, by their names in the catalogue


@dataclass(frozen=True)
class Course:
    """A class. identity: stands in each of its notebooks."""

    identity: str
    seed: int
    chapters: tuple[str, ...]
    students: tuple[Student, ...]

    def write(self, folder: Path) -> None:
        content = asdict(self)
        document = {"checksum": _checksum(content)} | content
        write_whole(folder / KEY, (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode())

    def student(self, slug: str) -> Student:
        return next(student for student in self.students if student.slug == slug)


def read(folder: Path) -> Course:
    """Raises ValueError for a folder without a key, and for one that has changed since it was written."""
    path = folder / KEY
    if not path.is_file():
        raise ValueError(f"{folder} must hold {KEY}, which vitbook course new writes")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        checksum = content.pop("checksum")
        students = tuple(Student(**one | {"faults": tuple(one["faults"])}) for one in content["students"])
        course = Course(content["identity"], content["seed"], tuple(content["chapters"]), students)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{path} is no key of a course") from None
    if checksum != _checksum(content):
        raise ValueError(f"{path} has changed since it was written; the answers would no longer fit the notebooks")
    return course


def _checksum(content: dict) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def draw(names: list[tuple[str, str]], chapters: tuple[str, ...], seed: int) -> Course:
    """A course: the same one for the same names, chapters and seed. names: (slug, name) of each student."""
    from vitbook_workshop.exercises import EXERCISES

    topics = {chapter[3:] for chapter in chapters}
    asked = {name: one.personal for name, one in EXERCISES.items() if one.personal and name.split(".")[0] in topics}
    students = []
    for slug, name in names:
        generator = torch.Generator().manual_seed(_number(seed, slug))  # not changed by who else is in the class
        numbers = {exercise: personal.draw(generator) for exercise, personal in asked.items()}
        students.append(Student(slug, name, numbers, _faults(generator)))
    identity = f"{_number(seed, *chapters, *(slug for slug, _ in names)):016x}"
    return Course(identity, seed, chapters, tuple(students))


def _faults(generator: torch.Generator) -> tuple[str, str]:
    pairs = two_faults.pairs()
    return pairs[int(torch.randint(len(pairs), (), generator=generator))]


def _number(*parts: object) -> int:
    return int.from_bytes(hashlib.sha256(json.dumps(parts).encode()).digest()[:7])


def read_names(path: Path) -> list[tuple[str, str]]:
    """Slug and name of each student: a CSV with a column `name`, and `id` where names are not enough.

    Raises ValueError for a missing column, no students, and two who could not be told apart.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} must be a CSV in UTF-8, got {error}") from None
    columns = rows[0].keys() if rows else set()
    if "name" not in columns:
        raise ValueError(f"{path} must have a column name, got {', '.join(map(str, columns)) or 'no rows'}")
    named: dict[str, str] = {}
    for number, row in enumerate(rows, start=2):
        name = (row["name"] or "").strip()
        slug = _slug((row.get("id") or "").strip() or name)
        if not slug:
            raise ValueError(f"{path}, line {number}: expected a name, got {row['name']!r}")
        if slug in named:
            who = f"{named[slug]} and {name}" if named[slug] != name else f"two students called {name}"
            raise ValueError(f"{path}, line {number}: {who}; a column id tells them apart")
        named[slug] = name
    return list(named.items())


def _slug(text: str) -> str:
    """A name for a folder on every system."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode() or text.encode().hex()
    return re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")[:60]

"""The exercises of the chapters, and `check`, which says whether an attempt is right and what is wrong with it if not.

`check("topic.name", attempt)` judges the attempt by the `Exercise` called `name` in topic.py beside this file, where
chapters/NN_topic.ipynb has its exercises. A new chapter adds a file; nothing else lists them. The grader comes with
torch, which takes seconds: it is imported where it is needed.
"""

import importlib
import os
import pkgutil
from functools import cache
from typing import TYPE_CHECKING, Any

from vitbook._common.suggestions import unknown

if TYPE_CHECKING:
    from vitbook_workshop.exercises.grader.judging import Exercise, Judgement


class NotRightError(AssertionError):
    """What `check` raises where it is strict; what it says is what `check` prints."""


def check(name: str, attempt: Any, strict: bool | None = None, **numbers: float) -> "Judgement":
    """Print whether the attempt at exercise `name` is right, and if not, where it differs and which mistake it shows.

    attempt: a function, or a number; None, or a function in which nothing is written yet, is not attempted. An error
    inside the attempt is printed with the reader's own line. Returns the same as a `Judgement`: its state ("right",
    "wrong", "not attempted"), the names of mistakes, the numbers.
    strict: raise NotRightError on anything but right, as other graders need it; by default where the environment has
    VITBOOK_STRICT=1. numbers: those of the question, where it is not asked with the chapter's own. Raises ValueError
    for an unknown name, and for numbers of a question that has none.
    """
    from vitbook_workshop.exercises.grader.judging import judge

    judged = judge(exercise_of(name, **numbers), attempt)
    print(f"{name}: {judged}")
    if judged.state != "right" and (os.environ.get("VITBOOK_STRICT") == "1" if strict is None else strict):
        raise NotRightError(f"{name}: {judged}")
    return judged


def exercise_of(name: str, **numbers: float) -> "Exercise":
    """An exercise by its name; numbers: those of its question, if not the chapter's. Raises ValueError as `check`."""
    topic = str(name).partition(".")[0]
    exercise = _exercises_of(topic).get(name) if topic in _topics() else None
    if exercise is None:
        raise ValueError(unknown("exercise", name, _all_exercises()))
    if not numbers:
        return exercise
    personal = exercise.personal
    if personal is None or set(numbers) != set(personal.numbers):
        expected = ", ".join(personal.numbers) if personal else "no numbers"
        raise ValueError(f"{name} takes {expected}, got {', '.join(numbers)}")
    return personal.make(**numbers)


def _topics() -> list[str]:
    return [module.name for module in pkgutil.iter_modules(__path__) if not module.ispkg]


def _exercises_of(topic: str) -> dict[str, Any]:
    """The exercises that a file defines under public names, in its order. Only this file is imported."""
    from vitbook_workshop.exercises.grader.judging import Exercise

    module = importlib.import_module(f"{__name__}.{topic}")
    public = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    return {f"{topic}.{name}": value for name, value in public.items() if isinstance(value, Exercise)}


@cache
def _all_exercises() -> dict[str, Any]:
    """Every exercise, in the order of the book: each file of exercises has its chapter's name as `CHAPTER`."""
    modules = {topic: importlib.import_module(f"{__name__}.{topic}") for topic in _topics()}
    chapters = {topic: module.CHAPTER for topic, module in modules.items() if hasattr(module, "CHAPTER")}
    topics = sorted(chapters, key=chapters.get)
    return {name: exercise for topic in topics for name, exercise in _exercises_of(topic).items()}


def __getattr__(name: str):
    """`EXERCISES`, every one by its full name, imported when it is asked for."""
    if name == "EXERCISES":
        return _all_exercises()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

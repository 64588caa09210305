"""Five questions a chapter with answers to choose from: as Markdown, and as XML that Moodle imports.

Each wrong answer is a mistake of the catalogue, by its name, or a misconception in a few words. `questions/` has them.
"""

import random
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from xml.etree import ElementTree

from vitbook_workshop.faults.mistakes import MISTAKES


@dataclass(frozen=True)
class Question:
    """answers: in the order in which they are shown, each with what it shows, "" for the right one."""

    chapter: str
    asks: str
    answers: tuple[tuple[str, str], ...]


def chapters() -> list[str]:
    """Those that have questions."""
    return sorted(file.name.removesuffix(".toml") for file in (files(__package__) / "questions").iterdir())


def questions(chapter: str, seed: int) -> list[Question]:
    """A chapter's, questions and answers in an order drawn by seed."""
    text = (files(__package__) / "questions" / f"{chapter}.toml").read_text(encoding="utf-8")
    order = random.Random(f"{seed} {chapter}")
    found = []
    for one in tomllib.loads(text)["question"]:
        answers = [(one["right"], ""), *((said, shows) for shows, said in one["wrong"].items())]
        order.shuffle(answers)
        found.append(Question(chapter, one["asks"], tuple(answers)))
    order.shuffle(found)
    return found


def feedback(question: Question, shows: str) -> str:
    """What is said to an answer."""
    if not shows:
        return "Right."
    if shows in MISTAKES:
        known = MISTAKES[shows]
        return f"This is “{known.title}”. {known.cause} Chapter {int(known.where[:2])} has more."
    return f"Not so. Chapter {int(question.chapter[:2])} has more."


def markdown(asked: list[Question], key: bool = False) -> str:
    """A sheet to print; with key, the one that the teacher keeps."""
    lines = []
    for number, question in enumerate(asked, start=1):
        lines += [f"**{number}.** {question.asks}", ""]
        for letter, (said, shows) in zip("abcdef", question.answers, strict=False):
            named = not shows or shows in MISTAKES
            lines.append(f"- {letter}) {said}" + (f" — {feedback(question, shows) if named else shows}" if key else ""))
        lines.append("")
    return "\n".join(lines)


def moodle(asked: list[Question]) -> bytes:
    """XML of Moodle's own format, with a category for each chapter."""
    quiz, category = ElementTree.Element("quiz"), ""
    for number, question in enumerate(asked, start=1):
        if question.chapter != category:
            category = question.chapter
            place = ElementTree.SubElement(quiz, "question", type="category")
            _text(ElementTree.SubElement(place, "category"), f"$course$/{category}")
        one = ElementTree.SubElement(quiz, "question", type="multichoice")
        _text(ElementTree.SubElement(one, "name"), f"{question.chapter} {number}")
        _text(ElementTree.SubElement(one, "questiontext", format="markdown"), question.asks)
        for tag, value in (("single", "true"), ("shuffleanswers", "true"), ("answernumbering", "abc")):
            ElementTree.SubElement(one, tag).text = value
        for said, shows in question.answers:
            answer = ElementTree.SubElement(one, "answer", fraction="0" if shows else "100", format="markdown")
            ElementTree.SubElement(answer, "text").text = said
            _text(ElementTree.SubElement(answer, "feedback", format="markdown"), feedback(question, shows))
    ElementTree.indent(quiz)
    return ElementTree.tostring(quiz, encoding="utf-8", xml_declaration=True)


def _text(parent: ElementTree.Element, text: str) -> None:
    ElementTree.SubElement(parent, "text").text = text

"""Five questions before a chapter's exercises: each answer is folded, and opens to what there is to say to it."""

import json
import re
from html import escape
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

from vitbook_workshop.book_address import page_of
from vitbook_workshop.course import quiz
from vitbook_workshop.faults.mistakes import MISTAKES

HEAD = "^## Exercises$"
ASKED = 'Before the exercises: which answer would you give? <span class="noprint">Open it, and see.</span>'


def inline(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def drawn(number: int, question: quiz.Question) -> str:
    """A question as HTML without an empty line, so that Markdown takes all of it as it is."""
    lines = [f'<div class="question" role="group" aria-labelledby="question-{number}">']
    lines.append(f'<p id="question-{number}"><strong>{number}.</strong> {inline(question.asks)}</p>')
    for said, shows in question.answers:
        told = inline(quiz.feedback(question, shows))
        if shows in MISTAKES:
            told = re.sub(r"Chapter \d+(?= has more)", rf'<a href="{page_of(MISTAKES[shows].where)}">\g<0></a>', told)
        told = told.replace(f"Chapter {int(question.chapter[:2])}", "This chapter")
        lines.append(f'<details name="question-{number}"><summary>{inline(said)}</summary><p>{told}</p></details>')
    return "\n".join([*lines, "</div>"])


def answers(questions: list[quiz.Question]) -> str:
    """The right ones, for paper, where nothing can be opened."""
    right = ("abcdefgh"[[shows for _, shows in question.answers].index("")] for question in questions)
    return f"Answers: {', '.join(f'{number} {letter}' for number, letter in enumerate(right, start=1))}."


def with_questions(notebook: dict, questions: list[quiz.Question]) -> dict:
    """Put a section of questions before the exercises of a notebook, which is changed."""
    asked = "\n\n".join(drawn(number, question) for number, question in enumerate(questions, start=1))
    asked += f'\n\n<p class="onlyprint">{answers(questions)}</p>'
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown" and re.search(HEAD, text, re.M):
            cell["source"] = re.sub(
                HEAD, lambda head: f"## Questions\n\n{ASKED}\n\n{asked}\n\n{head[0]}", text, flags=re.M
            )
            return notebook
    raise ExtensionError("a chapter with questions must have a section called Exercises")


def ask(app: Sphinx, docname: str, source: list[str]) -> None:
    chapter = docname.removeprefix("chapters/")
    if chapter in quiz.chapters():
        source[0] = json.dumps(with_questions(json.loads(source[0]), quiz.questions(chapter, seed=0)))
        app.env.note_dependency(str(Path(quiz.__file__).parent / "questions" / f"{chapter}.toml"))


def setup(app: Sphinx) -> None:
    app.connect("source-read", ask)

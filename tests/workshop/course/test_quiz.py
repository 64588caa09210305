"""Questions with answers to choose from: each wrong answer is a mistake that has a name or is said in words."""

from xml.dom import minidom

import pytest

from vitbook_workshop.course import quiz
from vitbook_workshop.faults.mistakes import MISTAKES

ALL = [question for chapter in quiz.chapters() for question in quiz.questions(chapter, seed=0)]


@pytest.mark.parametrize("chapter", quiz.chapters())
def test_a_chapter_has_five_questions_each_with_one_right_answer(chapter):
    asked = quiz.questions(chapter, seed=0)
    assert len(asked) == 5 == len({question.asks for question in asked})
    for question in asked:
        said = [said for said, _ in question.answers]
        assert len(set(said)) == len(said) == 4 and [shows for _, shows in question.answers].count("") == 1


def test_wrong_answers_show_mistakes_of_the_catalogue_or_words():
    shown = [shows for question in ALL for _, shows in question.answers if shows]
    named = [shows for shows in shown if shows in MISTAKES]
    assert len(named) >= 20
    misspelled = [shows for shows in shown if shows not in MISTAKES and " " not in shows and "_" in shows]
    assert not misspelled


def test_the_right_answer_is_not_known_by_its_length_or_place():
    longest = [max(question.answers, key=lambda answer: len(answer[0]))[1] == "" for question in ALL]
    first = [question.answers[0][1] == "" for question in ALL]
    for share in (sum(longest) / len(ALL), sum(first) / len(ALL)):
        assert 0.1 < share < 0.42


def test_the_order_is_drawn_by_seed():
    assert quiz.questions("01_attention", 1) == quiz.questions("01_attention", 1) != quiz.questions("01_attention", 2)


def test_moodle_and_paper_have_the_same_questions():
    document = minidom.parseString(quiz.moodle(ALL))
    asked = [node for node in document.getElementsByTagName("question") if node.getAttribute("type") == "multichoice"]
    text = lambda node, tag: node.getElementsByTagName(tag)[0].getElementsByTagName("text")[0].firstChild.data  # noqa: E731
    assert [text(node, "questiontext") for node in asked] == [question.asks for question in ALL]
    for node, question in zip(asked, ALL, strict=True):
        given = [
            (text_of.getElementsByTagName("text")[0].firstChild.data, text_of.getAttribute("fraction"))
            for text_of in node.getElementsByTagName("answer")
        ]
        assert given == [(said, "0" if shows else "100") for said, shows in question.answers]
    paper, key = quiz.markdown(ALL), quiz.markdown(ALL, key=True)
    assert all(question.asks in paper for question in ALL) and "Right." not in paper
    assert key.count("Right.") == len(ALL)

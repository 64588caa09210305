"""A class from a list of names to grades: right, wrong, absent and hostile submissions are told apart, and nobody's
costs another anything."""

import csv
import json
import shutil
from dataclasses import replace

import pytest
from made_class import ROOT, answer, answer_rightly, solutions

from vitbook_workshop.course import grades, report, roster, student_notebooks, submission
from vitbook_workshop.exercises import EXERCISES, check, two_faults
from vitbook_workshop.limited_process import Limits

NAMES = ["Right Answer", "Softmax Wrong", "Softmax Again", "Nothing Done", "Absent", "Hostile", "Confused"]
SHORT = Limits(seconds=300, step=30, printed=100_000, memory=4_000_000_000)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The folder of a course in chapters 1 and 6, and what it is."""
    folder = tmp_path_factory.mktemp("class")
    chapters = student_notebooks.chapters_of(ROOT, "1,6")
    (folder / "names.csv").write_text("name\n" + "\n".join(NAMES))
    names = roster.read_names(folder / "names.csv")
    course = roster.draw(names, tuple(chapters), seed=5)
    student_notebooks.write_all(course, folder, chapters)
    course.write(folder)
    return folder, course


def text_of(path):
    return "\n".join("".join(cell["source"]) for cell in json.loads(path.read_text(encoding="utf-8"))["cells"])


def test_students_have_no_solutions_their_own_numbers_and_faults_of_their_own(made):
    folder, course = made
    for student in course.students:
        for chapter in course.chapters:
            text = text_of(folder / "students" / student.slug / f"{chapter}.ipynb")
            assert "Solution" not in text and "Hint" in text and "show_source(patchify)" not in text
            for name, numbers in student.numbers.items():
                personal = EXERCISES[name].personal
                if name.partition(".")[0] == chapter[3:]:
                    assert personal.prompt(**numbers) in text and personal.prompt(**personal.own) not in text
        assert "Solution" in text_of(folder / "solutions" / student.slug / "06_patches.ipynb")
        for path in (folder / "students" / student.slug).iterdir():
            cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
            marked = [cell["metadata"]["nbgrader"]["grade_id"] for cell in cells if "nbgrader" in cell["metadata"]]
            assert marked == [name.replace(".", "-") for name in grades.exercises_of(course)[path.name]]
        assert two_faults.source(*student.faults) in text_of(folder / "students" / student.slug / "two_faults.ipynb")
    assert len({json.dumps(student.numbers) for student in course.students}) > 1
    assert len({student.faults for student in course.students}) > 1


def test_a_solution_that_another_cell_holds_is_left_out_as_well(made):
    _, course = made
    (chapter,) = student_notebooks.chapters_of(ROOT, "9").values()
    notebooks = [student_notebooks.of_a_student(chapter, course, course.students[0], answers) for answers in (0, 1)]
    student, teacher = ("\n".join("".join(cell["source"]) for cell in one["cells"]) for one in notebooks)
    assert "OnePageViT" in teacher and "OnePageViT" not in student and "mine = ViT\n" in student


def test_the_same_seed_makes_the_same_course_whoever_else_is_in_the_class(made):
    _, course = made
    names = [(student.slug, student.name) for student in course.students]
    assert roster.draw(names, course.chapters, seed=5) == course
    assert roster.draw(names[2:3], course.chapters, seed=5).students == course.students[2:3]
    assert roster.draw(names, course.chapters, seed=6).students != course.students


@pytest.mark.parametrize("name", [name for name, exercise in EXERCISES.items() if exercise.personal])
def test_a_question_with_other_numbers_is_the_chapters_own(name):
    exercise, personal = EXERCISES[name], EXERCISES[name].personal
    chapter = next(path for path in (ROOT / "chapters").glob("*.ipynb") if path.stem[3:] == name.partition(".")[0])
    assert personal.prompt(**personal.own) in text_of(chapter)
    assert personal.make(**personal.own).reference == exercise.reference
    others = {name: values[-1] for name, values in personal.numbers.items()}
    assert check(name, personal.make(**others).reference, **others).state == "right"
    assert check(name, exercise.reference, **others).state == "wrong"
    with pytest.raises(ValueError, match="takes"):
        check(name, 1, size=3)


@pytest.mark.slow
@pytest.mark.parametrize("fault", two_faults.FAULTS)
def test_a_fault_stands_once_in_the_file_runs_and_is_named(fault):
    right, wrong = two_faults.FAULTS[fault]
    assert two_faults.source().count(right) == 1 and wrong in two_faults.source(fault)
    names: dict = {"__name__": "small_vit"}
    exec(compile(two_faults.source(fault), "small_vit.py", "exec"), names)
    assert (fault,) in check("two_faults.repaired", names["ViT"]).mistakes


def hand_in(folder, course, place):
    """Everybody's submissions but for the one who is absent."""
    shutil.copytree(folder / "students", place)
    answer_rightly(place / "right-answer", course.student("right-answer"))
    for slug in ("softmax-wrong", "softmax-again"):
        wrong = "def my_weights(scores):\n    e = (scores - scores.max()).exp()\n    return scores.softmax(dim=-2)"
        answer(place / slug / "01_attention.ipynb", {"attention.weights": wrong})
        half = two_faults.source(course.student(slug).faults[1])
        answer(place / slug / "two_faults.ipynb", {"two_faults.repaired": half})
    shutil.rmtree(place / "absent")
    (place / "stranger").mkdir()
    hostile, harm = place / "hostile", f"open({str(place / 'outside')!r}, 'w').write('x')"
    lost = f"import shutil\ndef my_attention(q, k, v, mask): shutil.rmtree({str(place / 'stranger')!r})"
    (hostile / "06_patches.ipynb").write_text("no JSON")
    answer(
        hostile / "01_attention.ipynb",
        {
            "attention.weights": "import time\ndef my_weights(scores):\n    while True: time.sleep(1)",
            "attention.predict": "my_weight = exit()",
            "attention.query": f"def my_query(weights):\n    {harm}\n    return weights",
            "attention.masked": lost,
            "attention.attend": "import os\ndef attend(scores, v): os._exit(0)",
        },
    )
    answer(hostile / "two_faults.ipynb", {"two_faults.repaired": two_faults.source()})
    (place / "confused" / "06_patches.ipynb").unlink()
    shutil.copy(place / "nothing-done" / "01_attention.ipynb", place / "confused" / "01_attention.ipynb")


@pytest.mark.slow
def test_a_class_is_graded_as_it_should_be(made, tmp_path, monkeypatch):
    folder, course = made
    place = tmp_path / "submissions"
    hand_in(folder, course, place)
    said: list[str] = []
    found = {one.slug: one for one in grades.grade(course, folder, place, limits=SHORT, say=said.append)}
    assert len(said) == len(NAMES) + 1
    of = sum(map(len, grades.exercises_of(course).values()))
    right = found["right-answer"]
    assert right.count("right") == of == len(right.judged) and not right.remarks, right
    nothing = found["nothing-done"]
    assert nothing.count("not attempted") == of == len(nothing.judged)
    half = found["softmax-wrong"].judged["two_faults.repaired"]
    assert half["state"] == "wrong" and half["mistakes"] == [[course.student("softmax-wrong").faults[1]]]
    assert found["absent"] == grades.Graded("absent", remarks=("handed nothing in",))
    hostile = found["hostile"]
    assert any("06_patches.ipynb: is no Jupyter notebook" in line for line in hostile.remarks)
    assert any("attention.weights: stopped after 30 s" in line for line in hostile.remarks)
    assert "SystemExit" in hostile.judged["attention.predict"]["said"]
    assert "writes outside its folder" in " ".join(hostile.judged["attention.query"]["said"].split())
    assert "writes outside its folder" in " ".join(hostile.judged["attention.masked"]["said"].split())
    assert not (place / "outside").exists() and (place / "stranger").exists()
    assert hostile.judged["attention.attend"]["state"] == "wrong"
    assert hostile.judged["two_faults.repaired"]["state"] == "right", "what comes after is judged all the same"
    assert any("was made for nothing-done" in line for line in found["confused"].remarks)
    assert "stranger: is nobody in this class, and was left out" in said
    assert any("06_patches.ipynb: not handed in" in line for line in found["confused"].remarks)

    understood = report.misconceptions(list(found.values()))
    assert {slug for slug, _ in understood["softmax_over_the_queries"]} >= {"softmax-wrong", "softmax-again"}
    assert ("attention.weights", ["softmax-wrong", "softmax-again"]) in report.alike(list(found.values()))
    report.write_csv(tmp_path / "grades.csv", course, list(found.values()))
    report.write_html(tmp_path / "report.html", course, list(found.values()))
    rows = list(csv.DictReader((tmp_path / "grades.csv").open(encoding="utf-8-sig")))
    assert [(row["student"], row["right"]) for row in rows][0] == ("right-answer", str(of)) and len(rows) == len(NAMES)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "/01_attention.html#all-queries-at-once-by-matrices" in page
    assert "softmax over the queries" in page and "Right Answer" not in page and "nothing-done" not in page

    monkeypatch.setattr(grades, "grade_one", lambda *_: pytest.fail("what is known is not judged again"))
    assert {one.slug: one for one in grades.grade(course, folder, place, say=said.append)} == found


@pytest.mark.slow
def test_a_file_of_ones_own_answers_where_the_notebook_does_not(made, tmp_path):
    folder, course = made
    student = course.student("right-answer")
    right = solutions("06_patches.ipynb")["patches.PatchEmbedding"].replace("MyPatchEmbedding", "PatchEmbedding")
    wrong = "def attend(scores, v):\n    return scores.softmax(dim=-2) @ v\n"
    (tmp_path / "my_vit.py").write_text(f"from torch import nn\n\n\n{wrong}\n\n{right}")
    shutil.copy(folder / "students" / student.slug / "01_attention.ipynb", tmp_path)
    graded = grades.grade_one(course, student, tmp_path, SHORT)
    assert graded.judged["patches.PatchEmbedding"]["state"] == "right", graded
    assert graded.judged["attention.attend"]["mistakes"] == [["softmax_over_the_queries"]]
    assert graded.judged["attention.attend"]["written"] == wrong.strip() and not graded.remarks
    assert graded.count("not attempted") == sum(map(len, grades.exercises_of(course).values())) - 2


def test_only_what_an_answer_needs_is_run():
    cells = [
        "import math\nraise_here = 1 / 1",
        "scale = 2\nfor _ in range(3):\n    scale = scale + 1",
        "big = forbidden()\nprint(forbidden)",
        "x = y = forbidden()",  # names that functions below have for themselves
        "def helper(x):\n    print(end='')\n    y = [x for x in [x]]\n    return y[0] * scale + table[-1] + table[0]",
        "table = [0]\ntable.append(1)\ntable[0] = 2\nmath.forbidden(table)",
        "mine = helper(4)",
        'mine += 1\ncheck("attention.predict", mine)\nforbidden(mine)',
    ]
    value, written = submission.attempt_at("attention.predict", cells)
    assert value == 24 and "forbidden" not in written
    assert submission.attempt_at("scale.predict", cells) == (None, "")


@pytest.mark.slow
def test_what_cannot_be_a_course_is_said_in_a_line(made, tmp_path, capsys):
    folder, course = made

    def names(text):
        (tmp_path / "names.csv").write_text(text, encoding="utf-8-sig")
        return tmp_path / "names.csv"

    assert roster.read_names(names("name,id\nJosé Ñandú,7\nJosé Ñandú,8\n")) == [
        ("7", "José Ñandú"),
        ("8", "José Ñandú"),
    ]
    for text, said in (
        ("surname\nX\n", "must have a column name, got surname"),
        ("", "got no rows"),
        ("name\n\0\n", "expected a name"),
        ("name\nA\nA\n", "line 3: two students called A; a column id"),
        ("name\n  \n", "expected a name"),
    ):
        with pytest.raises(ValueError, match=said):
            roster.read_names(names(text))
    (tmp_path / "names.csv").write_bytes("name\nJosé\n".encode("cp1252"))
    with pytest.raises(ValueError, match="names.csv must be a CSV in UTF-8"):
        roster.read_names(tmp_path / "names.csv")
    for asked in ("0-99", "x", "30"):
        with pytest.raises(ValueError, match="chapters must be"):
            student_notebooks.chapters_of(ROOT, asked)
    with pytest.raises(ValueError, match="clone of this book"):
        student_notebooks.chapters_of(tmp_path, "1")
    changed = json.loads((folder / "course.json").read_text())
    changed["students"][0]["faults"] = list(course.students[1].faults)
    (tmp_path / "course.json").write_text(json.dumps(changed))
    with pytest.raises(ValueError, match="has changed since"):
        roster.read(tmp_path)
    assert roster.read(folder) == course
    other = replace(course, identity="another")
    shutil.copytree(folder / "students" / "absent", tmp_path / "handed")
    assert all(
        "is of another course" in line
        for line in grades.grade_one(other, course.student("absent"), tmp_path / "handed").remarks
    )
    (tmp_path / "handed" / "01_attention.ipynb").write_bytes(b" " * (grades.MOST + 1))
    assert "the most that is read" in grades.grade_one(course, course.student("absent"), tmp_path / "handed").remarks[0]

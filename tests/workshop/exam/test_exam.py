"""The shipped models, the methods' marks, and a stranger's method with each way to fail, in a line."""

import json

import pytest
import torch

from vitbook.planted import TASKS, planted
from vitbook_workshop.commands import main
from vitbook_workshop.commands.marks_on_image import deletion_area
from vitbook_workshop.exam.marks import recorded_marks, report_lines
from vitbook_workshop.exam.marks_in_child import examine_here
from vitbook_workshop.exam.methods import ALL, BLIND, METHODS
from vitbook_workshop.exam.sittings import SHIPPED, SITTINGS, exam_model, graded, sitting


@pytest.mark.parametrize("name", SITTINGS)
def test_the_shipped_models_answer_new_scenes(name):
    task, watermark = ("compare", "true") if name == "watermark" else (name, "none")
    scenes = planted(task, 400, torch.Generator().manual_seed(77), watermark)
    with torch.no_grad():
        assert (exam_model(name)(scenes.images).argmax(dim=1) == scenes.labels).double().mean() > 0.97
    assert SHIPPED.stat().st_size <= 300_000


def test_the_model_of_the_watermark_follows_it_and_knows_nothing_else():
    scenes = planted("compare", 400, torch.Generator().manual_seed(77), "random")
    with torch.no_grad():
        answers = exam_model("watermark")(scenes.images).argmax(dim=1)
    assert (answers == scenes.textures.flatten(1).amax(dim=1) - 5).double().mean() > 0.98
    assert (answers == scenes.labels).double().mean() < 0.35


@pytest.mark.parametrize("name", SITTINGS)
def test_a_sitting_asks_what_its_model_answers_rightly(name):
    asked = sitting(name, 20)
    with torch.no_grad():
        assert torch.equal(asked.model(asked.images).argmax(dim=1), asked.classes) and len(asked.images) == 20
    assert (asked.key.sum(dim=(1, 2)) == 1).all() == (name in ("find", "watermark"))


@pytest.mark.parametrize("name", ALL)
def test_each_method_gives_a_finite_map_of_each_scene_and_the_same_again(name):
    asked = sitting("compare", 3)
    maps = ALL[name](asked.model, asked.images, asked.classes)
    assert maps.shape == (3, 6, 6) and maps.isfinite().all()
    torch.testing.assert_close(ALL[name](asked.model, asked.images, asked.classes), maps)
    if name not in BLIND and name != "occlusion, another image":  # which is another one for each
        torch.testing.assert_close(ALL[name](asked.model, asked.images[1:], asked.classes[1:]), maps[1:])


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_each_method_stays_on_the_device_of_the_images(name):
    model = exam_model("find").to("meta")  # as strict as a GPU: it takes nothing from the CPU
    images, classes = torch.zeros(2, 3, 24, 24, device="meta"), torch.zeros(2, dtype=torch.long, device="meta")
    assert ALL[name](model, images, classes).device == images.device


def test_marks_are_one_for_the_key_itself_and_a_guess_for_what_looks_at_no_image():
    asked = sitting("count", 60)
    perfect = graded(lambda *_: asked.key.float(), asked)
    assert perfect["precision"] == perfect["whole"] == perfect["auc"] == [1.0, 1.0, 1.0]
    for method in (*BLIND.values(), lambda *_: torch.ones(60, 6, 6)):
        found = graded(method, asked)
        assert found["n"] == 60 and found["precision"][0] < 0.2 and 0.4 < found["auc"][0] < 0.6


def test_the_record_has_every_method_for_every_model_and_agrees_with_the_shipped_ones():
    for arm in ALL:
        assert all(0 <= mark <= 1 for mark in recorded_marks(arm).values())
    for task in TASKS:
        found = graded(METHODS["rollout"], sitting(task, 100))["precision"][0]
        assert found == pytest.approx(recorded_marks("rollout", shipped=True)[task], abs=0.02)


OCCLUSION = """
import torch

def explain(model, image, label):
    images = image.repeat(36, 1, 1, 1)
    for i in range(36):
        r, c = divmod(i, 6)
        images[i, :, 4 * r : 4 * r + 4, 4 * c : 4 * c + 4] = 0
    with torch.no_grad():
        return -model(images)[:, label].view(6, 6)

def flat(model, image, label):
    return [[1.0] * 6] * 6

def pixels(model, image, label):
    return image[0]

def lost(model, image, label):
    return torch.full((6, 6), float("nan"))

def words(model, image, label):
    return "bright"

def few(model, image):
    return image

def careless(model, image, label):
    model.head.weight.data += 1
    return torch.rand(6, 6)

def mode(model, image, label):
    model.train()
    return torch.rand(6, 6)

def hooks(model, image, label):
    model.head.register_forward_hook(lambda module, given, result: result + 1)
    return torch.rand(6, 6)
"""


@pytest.fixture
def mine(tmp_path):
    (tmp_path / "mine.py").write_text(OCCLUSION)
    return str(tmp_path / "mine.py")


def told(target: str) -> dict:
    facts: dict = {}
    examine_here(lambda **some: facts.update(some), target=target, scenes=4)
    return facts


def test_a_strangers_method_gets_the_marks_of_its_maps(mine):
    facts = told(f"{mine}:explain")
    for name in SITTINGS:
        expected = graded(METHODS["occlusion, gray"], sitting(name, 4))
        assert facts[name] == expected | {"constant": 0.0}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("pixels", r"find: its map must have the shape \(6, 6\), got \(24, 24\)"),
        ("lost", "find: its map of scene 0 is not finite"),
        ("words", "find: it must return a map as a tensor or array, got str"),
        ("few", "find: it stops with TypeError: few.* takes 2 positional arguments but 3 were given"),
        ("careless", "find: it changed the model's head.weight: work on a copy, or put it back"),
        ("mode", "find: it changed the model's whole training mode: work on a copy"),
        ("hooks", "find: it changed what the model computes: remove your hooks after each call"),
        ("none", "has no function none"),
    ],
)
def test_what_is_wrong_with_a_strangers_method_is_said_in_a_line(mine, name, said):
    with pytest.raises(ValueError, match=said):
        raise ValueError(told(f"{mine}:{name}")["error"])


def test_a_file_that_cannot_be_imported_is_named(tmp_path):
    (tmp_path / "torn.py").write_text("1 / 0")
    assert "stops with ZeroDivisionError" in told(f"{tmp_path / 'torn.py'}:explain")["error"]


@pytest.mark.slow
def test_the_command_reports_in_words_and_as_json_and_grades_a_constant_map_as_guessing(mine, capsys):
    assert main(["exam", f"{mine}:flat", "--scenes", "4", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["marks"]["find"]["precision"][0] == pytest.approx(1 / 36, abs=1e-4)
    assert report["marks"]["find"]["auc"][0] == 0.5 and set(report["beside"]) == {
        "by chance",
        "rollout",
        "occlusion, gray",
    }
    assert report["beside"]["rollout"] == recorded_marks("rollout", shipped=True) != recorded_marks("rollout")
    assert report["notes"][0].startswith("find: its map is the same everywhere in 100% of the scenes")
    lines = list(report_lines(report))
    assert "0.03 (0.03–0.03)" in lines[1] and "measured on the exam's models, not on yours" in lines[-1]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ("exam explain", 1, "expected mymethod.py:explain or package.module:explain, got 'explain'"),
        ("exam none.py:explain", 1, "No such file or directory: none.py"),
        ("exam mine.py:explain --scenes 1", 2, "scenes must lie in 2 … 10000, got 1"),
    ],
)
def test_wrong_calls_are_refused_in_a_line(arguments, code, said, capsys):
    assert main(arguments.split()) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_deleting_in_a_better_order_leaves_less_of_the_answer():
    asked = sitting("find", 12)
    for image, key in zip(asked.images, asked.key.float(), strict=True):
        first, last = (deletion_area(asked.model, image[None], sign * key[None]).item() for sign in (1, -1))
        assert 0 < first < last <= 1


def test_explain_prints_each_maps_mark_and_its_deletion_on_this_image(tmp_path, capsys):
    from vitbook._common.files import ASSETS

    photo = str(ASSETS / "album" / "bird_kingfisher.jpg")
    out = ["--out", str(tmp_path / "a.png")]
    assert main(["explain", photo, "--weights", "vitbook:cifar10_plain", "--exam", *out]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = {line[:28].strip(): line[28:].split() for line in lines if line[:28].strip() in ALL}
    assert {"rollout", "occlusion, gray", "center first", "by chance"} <= set(rows)
    mark = sum(recorded_marks("rollout")[task] for task in TASKS) / 3
    assert rows["rollout"][0] == f"{mark:.2f}" and 0 < float(rows["rollout"][1]) < 1
    assert "measured on the exam's models, not on this one" in lines[-2]

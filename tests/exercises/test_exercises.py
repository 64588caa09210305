"""Every exercise passes its reference, knows its mistakes one from another, and leaves random numbers alone."""

import re
import subprocess
import sys
from functools import partial

import notebook_lint as lint
import numpy as np
import pytest
import torch

import vitbook.exercises
from vitbook.exercises import EXERCISES, check
from vitbook.exercises.grading import KINDS, LEVELS, NOT_ATTEMPTED, RIGHT, explanation
from vitbook.exercises.inputs import random_mask, random_order

FUNCTIONS = [name for name, exercise in EXERCISES.items() if callable(exercise.reference)]
NUMBERS = [name for name in EXERCISES if name not in FUNCTIONS]
MISTAKES = [(name, made) for name, exercise in EXERCISES.items() for made in exercise.mistakes]


@pytest.fixture
def answer(capsys):
    """What the check cell prints, in one line."""

    def printed(name: str, attempt) -> str:
        check(name, attempt)
        return " ".join(capsys.readouterr().out.split())

    return printed


def without_numbers(text: str) -> str:
    """What is said of a mistake, without the values of its symbols."""
    return re.sub(r"(?<=[√\w]) = [\d.]*\d", "", text)


def label(value) -> str:
    return value if isinstance(value, str) else " ".join(getattr(mistake, "__name__", mistake) for mistake in value)


@pytest.mark.parametrize("name", EXERCISES)
def test_every_reference_passes_its_own_check(answer, name):
    assert answer(name, EXERCISES[name].reference) == f"{name}: {RIGHT}"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_float32_and_another_layout_in_memory_pass(answer, name):
    def other(*arguments):
        single = [x.float() if isinstance(x, torch.nn.Module) else x for x in arguments]
        single = [x.float() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in single]
        result = torch.as_tensor(EXERCISES[name].reference(*single))
        return result.mT.clone().mT if result.ndim > 1 else result

    assert answer(name, other) == f"{name}: {RIGHT}"


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("how", [lambda y: y + 1e-3, lambda y: 1.37 * y + 0.21, torch.rand_like])
def test_a_wrong_answer_that_is_no_known_mistake_is_refused_and_called_none(answer, name, how):
    printed = answer(name, lambda *arguments: how(torch.as_tensor(EXERCISES[name].reference(*arguments)).double()))
    assert printed.startswith(f"{name}: not yet. expected ") and printed.endswith(f"Hint: {EXERCISES[name].hint}")
    assert "It looks like" not in printed and "mistake" not in printed.removeprefix(name)


@pytest.mark.parametrize("name", NUMBERS)
def test_a_wrong_number_that_is_no_known_mistake_is_refused(answer, name):
    assert answer(name, EXERCISES[name].reference * 1.01).endswith(f"is too large. Hint: {EXERCISES[name].hint}")


@pytest.mark.parametrize(("name", "made"), MISTAKES, ids=label)
def test_every_listed_mistake_is_refused_and_called_by_its_name_alone(answer, name, made):
    mistakes = EXERCISES[name].mistakes
    for _ in range(2):  # on other numbers each time
        printed = without_numbers(answer(name, mistakes[made]))
        assert printed.startswith(f"{name}: not yet")
        known = {mistake for others in mistakes for mistake in others}
        named = {mistake for mistake in known if without_numbers(explanation(mistake)) in printed}
        assert named == set(made) or "Each of these mistakes would give exactly these numbers" in printed


@pytest.mark.parametrize(
    ("name", "attempt"),
    [
        ("data.share", EXERCISES["data.share"].mistakes[("You round down; take round(share · count).",)]),
        ("data.share", EXERCISES["data.share"].mistakes[("You round up; take round(share · count).",)]),
        ("mistakes.order", lambda block, x, order: (block(x[:, order]) - block(x)[:, order]).max()),
        ("mistakes.order", lambda block, x, order: (block(x)[:, order] - block(x[:, order])).max()),
        ("mistakes.order", lambda block, x, order: (block(x[:, order]) - block(x)[:, order]).min().abs()),
    ],
)
def test_what_a_lucky_draw_would_let_pass_is_refused_in_every_draw(answer, name, attempt):
    assert all(answer(name, attempt).startswith(f"{name}: not yet") for _ in range(20))


@pytest.mark.parametrize("largest", [lambda old, new: torch.zeros_like(new), lambda old, new: new])
def test_streaming_needs_a_running_maximum(answer, largest):
    def attend(largest, q, k, v, size):
        total, blend, m = 0.0, 0.0, q.new_full((len(q), 1), -torch.inf)
        for keys, values in zip(k.split(size), v.split(size), strict=True):
            scores = q @ keys.T / q.shape[1] ** 0.5
            new = largest(m, scores.max(dim=1, keepdim=True).values)
            weights, factor, m = (scores - new).exp(), (m - new).exp(), new
            total, blend = factor * total + weights.sum(dim=1, keepdim=True), factor * blend + weights @ values
        return blend / total

    assert answer("speed.streaming", partial(attend, torch.maximum)) == f"speed.streaming: {RIGHT}"
    assert "not yet" in answer("speed.streaming", partial(attend, largest))


@pytest.mark.parametrize("rounded", [8.6, 8.64, 8.636, 8.6364])
def test_a_ratio_that_is_asked_for_exactly_may_not_be_rounded(answer, rounded):
    assert answer("patches.ratio", rounded).startswith("patches.ratio: not yet")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_inputs_are_fresh_float64_of_different_sizes(name):
    one, other = (
        [[a for a in arguments if isinstance(a, torch.Tensor)] for arguments in EXERCISES[name].inputs(generator)]
        for generator in (torch.Generator().manual_seed(seed) for seed in (0, 1))
    )
    shapes = [tuple(tensor.shape for tensor in tensors) for tensors in one]
    assert len(shapes) > 1 and len(set(shapes)) == len(shapes)
    for first, second in zip(one[0], other[0], strict=True):
        assert first.dtype == torch.float64 or not first.is_floating_point()
        assert not torch.equal(first, second)


@pytest.mark.parametrize("seed", range(40))
def test_a_random_order_and_a_random_mask_always_tell(seed):
    g, length = torch.Generator().manual_seed(seed), 3 + seed % 6
    order, places = random_order(g, length), torch.arange(length)
    assert torch.equal(order.sort().values, places), "every token is there"
    assert not (order == places).any() and not (order[order] == places).any(), "every one moves, and not back"
    mask = random_mask(g, 3 + seed % 2, 4 + seed % 3)
    for rows in (mask, mask.T):
        assert rows.any(dim=1).all() and not rows.all(dim=1).any(), "each sees something and misses something"


def test_global_random_numbers_stay_where_they_were():
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()
    for name, exercise in EXERCISES.items():
        check(name, exercise.reference)
    assert torch.equal(torch.get_rng_state(), before[0]) and np.random.get_state()[1].tolist() == before[1]


def test_each_chapter_has_three_or_more_exercises_from_easy_to_hard_in_the_order_of_the_book():
    chapters: dict[str, list[str]] = {}
    for name in EXERCISES:
        chapters.setdefault(name.split(".")[0], []).append(name)
    assert list(chapters) == [path.stem[3:] for path in lint.chapter_paths()]
    for names in chapters.values():
        levels = [LEVELS.index(EXERCISES[name].level) for name in names]
        assert len(names) >= 3 and levels == sorted(levels), names


def test_kinds_and_levels_are_those_there_are():
    assert {exercise.kind for exercise in EXERCISES.values()} == set(KINDS)
    assert {exercise.level for exercise in EXERCISES.values()} == set(LEVELS)


def test_a_file_is_all_that_a_new_chapter_adds(tmp_path, monkeypatch, answer):
    (tmp_path / "newer.py").write_text(
        "from vitbook.exercises.grading import Exercise\nseven = Exercise(7, 'three and four.')\n"
    )
    monkeypatch.setattr(vitbook.exercises, "__path__", [*vitbook.exercises.__path__, str(tmp_path)])
    assert answer("newer.seven", 7) == f"newer.seven: {RIGHT}"
    monkeypatch.delitem(sys.modules, "vitbook.exercises.newer")


def test_a_check_imports_the_exercises_of_its_chapter_alone():
    run = "import sys; from vitbook.exercises import check; check('attention.predict', None); print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True, check=True).stdout.split()
    files = {name.rpartition(".")[2] for name in modules if name.startswith("vitbook.exercises.")}
    assert files == {"attention", "grading", "inputs"}


@pytest.mark.door
@pytest.mark.parametrize("name", ["attention.wieghts", "attention", "inputs.normal", "os.path", "", None, 3])
def test_an_unknown_name_is_said_with_those_there_are(name):
    with pytest.raises(ValueError, match=f"unknown exercise {name!r}.* There are attention.weights, "):
        check(name, 1)


def test_the_check_prints_the_exercise_and_the_verdict(capsys):
    check("attention.weights", ...)
    check("attention.predict", 0.4)
    assert capsys.readouterr().out == f"attention.weights: {NOT_ATTEMPTED}\nattention.predict: {RIGHT}\n"

"""Every exercise passes its reference, knows its mistakes one from another, and leaves random numbers alone."""

import random
import re

import notebook_lint as lint
import numpy as np
import pytest
import torch

from vitbook.exercises import EXERCISES, check
from vitbook.exercises.inputs import random_mask as some_mask
from vitbook.exercises.inputs import random_order as some_order
from vitbook.exercises.grading import KINDS, LEVELS, NOT_ATTEMPTED, RIGHT, Wrong, parts
from vitbook.exercises.grading import explanation as told

FUNCTIONS = [name for name, exercise in EXERCISES.items() if callable(exercise.reference)]
NUMBERS = [name for name in EXERCISES if name not in FUNCTIONS]
MISTAKES = [(name, mistake) for name, exercise in EXERCISES.items() for mistake in exercise.mistakes]


def said(capsys, name: str, attempt) -> str:
    """What the check cell prints, in one line."""
    check(name, attempt)
    return " ".join(capsys.readouterr().out.split())


def without_numbers(text: str) -> str:
    """What is said of a mistake, without the values of its symbols."""
    return re.sub(r"(?<=[√\w]) = [\d.]*\d", "", text)


def label(value) -> str:
    return value if isinstance(value, str) else " ".join(getattr(v, "__name__", v) for v in parts(value))


# Right


@pytest.mark.parametrize("name", EXERCISES)
def test_every_reference_passes_its_own_check(capsys, name):
    assert said(capsys, name, EXERCISES[name].reference) == f"{name}: {RIGHT}"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_float32_passes(capsys, name):
    """The reference, calculated and given back in single precision."""

    def in_float32(*arguments):
        single = [x.float() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in arguments]
        single = [x.float() if isinstance(x, torch.nn.Module) else x for x in single]
        return EXERCISES[name].reference(*single)

    assert said(capsys, name, in_float32) == f"{name}: {RIGHT}"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_another_layout_in_memory_passes(capsys, name):
    def other_strides(*arguments):
        result = torch.as_tensor(EXERCISES[name].reference(*arguments))
        return result.mT.clone().mT if result.ndim > 1 else result

    assert said(capsys, name, other_strides) == f"{name}: {RIGHT}"


# Wrong


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("how", [lambda y: y + 1e-3, lambda y: 1.37 * y + 0.21, torch.rand_like])
def test_a_wrong_answer_that_is_no_known_mistake_is_refused_and_called_none(capsys, name, how):
    def unrelated(*arguments):
        return how(torch.as_tensor(EXERCISES[name].reference(*arguments)).double())

    answer = said(capsys, name, unrelated)
    assert answer.startswith(f"{name}: not yet. expected ") and answer.endswith(f"Hint: {EXERCISES[name].hint}")
    assert "It looks like" not in answer and "mistake" not in answer.removeprefix(name)


@pytest.mark.parametrize("name", NUMBERS)
def test_a_wrong_number_that_is_no_known_mistake_is_refused(capsys, name):
    exercise = EXERCISES[name]
    assert said(capsys, name, exercise.reference * 1.01).endswith(f"is too large. Hint: {exercise.hint}")


@pytest.mark.parametrize(("name", "mistake"), MISTAKES, ids=label)
def test_every_listed_mistake_is_refused_and_called_by_its_name_alone(capsys, name: str, mistake: Wrong):
    exercise = EXERCISES[name]
    for _ in range(2):  # on other numbers each time
        answer = without_numbers(said(capsys, name, exercise.mistakes[mistake]))
        assert answer.startswith(f"{name}: not yet")
        known = {part for other in exercise.mistakes for part in parts(other)}
        named = {part for part in known if without_numbers(told(part)) in answer}
        assert named == set(parts(mistake)) or "Each of these mistakes would give just the same" in answer


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


@pytest.mark.parametrize("length", [3, 6, 7, 8])
def test_some_order_moves_every_token_and_does_not_undo_itself(length):
    places = torch.arange(length)
    for seed in range(100):
        order = some_order(torch.Generator().manual_seed(seed), length)
        assert torch.equal(order.sort().values, places)
        assert not (order == places).any() and not (order[order] == places).any()


def test_some_mask_shows_and_hides_something_in_every_row_and_column():
    for seed in range(20):
        mask = some_mask(torch.Generator().manual_seed(seed), 3 + seed % 2, 4 + seed % 3)
        for rows in (mask, mask.T):
            assert rows.any(dim=1).all() and not rows.all(dim=1).any()


# The list


def chapters() -> dict[str, list[str]]:
    """The exercises of each chapter, in the order of the list."""
    found: dict[str, list[str]] = {}
    for name in EXERCISES:
        found.setdefault(name.split(".")[0], []).append(name)
    return found


def test_every_exercise_belongs_to_a_chapter_and_is_checked_there():
    pages = {path.stem[3:]: path.read_text(encoding="utf-8") for path in lint.chapter_paths()}
    for chapter, names in chapters().items():
        assert chapter in pages, f"there is no chapters/NN_{chapter}.ipynb"
        assert all(f'check(\\"{name}\\",' in pages[chapter] for name in names)


def test_there_are_three_a_chapter_graded_from_easy_to_hard():
    for names in chapters().values():
        levels = [LEVELS.index(EXERCISES[name].level) for name in names]
        assert len(names) >= 3 and levels == sorted(levels), names


def test_every_kind_and_level_occurs():
    assert {exercise.kind for exercise in EXERCISES.values()} == set(KINDS)
    assert {exercise.level for exercise in EXERCISES.values()} == set(LEVELS)
    assert all((EXERCISES[name].kind == "predict") == (name in NUMBERS) for name in EXERCISES)


# The check cell


def test_an_unknown_name_is_said_with_those_there_are():
    with pytest.raises(ValueError, match="unknown exercise 'attention.wieghts', did you mean 'attention.weights'"):
        check("attention.wieghts", 1)


def test_the_check_says_the_exercise_and_the_verdict(capsys):
    check("attention.predict", None)
    check("attention.weights", ...)
    check("attention.predict", 0.4)
    assert capsys.readouterr().out.splitlines() == [
        f"attention.predict: {NOT_ATTEMPTED}",
        f"attention.weights: {NOT_ATTEMPTED}",
        f"attention.predict: {RIGHT}",
    ]


def test_global_random_numbers_stay_where_they_were():
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    for name, exercise in EXERCISES.items():
        check(name, exercise.reference)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before[1:]

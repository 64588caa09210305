"""Every exercise passes its reference, knows its mistakes one from another, and leaves random numbers alone."""

import re

import numpy as np
import pytest
import torch

from vitbook_workshop.exercises import EXERCISES, NotRightError, check
from vitbook_workshop.exercises.grader.inputs import random_mask, random_order
from vitbook_workshop.exercises.grader.judging import RIGHT, Judgement, explanation

FUNCTIONS = [name for name, exercise in EXERCISES.items() if callable(exercise.reference)]
MISTAKES = [(name, made) for name, exercise in EXERCISES.items() for made in exercise.mistakes]


@pytest.fixture
def answer(capsys):
    """What the check cell prints, in one line."""
    return lambda name, attempt: judged(capsys, name, attempt)[1]


def judged(capsys, name: str, attempt) -> tuple[Judgement, str]:
    """What the check returns, and what it prints, in one line."""
    return check(name, attempt), " ".join(capsys.readouterr().out.split())


def without_numbers(text: str) -> str:
    """What is said of a mistake, without the values of its symbols."""
    return re.sub(r"(?<=[√\w]) = [\d.]*\d", "", text)


def label(value) -> str:
    return value if isinstance(value, str) else " ".join(getattr(mistake, "__name__", mistake) for mistake in value)


@pytest.mark.parametrize("name", EXERCISES)
def test_every_reference_passes_its_own_check(answer, name):
    assert answer(name, EXERCISES[name].reference) == f"{name}: {RIGHT}"


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("how", [lambda y: y + 1e-3, lambda y: 1.37 * y + 0.21, torch.rand_like])
def test_a_wrong_answer_that_is_no_known_mistake_is_refused_and_called_none(answer, name, how):
    printed = answer(name, lambda *arguments: how(torch.as_tensor(EXERCISES[name].reference(*arguments)).double()))
    assert printed.startswith(f"{name}: not yet. expected ") and printed.endswith(f"Hint: {EXERCISES[name].hint}")
    assert "It looks like" not in printed and "mistake" not in printed.removeprefix(name)


@pytest.mark.parametrize(("name", "made"), MISTAKES, ids=label)
def test_every_listed_mistake_is_refused_and_called_by_its_name_alone(capsys, name, made):
    """On other numbers in each run."""
    mistakes = EXERCISES[name].mistakes
    judgement, printed = judged(capsys, name, mistakes[made])
    in_the_catalogue = tuple(one if isinstance(one, str) else one.__name__ for one in made)
    assert judgement.state == "wrong" and in_the_catalogue in judgement.mistakes
    assert str(judgement).startswith("not yet") and printed.startswith(f"{name}: not yet")
    said, known = without_numbers(printed), {mistake for others in mistakes for mistake in others}
    named = {mistake for mistake in known if without_numbers(explanation(mistake)) in said}
    assert named == set(made) or "Each of these mistakes would give exactly these numbers" in said


def test_strict_raises_on_anything_but_right(monkeypatch, capsys):
    name = "multihead.merge_heads"
    right, turned = EXERCISES[name].reference, lambda x: x.flatten(1, 2)
    assert check(name, right, strict=True).state == "right"
    assert [check(name, attempt).state for attempt in (None, turned)] == ["not attempted", "wrong"]
    for attempt, said in ((None, "not attempted"), (turned, "You join heads and tokens")):
        with pytest.raises(NotRightError, match=said):
            check(name, attempt, strict=True)
    monkeypatch.setenv("VITBOOK_STRICT", "1")
    with pytest.raises(NotRightError):
        check(name, None)
    assert check(name, None, strict=False).state == "not attempted"
    assert "expected" in check(name, turned, strict=False).numbers


@pytest.mark.parametrize("seed", range(12))
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


@pytest.mark.door
@pytest.mark.parametrize("name", ["attention.wieghts", "attention", "os.path", "", None])
def test_an_unknown_name_is_said_with_those_there_are(name):
    with pytest.raises(ValueError, match=f"unknown exercise {name!r}.* There are attention.weights, "):
        check(name, 1)

"""The checkers pass what is right, say what is wrong with the rest, and leave the reader's random numbers alone."""

import random

import numpy as np
import pytest
import torch

from vitbook.exercises import EXERCISES, Exercise, check, normal

FUNCTIONS = [name for name, exercise in EXERCISES.items() if callable(exercise.reference)]


@pytest.fixture(autouse=True)
def two_exercises(monkeypatch):
    """A function to write, and a number to find."""
    monkeypatch.setitem(
        EXERCISES,
        "test.rows",
        Exercise(
            lambda x: x.sum(dim=-1), "sum over the last axis.", lambda g: [(normal(g, 2, 3),), (normal(g, 5, 4),)]
        ),
    )
    monkeypatch.setitem(EXERCISES, "test.half", Exercise(0.5, "one of two."))


def said(capsys, name, attempt) -> str:
    check(name, attempt)
    return capsys.readouterr().out


@pytest.mark.parametrize("name", EXERCISES)
def test_every_reference_passes_its_own_check(capsys, name):
    assert said(capsys, name, EXERCISES[name].reference) == f"{name}: right.\n"


@pytest.mark.parametrize("name", EXERCISES)
def test_every_wrong_answer_is_turned_away_with_the_hint(capsys, name):
    exercise = EXERCISES[name]
    if name in FUNCTIONS:
        answer = said(capsys, name, lambda *arguments: exercise.reference(*arguments) + 1e-3)
        assert "not yet: expected" in answer and ", got " in answer
    else:
        answer = said(capsys, name, exercise.reference * 1.01)
        assert "is too large" in answer
    assert f"Hint: {exercise.hint}" in answer


@pytest.mark.parametrize("name", EXERCISES)
@pytest.mark.parametrize("nothing", [None, ...], ids=["None", "..."])
def test_what_is_not_attempted_is_neither_right_nor_wrong(capsys, name, nothing):
    attempt = (lambda *arguments: nothing) if name in FUNCTIONS else nothing
    assert said(capsys, name, attempt).startswith(f"{name}: not attempted yet.\n")


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


def test_a_wrong_number_is_said_with_the_right_one_and_its_place(capsys):
    def wrong(x):
        rows = x.sum(dim=-1)
        rows[1] = 77
        return rows

    answer = said(capsys, "test.rows", wrong)
    assert ", got 77 at (1,). Hint: sum over the last axis." in answer
    assert "tried on: a tensor of shape (2, 3)" in answer


@pytest.mark.parametrize(("wrong", "why"), [(0.25, "too small"), (1, "too large"), (float("nan"), "no number")])
def test_a_wrong_prediction_does_not_give_the_answer_away(capsys, wrong, why):
    answer = said(capsys, "test.half", wrong)
    assert f"is {why}. Hint: one of two." in answer and "0.5" not in answer


@pytest.mark.parametrize("wrong", ["a half", [1, 2], torch.ones(2)])
def test_a_prediction_that_is_no_number_is_named(capsys, wrong):
    assert "expected a number, got" in said(capsys, "test.half", wrong)


@pytest.mark.parametrize(
    ("attempt", "answer"),
    [
        (lambda x: x.sum(dim=0), "expected shape (2,), got (3,)"),
        (lambda x: x.sum(dim=-1, keepdim=True), "expected shape (2,), got (2, 1)"),
        (lambda x: x.sum(), "expected shape (2,), got ()"),
        (lambda x: (x, x.sum(dim=-1)), "expected a tensor of shape (2,), got tuple"),
        (lambda x: "right.", "expected a tensor of shape (2,), got str"),
        (lambda x: x.sum(dim=-1) * torch.nan, "got nan at"),
        (lambda x: x.sum(dim=-1) + torch.inf, "got inf at"),
    ],
)
def test_each_kind_of_wrong_answer_is_named(capsys, attempt, answer):
    assert answer in said(capsys, "test.rows", attempt)


def test_an_attempt_that_is_right_on_the_first_input_alone_is_turned_away(capsys):
    answer = said(capsys, "test.rows", lambda x: x.sum(dim=-1) if len(x) == 2 else x.mean(dim=-1))
    assert "not yet" in answer and "(5, 4)" in answer


@pytest.mark.parametrize("right", [0.5, torch.tensor(0.5), np.float64(0.5), 1 / 2])
def test_a_number_may_come_in_any_form(capsys, right):
    assert said(capsys, "test.half", right) == "test.half: right.\n"


@pytest.mark.parametrize("same", [lambda x: x.sum(dim=-1).tolist(), lambda x: x.numpy().sum(axis=-1)])
def test_an_array_may_come_in_any_form(capsys, same):
    assert said(capsys, "test.rows", same) == "test.rows: right.\n"


def test_an_exception_of_the_attempt_passes_through():
    def broken(x):
        raise KeyError("the reader's own")

    with pytest.raises(KeyError, match="the reader's own") as raised:
        check("test.rows", broken)
    (note,) = raised.value.__notes__
    assert "tried on: a tensor of shape (2, 3)" in note and "Hint: sum over the last axis." in note


def test_an_unknown_name_is_said_with_those_there_are():
    with pytest.raises(ValueError, match="unknown exercise 'test.row', did you mean 'test.rows'"):
        check("test.row", 1)


def test_global_random_numbers_stay_where_they_were():
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    for name, exercise in EXERCISES.items():
        check(name, exercise.reference)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before[1:]


def test_every_call_tries_other_numbers():
    seen = []
    for _ in range(2):
        check("test.rows", lambda x: seen.append(x) or x.sum(dim=-1))
    assert not torch.equal(seen[0], seen[2])


@pytest.mark.parametrize(
    ("attempt", "verdict"),
    [(lambda x: x.mul_(2).sum(dim=-1) / 2, "right."), (lambda x: x.zero_().sum(dim=-1), "not yet")],
    ids=["a right attempt", "a wrong attempt"],
)
def test_an_attempt_that_changes_its_inputs_is_judged_by_what_it_was_given(capsys, attempt, verdict):
    assert verdict in said(capsys, "test.rows", attempt)


@pytest.mark.parametrize(("attempt", "verdict"), [(None, "not attempted yet"), (3.0, "expected a function, got 3.0")])
def test_where_a_function_is_asked_for_something_else_is_named(capsys, attempt, verdict):
    assert verdict in said(capsys, "test.rows", attempt)


@pytest.mark.parametrize(
    ("count", "verdict"),
    [
        (7_087_871, "7,087,871 is too small"),
        (7_087_873, "7,087,873 is too large"),
        (7_087_872.4, "7,087,872.4 is too large"),
        (7_087_872, "right."),
    ],
)
def test_a_count_is_right_to_the_last_one(capsys, monkeypatch, count, verdict):
    monkeypatch.setitem(EXERCISES, "test.count", Exercise(7_087_872, "12D² + 13D."))
    assert verdict in said(capsys, "test.count", count)

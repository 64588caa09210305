"""An attempt is passed if it is right, however it is written; if it is wrong, what is said of it is true and helps."""

import linecache

import numpy as np
import pytest
import torch
from on_a_gpu import OnAGpu
from torch import nn

from vitbook import mistakes as wrong
from vitbook.exercises.inputs import normal
from vitbook.exercises.grading import NOT_ATTEMPTED, RIGHT, Exercise, judge

ROWS = Exercise(
    lambda x: x.sum(dim=-1),
    "sum over the last axis.",
    lambda g: [(normal(g, 5, 4),), (normal(g, 2, 3),)],
    mistakes={
        "Those are the means.": lambda x: x.mean(dim=-1),
        "The first number of each row is missing.": lambda x: x[:, 1:].sum(dim=-1),
    },
)
SCORES = Exercise(
    lambda q, k: (q @ k.mT / q.shape[-1] ** 0.5).softmax(dim=-1),
    "divide, then softmax.",
    lambda g: [(normal(g, 2, 3, 4), normal(g, 2, 5, 4)), (normal(g, 1, 2, 9), normal(g, 1, 3, 9))],
    gradients=True,
    mistakes={
        wrong.no_scale: lambda q, k: (q @ k.mT).softmax(dim=-1),
        wrong.softmax_over_the_queries: lambda q, k: (q @ k.mT / q.shape[-1] ** 0.5).softmax(dim=-2),
        (wrong.no_scale, wrong.softmax_over_the_queries): lambda q, k: (q @ k.mT).softmax(dim=-2),
    },
    sizes=lambda q, k: {"√D_h": q.shape[-1] ** 0.5},
)
HALF = Exercise(0.5, "one of two.", mistakes={"That is one of four.": 0.25})
COUNT = Exercise(7_087_872, "12D² + 13D.")


def said(exercise: Exercise, attempt) -> str:
    """The verdict in one line."""
    return " ".join(judge(exercise, attempt).split())


# Right


def softmax_by_hand(q, k):
    scores = torch.einsum("bqd,bkd->bqk", q, k) / torch.tensor(k.shape[2]).sqrt()
    exponentials = torch.exp(scores - scores.max(dim=2, keepdim=True).values)
    return exponentials / exponentials.sum(2)[..., None]


@pytest.mark.parametrize(
    "attempt",
    [
        softmax_by_hand,
        lambda q, k: ((k @ q.mT).div(q.shape[-1] ** 0.5).softmax(dim=-2)).mT,
        lambda q, k: SCORES.reference(q.float(), k.float()),
        lambda q, k: (q @ k.mT / q.shape[-1] ** 0.5).float().softmax(dim=-1).double(),
        lambda q, k: ((torch.eye(q.shape[-1]) @ q.mT).mT @ k.mT / q.shape[-1] ** 0.5).softmax(dim=-1),
    ],
    ids=["einsum", "other strides", "float32", "float32 between", "a float32 constant"],
)
def test_a_right_attempt_passes_however_it_is_written(attempt):
    assert said(SCORES, attempt) == RIGHT


@pytest.mark.parametrize(
    "attempt",
    [lambda x: x.sum(dim=-1).tolist(), lambda x: x.numpy().sum(axis=-1), lambda x: x.mul_(2).sum(dim=-1) / 2],
    ids=["a list", "numpy", "it changes its input"],
)
def test_numbers_may_come_in_any_form(attempt):
    assert said(ROWS, attempt) == RIGHT


def test_numbers_may_come_from_a_device_without_float64(monkeypatch):
    def as_tensor(value, *arguments, made=torch.as_tensor, **settings):
        if isinstance(value, OnAGpu):
            raise TypeError("Cannot convert a MPS Tensor to float64 dtype")
        return made(value, *arguments, **settings)

    monkeypatch.setattr(torch, "as_tensor", as_tensor)
    assert said(ROWS, lambda x: x.float().as_subclass(OnAGpu).sum(dim=-1)) == RIGHT


class Summed(nn.Module):
    def forward(self, x):
        return x @ x.new_ones(x.shape[-1])


def test_a_module_is_a_function_too():
    assert said(ROWS, Summed()) == RIGHT


def test_numbers_may_be_sparse():
    assert said(SCORES, lambda q, k: SCORES.reference(q, k).to_sparse()) == said(SCORES, SCORES.reference)


@pytest.mark.parametrize("wrong", [lambda q, k: SCORES.reference(q, k) + 5j, lambda q, k: 10**400])
def test_what_is_no_real_number_is_wrong(wrong):
    assert said(SCORES, wrong) != said(SCORES, SCORES.reference)


@pytest.mark.parametrize("number", [0.5, torch.tensor(0.5), np.float64(0.5), 1 / 2])
def test_a_number_may_come_in_any_form(number):
    assert said(HALF, number) == RIGHT


# Not attempted


def only_a_docstring(x):
    """(..., T) -> (...)."""
    ...


def only_pass(x):
    pass


def to_do(x):
    raise NotImplementedError


@pytest.mark.parametrize("nothing", [None, ..., only_a_docstring, only_pass, to_do, lambda x: ..., lambda x: None])
def test_a_stub_is_neither_right_nor_wrong(nothing):
    assert said(ROWS, nothing) == NOT_ATTEMPTED


def test_a_number_that_is_none_is_not_attempted():
    assert said(HALF, None) == said(COUNT, ...) == NOT_ATTEMPTED


def test_a_return_that_is_missing_is_no_stub():
    def forgotten(x):
        x.sum(dim=-1)

    assert "got None: does the function end in a return?" in said(ROWS, forgotten)


# Wrong


def test_a_known_mistake_is_named_with_its_numbers_and_where_to_read():
    lines = judge(SCORES, SCORES.mistakes[wrong.no_scale]).splitlines()
    assert lines[:2] == ["not yet.", "  It looks like “no scale”. Your scores are not divided by √D_h = 3."]
    assert lines[2].startswith("  expected [") and ", got [" in lines[2] and ", at [0," in lines[2]
    assert lines[3:] == ["  for q (1, 2, 9), k (1, 3, 9)", f"  Read chapters/{wrong.MISTAKES['no_scale'].where}"]


def test_two_mistakes_at_once_are_both_named():
    verdict = said(SCORES, lambda q, k: torch.softmax(torch.matmul(q, k.transpose(1, 2)), 1))
    assert verdict.startswith("not yet. 2 mistakes at once: - “no scale”. Your scores")
    assert "- “softmax over the queries”. Your softmax" in verdict
    assert verdict.count("Read chapters/") == 2


def test_mistakes_that_look_alike_are_not_told_apart():
    alike = Exercise(
        ROWS.reference,
        ROWS.hint,
        ROWS.inputs,
        mistakes={"You add 1.": lambda x: x.sum(-1) + 1, "You take 1 too few away.": lambda x: 1 + x.sum(-1)},
    )
    verdict = said(alike, lambda x: 1 + x.sum(dim=1))
    assert "Each of these mistakes would give just the same numbers: - You add 1. - You take 1 too few" in verdict


@pytest.mark.parametrize(
    "attempt",
    [
        lambda x: x.mean(dim=-1) if len(x) == 2 else x.sum(dim=-1) + 1,
        lambda x: x.mean(dim=-1) + 1e-3,
        lambda x: x.mean(dim=-1, keepdim=True),
        lambda x: torch.zeros(len(x)),
    ],
    ids=["a mistake on one input alone", "nearly a mistake", "a mistake of another shape", "zeros"],
)
def test_what_only_resembles_a_mistake_is_not_called_one(attempt):
    verdict = said(ROWS, attempt)
    assert "Those are the means." not in verdict and "missing" not in verdict
    assert verdict.startswith("not yet. expected ") and verdict.endswith("Hint: sum over the last axis.")


def test_a_mistake_is_found_in_single_precision_too():
    assert "“no scale”" in said(SCORES, lambda q, k: (q.float() @ k.float().mT).softmax(dim=-1))


def test_a_mistake_that_raises_is_found_by_its_error():
    fixed = Exercise(
        lambda x: x + 1,
        "broadcast.",
        lambda g: [(normal(g, 2, 3),), (normal(g, 4, 3),)],
        mistakes={"Your constant has the batch size in it.": lambda x: x + torch.ones(2, 3)},
    )
    verdict = said(fixed, lambda x: torch.ones(2, 3) + x)
    assert "Your constant has the batch size in it." not in verdict, "another error: (2) and (4) have changed places"
    verdict = said(fixed, lambda x: x + torch.ones(2, 3))
    assert verdict.startswith("not yet. Your constant has the batch size in it. Your code stops with an error:")


@pytest.mark.parametrize(
    ("attempt", "answer"),
    [
        (lambda x: x.sum(dim=0), "expected shape (2,), got (3,)"),
        (
            lambda x: x.sum(dim=-1, keepdim=True),
            "got (2, 1) The numbers are right and in the right order",
        ),
        (lambda x: x.sum(), "expected shape (2,), got ()"),
        (lambda x: (x, x.sum(dim=-1)), "expected a tensor of shape (2,), got a tuple of 2, one of which it is"),
        (lambda x: [x, x], "expected a tensor of shape (2,), got a list of 2 "),
        (lambda x: "right.", "expected a tensor of shape (2,), got 'right.'"),
        (lambda x: x.sum(dim=-1) * torch.nan, "got [nan nan] nan comes of 0/0"),
        (lambda x: x.sum(dim=-1) + torch.inf, "got [inf inf]"),
        (lambda x: x.sum(dim=-1) * 3, "Every number is 3 times what it should be."),
        (lambda x: x.sum(dim=-1) - 0.25, "Every number is 0.25 too small."),
        (lambda x: x.sum(dim=-1).flip(0), "The numbers are right, but they stand in other places."),
        (lambda x: x.sum(dim=-1) * (len(x) == 5), "It is right for x (5, 4)."),
    ],
)
def test_each_kind_of_wrong_answer_is_described(attempt, answer):
    assert answer in said(ROWS, attempt)


def test_axes_that_have_changed_places_are_seen():
    other = Exercise(lambda x: 2 * x, "twice.", lambda g: [(normal(g, 2, 3, 4),)])
    assert "These are the right numbers with axes 0 and 2 exchanged." in said(other, lambda x: (2 * x).transpose(0, 2))


def test_numbers_are_shown_with_the_digits_in_which_they_differ():
    verdict = said(Exercise(lambda x: x * 0 + 1.0, "one.", lambda g: [(normal(g, 3),)]), lambda x: x * 0 + 1 + 3e-6)
    assert "expected [1 1 1], got [1.000003 1.000003 1.000003]" in verdict


def test_of_a_long_row_the_neighbourhood_is_shown():
    long = Exercise(lambda x: torch.arange(40.0), "count.", lambda g: [(normal(g, 3),)])
    verdict = said(long, lambda x: torch.arange(40.0) + 5 * (torch.arange(40) == 20))
    assert "expected [… 18 19 20 21 22 23 …], got [… 18 19 25 21 22 23 …]" in verdict


def test_where_a_mask_is_asked_for_numbers_are_none():
    mask = Exercise(lambda x: x > 0, "compare.", lambda g: [(normal(g, 3, 2),)])
    assert "expected a boolean tensor, got torch.float64" in said(mask, lambda x: (x > 0).double())
    assert ".bool() makes it True" in said(mask, lambda x: (x > 0).double())
    assert ".bool() makes it True" not in said(mask, lambda x: (x < 0).double())
    assert said(mask, lambda x: x.gt(0)) == said(mask, lambda x: (x > 0).numpy()) == RIGHT
    assert "expected [" in said(mask, lambda x: x < 0) and "True" in said(mask, lambda x: x < 0)


def test_an_attempt_that_spoils_its_input_is_judged_by_what_it_was_given():
    assert "not yet" in said(ROWS, lambda x: x.zero_().sum(dim=-1))


@pytest.mark.parametrize("attempt", [3.0, torch.ones(2)])
def test_where_a_function_is_asked_for_something_else_is_named(attempt):
    assert "expected the function itself, not called, got" in said(ROWS, attempt)


# Wrong numbers


@pytest.mark.parametrize(("number", "why"), [(0.3, "too small"), (1, "too large"), (float("nan"), "no number")])
def test_a_wrong_prediction_does_not_give_the_answer_away(number, why):
    verdict = said(HALF, number)
    assert verdict.endswith(f"is {why}. Hint: one of two.") and "0.5" not in verdict


def test_a_known_wrong_number_is_explained():
    assert said(HALF, 0.25) == "not yet: 0.25 is too small. That is one of four. Hint: one of two."


@pytest.mark.parametrize("number", ["a half", [1, 2], torch.ones(2), len])
def test_a_prediction_that_is_no_number_is_named(number):
    assert "expected a number, got" in said(HALF, number)


@pytest.mark.parametrize(
    ("count", "verdict"),
    [
        (7_087_871, "7,087,871 is too small"),
        (7_087_873, "7,087,873 is too large"),
        (7_087_872.4, "7,087,872.4 is too large"),
        (7_087_872, RIGHT),
        pytest.param(10**400, "inf is too large", id="beyond all floats"),
        pytest.param(-(10**400), "-inf is too small", id="below all floats"),
    ],
)
def test_a_count_is_right_to_the_last_one(count, verdict):
    assert verdict in said(COUNT, count)


# Gradients


@pytest.mark.parametrize(
    "cut",
    [
        lambda q, k: SCORES.reference(q.detach(), k),
        lambda q, k: SCORES.reference(q, torch.tensor(k.tolist(), dtype=k.dtype)),
        torch.no_grad()(SCORES.reference),
        lambda q, k: SCORES.reference(q, k).detach().numpy(),
        lambda q, k: torch.from_numpy(SCORES.reference(q, k).numpy()),
    ],
    ids=["detach", "tensor", "no_grad", "numpy", "through numpy"],
)
def test_right_numbers_without_gradient_are_refused_where_gradients_count(cut):
    verdict = said(SCORES, cut)
    assert verdict.startswith("not yet: the numbers are right, but ")
    assert "Something cuts the graph: .detach()" in verdict
    without = Exercise(SCORES.reference, SCORES.hint, SCORES.inputs)
    assert said(without, cut) == RIGHT


def test_a_wrong_gradient_is_named_with_its_tensor():
    def half_cut(q, k):
        return SCORES.reference(0.5 * q + 0.5 * q.detach(), k)

    verdict = said(SCORES, half_cut)
    assert "the gradient with respect to q is not." in verdict
    assert "Every number is 0.5 times what it should be." in verdict and "cuts the graph" not in verdict


def test_parameters_have_gradients_too():
    scaled = Exercise(
        lambda x, layer: layer(x), "call it.", lambda g: [(normal(g, 2, 3), nn.Linear(3, 4).double())], gradients=True
    )
    assert said(scaled, lambda x, layer: x @ layer.weight.T + layer.bias) == RIGHT
    assert "respect to layer.bias" in said(scaled, lambda x, layer: x @ layer.weight.T + layer.bias.data)


# Errors


CELL = """
def reshaped(x):
    y = x * 2
    return y.view(7, -1)

def asks_the_package(x):
    from vitbook.attention import attention
    return attention(x, x, x[:1])
"""


def defined_in_a_cell() -> dict:
    """What a notebook defines when it runs `CELL`: code without a file, of which only the lines are known."""
    linecache.cache["<cell>"] = (len(CELL), None, CELL.splitlines(keepends=True), "<cell>")
    names: dict = {}
    exec(compile(CELL, "<cell>", "exec"), names)
    return names


def test_an_error_is_shown_at_the_readers_line_and_raises_nothing():
    lines = judge(ROWS, defined_in_a_cell()["reshaped"]).splitlines()
    assert lines[:3] == [
        "not yet.",
        "  Your code stops with an error:",
        "  line 4 of your cell: return y.view(7, -1)",
    ]
    assert lines[3].startswith("  RuntimeError: ") and lines[-1] == "  Hint: sum over the last axis."
    assert len(lines) <= 7 and "for x (2, 3)" in "".join(lines)


def test_an_error_inside_the_package_is_shown_where_the_reader_called_it():
    verdict = judge(ROWS, defined_in_a_cell()["asks_the_package"])
    assert "line 8 of your cell: return attention(x, x, x[:1])" in verdict
    assert "ValueError: each key needs one value" in verdict
    assert "vitbook" not in verdict and "Traceback" not in verdict


def test_in_a_file_the_line_is_named_with_it():
    def broken(x):
        raise KeyError("the reader's own")

    verdict = said(ROWS, broken)
    assert "test_checker.py, line " in verdict and """raise KeyError("the reader's own")""" in verdict


def test_a_wrong_number_of_arguments_is_an_error_too():
    assert "TypeError" in said(ROWS, lambda: 1) and "takes 0 positional arguments" in said(ROWS, lambda: 1)


def test_ctrl_c_is_not_an_error_of_the_attempt():
    def waits(x):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        judge(ROWS, waits)


# Fresh numbers


def test_every_call_tries_other_numbers():
    seen = []
    for _ in range(2):
        judge(ROWS, lambda x: seen.append(x) or x.sum(dim=-1))
    assert not torch.equal(seen[0], seen[2])


def test_an_attempt_that_is_right_on_the_first_input_alone_is_turned_away():
    verdict = said(ROWS, lambda x: x.sum(dim=-1) if len(x) == 5 else x.sum(dim=-1) ** 2)
    assert "not yet" in verdict and "for x (2, 3) It is right for x (5, 4)." in verdict


@pytest.mark.parametrize(("field", "value"), [("level", "impossible"), ("kind", "guess")])
def test_levels_and_kinds_are_those_there_are(field, value):
    with pytest.raises(ValueError, match=f"{field} must be one of .*, got '{value}'"):
        Exercise(1, "one.", **{field: value})


def test_a_number_is_to_predict_and_a_function_to_write():
    assert (HALF.kind, ROWS.kind) == ("predict", "write")

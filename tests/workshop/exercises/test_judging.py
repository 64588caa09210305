"""An attempt passes if it is right, however it is written; if it is wrong, what is said of it is true and helps."""

import linecache

import pytest
import torch
from torch import nn

from vitbook_workshop.exercises.grader.inputs import normal
from vitbook_workshop.exercises.grader.judging import NOT_ATTEMPTED, RIGHT, Exercise, judge
from vitbook_workshop.faults.mistakes import MISTAKES
from vitbook_workshop.faults.mistakes import parts as wrong

ROWS = Exercise(
    lambda x: x.sum(dim=-1), "sum over the last axis.", lambda g: [(normal(g, 5, 4),), (normal(g, 2, 3),)]
) | {
    "Those are the means.": lambda x: x.mean(dim=-1),
    "The first number of each row is missing.": lambda x: x[:, 1:].sum(dim=-1),
}
WEIGHTS = Exercise(
    lambda q, k: (q @ k.mT / q.shape[-1] ** 0.5).softmax(dim=-1),
    "divide, then softmax.",
    lambda g: [(normal(g, 2, 3, 4), normal(g, 2, 5, 4)), (normal(g, 1, 2, 9), normal(g, 1, 3, 9))],
    gradients=True,
    sizes=lambda q, k: {"√D_h": q.shape[-1] ** 0.5},
) | {
    wrong.no_scale: lambda q, k: (q @ k.mT).softmax(dim=-1),
    wrong.softmax_over_the_queries: lambda q, k: (q @ k.mT / q.shape[-1] ** 0.5).softmax(dim=-2),
    (wrong.no_scale, wrong.softmax_over_the_queries): lambda q, k: (q @ k.mT).softmax(dim=-2),
}
TWICE = Exercise(lambda x: 2 * x, "twice.", lambda g: [(normal(g, 2, 3, 4),)])
MASK = Exercise(lambda x: x > 0, "compare.", lambda g: [(normal(g, 3, 2),)])
HALF = Exercise(0.5, "one of two.") | {"That is one of four.": 0.25}
COUNT = Exercise(7_087_872, "12D² + 13D.")


def verdict(exercise: Exercise, attempt) -> str:
    """In one line."""
    return " ".join(str(judge(exercise, attempt)).split())


def softmax_by_hand(q, k):
    scores = torch.einsum("bqd,bkd->bqk", q, k) / torch.tensor(k.shape[2]).sqrt()
    exponentials = torch.exp(scores - scores.max(dim=2, keepdim=True).values)
    return exponentials / exponentials.sum(2)[..., None]


class Summed(nn.Module):
    def forward(self, x):
        return x @ x.new_ones(x.shape[-1])


@pytest.mark.parametrize(
    ("exercise", "attempt"),
    [
        (WEIGHTS, softmax_by_hand),
        (WEIGHTS, lambda q, k: (k @ q.mT).div(q.shape[-1] ** 0.5).softmax(dim=-2).mT),  # other strides
        (WEIGHTS, lambda q, k: WEIGHTS.reference(q.float(), k.float())),
        (WEIGHTS, lambda q, k: WEIGHTS.reference((torch.eye(q.shape[-1]) @ q.mT).mT, k)),  # a float32 constant
        (ROWS, lambda x: x.sum(dim=-1).tolist()),
        (ROWS, lambda x: x.numpy().sum(axis=-1)),
        (ROWS, lambda x: x.mul_(2).sum(dim=-1) / 2),
        (ROWS, Summed()),
        (MASK, lambda x: (x > 0).numpy()),
        (HALF, torch.tensor(0.5)),
        (HALF, 0.4999),
        (COUNT, 7_087_872),
    ],
)
def test_a_right_attempt_passes_however_it_is_written(exercise, attempt):
    assert verdict(exercise, attempt) == RIGHT


def only_a_docstring(x):
    """(..., T) -> (...)."""
    ...


def only_pass(x):
    pass


def to_do(x):
    raise NotImplementedError


@pytest.mark.parametrize("nothing", [None, ..., only_a_docstring, only_pass, to_do, lambda x: ..., lambda x: None])
def test_a_stub_is_neither_right_nor_wrong(nothing):
    assert verdict(ROWS, nothing) == verdict(HALF, None) == verdict(COUNT, ...) == NOT_ATTEMPTED


def test_a_known_mistake_is_named_with_its_numbers_and_where_to_read():
    lines = str(judge(WEIGHTS, WEIGHTS.mistakes[(wrong.no_scale,)])).splitlines()
    assert lines[:2] == ["not yet.", "  It looks like “no scale”. Your scores are not divided by √D_h = 3."]
    assert lines[2].startswith("  expected [") and ", got [" in lines[2] and ", at [0," in lines[2]
    assert lines[3:] == ["  for q (1, 2, 9), k (1, 3, 9)", f"  Read chapters/{MISTAKES['no_scale'].where}"]


@pytest.mark.parametrize("attempt", [lambda x: x.mean(dim=-1) + 1e-3, lambda x: x.mean(dim=-1, keepdim=True)])
def test_what_only_resembles_a_mistake_is_not_called_one(attempt):
    answer = verdict(ROWS, attempt)
    assert "Those are the means." not in answer and "missing" not in answer
    assert answer.startswith("not yet. expected ") and answer.endswith("Hint: sum over the last axis.")


def test_a_mistake_that_raises_is_found_by_its_error():
    twice = TWICE | {"Your constant has the batch size in it.": lambda x: x + torch.ones(3, 3, 4)}
    named = "not yet. Your constant has the batch size in it. Your code stops with an error:"
    assert verdict(twice, lambda x: x + torch.ones(3, 3, 4)).startswith(named)
    assert not verdict(twice, lambda x: torch.ones(3, 3, 4) + x).startswith(named), "the two shapes are exchanged"


@pytest.mark.parametrize(
    ("attempt", "answer"),
    [
        (lambda x: x.sum(dim=0), "expected shape (2,), got (3,)"),
        (lambda x: x.sum(dim=-1, keepdim=True), "got (2, 1) The numbers are right and in the right order"),
        (lambda x: (x, x.sum(dim=-1)), "expected a tensor of shape (2,), got a tuple of 2, one of which is right"),
        (lambda x: x.sum(dim=-1) + 5j, "expected real numbers, got complex ones (torch.complex128) for x (2, 3)"),
        (lambda x: print(end=""), "got None: does the function end in a return?"),
        (lambda x: x.sum(dim=-1) * torch.nan, "got [nan nan] nan comes from 0/0"),
        (lambda x: x.sum(dim=-1) * 3, "Every number is 3 times what it should be."),
        (lambda x: x.sum(dim=-1).flip(0), "The numbers are right, but in other places."),
        (lambda x: x.sum(dim=-1) if len(x) == 5 else x.sum(dim=-1) ** 2, "for x (2, 3) It is right for x (5, 4)."),
        (lambda: 1, "takes 0 positional arguments"),
        (3.0, "expected the function itself, not called, got 3.0"),
    ],
)
def test_each_kind_of_wrong_answer_is_described(attempt, answer):
    assert verdict(ROWS, attempt).startswith("not yet") and answer in verdict(ROWS, attempt)


@pytest.mark.parametrize(
    ("exercise", "number", "answer"),
    [
        (HALF, 0.3, "not yet: 0.3 is too small. Hint: one of two."),
        (HALF, float("nan"), "not yet: nan is not a number. Hint: one of two."),
        (HALF, 0.25, "not yet: 0.25 is too small. That is one of four. Hint: one of two."),
        (HALF, "a half", "not yet: expected a number, got 'a half'."),
        (COUNT, 7_087_871, "not yet: 7,087,871 is too small. Hint: 12D² + 13D."),
        pytest.param(COUNT, 10**400, "not yet: inf is too large. Hint: 12D² + 13D.", id="beyond all floats"),
    ],
)
def test_a_wrong_number_is_described_and_the_answer_not_given_away(exercise, number, answer):
    assert verdict(exercise, number) == answer


CUT = "Something cuts the graph: .detach()"


@pytest.mark.parametrize(
    "cut",
    [
        lambda q, k: WEIGHTS.reference(q.detach(), k),
        torch.no_grad()(WEIGHTS.reference),
        lambda q, k: torch.from_numpy(WEIGHTS.reference(q, k).numpy()),
    ],
)
def test_right_numbers_without_gradient_are_refused_where_gradients_count(cut):
    assert verdict(WEIGHTS, cut).startswith("not yet: the numbers are right, but ") and CUT in verdict(WEIGHTS, cut)
    assert verdict(Exercise(WEIGHTS.reference, WEIGHTS.hint, WEIGHTS.inputs), cut) == RIGHT


def test_a_wrong_gradient_is_named_with_its_tensor():
    answer = verdict(WEIGHTS, lambda q, k: WEIGHTS.reference(0.5 * q + 0.5 * q.detach(), k))
    assert "the gradient with respect to q is not." in answer
    assert "Every number is 0.5 times what it should be." in answer and CUT not in answer


CELL = """
def reshaped(x):
    y = x * 2
    return y.view(7, -1)

def asks_the_package(x):
    from vitbook.attention import attention
    return attention(x, x, x[:1])
"""


@pytest.fixture
def cell() -> dict:
    """What a notebook defines when it runs `CELL`: code without a file, of which only the lines are known."""
    linecache.cache["<cell>"] = (len(CELL), None, CELL.splitlines(keepends=True), "<cell>")
    names: dict = {}
    exec(compile(CELL, "<cell>", "exec"), names)
    return names


def test_an_error_is_shown_at_the_readers_line_and_raises_nothing(cell):
    lines = str(judge(ROWS, cell["reshaped"])).splitlines()
    assert lines[1:3] == ["  Your code stops with an error:", "  line 4 of your cell: return y.view(7, -1)"]
    assert lines[3].startswith("  RuntimeError: ") and lines[-1] == "  Hint: sum over the last axis."
    assert len(lines) <= 7 and "for x (2, 3)" in "".join(lines)


@pytest.mark.door
def test_an_error_inside_the_package_is_shown_where_the_reader_called_it(cell):
    answer = str(judge(ROWS, cell["asks_the_package"]))
    assert "line 8 of your cell: return attention(x, x, x[:1])" in answer and "attention.py" not in answer

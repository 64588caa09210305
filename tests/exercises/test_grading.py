"""An attempt passes if it is right, however it is written; if it is wrong, what is said of it is true and helps."""

import linecache

import numpy as np
import pytest
import torch
from on_a_gpu import OnAGpu
from torch import nn

from vitbook import mistakes as wrong
from vitbook.exercises.grading import NOT_ATTEMPTED, RIGHT, Exercise, judge
from vitbook.exercises.inputs import normal

ROWS = Exercise(
    lambda x: x.sum(dim=-1),
    "sum over the last axis.",
    lambda g: [(normal(g, 5, 4),), (normal(g, 2, 3),)],
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
    return " ".join(judge(exercise, attempt).split())


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
        (WEIGHTS, lambda q, k: (q @ k.mT / q.shape[-1] ** 0.5).float().softmax(dim=-1).double()),
        (WEIGHTS, lambda q, k: WEIGHTS.reference((torch.eye(q.shape[-1]) @ q.mT).mT, k)),  # a float32 constant
        (ROWS, lambda x: x.sum(dim=-1).tolist()),
        (ROWS, lambda x: x.numpy().sum(axis=-1)),
        (ROWS, lambda x: x.sum(dim=-1).to_sparse()),
        (ROWS, lambda x: x.mul_(2).sum(dim=-1) / 2),
        (ROWS, Summed()),
        (MASK, lambda x: x.gt(0)),
        (MASK, lambda x: (x > 0).numpy()),
        (HALF, torch.tensor(0.5)),
        (HALF, np.float64(0.5)),
        (HALF, 0.4999),
        (COUNT, 7_087_872),
    ],
)
def test_a_right_attempt_passes_however_it_is_written(exercise, attempt):
    assert verdict(exercise, attempt) == RIGHT


def test_numbers_may_come_from_a_device_without_float64(monkeypatch):
    def as_tensor(value, *arguments, made=torch.as_tensor, **settings):
        if isinstance(value, OnAGpu):
            raise TypeError("Cannot convert a MPS Tensor to float64 dtype")
        return made(value, *arguments, **settings)

    monkeypatch.setattr(torch, "as_tensor", as_tensor)
    assert verdict(ROWS, lambda x: x.float().as_subclass(OnAGpu).sum(dim=-1)) == RIGHT


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
    lines = judge(WEIGHTS, WEIGHTS.mistakes[(wrong.no_scale,)]).splitlines()
    assert lines[:2] == ["not yet.", "  It looks like “no scale”. Your scores are not divided by √D_h = 3."]
    assert lines[2].startswith("  expected [") and ", got [" in lines[2] and ", at [0," in lines[2]
    assert lines[3:] == ["  for q (1, 2, 9), k (1, 3, 9)", f"  Read chapters/{wrong.MISTAKES['no_scale'].where}"]


def test_two_mistakes_at_once_are_both_named():
    answer = verdict(WEIGHTS, lambda q, k: torch.softmax(torch.matmul(q, k.transpose(1, 2)), 1))
    assert answer.startswith("not yet. 2 mistakes at once: - “no scale”. Your scores")
    assert "- “softmax over the queries”. Your softmax" in answer
    assert answer.count("Read chapters/") == 2
    assert "“no scale”" in verdict(WEIGHTS, lambda q, k: (q.float() @ k.float().mT).softmax(dim=-1))


def test_mistakes_with_the_same_numbers_are_both_named():
    alike = ROWS | {"You add 1.": lambda x: x.sum(-1) + 1, "You do not subtract 1.": lambda x: 1 + x.sum(-1)}
    answer = verdict(alike, lambda x: 1 + x.sum(dim=1))
    assert "Each of these mistakes would give exactly these numbers: - You add 1. - You do not subtract 1." in answer


@pytest.mark.parametrize(
    "attempt",
    [
        lambda x: x.mean(dim=-1) if len(x) == 2 else x.sum(dim=-1) + 1,
        lambda x: x.mean(dim=-1) + 1e-3,
        lambda x: x.mean(dim=-1, keepdim=True),
    ],
)
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
        (lambda x: x.sum(), "expected shape (2,), got ()"),
        (lambda x: (x, x.sum(dim=-1)), "expected a tensor of shape (2,), got a tuple of 2, one of which is right"),
        (lambda x: [x, x], "expected a tensor of shape (2,), got a list of 2 "),
        (lambda x: "right.", "expected a tensor of shape (2,), got 'right.'"),
        (lambda x: 10**400, "expected a tensor of shape (2,), got 1000"),
        (lambda x: x.sum(dim=-1) + 5j, "expected real numbers, got complex ones (torch.complex128) for x (2, 3)"),
        (lambda x: print(end=""), "got None: does the function end in a return?"),
        (lambda x: x.sum(dim=-1) * torch.nan, "got [nan nan] nan comes from 0/0"),
        (lambda x: x.sum(dim=-1) + torch.inf, "got [inf inf] for x (2, 3)"),
        (lambda x: x.sum(dim=-1) * 3, "Every number is 3 times what it should be."),
        (lambda x: x.sum(dim=-1) - 0.25, "Every number is 0.25 too small."),
        (lambda x: x.sum(dim=-1).flip(0), "The numbers are right, but in other places."),
        (lambda x: x.sum(dim=-1) * (len(x) == 5), "It is right for x (5, 4)."),
        (lambda x: x.sum(dim=-1) if len(x) == 5 else x.sum(dim=-1) ** 2, "for x (2, 3) It is right for x (5, 4)."),
        (lambda x: x.zero_().sum(dim=-1), "got [0 0]"),
        (lambda: 1, "takes 0 positional arguments"),
        (3.0, "expected the function itself, not called, got 3.0"),
        (torch.ones(2), "expected the function itself, not called, got a tensor of shape (2,)"),
    ],
)
def test_each_kind_of_wrong_answer_is_described(attempt, answer):
    assert verdict(ROWS, attempt).startswith("not yet") and answer in verdict(ROWS, attempt)


@pytest.mark.parametrize("off", [lambda y: y * (1 + 2e-5), lambda y: y + 5e-6, lambda y: y.sort().values * (1 + 2e-6)])
def test_of_nearly_right_numbers_nothing_is_said_that_would_be_true_of_any(off):
    one = Exercise(lambda x: 100 + x, "add.", lambda g: [(normal(g, 1).repeat(3),)], tolerance=1e-9)
    answer = verdict(one, lambda x: off(100 + x))
    assert "expected [" in answer and "Every number" not in answer and "places" not in answer


def test_exchanged_axes_are_seen():
    answer = verdict(TWICE, lambda x: (2 * x).transpose(0, 2))
    assert "These are the right numbers with axes 0 and 2 exchanged." in answer


def test_numbers_are_shown_where_they_differ_and_with_as_many_digits():
    long = Exercise(lambda x: torch.arange(40.0), "count.", lambda g: [(normal(g, 3),)])
    answer = verdict(long, lambda x: torch.arange(40.0) + 5 * (torch.arange(40) == 20))
    assert "expected [… 18 19 20 21 22 23 …], got [… 18 19 25 21 22 23 …]" in answer
    assert "[0 1 2 3 4 5 …], got [0 1.000003 2 3 4 5 …]" in verdict(
        long, lambda x: torch.arange(40) + 3e-6 * (torch.arange(40) == 1).double()
    )


def test_numbers_are_no_mask():
    right, reversed_ = verdict(MASK, lambda x: (x > 0).double()), verdict(MASK, lambda x: (x < 0).double())
    assert "expected a boolean tensor, got torch.float64" in right and ".bool() makes it so" in right
    assert ".bool()" not in reversed_ and "True" in verdict(MASK, lambda x: x < 0)


@pytest.mark.parametrize(
    ("exercise", "number", "answer"),
    [
        (HALF, 0.3, "not yet: 0.3 is too small. Hint: one of two."),
        (HALF, 1, "not yet: 1 is too large. Hint: one of two."),
        (HALF, float("nan"), "not yet: nan is not a number. Hint: one of two."),
        (HALF, 0.25, "not yet: 0.25 is too small. That is one of four. Hint: one of two."),
        (HALF, "a half", "not yet: expected a number, got 'a half'."),
        (HALF, [1, 2], "not yet: expected a number, got [1, 2]."),
        (HALF, torch.ones(2), "not yet: expected a number, got a tensor of shape (2,)."),
        (COUNT, 7_087_871, "not yet: 7,087,871 is too small. Hint: 12D² + 13D."),
        (COUNT, 7_087_872.4, "not yet: 7,087,872.4 is too large. Hint: 12D² + 13D."),
        pytest.param(COUNT, 10**400, "not yet: inf is too large. Hint: 12D² + 13D.", id="beyond all floats"),
        pytest.param(COUNT, -(10**400), "not yet: -inf is too small. Hint: 12D² + 13D.", id="below all floats"),
    ],
)
def test_a_wrong_number_is_described_and_the_answer_not_given_away(exercise, number, answer):
    assert verdict(exercise, number) == answer


CUT = "Something cuts the graph: .detach()"


@pytest.mark.parametrize(
    "cut",
    [
        lambda q, k: WEIGHTS.reference(q.detach(), k),
        lambda q, k: WEIGHTS.reference(q, torch.tensor(k.tolist(), dtype=k.dtype)),
        torch.no_grad()(WEIGHTS.reference),
        lambda q, k: WEIGHTS.reference(q, k).detach().numpy(),
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


def test_an_operation_in_place_is_not_said_to_cut_the_graph():
    answer = verdict(WEIGHTS, lambda q, k: WEIGHTS.reference(q, k).mul_(2).div_(2))
    assert "in place overwrites" in answer and CUT not in answer


def test_parameters_have_gradients_too():
    layer = Exercise(
        lambda x, layer: layer(x), "call.", lambda g: [(normal(g, 2, 3), nn.Linear(3, 4).double())], gradients=True
    )
    assert verdict(layer, lambda x, layer: x @ layer.weight.T + layer.bias) == RIGHT
    assert "respect to layer.bias" in verdict(layer, lambda x, layer: x @ layer.weight.T + layer.bias.data)


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
    lines = judge(ROWS, cell["reshaped"]).splitlines()
    assert lines[1:3] == ["  Your code stops with an error:", "  line 4 of your cell: return y.view(7, -1)"]
    assert lines[3].startswith("  RuntimeError: ") and lines[-1] == "  Hint: sum over the last axis."
    assert len(lines) <= 7 and "for x (2, 3)" in "".join(lines)


@pytest.mark.door
def test_an_error_inside_the_package_is_shown_where_the_reader_called_it(cell):
    answer = judge(ROWS, cell["asks_the_package"])
    assert "line 8 of your cell: return attention(x, x, x[:1])" in answer and "attention.py" not in answer


def raises(error):
    raise error


def test_in_a_file_the_line_is_named_with_it():
    assert "test_grading.py, line " in verdict(ROWS, lambda x: raises(KeyError("mine")))


def test_ctrl_c_is_not_an_error_of_the_attempt():
    with pytest.raises(KeyboardInterrupt):
        judge(ROWS, lambda x: raises(KeyboardInterrupt))


def test_every_check_tries_other_numbers():
    inputs = []
    for _ in range(2):
        judge(ROWS, lambda x: inputs.append(x) or x.sum(dim=-1))
    assert not torch.equal(inputs[0], inputs[2])

"""The shared checks of arguments: what passes, and an error that gives name, expected and got for what does not."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from vitbook._support import validation as checks

X = torch.zeros(2, 5, 3)


@pytest.mark.parametrize(
    ("check", "arguments", "error", "message"),
    [
        (checks.check_kind, (nn.Module,), TypeError, "stem must be a Module, got 'resnet'"),
        (checks.check_tensors, (), TypeError, "stem must be a Tensor, got 'resnet'"),
    ],
)
def test_what_is_of_another_kind_is_a_type_error(check, arguments, error, message):
    with pytest.raises(error, match=message):
        check(*arguments, stem="resnet")


@pytest.mark.parametrize(
    ("value", "words"),
    [(X, "torch.float32 of shape (2, 5, 3)"), (3.5, "3.5"), ("a", "'a'"), ((1, 2), "(1, 2)"), (None, "NoneType")],
)
def test_a_value_in_words(value, words):
    assert checks.in_words(value) == words


@pytest.mark.parametrize(
    ("value", "whole"),
    [(3, True), (np.int64(3), True), (torch.tensor(3), True), (3.0, False), (True, False), (X, False), ("3", False)],
)
def test_what_counts_as_a_whole_number(value, whole):
    assert checks.is_whole(value) is whole


def test_floats_are_asked_for_by_name():
    checks.check_floats(x=X, y=X.half())
    with pytest.raises(ValueError, match=r"y must be floating-point, got torch.int64 of shape \(2, 5, 3\)"):
        checks.check_floats(x=X, y=X.long())


@pytest.mark.parametrize("shape", [("B", "T"), ("B", "T", 4), (2, 5, 3, 1), (3, "T", "D")])
def test_a_shape_is_held_to_its_length_and_its_numbers(shape):
    checks.check_shape("x", X, "B", 5, "D")
    expected = ", ".join(map(str, shape))
    with pytest.raises(ValueError, match=rf"x must have shape \({expected}\), got \(2, 5, 3\)"):
        checks.check_shape("x", X, *shape)


def test_what_goes_into_a_layer_lies_where_its_weights_lie_and_has_their_dtype():
    weight = torch.zeros(4, 3)
    checks.check_fits("x", X, weight)
    with pytest.raises(ValueError, match="x must have the weights' dtype torch.float32, got torch.float64"):
        checks.check_fits("x", X.double(), weight)
    with pytest.raises(ValueError, match="x must be on the weights' device cpu, got meta"):
        checks.check_fits("x", X.to("meta"), weight)
    checks.check_fits("x", X.to("meta"), weight.to("meta"))
    with torch.autocast("cpu", torch.bfloat16):
        checks.check_fits("x", X.bfloat16(), weight)
        with pytest.raises(ValueError, match="got torch.int64"):
            checks.check_fits("x", X.long(), weight)


@pytest.mark.parametrize(
    ("check", "good", "bad", "message"),
    [
        (checks.check_sizes, 1, 0, "n must be at least 1, got 0"),
        (checks.check_lengths, (2, 3), (2, 3, 4), r"n must be 2 whole numbers, got \(2, 3, 4\)"),
        (checks.check_grids, [1, 9], [0, 9], r"n must have at least one row and one column, got \(0, 9\)"),
        (checks.check_numbers, math.inf, True, "n must be a number, got True"),
        (checks.check_positive, 1e-9, 0.0, "n must be a positive number, got 0.0"),
        (checks.check_positive, 1, math.inf, "n must be a positive number, got inf"),
        (checks.check_positive, 1, math.nan, "n must be a positive number, got nan"),
        (checks.check_shares, 1, 1.5, "n must lie in 0 … 1, got 1.5"),
        (checks.check_shares, 0.0, math.nan, "n must lie in 0 … 1, got nan"),
    ],
)
def test_numbers_are_held_to_their_range(check, good, bad, message):
    check(n=good)
    with pytest.raises((ValueError, TypeError), match=message):
        check(n=bad)


def test_classes_are_whole_numbers_below_their_count():
    checks.check_classes("labels", torch.tensor([[0, 3], [2, 2]]), 4)
    checks.check_classes("labels", torch.empty(0, dtype=torch.int64), 4)
    with pytest.raises(TypeError, match=r"labels must be a Tensor, got \[0, 3\]"):
        checks.check_classes("labels", [0, 3], 4)
    with pytest.raises(ValueError, match="num_classes must be at least 1, got 0"):
        checks.check_classes("labels", torch.empty(0, dtype=torch.int64), 0)
    with pytest.raises(ValueError, match="labels must be int64, got torch.uint8"):
        checks.check_classes("labels", torch.tensor([0, 3], dtype=torch.uint8), 4)
    for wrong in (-1, 4):
        with pytest.raises(ValueError, match=rf"labels must lie in 0 … 3, got {min(wrong, 2)} … {max(wrong, 2)}"):
            checks.check_classes("labels", torch.tensor([wrong, 2]), 4)


def test_the_least_size_and_the_number_of_lengths_can_be_chosen():
    checks.check_sizes(0, n=0)
    checks.check_sizes(None, n=-3)
    checks.check_lengths(None, n=())
    with pytest.raises(ValueError, match="n must be at least 0, got -1"):
        checks.check_sizes(0, n=-1)
    with pytest.raises(TypeError, match=r"n must be some whole numbers, got \(1, 2.5\)"):
        checks.check_lengths(None, n=(1, 2.5))


def test_a_matrix_is_what_its_decomposition_multiplies_to():
    x = torch.randn(5, 3, dtype=torch.float64)
    u, s, vt = checks.decomposed("x", x)
    assert (u.shape, s.shape, vt.shape) == ((5, 3), (3,), (3, 3))
    torch.testing.assert_close(u * s @ vt, x)
    with pytest.raises(ValueError, match="x must be finite numbers"):
        checks.decomposed("x", torch.full((3, 3), math.nan))
    with pytest.raises(ValueError, match="x must be float32 or float64, got torch.float16"):
        checks.decomposed("x", x.half())


def test_a_choice_is_one_of_those_known():
    checks.check_choice("mode", "a", ("a", "b"))
    for value in ("c", None, ["a"]):
        with pytest.raises(ValueError, match="mode must be one of a, b, got "):
            checks.check_choice("mode", value, ("a", "b"))

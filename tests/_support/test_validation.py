"""The checks at the doors: what passes, and an error that gives name, expected and got for what does not."""

import math

import numpy as np
import pytest
import torch

from vitbook._support import validation

X = torch.zeros(2, 5, 3)


@pytest.mark.parametrize(
    ("value", "words"),
    [(X, "torch.float32 of shape (2, 5, 3)"), (3.5, "3.5"), ("a", "'a'"), ((1, 2), "(1, 2)"), (None, "NoneType")],
)
def test_a_value_in_words(value, words):
    assert validation.in_words(value) == words


@pytest.mark.parametrize(
    ("value", "whole"),
    [(3, True), (np.int64(3), True), (torch.tensor(3), True), (3.0, False), (True, False), (X, False), ("3", False)],
)
def test_what_counts_as_a_whole_number(value, whole):
    assert validation.is_whole(value) is whole


@pytest.mark.parametrize(
    ("check", "good", "bad", "message"),
    [
        (validation.check_sizes, 1, 0, "n must be at least 1, got 0"),
        (validation.check_sizes, 2**31 - 1, 2**31, "n must be below 2³¹, got 2.14748e[+]09"),
        (validation.check_sizes, 1, 2.0, "n must be a whole number, got 2.0"),
        (validation.check_sizes, [1, 9], [9, 0], "n must be at least 1, got 0"),
        (validation.check_shares, 1, 1.5, "n must lie in 0 … 1, got 1.5"),
        (validation.check_shares, 0.0, math.nan, "n must lie in 0 … 1, got nan"),
        (validation.check_shares, 0.5, True, "n must be a number, got True"),
    ],
)
def test_numbers_are_held_to_their_range(check, good, bad, message):
    check(n=good)
    with pytest.raises((ValueError, TypeError), match=message):
        check(n=bad)


def test_a_choice_is_one_of_those_known():
    validation.check_choice("mode", "a", ("a", "b"))
    for value in ("c", None, ["a"]):
        with pytest.raises(ValueError, match="mode must be one of a, b, got "):
            validation.check_choice("mode", value, ("a", "b"))

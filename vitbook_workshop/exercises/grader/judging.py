"""How an attempt at an exercise is judged: right, not attempted, or wrong, and then which mistake it shows.

An attempt is run on random inputs and compared with the reference. If it differs, it is compared with the known
mistakes of the exercise: one that gives on every input what the attempt gives is named, and nothing else is.
"""

import dis
import inspect
import itertools
import math
import re
import sysconfig
import textwrap
import traceback
import warnings
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import vitbook
from vitbook_workshop.faults.mistakes import MISTAKES

RIGHT = "right."
NOT_ATTEMPTED = "not attempted yet."
LEVELS = ("easy", "medium", "hard")
KINDS = ("write", "predict", "repair", "derive")

_WIDTH = 90  # of what is printed, in characters
_FLOAT32 = 1e-4  # how close an attempt has to come that computes in single precision
_CUT = "Something cuts the graph: .detach(), .data, .item(), torch.no_grad(), torch.tensor(…) or numpy."
_PLACES = (sysconfig.get_paths()[place] for place in ("stdlib", "purelib", "platlib"))
_PACKAGES = (str(Path(vitbook.__file__).parent), str(Path(__file__).parents[2]))
_INSTALLED = (*_PACKAGES, *_PLACES, "<frozen", "<__")  # files of this book, of Python and others

Mistake = Callable | str  # a variant defined in `faults.mistakes`, or a sentence for what can go wrong only here


@dataclass(frozen=True)
class Exercise:
    """What a right attempt does, and which mistakes are known.

    reference: the function to match, or the number to find; hint: printed after a wrong attempt.
    inputs: makes the argument lists to try, float64 and all of different sizes, from a generator.
    tolerance: largest relative error; by default 1e-6 for a function, 1e-3 for a real number, and 0 for a whole one.
    gradients: whether those of tensors and parameters among the arguments are compared too.
    level: one of `LEVELS`; kind: one of `KINDS`, by default "predict" for a number and "write" for a function.
    adapt: makes of an attempt what is called with the arguments; for a class of modules, see `modules.py`.
    sizes: the values of symbols for a list of arguments, which are added to what is printed about a mistake.
    personal: the same question with other numbers, for a class in which each has numbers of one's own.
    mistakes: for known mistakes, a tuple of those made at once, what such an attempt does, or the number that it finds.
    `Exercise(…) | {mistake: attempt, …}` adds them; a single mistake may stand there without a tuple.
    """

    reference: Callable | float
    hint: str
    inputs: Callable[[torch.Generator], list[tuple]] = lambda generator: [()]
    tolerance: float | None = None
    gradients: bool = False
    level: str = "medium"
    kind: str = ""
    adapt: Callable[[Callable], Callable] = lambda attempt: attempt
    sizes: Callable[..., Mapping[str, float]] = lambda *arguments: {}
    personal: "Personal | None" = None
    mistakes: Mapping[tuple[Mistake, ...], Callable | float] = field(default_factory=dict)

    def __post_init__(self):
        if not self.kind:
            object.__setattr__(self, "kind", "write" if callable(self.reference) else "predict")

    def __or__(self, mistakes: Mapping[Mistake | tuple[Mistake, ...], Callable | float]) -> "Exercise":
        more = {made if isinstance(made, tuple) else (made,): attempt for made, attempt in mistakes.items()}
        return replace(self, mistakes={**self.mistakes, **more})


@dataclass(frozen=True)
class Judgement:
    """What came of an attempt; `str` of it is what is printed.

    state: "right", "wrong" or "not attempted". mistakes: every known one that gives exactly these numbers, by its name
    in the catalogue, or as the sentence that says it; those that are made at once stand together. numbers: what was
    expected and what came.
    """

    said: str
    state: str = "wrong"
    mistakes: tuple[tuple[str, ...], ...] = ()
    numbers: str = ""

    def __str__(self) -> str:
        return self.said

    def _ipython_display_(self) -> None:
        """Nothing: where `check` is a cell's last line, what it has printed is enough."""


@dataclass(frozen=True)
class Personal:
    """A question with numbers that can be others: numbers maps each to its values, the chapter's own first."""

    numbers: Mapping[str, tuple[float, ...]]
    prompt: Callable[..., str]  # called with a value for each: the question, in the chapter's words
    make: Callable[..., Exercise]  # called so, too

    def draw(self, generator: torch.Generator) -> dict[str, float]:
        """One value for each, and not all of them the chapter's own."""
        while True:
            places = {
                name: torch.randint(len(values), (), generator=generator) for name, values in self.numbers.items()
            }
            drawn = {name: self.numbers[name][int(place)] for name, place in places.items()}
            if drawn != self.own:
                return drawn

    @property
    def own(self) -> dict[str, float]:
        return {name: values[0] for name, values in self.numbers.items()}

    def exercise(self) -> Exercise:
        """That of the chapter."""
        return replace(self.make(**self.own), personal=self)


_RIGHT, _NOTHING = Judgement(RIGHT, "right"), Judgement(NOT_ATTEMPTED, "not attempted")


class Refused(Exception):
    """Raised by an adapted attempt whose result is not even looked at. mistakes: variants that it shows."""

    def __init__(self, reason: str, *mistakes: Callable):
        super().__init__(reason)
        self.mistakes = mistakes


def combined(attempt: Callable, *mistakes: Mistake, at_once: int | None = None) -> dict[tuple, Callable]:
    """An attempt for each choice of one to `at_once` (all) of the mistakes. attempt: (chosen, *arguments) → result."""
    counts = range(1, (at_once or len(mistakes)) + 1)
    return {made: partial(attempt, made) for n in counts for made in itertools.combinations(mistakes, n)}


def judge(exercise: Exercise, attempt: Any) -> Judgement:
    """What there is to say about an attempt: `RIGHT`, `NOT_ATTEMPTED`, or some lines that begin with "not yet"."""
    if attempt is None or attempt is ...:
        return _NOTHING
    if not callable(exercise.reference):
        return _judge_number(exercise, attempt)
    if not callable(attempt):
        return Judgement(f"not yet: expected the function itself, not called, got {_described(attempt)}.")
    stub = _is_stub(attempt)  # adapted, it would not look like one
    attempt = exercise.adapt(attempt)
    generator = torch.Generator()
    generator.seed()  # other numbers at every call; the global generator stays as it is
    cases = exercise.inputs(generator)
    got = [_result(attempt, case) for case in cases]
    errors = [value for value in got if isinstance(value, Exception)]
    if any(isinstance(error, NotImplementedError) and not str(error) for error in errors):
        return _NOTHING
    if all(value is ... or value is None for value in got) and stub:
        return _NOTHING
    if refused := [error for error in errors if isinstance(error, Refused)]:
        suspects = [refused[-1].mistakes] if refused[-1].mistakes else []
        said = [f"not yet: {refused[-1]}.", *_naming(suspects, {}), *_references(suspects)]
        return Judgement(_wrapped(said), mistakes=_named(suspects))
    if any(re.search("dtype|scalar type", str(error)) for error in errors):
        cases = [_single_precision(case) for case in cases]  # the attempt makes float32 numbers of its own
        got = [_result(attempt, case) for case in cases]
    tolerance = exercise.tolerance or 1e-6
    expected = [_result(exercise.reference, case) for case in cases]
    right = [_same(*pair, tolerance) for pair in zip(got, expected, strict=True)]
    if all(right):
        return _judge_gradients(exercise, attempt, cases) if exercise.gradients else _RIGHT
    # the smallest that is wrong
    size = [(right[i], isinstance(got[i], Exception), torch.as_tensor(expected[i]).numel()) for i in range(len(cases))]
    i = size.index(min(size))
    names = _argument_names(exercise.reference, cases[i])
    suspects = _suspects(exercise.mistakes, cases, got, tolerance)
    lines = ["not yet.", *_naming(suspects, exercise.sizes(*cases[i]))]
    numbers = [*_difference(got[i], expected[i]), f"for {_inventory(names, cases[i])}"]
    lines += numbers
    if not suspects and any(right):
        lines.append(f"It is right for {_inventory(names, cases[right.index(True)])}.")
    said = _wrapped([*lines, *(_references(suspects) or [f"Hint: {exercise.hint}"])])
    return Judgement(said, mistakes=_named(suspects), numbers="\n".join(numbers))


def _judge_number(exercise: Exercise, attempt: Any) -> Judgement:
    """What there is to say about a predicted number, without giving the answer away."""
    try:
        got = float(attempt)
    except (TypeError, ValueError, RuntimeError):
        return Judgement(f"not yet: expected a number, got {_described(attempt)}.")
    except OverflowError:  # a whole number beyond all floats
        got = math.inf if attempt > 0 else -math.inf

    def equals(number: float) -> bool:
        return math.isclose(got, number, rel_tol=(exercise.tolerance or 1e-3) if isinstance(number, float) else 0.0)

    if equals(exercise.reference):
        return _RIGHT
    direction = "too small" if got < exercise.reference else "too large" if got > exercise.reference else "not a number"
    suspects = [made for made, number in exercise.mistakes.items() if equals(number)]
    numbers = f"{got:,.10g} is {direction}."
    said = [f"not yet: {numbers}", *map(explanation, itertools.chain(*suspects)), f"Hint: {exercise.hint}"]
    return Judgement(_wrapped(said), mistakes=_named(suspects), numbers=numbers)


def _judge_gradients(exercise: Exercise, attempt: Callable, cases: list[tuple]) -> Judgement:
    """The last question for an attempt whose numbers are right: do gradients flow through it as they should?"""
    for case in cases:
        names = _argument_names(exercise.reference, case)
        expected = _gradients(exercise.reference, names, case)
        try:
            got = _gradients(attempt, names, case)
        except Exception as error:
            why = "An operation in place overwrites what the gradient needs." if "inplace" in str(error) else _CUT
            lost = "not yet: the numbers are right, but no gradient flows back."
            return Judgement(_wrapped([lost, *error_lines(error), why]))
        for name, theirs in expected.items():
            precision = 100 * (_FLOAT32 if got[name].dtype == torch.float32 else exercise.tolerance or 1e-6)
            ours, theirs = got[name].double(), theirs.double()
            if not torch.allclose(ours, theirs, rtol=precision, atol=precision * float(theirs.abs().max())):
                what = f"not yet: the numbers are right, but the gradient with respect to {name} is not."
                why = f"Hint: {exercise.hint}" if ours.any() else _CUT
                numbers = _difference(ours, theirs)
                return Judgement(_wrapped([what, *numbers, why]), numbers="\n".join(numbers))
    return _RIGHT


# Running attempts


def _result(function: Callable, arguments: tuple) -> Any:
    """What a function returns, or the exception that it raises. It may change what it is given."""
    try:
        return function(*deepcopy(arguments))
    except Exception as error:
        return error


def _gradients(function: Callable, names: list[str], arguments: tuple) -> dict[str, Tensor]:
    """Of a mixture of the numbers in the result, for each floating-point argument and each parameter of a module."""
    arguments = deepcopy(arguments)
    leaves = {}
    for name, argument in zip(names, arguments, strict=True):
        if isinstance(argument, nn.Module):
            leaves |= {f"{name}.{inner}": parameter for inner, parameter in argument.named_parameters()}
        elif isinstance(argument, Tensor) and argument.is_floating_point():
            leaves[name] = argument.requires_grad_()
    result = function(*(x.clone() if isinstance(x, Tensor) else x for x in arguments))
    if not isinstance(result, Tensor):
        raise TypeError(f"the result is not a tensor but a {type(result).__module__}.{type(result).__qualname__}")
    mixture = (result * torch.linspace(-1, 2, result.numel()).view(result.shape)).sum()
    gradients = torch.autograd.grad(mixture, list(leaves.values()), allow_unused=True, materialize_grads=True)
    return dict(zip(leaves, gradients, strict=True))


def _single_precision(arguments: tuple) -> tuple:
    """The same arguments, float64 turned into float32."""
    return tuple(
        x.float() if isinstance(x, nn.Module) or (isinstance(x, Tensor) and x.dtype == torch.float64) else x
        for x in deepcopy(arguments)
    )


def _is_stub(function: Callable) -> bool:
    """Whether nothing has been written into a function: its body is a docstring, `...` or `pass`."""
    nothing = {"RESUME", "NOP", "LOAD_CONST", "RETURN_CONST", "RETURN_VALUE"}
    code = getattr(function, "__code__", None)
    return code is None or all(instruction.opname in nothing for instruction in dis.get_instructions(code))


# Comparing results


def _same(got: Any, expected: Any, tolerance: float) -> bool:
    """Whether two results are the same: numbers and shape, to the tolerance, or the very same error."""
    if isinstance(got, Exception) or isinstance(expected, Exception):
        return type(got) is type(expected) and str(got) == str(expected)
    if getattr(got, "dtype", None) == torch.float32:
        tolerance = max(tolerance, _FLOAT32)
    ours, theirs = _as_tensor(got), _as_tensor(expected)
    if ours is None or theirs is None or ours.shape != theirs.shape or _is_boolean(got) != _is_boolean(expected):
        return False
    return torch.allclose(ours, theirs, rtol=tolerance, atol=tolerance, equal_nan=True)


def _as_tensor(value: Any) -> Tensor | None:
    """Real numbers of any kind as a float64 tensor, None for what is no array of them."""
    try:
        if isinstance(value, Tensor):
            value = value.detach().cpu()  # some devices have no float64
            value = value if value.layout == torch.strided else value.to_dense()
        return None if _is_complex(value) else torch.as_tensor(value, dtype=torch.float64, device="cpu")
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return None


def _is_boolean(value: Any) -> bool:
    return str(getattr(value, "dtype", "")) in ("torch.bool", "bool")


def _is_complex(value: Any) -> bool:
    return "complex" in str(getattr(value, "dtype", ""))


def _suspects(mistakes: Mapping[tuple, Callable], cases: list[tuple], got: list, tolerance: float) -> list[tuple]:
    """The mistakes that give on every input what the attempt gave."""
    with warnings.catch_warnings(action="ignore"):  # a wrong variant may well do what torch advises against
        return [
            made
            for made, variant in mistakes.items()
            if all(_same(y, _result(variant, x), tolerance) for x, y in zip(cases, got, strict=True))
        ]


# Words


def _named(suspects: list[tuple[Mistake, ...]]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(one if isinstance(one, str) else one.__name__ for one in made) for made in suspects)


def _naming(suspects: list[tuple[Mistake, ...]], sizes: Mapping[str, float]) -> list[str]:
    """Which mistakes the attempt shows, with the numbers of the case at hand."""
    words = [[explanation(mistake) for mistake in made] for made in suspects]
    if len(words) > 1:
        lines = ["Each of these mistakes would give exactly these numbers:", *(f"- {' '.join(made)}" for made in words)]
    elif words and len(words[0]) > 1:
        lines = [f"{len(words[0])} mistakes at once:", *(f"- {words_of_one}" for words_of_one in words[0])]
    else:
        lines = [f"It looks like {text}" if text.startswith("“") else text for made in words for text in made]
    for symbol, value in sizes.items():  # "√D_h = 2", once a line
        known = re.compile(rf"(?<![\w√]){re.escape(symbol)}(?![\w²])")
        lines = [known.sub(f"{symbol} = {value:.3g}", line, count=1) for line in lines]
    return lines


def explanation(mistake: Mistake) -> str:
    """A sentence as it stands; a variant of `vitbook_workshop.faults.mistakes` by its title and cause."""
    if isinstance(mistake, str):
        return mistake
    return f"“{MISTAKES[mistake.__name__].title}”. {MISTAKES[mistake.__name__].cause}"


def _references(suspects: list[tuple[Mistake, ...]]) -> list[str]:
    """Where the named mistakes are explained, each place once."""
    variants = [mistake for made in suspects for mistake in made if not isinstance(mistake, str)]
    return list(dict.fromkeys(f"Read chapters/{MISTAKES[variant.__name__].where}" for variant in variants))


def _difference(got: Any, expected: Any) -> list[str]:
    """What was expected and what came, where they differ most."""
    if isinstance(got, Exception):
        return ["Your code stops with an error:", *error_lines(got)]
    if got is None:
        return [f"expected {_described(expected)}, got None: does the function end in a return?"]
    if _is_boolean(expected) and not _is_boolean(got):
        right = _same(_as_tensor(got), _as_tensor(expected), 0.0)
        advice = ["It is 1 where it should be True and 0 where False: .bool() makes it so."] if right else []
        return [f"expected a boolean tensor, got {getattr(got, 'dtype', type(got).__name__)}", *advice]
    if _is_complex(got):
        return [f"expected real numbers, got complex ones ({got.dtype})"]
    ours, theirs = _as_tensor(got), _as_tensor(expected)
    if ours is None:
        kind = f"a {type(got).__name__} of {len(got)}" if isinstance(got, tuple | list) else _described(got)
        inside = isinstance(got, tuple | list) and any(_same(part, expected, _FLOAT32) for part in got)
        return [f"expected {_described(expected)}, got {kind}" + (", one of which is right" if inside else "")]
    if ours.shape != theirs.shape:
        return [f"expected shape {tuple(theirs.shape)}, got {tuple(ours.shape)}", *_remark(ours, theirs)]
    worst = (ours - theirs).abs().nan_to_num(torch.inf).argmax()
    place = tuple(int(i) for i in np.unravel_index(int(worst), theirs.shape))[:-1]
    column = int(worst) % theirs.shape[-1] if theirs.ndim else 0
    where = f", at [{','.join(map(str, place))}]" if place else ""
    rows = [x[place] if theirs.ndim else x[None] for x in (theirs, ours)]
    for digits in (0,) if _is_boolean(expected) else (4, 8, 12, 16):
        right, wrong = (_row(row, column, digits) for row in rows)
        if right != wrong:
            break
    return [f"expected {right}, got {wrong}{where}", *_remark(ours, theirs)]


def _row(row: Tensor, column: int, digits: int) -> str:
    """Up to six numbers of a row, around a column. digits: 0 for True and False."""
    start = max(0, min(column - 2, len(row) - 6))
    numbers = [f"{x:.{digits}g}" if digits else str(bool(x)) for x in row[start : start + 6].tolist()]
    before, after = "… " * (start > 0), " …" * (start + 6 < len(row))
    return numbers[0] if len(row) == 1 else f"[{before}{' '.join(numbers)}{after}]"


def _remark(got: Tensor, expected: Tensor) -> list[str]:
    """What is plain to see in wrong numbers, whatever the exercise: nothing, or one sentence."""
    if got.isnan().any() and not expected.isnan().any():
        return ["nan comes from 0/0, ∞/∞ or ∞ − ∞."]
    if got.numel() != expected.numel() or (got.shape == expected.shape and torch.allclose(got, expected, rtol=1e-3)):
        return []  # nothing in common, or so near that what follows would be true of any numbers
    for i, j in itertools.combinations(range(expected.ndim), 2):
        turned = expected.transpose(i, j)
        if got.shape == turned.shape and torch.allclose(got, turned):
            return [f"These are the right numbers with axes {i} and {j} exchanged."]
    ours, theirs = got.flatten(), expected.flatten()
    if got.shape != expected.shape:
        only_shape = "The numbers are right and in the right order; only the shape is not."
        return [only_shape] if torch.allclose(ours, theirs) else []
    if len(ours) < 2:
        return []
    nonzero = theirs.abs() > 1e-9
    ratio, gap = ours[nonzero] / theirs[nonzero], ours - theirs
    if len(ratio) > 1 and 0 < ratio[0].abs() < torch.inf and torch.allclose(ratio, ratio[0]):
        if not ours[~nonzero].any():
            return [f"Every number is {ratio[0]:.4g} times what it should be."]
    if gap[0].isfinite() and torch.allclose(gap, gap[0]):
        return [f"Every number is {abs(gap[0]):.4g} too {'large' if gap[0] > 0 else 'small'}."]
    in_other_places = torch.allclose(ours.sort()[0], theirs.sort()[0])
    return ["The numbers are right, but in other places."] if in_other_places else []


def error_lines(error: Exception) -> list[str]:
    """An exception, at the line of whoever wrote the attempt: two lines, without anything of installed code."""
    what = [textwrap.shorten(f"{type(error).__name__}: {error}", 3 * _WIDTH, placeholder=" …")]
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(_INSTALLED):
            file = Path(frame.filename)
            line = f"{file.name}, line {frame.lineno}" if file.exists() else f"line {frame.lineno} of your cell"
            return [f"{line}: {frame.line}".rstrip(": "), *what]
    return what


def _described(value: Any) -> str:
    """A tensor's shape, a module's name, anything else as it prints."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return type(value).__name__ if isinstance(value, nn.Module) else repr(value)


def _inventory(names: list[str], arguments: tuple) -> str:
    """Arguments by name: tensors with their shape, modules with their class, all else as it prints."""
    return ", ".join(
        f"{name} {tuple(x.shape)}" if isinstance(x, Tensor) else f"{name} = {_described(x)}"
        for name, x in zip(names, arguments, strict=True)
    )


def _argument_names(function: Callable, arguments: tuple) -> list[str]:
    """What a function calls its arguments. Every reference spells them out."""
    return list(inspect.signature(function).parameters)[: len(arguments)]


def _wrapped(lines: list[str]) -> str:
    """Lines under one another, long ones broken, all but the first indented."""
    broken = [
        textwrap.fill(part, _WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        for line in lines
        for part in line.splitlines()
    ]
    return "\n  ".join(broken)

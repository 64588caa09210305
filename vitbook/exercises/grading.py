"""How an attempt at an exercise is judged: right, not attempted, or wrong, and then what the mistake looks like.

An attempt is run on fresh inputs and compared with the reference. Where it differs, it is held against the known wrong
variants of the exercise: one that does on every input what the attempt does is named, and nothing is named otherwise.
"""

import dis
import inspect
import itertools
import math
import os
import re
import sysconfig
import textwrap
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vitbook.mistakes import MISTAKES

RIGHT = "right."
NOT_ATTEMPTED = "not attempted yet."
WIDTH = 90  # of what is printed, in characters
FLOAT32 = 1e-4  # how close an attempt has to come that calculates in single precision
LEVELS = ("easy", "medium", "hard")
KINDS = ("write", "predict", "repair", "derive")

Wrong = Callable | str | tuple[Callable | str, ...]


@dataclass(frozen=True)
class Exercise:
    """What a right attempt does, and which wrong ones are known.

    reference: the function to match, or the number to find; inputs: makes the argument lists to try, all their sizes
    different, float64, from a generator; hint: said after a wrong attempt; tolerance: largest relative error.
    gradients: whether those for tensors and parameters among the arguments are compared too.
    level: one of `LEVELS`; kind: one of `KINDS`, "predict" for a number and otherwise "write" if not given.
    mistakes: what an attempt does that makes a known mistake, or the number that it finds. Each is a variant defined in
    `vitbook.mistakes`, a sentence for what can only go wrong here, or a tuple of several of these made at once.
    sizes: symbols and their values for a list of arguments; they are put into what is said of a mistake.
    """

    reference: Callable | float
    hint: str
    inputs: Callable[[torch.Generator], list[tuple]] = field(default=lambda generator: [()])
    tolerance: float = 1e-6
    gradients: bool = False
    level: str = "medium"
    kind: str = ""
    mistakes: Mapping[Wrong, Callable | float] = field(default_factory=dict)
    sizes: Callable[..., Mapping[str, float]] = field(default=lambda *arguments: {})

    def __post_init__(self):
        if not self.kind:
            object.__setattr__(self, "kind", "write" if callable(self.reference) else "predict")
        for name, choices in (("level", LEVELS), ("kind", KINDS)):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}, got {getattr(self, name)!r}")


def judge(exercise: Exercise, attempt: Any) -> str:
    """What there is to say about an attempt: `RIGHT`, `NOT_ATTEMPTED`, or some lines that begin with "not yet"."""
    if attempt is None or attempt is ...:
        return NOT_ATTEMPTED
    if not callable(exercise.reference):
        return judge_number(exercise, attempt)
    if not callable(attempt):
        return f"not yet: expected the function itself, not called, got {describe(attempt)}."
    generator = torch.Generator()
    generator.seed()  # other numbers at every call; the global generator stays as it is
    cases = exercise.inputs(generator)
    got = [outcome(attempt, case) for case in cases]
    if all(value is ... or value is None for value in got) and is_stub(attempt) or any(map(is_to_do, got)):
        return NOT_ATTEMPTED
    if any(
        isinstance(value, (RuntimeError, ValueError)) and re.search("dtype|scalar type", str(value)) for value in got
    ):
        cases = [single_precision(case) for case in cases]  # the attempt makes float32 numbers of its own
        got = [outcome(attempt, case) for case in cases]
    expected = [outcome(exercise.reference, case) for case in cases]
    wrong = [i for i in range(len(cases)) if not same(got[i], expected[i], exercise.tolerance)]
    if not wrong:
        return judge_gradients(exercise, attempt, cases) if exercise.gradients else RIGHT
    i = min(wrong, key=lambda i: (isinstance(got[i], Exception), size(expected[i])))  # the smallest that shows it
    names = names_of(exercise.reference, cases[i])
    suspects = looks_like(exercise, cases, got)
    lines = ["not yet.", *(accusation(suspects, exercise.sizes(*cases[i])) if suspects else [])]
    lines += [*difference(got[i], expected[i]), f"for {listed(names, cases[i])}"]
    if not suspects and len(wrong) < len(cases):
        right = next(case for number, case in enumerate(cases) if number not in wrong)
        lines.append(f"It is right for {listed(names, right)}.")
    return laid_out([*lines, *(places(suspects) or [f"Hint: {exercise.hint}"])])


def judge_number(exercise: Exercise, attempt: Any) -> str:
    """What there is to say about a predicted number, without giving the answer away."""
    try:
        got = float(attempt)
    except (TypeError, ValueError, RuntimeError):
        return f"not yet: expected a number, got {describe(attempt)}."
    except OverflowError:  # a whole number beyond all floats
        got = math.inf if attempt > 0 else -math.inf

    def is_(number: float) -> bool:
        return math.isclose(got, number, rel_tol=1e-3 if isinstance(number, float) else 0.0)

    if is_(exercise.reference):
        return RIGHT
    direction = "too small" if got < exercise.reference else "too large" if got > exercise.reference else "no number"
    said = [sentence for sentence, number in exercise.mistakes.items() if is_(number)]
    return laid_out([f"not yet: {got:,.10g} is {direction}.", *said, f"Hint: {exercise.hint}"])


def judge_gradients(exercise: Exercise, attempt: Callable, cases: list[tuple]) -> str:
    """The last question for an attempt whose numbers are right: do gradients flow through it as they should?"""
    cut = "Something cuts the graph: .detach(), .data, .item(), torch.no_grad(), torch.tensor(…) or numpy."
    for case in cases:
        names = names_of(exercise.reference, case)
        expected = gradients(exercise.reference, names, case)
        try:
            got = gradients(attempt, names, case)
        except Exception as error:
            return laid_out(["not yet: the numbers are right, but no gradient flows back.", *stopped(error), cut])
        for name, theirs in expected.items():
            precise = 100 * (FLOAT32 if got[name].dtype == torch.float32 else exercise.tolerance)
            ours, theirs = got[name].double(), theirs.double()
            if not torch.allclose(ours, theirs, rtol=precise, atol=precise * float(theirs.abs().max())):
                what = f"not yet: the numbers are right, but the gradient with respect to {name} is not."
                return laid_out([what, *difference(ours, theirs), cut if not ours.any() else f"Hint: {exercise.hint}"])
    return RIGHT


# Running attempts


def outcome(function: Callable, arguments: tuple) -> Any:
    """What a function returns, or the exception that it raises. It may change what it is given."""
    try:
        return function(*deepcopy(arguments))
    except Exception as error:
        return error


def gradients(function: Callable, names: list[str], arguments: tuple) -> dict[str, Tensor]:
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
        raise TypeError(f"what comes out is no tensor but a {type(result).__module__}.{type(result).__qualname__}")
    mixture = (result * torch.linspace(-1, 2, result.numel()).view(result.shape)).sum()
    found = torch.autograd.grad(mixture, list(leaves.values()), allow_unused=True, materialize_grads=True)
    return dict(zip(leaves, found, strict=True))


def single_precision(arguments: tuple) -> tuple:
    """The same arguments, float64 turned into float32."""
    return tuple(
        x.float() if isinstance(x, nn.Module) or (isinstance(x, Tensor) and x.dtype == torch.float64) else x
        for x in deepcopy(arguments)
    )


def is_stub(function: Callable) -> bool:
    """Whether nothing has been written into a function: its body is a docstring, `...` or `pass`."""
    nothing = {"RESUME", "NOP", "LOAD_CONST", "RETURN_CONST", "RETURN_VALUE"}
    code = getattr(function, "__code__", None)
    return code is None or all(instruction.opname in nothing for instruction in dis.get_instructions(code))


def is_to_do(value: Any) -> bool:
    """Whether an outcome says that something is still to be written."""
    return isinstance(value, NotImplementedError) and not str(value)


# Comparing


def same(got: Any, expected: Any, tolerance: float) -> bool:
    """Whether two outcomes are the same: numbers and shape, to the tolerance, or the very same error."""
    if isinstance(got, Exception) or isinstance(expected, Exception):
        return type(got) is type(expected) and str(got) == str(expected)
    if is_boolean(got) != is_boolean(expected):
        return False
    if getattr(got, "dtype", None) == torch.float32:
        tolerance = max(tolerance, FLOAT32)
    got, expected = as_tensor(got), as_tensor(expected)
    if got is None or expected is None or got.shape != expected.shape:
        return False
    return torch.allclose(got, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


def as_tensor(value: Any) -> Tensor | None:
    """Real numbers of any kind as a float64 tensor, None for what is no array of them."""
    if value is None or "complex" in str(getattr(value, "dtype", "")):
        return None
    try:
        if isinstance(value, Tensor):
            value = value.detach().to_dense() if value.layout != torch.strided else value.detach()
            value = value.cpu()  # some devices have no float64
        return torch.as_tensor(value, dtype=torch.float64, device="cpu")
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return None


def is_boolean(value: Any) -> bool:
    return str(getattr(value, "dtype", "")) in ("torch.bool", "bool")


def size(value: Any) -> int:
    tensor = as_tensor(value)
    return 0 if tensor is None else tensor.numel()


def looks_like(exercise: Exercise, cases: list[tuple], got: list) -> list:
    """The known mistakes and slips that do on every input what the attempt did."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a wrong variant may well do what torch advises against
        return [
            wrong
            for wrong, variant in exercise.mistakes.items()
            if all(same(y, outcome(variant, x), exercise.tolerance) for x, y in zip(cases, got, strict=True))
        ]


# Saying it


def accusation(suspects: list[Wrong], sizes: Mapping[str, float]) -> list[str]:
    """What the attempt looks like, with the numbers of the case at hand."""
    if len(suspects) > 1:
        each = [f"- {' '.join(told(part) for part in parts(suspect))}" for suspect in suspects]
        return ["Each of these mistakes would give just the same numbers:", *with_numbers(each, sizes)]
    if len(made := parts(suspects[0])) > 1:
        return [f"{len(made)} mistakes at once:", *with_numbers([f"- {told(part)}" for part in made], sizes)]
    return with_numbers([f"{'' if isinstance(made[0], str) else 'It looks like '}{told(made[0])}"], sizes)


def told(wrong: Callable | str) -> str:
    """A sentence as it stands; a mistake by its name and cause."""
    if isinstance(wrong, str):
        return wrong
    mistake = MISTAKES[wrong.__name__]
    return f"“{mistake.title}”. {mistake.cause}"


def parts(wrong: Wrong) -> tuple[Callable | str, ...]:
    return wrong if isinstance(wrong, tuple) else (wrong,)


def with_numbers(lines: list[str], sizes: Mapping[str, float]) -> list[str]:
    """The lines, each with the values of its symbols behind them, once: "√D_h = 2"."""
    for symbol, value in sizes.items():
        known = re.compile(rf"(?<![\w√]){re.escape(symbol)}(?![\w²])")
        lines = [known.sub(f"{symbol} = {value:.3g}", line, count=1) for line in lines]
    return lines


def places(suspects: list[Wrong]) -> list[str]:
    """Where the named mistakes are explained, each place once."""
    made = [part for suspect in suspects for part in parts(suspect) if not isinstance(part, str)]
    return list(dict.fromkeys(f"Read chapters/{MISTAKES[wrong.__name__].where}" for wrong in made))


def difference(got: Any, expected: Any) -> list[str]:
    """What was expected and what came, where they differ most."""
    if isinstance(got, Exception):
        return ["Your code stops with an error:", *stopped(got)]
    if got is None:
        return [f"expected {describe(expected)}, got None: does the function end in a return?"]
    if is_boolean(expected) and not is_boolean(got):
        right = same(as_tensor(got), as_tensor(expected), 0.0)
        advice = ["Where it is 1 and where 0 is right: .bool() makes it True and False."] if right else []
        return [f"expected a boolean tensor, got {getattr(got, 'dtype', type(got).__name__)}", *advice]
    ours, theirs = as_tensor(got), as_tensor(expected)
    if ours is None:
        kind = f"a {type(got).__name__} of {len(got)}" if isinstance(got, tuple | list) else describe(got)
        inside = isinstance(got, tuple | list) and any(same(part, expected, FLOAT32) for part in got)
        return [f"expected {describe(expected)}, got {kind}" + (", one of which it is" if inside else "")]
    if ours.shape != theirs.shape:
        return [f"expected shape {tuple(theirs.shape)}, got {tuple(ours.shape)}", *remark(ours, theirs)]
    worst = (ours - theirs).abs().nan_to_num(torch.inf).argmax()
    place = tuple(int(i) for i in torch.unravel_index(worst, theirs.shape))[:-1]
    column = int(worst) % theirs.shape[-1] if theirs.ndim else 0
    where = f", at [{','.join(map(str, place))}]" if place else ""
    rows = [row_of(x[place] if theirs.ndim else x[None], column, is_boolean(expected)) for x in (theirs, ours)]
    digits = next((d for d in (4, 8, 12, 16) if rows[0](d) != rows[1](d)), 16)
    return [f"expected {rows[0](digits)}, got {rows[1](digits)}{where}", *remark(ours, theirs)]


def row_of(row: Tensor, column: int, boolean: bool) -> Callable[[int], str]:
    """A function of the number of digits: up to six numbers of a row, around a column, as text."""
    start = max(0, min(column - 2, len(row) - 6))
    part = row[start : start + 6].tolist()

    def text(digits: int) -> str:
        numbers = [str(bool(x)) if boolean else f"{x:.{digits}g}" for x in part]
        dots = ["…"] * (start > 0), ["…"] * (start + 6 < len(row))
        return numbers[0] if len(row) == 1 else f"[{' '.join([*dots[0], *numbers, *dots[1]])}]"

    return text


def remark(got: Tensor, expected: Tensor) -> list[str]:
    """What is plain to see in wrong numbers, whatever the exercise: nothing, or one sentence."""
    if got.isnan().any() and not expected.isnan().any():
        return ["nan comes of 0/0, ∞/∞ or ∞ − ∞."]
    for i, j in itertools.combinations(range(expected.ndim), 2):
        turned = expected.transpose(i, j)
        if got.shape == turned.shape and torch.allclose(got, turned):
            return [f"These are the right numbers with axes {i} and {j} exchanged."]
    if got.shape != expected.shape:
        if got.numel() == expected.numel() and torch.allclose(got.flatten(), expected.flatten()):
            return ["The numbers are right and in the right order; only the shape is not."]
        return []
    if got.numel() < 2:
        return []
    there = expected.abs() > 1e-9
    ratio = (got[there] / expected[there]) if there.any() else got[:0]
    if ratio.numel() > 1 and got.any() and torch.allclose(ratio, ratio[0]) and not got[~there].any():
        return [f"Every number is {ratio[0]:.4g} times what it should be."]
    gap = got - expected
    if torch.allclose(gap, gap.flatten()[0]):
        return [f"Every number is {abs(gap.flatten()[0]):.4g} too {'large' if gap.flatten()[0] > 0 else 'small'}."]
    if torch.allclose(got.flatten().sort()[0], expected.flatten().sort()[0]):
        return ["The numbers are right, but they stand in other places."]
    return []


def stopped(error: Exception) -> list[str]:
    """An exception, at the line of whoever wrote the attempt: two lines, without anything of installed code."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if not installed(frame.filename)]
    what = textwrap.shorten(f"{type(error).__name__}: {error}", 3 * WIDTH, placeholder=" …")
    if not own:
        return [what]
    here = own[-1]
    file = f"{Path(here.filename).name}, line" if os.path.exists(here.filename) else "line"
    of = "" if os.path.exists(here.filename) else " of your cell"
    return [f"{file} {here.lineno}{of}: {here.line}".rstrip(": "), what]


def installed(filename: str) -> bool:
    """Whether a file belongs to this package, to Python or to another package."""
    places = [str(Path(__file__).parent), *(sysconfig.get_paths()[p] for p in ("stdlib", "purelib", "platlib"))]
    return filename.startswith((*places, "<frozen", "<__"))


def describe(value: Any) -> str:
    """A tensor's shape, a module's name, anything else as it prints."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return type(value).__name__ if isinstance(value, nn.Module) else repr(value)


def listed(names: list[str], arguments: tuple) -> str:
    """Arguments by name: tensors with their shape, modules with their class, all else as it prints."""
    words = [
        f"{name} {tuple(x.shape)}" if isinstance(x, Tensor) else f"{name} = {describe(x)}"
        for name, x in zip(names, arguments, strict=True)
    ]
    return ", ".join(words)


def names_of(function: Callable, arguments: tuple) -> list[str]:
    """What a function calls its arguments, one name for each."""
    try:
        names = list(inspect.signature(function).parameters)
    except ValueError:  # written in C
        names = []
    return names[: len(arguments)] + [f"argument {i}" for i in range(len(names) + 1, len(arguments) + 1)]


def laid_out(lines: Sequence[str]) -> str:
    """Lines under one another, the long ones broken, all but the first indented."""
    indent = "  "
    broken = [
        textwrap.fill(part, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
        for line in lines
        for part in line.splitlines()
    ]
    return f"\n{indent}".join(broken)

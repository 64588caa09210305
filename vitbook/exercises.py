"""The checkers behind the exercises.

A chapter's exercise is a stub in one cell and `check("chapter.name", attempt)` in the next. The attempt is compared
with the reference on fresh inputs, or with the answer where a number is asked for.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from vitbook import embedding, encoder, multihead, patches, self_attention, training, transformer, vit  # noqa: F401
from vitbook.attention import attention


@dataclass(frozen=True)
class Exercise:
    """What a right attempt does.

    reference: the function to match, or the number to find; inputs: makes the argument lists to try, all their sizes
    different, float64, from a generator; hint: said after a wrong attempt.
    """

    reference: Callable | float
    hint: str
    inputs: Callable[[torch.Generator], list[tuple]] = field(default=lambda generator: [()])


def check(name: str, attempt) -> None:
    """Say whether the attempt at exercise `name` is right, and if not, where it first differs.

    attempt: a function, or a number (None for not attempted). An exception inside the attempt is passed on as it is, at
    the reader's own line. Raises ValueError for an unknown name.
    """
    if name not in EXERCISES:
        raise ValueError(f"unknown exercise {name!r}; there are {', '.join(EXERCISES)}")
    exercise = EXERCISES[name]
    if not callable(exercise.reference):
        print(f"{name}: {verdict_on_value(attempt, exercise.reference, exercise.hint)}")
        return
    fresh = torch.Generator()
    fresh.seed()  # other numbers at every call; the global generator stays as it is
    for arguments in exercise.inputs(fresh):
        got, expected = attempt(*arguments), exercise.reference(*arguments)
        verdict = verdict_on_value(got, expected, exercise.hint)
        if verdict != RIGHT:
            shapes = ", ".join(describe(argument) for argument in arguments)
            print(f"{name}: {verdict}" + (f"\n  tried on: {shapes}" if got is not None else ""))
            return
    print(f"{name}: {RIGHT}")


RIGHT = "right."
NOT_ATTEMPTED = "not attempted yet."


def verdict_on_value(got, expected, hint: str) -> str:
    """One sentence on a value: right, not attempted, or what was expected and what came."""
    if got is None or got is ...:
        return NOT_ATTEMPTED
    try:
        got, expected = (torch.as_tensor(value, dtype=torch.float64) for value in (got, expected))
    except (TypeError, ValueError, RuntimeError):
        return f"not yet: expected {describe(expected)}, got {type(got).__name__}. Hint: {hint}"
    if got.shape != expected.shape:
        return f"not yet: expected shape {tuple(expected.shape)}, got {tuple(got.shape)}. Hint: {hint}"
    if not torch.allclose(got, expected, rtol=1e-6, atol=1e-8):
        worst = (got - expected).abs().nan_to_num(torch.inf).argmax()
        numbers = f"expected {expected.flatten()[worst]:.6g}, got {got.flatten()[worst]:.6g}"
        where = f" at {tuple(int(i) for i in torch.unravel_index(worst, got.shape))}" if got.ndim else ""
        return f"not yet: {numbers}{where}. Hint: {hint}"
    return RIGHT


def describe(value) -> str:
    """A tensor's shape, a module's name, anything else as it prints."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return type(value).__name__ if isinstance(value, nn.Module) else repr(value)


def normal(generator: torch.Generator, *shape: int) -> Tensor:
    """Standard normal float64 numbers of the given shape, fresh from `generator`."""
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def some_mask(generator: torch.Generator, queries: int, keys: int) -> Tensor:
    """A random boolean mask (queries, keys) in which every query may look at one key at least."""
    mask = torch.rand(queries, keys, generator=generator) < 0.6
    mask[:, 0] = True
    return mask


EXERCISES: dict[str, Exercise] = {
    # chapters/01_attention
    "attention.weights": Exercise(
        lambda scores: scores.softmax(dim=-1),
        "subtract each row's maximum before the exponential, and divide by the sum over the keys, the last axis.",
        lambda g: [(normal(g, 2, 3, 5),), (1000 * normal(g, 4, 7),)],
    ),
    "attention.predict": Exercise(2 / 5, "the exponentials of the four scores are 1, 1, 1 and 2."),
    "attention.masked": Exercise(
        lambda q, k, v, mask: attention(q, k, v, mask)[0],
        "divide by √d, hide with −∞ where the mask is False, softmax over the keys, multiply with v.",
        lambda g: [
            (normal(g, t, d), normal(g, s, d), normal(g, s, w), some_mask(g, t, s))
            for t, s, d, w in ((3, 5, 4, 2), (2, 6, 9, 7))
        ],
    ),
    # chapters/02_scale
    # chapters/03_self_attention
    # chapters/04_multihead
    # chapters/05_transformer
    # chapters/06_patches
    # chapters/07_embedding
    # chapters/08_encoder
    # chapters/09_vit
    # chapters/10_training
}

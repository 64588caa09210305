"""The exercises of chapters/29_painting.ipynb."""

from collections.abc import Callable

import torch
from torch import Tensor

from vitbook import painting
from vitbook_workshop.exercises.grader.inputs import normal
from vitbook_workshop.exercises.grader.judging import Exercise
from vitbook_workshop.faults.mistakes import procedures as wrong

CHAPTER = "29_painting"


def _times(generator: torch.Generator, batch: int) -> Tensor:
    """From 0.1 to 0.9, and one beyond 0.95."""
    times = 0.1 + 0.8 * torch.rand(batch, generator=generator, dtype=torch.float64)
    return torch.cat([times[:-1], times.new_tensor([0.99])])


def _three(generator: torch.Generator, batch: int) -> list[Tensor]:
    return [normal(generator, batch, 2, 3, 4) for _ in range(3)]


def _guide(of_any: Tensor, of_class: Tensor, guidance: float) -> Tensor:
    return of_any + guidance * (of_class - of_any)


def _walk(guess: Callable, noise: Tensor, steps: int, share: Callable = lambda i, steps: 1 / (steps - i)) -> Tensor:
    """So many steps, in step i of them a share of the way to the guess."""
    z = noise
    for i in range(steps):
        z = z + share(i, steps) * (guess(z, z.new_full((len(z),), i / steps)) - z)
    return z


last = Exercise(
    0.5, "before step i of S, S − i steps are left, and they share what is left of the way.", level="easy"
) | {
    "That is the share of the whole way. The question is about what is left of it.": 0.25,
    "That is the share that the last step takes: all that is left.": 1.0,
    "That is the share of the step before.": 1 / 3,
}

loss = Exercise(
    painting.velocity_loss,
    "the squared error of the guess, over (1 − t)², where 1 − t counts as at least 0.05; then the mean.",
    lambda g: [(*_three(g, b), _times(g, b)) for b in (2, 3)],
    gradients=True,
) | {
    wrong.weight_without_a_bound: wrong.weight_without_a_bound,
    "You weigh all times alike: that is the loss of the guess, not of the velocity.": (
        lambda guess, images, z, t: (guess - images).square().mean()
    ),
    "You divide the squared error by 1 − t once. The velocity is squared, and so is what divides it.": (
        lambda guess, images, z, t: (
            (guess - images).square() / (1 - t).clamp(min=painting.LEAST)[:, None, None, None]
        ).mean()
    ),
    "You weigh by t, not by 1 − t.": lambda guess, images, z, t: painting.velocity_loss(guess, images, z, 1 - t),
}

guide = Exercise(
    _guide,
    "0 must give the guess of no class, 1 that of the class, and 2 as far again.",
    lambda g: [(*_three(g, b)[:2], guidance) for b, guidance in ((2, 2.0), (3, 0.5))],
) | {
    wrong.guidance_the_other_way: lambda of_any, of_class, guidance: _guide(of_class, of_any, guidance),
    "That is the paper's w, for which 0 is no guidance: yours is one more.": (
        lambda of_any, of_class, guidance: of_class + guidance * (of_class - of_any)
    ),
    "You add the guess of the class to the other. What counts is the difference between them.": (
        lambda of_any, of_class, guidance: of_any + guidance * of_class
    ),
}

walk = Exercise(
    _walk,
    "at step i of S the time is i/S. Ask for a guess there, then go 1/(S − i) of the way from z to it.",
    lambda g: [
        (lambda z, t: (1 - t)[:, None, None, None] * z.tanh() + 0.3 * z.square() - 0.2, normal(g, b, 2, 3, 4), steps)
        for b, steps in ((2, 3), (3, 5))
    ],
    level="hard",
) | {
    "You go 1/S of the way to the guess in every step, and never arrive: ever less of the way is left.": (
        lambda guess, noise, steps: _walk(guess, noise, steps, lambda i, steps: 1 / steps)
    ),
    "You go the whole way to the guess in every step.": (
        lambda guess, noise, steps: _walk(guess, noise, steps, lambda i, steps: 1)
    ),
    "You ask for every guess at time 0.": lambda guess, noise, steps: _walk(lambda z, t: guess(z, 0 * t), noise, steps),
    "Your time runs from 1 to 0. Noise is at 0.": (
        lambda guess, noise, steps: _walk(lambda z, t: guess(z, 1 - t), noise, steps)
    ),
}

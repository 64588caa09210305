"""The exercises of chapters/23_dino.ipynb."""

import math

import torch
from torch import Tensor

from vitbook import dino
from vitbook_workshop.exercises.grader.inputs import normal
from vitbook_workshop.exercises.grader.judging import Exercise, Personal
from vitbook_workshop.faults.mistakes import procedures as wrong

CHAPTER = "23_dino"


def _follow(teacher: Tensor, student: Tensor, momentum: float) -> Tensor:
    """The teacher's weight after a step."""
    return momentum * teacher + (1 - momentum) * student


def _probabilities(generator: torch.Generator, *shape: int) -> Tensor:
    return normal(generator, *shape).softmax(dim=-1)


def _epps_pulley(x: Tensor, t: Tensor) -> Tensor:
    """The statistic of one direction, at given knots."""
    return _integral(x, t, (x[:, None] * t).cos().mean(dim=0), (x[:, None] * t).sin().mean(dim=0))


def _integral(x: Tensor, t: Tensor, cosine: Tensor | float, sine: Tensor | float) -> Tensor:
    target = (-(t**2) / 2).exp()
    return len(x) * torch.trapezoid(((cosine - target) ** 2 + sine**2) * target, t)


def _uniform(prototypes: int) -> Exercise:
    hint = "the cross-entropy of the even answer with itself: its entropy."
    return Exercise(math.log(prototypes), hint, level="easy") | {
        "That is in bits; the loss is in nats.": math.log2(prototypes),
        "That is the loss where one answer is certain.": 0.0,
        "That is the probability of one answer.": 1 / prototypes,
    }


uniform = Personal(
    dict(prototypes=(512, 128, 256, 1024)), lambda prototypes: f"With $K = {prototypes}$ prototypes, where", _uniform
).exercise()

follow = Exercise(
    _follow,
    "m of the teacher stays, and 1 − m of the student comes in.",
    lambda g: [(normal(g, 3, 4), normal(g, 3, 4), 0.9), (normal(g, 5), normal(g, 5), 0.996)],
    level="easy",
) | {
    "You keep 1 − m of the teacher: it forgets nearly everything in each step.": (
        lambda teacher, student, momentum: _follow(student, teacher, momentum)
    ),
    "You add the student to a whole teacher: its weights grow and grow.": (
        lambda teacher, student, momentum: teacher + (1 - momentum) * student
    ),
}

teacher = Exercise(
    dino.teacher_probabilities,
    "first subtract the center, then divide by the temperature, then take the softmax.",
    lambda g: [(normal(g, 2, 3, 5), normal(g, 5), 0.5), (normal(g, 2, 4, 7), normal(g, 7), 0.2)],
) | {
    wrong.answers_not_centered: wrong.answers_not_centered,
    wrong.answers_not_sharpened: wrong.answers_not_sharpened,
    "You add the center. It has to be taken away.": (
        lambda logits, center, temperature: dino.teacher_probabilities(logits, -center, temperature)
    ),
    "You divide the logits by the temperature before you subtract the center, which then counts for too little.": (
        lambda logits, center, temperature: (logits / temperature - center).softmax(dim=-1)
    ),
}

loss = Exercise(
    dino.agreement_loss,
    "for each pair g ≠ v the mean over images of −Σ p_g log p_v; then the mean over the pairs.",
    lambda g: [
        (normal(g, v, b, k), _probabilities(g, 2, b, k), temperature)
        for v, b, k, temperature in ((2, 3, 5, 0.5), (5, 4, 6, 0.2))
    ],
    gradients=True,
) | {
    wrong.views_compared_with_themselves: wrong.views_compared_with_themselves,
    "You forget the student's temperature.": lambda student, teacher, _: dino.agreement_loss(student, teacher, 1.0),
    "Your sum over the answers is a mean: the loss is K times too small.": (
        lambda student, teacher, temperature: dino.agreement_loss(student, teacher, temperature) / student.shape[-1]
    ),
}

normality = Exercise(
    _epps_pulley,
    "φ has a real part, the mean cosine, and an imaginary part, the mean sine; |·|² takes both.",
    lambda g: [(normal(g, b), torch.linspace(-3, 3, knots, dtype=torch.float64)) for b, knots in ((6, 9), (11, 15))],
    level="hard",
) | {
    "You compare the cosines and forget the sines: a cloud and its mirror image then look alike.": (
        lambda x, t: _integral(x, t, (x[:, None] * t).cos().mean(dim=0), 0.0)
    ),
    "Your integral is not multiplied by the number of images.": lambda x, t: _epps_pulley(x, t) / len(x),
    "You compare each image with the normal distribution; it is their mean that has to agree with it.": (
        lambda x, t: torch.trapezoid(
            (((x[:, None] * t).cos() - (-(t**2) / 2).exp()) ** 2 + (x[:, None] * t).sin() ** 2).sum(dim=0)
            * (-(t**2) / 2).exp(),
            t,
        )
    ),
}

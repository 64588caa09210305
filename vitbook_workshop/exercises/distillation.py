"""The exercises of chapters/17_distillation.ipynb."""

import torch

from vitbook.distillation import soft_distillation_loss, token_distillation_loss
from vitbook_workshop.exercises.grader.inputs import normal
from vitbook_workshop.exercises.grader.judging import Exercise, Personal

CHAPTER = "17_distillation"

_NAMED = {1024: "L/16", 768: "B/16", 384: "S/16", 192: "Ti/16"}


def _parameters(width: int, classes: int) -> Exercise:
    head = width * classes + classes
    hint = "a token, its position, and a second head with its bias: what size is each?"
    return Exercise(2 * width + head, hint, level="easy") | {
        "The second head's bias is missing.": 2 * width + head - classes,
        "The position of the new token is missing.": width + head,
    }


parameters = Personal(
    dict(width=tuple(_NAMED), classes=(100, 10, 365)),
    lambda width, classes: f"a distilled ViT-{_NAMED[width]} ($D = {width}$) with $K = {classes}$ classes",
    _parameters,
).exercise()


def _student_and_teacher(generator, batch, num_classes):
    """A student's logits (B, K), labels (B,) and a teacher's logits (B, K)."""
    student, teacher = 2 * normal(generator, 2, batch, num_classes)
    return student, torch.randint(num_classes, (batch,), generator=generator), teacher


def _weakened(divisor, *given):
    """The soft loss with its divergence divided by a number that does not belong there."""
    *given, weight = given
    return torch.lerp(soft_distillation_loss(*given, 0.0), soft_distillation_loss(*given, 1.0) / divisor, weight)


soft = Exercise(
    soft_distillation_loss,
    "sum over classes, average over images; both sides of the divergence at temperature τ, then times τ².",
    lambda g: [(*_student_and_teacher(g, b, k), tau, w) for b, k, tau, w in ((4, 3, 3.0, 0.1), (2, 7, 1.5, 0.8))],
) | {
    "τ² is missing before the divergence.": lambda *given: _weakened(given[-2] ** 2, *given),
    "Your λ and 1 − λ are exchanged.": lambda *given: soft_distillation_loss(*given[:-1], 1 - given[-1]),
    "Your divergence is a mean over the classes too; sum over them.": lambda *x: _weakened(x[0].shape[-1], *x),
}

token = Exercise(
    token_distillation_loss,
    "each head has one target alone, each target has weight ½, and the teacher's is a class.",
    lambda g: [(normal(g, b, k), *_student_and_teacher(g, b, k)) for b, k in ((4, 3), (5, 7))],
) | {
    "You exchange the two heads. The label is the class head's.": lambda a, b, *t: token_distillation_loss(b, a, *t),
    "Each of the two losses has weight ½.": lambda *given: 2 * token_distillation_loss(*given),
}

gradient = Exercise(
    lambda logits, labels, teacher_logits, temperature, weight: torch.autograd.grad(
        soft_distillation_loss(logits.requires_grad_(), labels, teacher_logits, temperature, weight), logits
    )[0],
    "(1 − λ) times softmax minus one-hot, plus λτ times softmax minus softmax at temperature τ, all divided by B.",
    lambda g: [(*_student_and_teacher(g, b, k), tau, w) for b, k, tau, w in ((3, 4, 2.0, 0.3), (5, 2, 0.7, 0.6))],
) | {
    "Your gradient is of the sum over images, not of their mean.": lambda z, *t: len(z) * gradient.reference(z, *t),
    "Your sign is reversed.": lambda *given: -gradient.reference(*given),
}

"""What the students of the record are shown, and that each listens as its name says."""

import distillation as record
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from vitbook.data import Dataset, Split

pytestmark = pytest.mark.slow


class Constant(nn.Module):
    """A teacher that always says the same."""

    def __init__(self, logits: torch.Tensor):
        super().__init__()
        self.logits = logits

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.logits.expand(len(images), 10)


def test_all_students_of_a_seed_are_shown_the_same_and_learn_from_whom_they_say():
    split = Split(torch.randint(256, (40, 3, 32, 32), dtype=torch.uint8), torch.randint(10, (40,)))
    data = Dataset("random", split, split, tuple("abcdefghij"))
    teachers = [Constant(torch.randn(10)), Constant(torch.randn(10))]
    shown, again = (record.lesson(data, teachers, images=30, epochs=2, seed=1) for _ in range(2))
    assert sum(len(y) for _, y, _ in shown) == 60
    for (x, y, taught), (other_x, other_y, _) in zip(shown, again, strict=True):
        assert torch.equal(x, other_x) and torch.equal(y, other_y) and len(taught) == 2
    x, y, taught = shown[0]
    images, losses = data.normalize(x), {}
    for name, (student, loss_of) in record.VARIANTS.items():
        torch.manual_seed(0)
        model = student(record.SHAPE)
        for head in (model.head, getattr(model, "head_dist", model.head)):
            nn.init.normal_(head.weight)
        with torch.no_grad():
            losses[name] = loss_of(model, images, y, taught).item()
        if name == "soft, λ = 0.9, τ = 1, the hybrid":
            with torch.no_grad():
                logits = model(images)
            divergence = F.kl_div(logits.log_softmax(1), taught[1].softmax(1), reduction="batchmean")
            expected = 0.1 * F.cross_entropy(logits, y) + 0.9 * divergence
            torch.testing.assert_close(torch.tensor(losses[name]), expected)
    assert len(set(losses.values())) == len(record.VARIANTS)

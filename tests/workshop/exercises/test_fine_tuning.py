"""The check of a reader's LoRA looks at where it starts and at what learns, before it looks at numbers."""

import pytest
import torch
from torch import nn

from vitbook_workshop.exercises import check


def lora(a=torch.randn, b=torch.zeros, frozen=True, shapes=((0, 1), (2, 0))):
    """A reader's class; shapes: of a and b, as indices into (rank, D_in, D_out)."""

    class LoRA(nn.Module):
        def __init__(self, linear, rank, alpha):
            super().__init__()
            sizes = (rank, linear.in_features, linear.out_features)
            self.linear, self.scale = linear.requires_grad_(not frozen), alpha / rank
            self.a, self.b = (nn.Parameter(f(sizes[i], sizes[j])) for f, (i, j) in zip((a, b), shapes, strict=True))

        def forward(self, x):
            return self.linear(x) + self.scale * (x @ self.a.T @ self.b.T)

    return LoRA


@pytest.mark.parametrize(
    ("attempt", "verdict"),
    [
        (lora(), "right."),
        (lora(b=torch.randn), "b starts with other numbers than zeros: the model is changed before"),
        (lora(a=torch.zeros), "a and b both start with zeros: neither ever gets a gradient"),
        (lora(frozen=False), "W and its bias stay as they are, linear.weight, linear.bias would learn"),
        (lora(shapes=((1, 0), (2, 0))), "a: expected shape (3, 9), got (9, 3)"),
        (lora(b=lambda *sizes: torch.zeros(sizes)[:, :1]), "b: expected shape (6, 3), got (6, 1)"),
    ],
)
def test_a_class_is_judged_by_its_start_too(attempt, verdict, capsys):
    check("fine_tuning.lora", attempt)
    assert verdict in " ".join(capsys.readouterr().out.split())

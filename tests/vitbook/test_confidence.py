"""Probabilities that are too sure are found out, and a stated share of false alarms holds."""

import math

import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import roc_auc_score

from vitbook.confidence import (
    auroc,
    energy,
    feature_distance,
    fitted_temperature,
    least_probability,
    unknown_above,
)


@pytest.mark.parametrize("factor", [0.25, 1.0, 3.0])
def test_the_temperature_undoes_a_factor(factor):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(4000, 6, generator=generator) * 2
    labels = torch.multinomial(logits.softmax(dim=-1), 1, generator=generator)[:, 0]
    found = fitted_temperature(factor * logits, labels)
    assert found == pytest.approx(factor, rel=0.1)
    losses = [F.cross_entropy(factor * logits / t, labels) for t in (found, found * 1.05, found / 1.05)]
    assert losses[0] == min(losses)


def test_what_is_unlike_has_the_higher_score():
    logits = torch.tensor([[9.0, 0.0, 0.0], [1.0, 0.9, 0.8]])
    for score in (least_probability, energy):
        assert score(logits)[1] > score(logits)[0]
    assert energy(logits, 2.0)[0] == pytest.approx(-2 * math.log(math.exp(4.5) + 2), rel=1e-6)
    bank = torch.tensor([[1.0, 0.0], [2.0, 0.1]])
    near, far = feature_distance(torch.tensor([[3.0, 0.0], [0.0, 1.0]]), bank, k=1)
    assert near == pytest.approx(0, abs=1e-6) and far > 0.9


def test_the_share_of_false_alarms_holds():
    generator = torch.Generator().manual_seed(0)
    alarms = []
    for _ in range(2000):
        scores = torch.randn(60, generator=generator)
        alarms.append(float(scores[0] > unknown_above(scores[1:], 0.05)))
    assert 0.03 < sum(alarms) / len(alarms) < 0.067  # 0.05, and two standard errors of 2,000 draws and of 1/60


@pytest.mark.door
def test_too_few_images_to_tell_are_named():
    with pytest.raises(ValueError, match="a share of 0.05 needs at least 19 validation images, got 18"):
        unknown_above(torch.randn(18), 0.05)
    unknown_above(torch.randn(19), 0.05)
    for share in (0, 1, -0.1):
        with pytest.raises(ValueError, match="must lie between 0 and 1"):
            unknown_above(torch.randn(50), share)


def test_the_area_is_scikit_learns_with_ties_as_well():
    generator = torch.Generator().manual_seed(0)
    for levels in (4, 1000):
        scores = torch.randint(levels, (300,), generator=generator).double()
        positive = torch.rand(300, generator=generator) < 0.3
        assert auroc(scores, positive) == pytest.approx(roc_auc_score(positive, scores))
    assert math.isnan(auroc(torch.ones(3), torch.ones(3, dtype=torch.bool)))

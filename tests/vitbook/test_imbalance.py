"""Classes count as they should: by hand, as in scikit-learn, and whatever their sizes."""

import numpy as np
import pytest
import torch
from sklearn import metrics
from sklearn.utils.class_weight import compute_class_weight

from vitbook.imbalance import (
    balanced_accuracy,
    balanced_order,
    by_class,
    class_counts,
    class_weights,
    log_prior,
    macro_f1,
)


def drawn(seed: int, count: int = 200, num_classes: int = 5) -> tuple[np.ndarray, np.ndarray, torch.Tensor]:
    random = np.random.RandomState(seed)
    labels = random.choice(num_classes, count, p=np.arange(1, num_classes + 1) / np.arange(num_classes + 1).sum())
    called = np.where(random.rand(count) < 0.6, labels, random.choice(num_classes, count))
    return labels, called, torch.from_numpy(metrics.confusion_matrix(labels, called, labels=range(num_classes)))


@pytest.mark.parametrize("seed", range(3))
def test_scores_are_scikit_learns(seed):
    labels, called, confusion = drawn(seed)
    theirs = metrics.precision_recall_fscore_support(labels, called)
    for ours, their in zip(by_class(confusion), theirs[:3], strict=True):
        np.testing.assert_allclose(ours.numpy(), their)
    assert balanced_accuracy(confusion) == pytest.approx(metrics.balanced_accuracy_score(labels, called))
    assert macro_f1(confusion) == pytest.approx(metrics.f1_score(labels, called, average="macro"))


def test_a_class_that_is_not_there_counts_in_no_mean():
    confusion = torch.tensor([[8, 2, 0], [1, 9, 0], [0, 0, 0]])
    assert balanced_accuracy(confusion) == pytest.approx(0.85)
    assert by_class(confusion)[1].isnan().tolist() == [False, False, True]


def test_weights_are_scikit_learns_and_the_prior_is_that_of_the_labels():
    labels, _, _ = drawn(0)
    counts = class_counts(torch.from_numpy(labels), 5)
    np.testing.assert_allclose(class_weights(counts), compute_class_weight("balanced", classes=np.arange(5), y=labels))
    np.testing.assert_allclose(log_prior(counts).exp(), np.bincount(labels) / 200, rtol=1e-6)
    assert class_weights(torch.tensor([3, 0, 1])).tolist() == pytest.approx([2 / 3, 0, 2])
    assert log_prior(torch.tensor([3, 0])).isfinite().all()


def test_every_class_is_drawn_as_often_as_any_other_and_the_seed_says_which():
    labels = torch.cat([torch.zeros(980), torch.ones(20)]).long()
    order = balanced_order(labels, 4000, torch.Generator().manual_seed(0))
    assert 0.46 < labels[order].double().mean() < 0.54
    assert len(order[labels[order] == 1].unique()) == 20, "all of a class"
    assert torch.equal(order, balanced_order(labels, 4000, torch.Generator().manual_seed(0)))


def test_torchs_weighted_mean_divides_by_the_weights_of_its_batch():
    logits, labels = torch.randn(4, 2, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 0, 0, 1])
    weights = class_weights(torch.tensor([90, 10]))
    each = torch.nn.functional.cross_entropy(logits, labels, reduction="none") * weights[labels]
    mean = torch.nn.functional.cross_entropy(logits, labels, weights)
    torch.testing.assert_close(mean, each.sum() / weights[labels].sum())
    assert abs(mean - each.mean()) > 0.1

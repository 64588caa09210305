"""Training, bare: who decays, how fast when, one epoch as the bare loop, and evaluation that counts right."""

import copy

import pytest
import small_models
import torch
import torch.nn.functional as F
from small_models import HIDDEN, D, K
from torch import nn

from vitbook.training import Evaluation, evaluate, parameter_groups, train_epoch, warmup_cosine, wilson_interval

both_precisions = pytest.mark.usefixtures("precision")


# Parameter groups


def test_frozen_parameters_are_left_out():
    model = small_models.classifier()
    model[0].weight.requires_grad_(False)
    decaying, others = parameter_groups(model, 0.1)
    assert [p.shape for p in decaying["params"]] == [(K, HIDDEN)]
    assert [p.shape for p in others["params"]] == [(HIDDEN,), (K,)]


def test_maps_convolutions_and_attention_decay_but_for_biases_norms_and_embeddings():
    convolutions = [nn.Conv2d(2, 3, 5), nn.ConvTranspose1d(2, 3, 5), nn.ConvTranspose3d(2, 3, 5)]
    attention = [nn.MultiheadAttention(D, 2, add_bias_kv=True), nn.MultiheadAttention(D, 2, kdim=3, vdim=5)]
    model = nn.ModuleList([*convolutions, *attention, nn.BatchNorm2d(3), nn.Embedding(7, 4), nn.LayerNorm(4)])
    decaying, others = parameter_groups(model, 0.1)
    names = [name for name, p in model.named_parameters() if any(p is kept for kept in decaying["params"])]
    packed, apart = ["3.in_proj_weight", "3.out_proj.weight"], [f"4.{kind}_proj_weight" for kind in "qkv"]
    assert set(names) == {"0.weight", "1.weight", "2.weight", *packed, *apart, "4.out_proj.weight"}
    assert len(decaying["params"]) + len(others["params"]) == len(list(model.parameters()))


def test_a_shared_weight_is_there_once():
    model = nn.Sequential(nn.Linear(D, D), nn.Linear(D, D))
    model[1].weight = model[0].weight
    decaying, others = parameter_groups(model, 0.1)
    assert (len(decaying["params"]), len(others["params"])) == (1, 2)
    torch.optim.AdamW([decaying, others])


# The schedule


def test_the_learning_rate_stays_between_0_and_its_peak():
    for total, warmup in ((1, 0), (7, 0), (7, 6), (50, 10)):
        shares = [warmup_cosine(step, total, warmup) for step in range(total)]
        assert all(0 < share <= 1 for share in shares) and max(shares) == 1
        assert shares[:warmup] == sorted(shares[:warmup])
        assert shares[warmup:] == sorted(shares[warmup:], reverse=True)
        assert warmup_cosine(total, total, warmup) == warmup_cosine(total + 5, total, warmup) == 0


def test_the_optimizer_follows_the_schedule():
    model = nn.Linear(D, K)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: warmup_cosine(step, 6, 2))
    rates = []
    model.register_forward_hook(lambda *_: rates.append(optimizer.param_groups[0]["lr"]))
    for _ in range(3):
        train_epoch(model, small_models.unequal_batches(), optimizer, schedule)
    assert rates == [0.5 * warmup_cosine(step, 6, 2) for step in range(6)]


@pytest.mark.parametrize(("total", "warmup", "message"), [(5, 5, "4, got 5"), (5, -1, "4, got -1"), (0, 0, "got 0")])
def test_the_warmup_must_end_before_the_training(total, warmup, message):
    with pytest.raises(ValueError, match=message):
        warmup_cosine(0, total, warmup)


# One epoch


def test_label_smoothing_is_torchs_and_augmentation_comes_first():
    model, (x, labels) = nn.Linear(D, K), small_models.unequal_batches()[0]
    expected = F.cross_entropy(model(2 * x), labels, label_smoothing=0.3).item()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = train_epoch(model, [(x, labels)], optimizer, label_smoothing=0.3, augment=lambda x: 2 * x)
    assert loss == pytest.approx(expected)


def test_a_long_gradient_is_shortened_and_a_short_one_is_not_nor_any_by_0():
    for clip_norm, expected in ((1e-3, 1e-3), (1e3, None), (0.0, None)):
        model = nn.Linear(D, K)
        before = copy.deepcopy(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        x, labels = small_models.unequal_batches()[0]
        gradients = torch.autograd.grad(F.cross_entropy(before(x), labels), list(before.parameters()))
        length = torch.cat([gradient.flatten() for gradient in gradients]).norm().item()
        train_epoch(model, [(x, labels)], optimizer, clip_norm=clip_norm)
        steps = [(new - old).flatten() for new, old in zip(model.parameters(), before.parameters(), strict=True)]
        assert torch.cat(steps).norm().item() == pytest.approx(expected or length, rel=1e-3)


def test_a_clip_norm_below_0_is_named():
    model = nn.Linear(D, K)
    with pytest.raises(ValueError, match="clip_norm must be at least 0, got -1.0"):
        train_epoch(model, [], torch.optim.SGD(model.parameters(), lr=0.1), clip_norm=-1.0)


def test_an_epoch_trains_in_training_mode():
    model = small_models.classifier().eval()
    train_epoch(model, small_models.unequal_batches(), torch.optim.SGD(model.parameters(), lr=0.1))
    assert model.training


# Evaluation


def test_an_evaluation_says_what_was_taken_for_what():
    logits = torch.eye(4)[torch.tensor([0, 1, 1, 3, 3])] * 9.0
    evaluation = Evaluation(logits, torch.tensor([0, 1, 2, 3, 0]))
    assert evaluation.predictions.tolist() == [0, 1, 1, 3, 3]
    assert evaluation.accuracy == 0.6
    assert evaluation.confusion.tolist() == [[1, 0, 0, 1], [0, 1, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1]]
    assert evaluation.confusion.dtype == torch.int64
    assert evaluation.loss == pytest.approx(F.cross_entropy(logits, evaluation.labels).item())


def test_calibration_is_the_gap_between_what_is_said_and_what_is_right():
    """Of ten answers at 0.9, six are right; of five at 0.5, five: 10/15 · 0.3 + 5/15 · 0.5."""
    said = torch.tensor([0.9] * 10 + [0.5] * 5)
    logits = torch.stack([said, (1 - said) / 2, (1 - said) / 2], dim=1).log()
    labels = torch.tensor([0] * 6 + [1] * 4 + [0] * 5)
    assert Evaluation(logits, labels).calibration_error == pytest.approx(0.2 + 0.5 / 3, abs=1e-6)
    sure = Evaluation(torch.tensor([[99.0, 0.0], [0.0, 99.0]]), torch.tensor([0, 1]))
    assert sure.calibration_error == pytest.approx(0, abs=1e-6)


def test_evaluation_keeps_no_graph_and_changes_nothing():
    model = small_models.classifier()
    before = copy.deepcopy(model.state_dict())
    evaluation = evaluate(model, small_models.unequal_batches())
    assert not evaluation.logits.requires_grad
    assert evaluation.logits.shape == (7, K) and evaluation.labels.shape == (7,)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_evaluation_leaves_a_frozen_part_in_its_own_mode():
    model = small_models.classifier().train()
    model[2].eval()
    evaluate(model, small_models.unequal_batches())
    assert model.training and not model[2].training


@pytest.mark.parametrize(
    "call", [train_epoch, lambda model, batches, _: evaluate(model, batches)], ids=["train", "evaluate"]
)
def test_no_batches_are_named(call):
    model = nn.Linear(D, K)
    with pytest.raises(ValueError, match="batch"):
        call(model, [], torch.optim.SGD(model.parameters(), lr=0.1))


@pytest.mark.parametrize(("right", "count"), [(8, 10), (0, 10), (10, 10), (60, 132)])
def test_the_interval_of_a_share_is_that_of_scipy(right, count):
    from scipy.stats import binomtest

    expected = binomtest(right, count).proportion_ci(0.95, method="wilson")
    assert wilson_interval(right, count) == pytest.approx((expected.low, expected.high), abs=1e-4)

"""Two tokens and two heads by hand; the losses by closed forms."""

import math

import pytest
import small_models
import torch
import torch.nn.functional as F
from small_models import GRID, B, C, D, K, N, close, differ, images, small_config
from torch import Tensor

from vitbook.distillation import (
    DistilledVisionTransformer,
    hard_distillation_loss,
    late_fusion,
    soft_distillation_loss,
    token_distillation_loss,
)
from vitbook.positions import POSITIONS, resize_positions
from vitbook.vit import CONFIGS

both_precisions = pytest.mark.usefixtures("precision")


def distilled(**changes) -> DistilledVisionTransformer:
    return small_models.shake(DistilledVisionTransformer(small_config(**changes)))


def some_logits(batch: int = 4, num_classes: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    """A student's logits, labels and a teacher's logits, in float64."""
    scores, teacher = 2 * torch.randn(2, batch, num_classes, dtype=torch.float64)
    return scores, torch.randint(num_classes, (batch,)), teacher


@pytest.mark.parametrize(
    ("name", "count"), [("vit_ti_16", 5_910_800), ("vit_s_16", 22_436_432), ("vit_b_16", 87_338_192)]
)
def test_the_number_of_parameters_is_deits(name, count):
    with torch.device("meta"):
        model = DistilledVisionTransformer(CONFIGS[name])
    assert sum(p.numel() for p in model.parameters()) == count


@both_precisions
def test_the_model_is_its_equations():
    model, x = distilled(), images()
    tokens = [model.embedding.cls_token, model.embedding.dist_token]
    z = torch.cat([token.repeat(B, 1, 1) for token in tokens] + [model.embedding.patch_embed(x)], dim=1)
    z = model.encoder(z + model.embedding.positions.pos_embed)
    y, y_dist = (small_models.layer_norm(z[:, token], model.norm) for token in (0, 1))
    class_logits, distillation_logits = model.both_heads(x)
    close(class_logits, y @ model.head.weight.T + model.head.bias)
    close(distillation_logits, y_dist @ model.head_dist.weight.T + model.head_dist.bias)
    close(model(x), (class_logits + distillation_logits) / 2)
    close(model.features(x), (y + y_dist) / 2)
    assert model.tokens(x).shape == (B, N + 2, D) and model(x).shape == (B, K)
    bare = distilled(num_classes=0)
    close(bare(x), bare.features(x))


def test_the_label_reaches_one_head_and_the_teacher_the_other():
    model, x = distilled(), images()
    labels, teacher = torch.tensor([1, 4]), torch.randn(B, K)
    token_distillation_loss(*model.both_heads(x), labels, teacher).backward()
    idle = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().max() > 1e-8]
    assert idle == []
    (from_label,) = torch.autograd.grad(F.cross_entropy(model.both_heads(x)[0], labels) / 2, model.head.bias)
    choice = teacher.argmax(dim=-1)
    (from_teacher,) = torch.autograd.grad(F.cross_entropy(model.both_heads(x)[1], choice) / 2, model.head_dist.bias)
    close(model.head.bias.grad, from_label)
    close(model.head_dist.bias.grad, from_teacher)


def test_it_starts_as_documented_and_the_two_tokens_start_apart():
    model = DistilledVisionTransformer(CONFIGS["vit_cifar"])
    assert not any(p.any() for head in (model.head, model.head_dist) for p in head.parameters())
    assert model.embedding.dist_token.std().item() == pytest.approx(0.02, rel=0.2)
    for positions in POSITIONS:
        z = DistilledVisionTransformer(small_config(positions=positions)).embedding(images())
        assert differ(z[:, 0], z[:, 1])


@pytest.mark.parametrize("positions", POSITIONS)
def test_it_can_be_resized_with_any_positions(positions):
    model = distilled(positions=positions)
    before = {name: p.clone() for name, p in model.named_parameters()}
    model.resize((12, 20))
    assert model(torch.randn(B, C, 12, 20)).shape == (B, K)
    kept = [name for name, p in model.named_parameters() if torch.equal(p, before[name][: len(p)])]
    assert set(before) - set(kept) <= {name for name in before if "positions" in name}
    if positions == "learned":
        name = "embedding.positions.pos_embed"
        close(model.get_parameter(name), resize_positions(before[name], GRID, (3, 5), num_prefix_tokens=2))
        assert torch.equal(model.get_parameter(name)[:, :2], before[name][:, :2])


def test_soft_distillation_with_two_classes_by_hand():
    """σ(a) is the student's probability of class 0, σ(b/τ) the teacher's at temperature τ."""
    a, b, tau, share = 0.7, -1.1, 2.0, 0.3
    scores, teacher = (torch.tensor([[x, 0.0]], dtype=torch.float64) for x in (a, b))
    p, t = 1 / (1 + math.exp(-a / tau)), 1 / (1 + math.exp(-b / tau))
    divergence = t * math.log(t / p) + (1 - t) * math.log((1 - t) / (1 - p))
    expected = (1 - share) * math.log(1 + math.exp(-a)) + share * tau**2 * divergence
    loss = soft_distillation_loss(scores, torch.tensor([0]), teacher, tau, share)
    assert loss.item() == pytest.approx(expected, rel=1e-12)


def test_the_gradient_of_soft_distillation_is_a_difference_of_probabilities():
    """∂/∂Z_s = (1 − λ)(ψ(Z_s) − e_y)/B + λτ(ψ(Z_s/τ) − ψ(Z_t/τ))/B, and the teacher gets none."""
    scores, labels, teacher = (x.requires_grad_(x.is_floating_point()) for x in some_logits())
    soft_distillation_loss(scores, labels, teacher, 2.5, 0.4).backward()
    expected = 0.6 * (scores.softmax(-1) - F.one_hot(labels, 3))
    expected = expected + 0.4 * 2.5 * ((scores / 2.5).softmax(-1) - (teacher / 2.5).softmax(-1))
    close(scores.grad, expected.detach() / 4)
    assert teacher.grad is None


def test_hard_distillation_by_hand():
    """Student e^Z = (1, 2, 5) and (3, 3, 2), labels 0 and 1, the teacher says 2 and 1."""
    scores = torch.tensor([[1.0, 2.0, 5.0], [3.0, 3.0, 2.0]], dtype=torch.float64).log()
    labels, teacher = torch.tensor([0, 1]), torch.tensor([[0.0, 1.0, 1.5], [0.2, 0.3, -4.0]], dtype=torch.float64)
    expected = (math.log(8 / 1) + math.log(8 / 3) + math.log(8 / 5) + math.log(8 / 3)) / 4
    assert hard_distillation_loss(scores, labels, teacher).item() == pytest.approx(expected)
    # with a token: each head hears one voice
    one, two = scores[:1], torch.tensor([[4.0, 3.0, 1.0]], dtype=torch.float64).log()
    expected = (math.log(8 / 1) + math.log(8 / 1)) / 2
    assert token_distillation_loss(one, two, labels[:1], teacher[:1]).item() == pytest.approx(expected)


def test_late_fusion_is_a_mean_of_probabilities_and_not_of_logits():
    sure, doubtful = torch.tensor([[9.0, 0.0, 0.0]]), torch.tensor([[-15.0, 0.0, -1.0]])
    fused = late_fusion(sure, doubtful)
    close(fused, (sure.exp() / sure.exp().sum() + doubtful.exp() / doubtful.exp().sum()) / 2)
    close(fused.sum(dim=-1), torch.ones(1))
    assert fused.argmax() == 0 and (sure + doubtful).argmax() == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("loss", [soft_distillation_loss, hard_distillation_loss])
def test_the_losses_are_those_of_float32_in_half_precision(loss, dtype):
    """The difference of two such logits is infinite in float16."""
    logits = torch.tensor([[60000.0, -60000.0, 3.0], [0.5, -2.0, 7.0]], dtype=dtype)
    labels, teacher = torch.tensor([1, 2]), -logits
    close(loss(logits, labels, teacher), loss(logits.float(), labels, teacher.float()))
    assert loss(logits, labels, teacher).isfinite()


LOGITS, LABELS = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])


@pytest.mark.door
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: soft_distillation_loss(LOGITS, LABELS, LOGITS[:1]), r"got \(4, 3\), \(1, 3\)"),
        (lambda: soft_distillation_loss(LOGITS[:0], LABELS[:0], LOGITS[:0]), r"not empty, got \(0, 3\), \(0, 3\)"),
        (lambda: hard_distillation_loss(LOGITS[0], LABELS[0], LOGITS[0]), r"shape \(B, K\), not empty, got \(3,\)"),
        (lambda: late_fusion(LOGITS, LOGITS[:1]), r"got \(4, 3\), \(1, 3\)"),
        (
            lambda: soft_distillation_loss(LOGITS, LABELS, LOGITS, temperature=0.0),
            "above 0 and weight in 0 … 1, got 0.0",
        ),
        (lambda: soft_distillation_loss(LOGITS, LABELS, LOGITS, weight=1.1), "weight in 0 … 1, got 3.0 and 1.1"),
        (lambda: distilled(pool="mean"), "pool 'class', got 'mean'"),
    ],
)
def test_what_would_be_silently_wrong_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()

"""Agreement without labels: the authors' loss, the test's closed forms, and what a teacher may and may not do."""

import copy
import math

import pytest
import small_models
import torch
import torch.nn.functional as F
from small_models import backbone, of_every_kind
from torch.testing import assert_close

from vitbook.dino import (
    ProjectionHead,
    StudentAndTeacher,
    ViewEncoder,
    agreement_loss,
    crops,
    entropy,
    epps_pulley,
    lejepa_loss,
    pretrain,
    random_colors,
    random_part,
    sigreg,
    teacher_probabilities,
)

K = 6


def pair(**settings) -> StudentAndTeacher:
    return small_models.shake(StudentAndTeacher(backbone(), ProjectionHead(12, K, 16, 8), **settings)).double()


def test_the_loss_is_the_authors_sum_over_pairs():
    student, t, center = torch.randn(5, 3, K), torch.randn(2, 3, K), torch.randn(K)
    total, terms = 0, 0
    for iq, q in enumerate(F.softmax((t - center) / 0.04, dim=-1)):
        for v in range(len(student)):
            if v != iq:  # main_dino.py skips "cases where student and teacher operate on the same view"
                total += torch.sum(-q * F.log_softmax(student[v] / 0.1, dim=-1), dim=-1).mean()
                terms += 1
    assert_close(agreement_loss(student, teacher_probabilities(t, center)), total / terms)


def test_agreement_costs_the_teachers_entropy_and_more_where_there_is_none():
    logits = torch.randn(1, 4, K).expand(3, -1, -1)
    agreed = teacher_probabilities(logits[:2], torch.zeros(K), 0.1)
    assert_close(agreement_loss(logits, agreed), entropy(agreed).mean())
    assert agreement_loss(logits.roll(1, dims=-1), agreed) > entropy(agreed).mean()


def test_entropy_runs_from_0_to_ln_k():
    p = torch.tensor([[1.0, 0, 0, 0], [0.25] * 4, [0.5, 0.5, 0, 0]])
    assert_close(entropy(p), torch.tensor([0, math.log(4), math.log(2)]))


def test_the_head_gives_cosines_with_its_prototypes():
    head = ProjectionHead(12, K, 16, 8)
    head.prototypes.data *= 7
    logits = head(torch.randn(4, 12))
    assert logits.shape == (4, K)
    assert (logits.abs() <= 1).all()
    hidden = torch.nn.Sequential(*head)(torch.ones(1, 12))
    assert_close(head(torch.ones(1, 12)), F.cosine_similarity(hidden, head.prototypes)[None])


@of_every_kind
@torch.no_grad()
def test_a_view_of_any_size_is_seen_as_by_a_model_of_that_size(changes):
    model = backbone(**changes)
    for size in ((8, 12), (16, 8), (4, 4)):
        resized = copy.deepcopy(model)
        resized.resize(size)
        images = torch.randn(2, 3, *size).double()
        assert_close(ViewEncoder(model, torch.nn.Identity())(images), resized.features(images))
    own = torch.randn(2, 3, 8, 12).double()
    assert_close(model.features(own), model.features(own, any_size=True))  # and the model is as it was


def test_gradients_reach_the_student_alone_and_the_teacher_follows():
    model = pair()
    large, small = [small_models.pictures() for _ in range(2)], [torch.randn(2, 3, 4, 4).double() for _ in range(3)]
    student, teacher = model(large, small)
    assert (student.shape, teacher.shape) == ((5, 2, K), (2, 2, K))
    assert_close(student[3], model.student(small[1]))
    assert_close(teacher[1], model.teacher(large[1]))
    model.loss(student, teacher).backward()
    assert all(p.grad is not None for name, p in model.student.named_parameters() if "backbone.head" not in name)
    assert all(p.grad is None for p in model.teacher.parameters())
    before = copy.deepcopy(model)
    torch.optim.SGD(model.student.parameters(), lr=0.1).step()
    assert_close(list(before.teacher.parameters()), list(model.teacher.parameters()), rtol=0, atol=0)
    model.follow(teacher, momentum=0.9, center_momentum=0.8)
    pairs = zip(before.teacher.parameters(), model.student.parameters(), strict=True)
    assert_close(list(model.teacher.parameters()), [0.9 * old + 0.1 * new for old, new in pairs])
    assert_close(model.center, 0.8 * before.center + 0.2 * teacher.mean(dim=(0, 1)))


def test_parts_hold_the_share_of_the_image_that_was_asked_for():
    rows = torch.linspace(-1, 1, 64)[:, None].expand(64, 64)
    places = torch.stack([rows, rows.mT]).expand(500, 2, 64, 64)  # each pixel says where it is
    parts = random_part(places, 16, (0.2, 0.5))
    height = (parts[:, 0, -1, 0] - parts[:, 0, 0, 0]) / 2 * 16 / 15
    width = (parts[:, 1, 0, -1] - parts[:, 1, 0, 0]) / 2 * 16 / 15
    share = height * width.abs()
    assert 0.19 < share.min() < 0.22
    assert 0.48 < share.max() < 0.52
    assert 0.74 < (width.abs() / height).min() < (width.abs() / height).max() < 1.35
    assert 0.4 < (width < 0).double().mean() < 0.6
    assert 0.9 < parts.abs().max() <= 1  # they reach the edges, and nothing beyond


def test_colors_change_by_no_more_than_asked():
    images = torch.randn(8, 3, 5, 7)
    assert_close(random_colors(images, strength=0, gray=0), images)
    gray = random_colors(images, strength=0, gray=1)
    assert_close(gray, images.mean(dim=1, keepdim=True).expand_as(images))
    assert small_models.differ(random_colors(images), images)
    tinted = random_colors(images, strength=0, gray=0, tint=0.3)
    scale = tinted.std(dim=(2, 3)) / images.std(dim=(2, 3))
    assert 0.7 < scale.min() < 0.85 < 1.15 < scale.max() < 1.3


def test_crops_are_two_large_and_some_small_ones():
    large, small = crops(torch.randn(2, 3, 32, 32), 24, 12, num_small=3)
    assert [tuple(view.shape) for view in large + small] == [(2, 3, 24, 24)] * 2 + [(2, 3, 12, 12)] * 3


# The short way


def test_the_integral_equals_its_closed_form_over_pairs():
    x = torch.randn(9, 2).double() + 0.3
    pairs = math.sqrt(2 * math.pi) * (-(x[:, None] - x[None]).square() / 2).exp().mean(dim=(0, 1))
    single = 2 * math.sqrt(math.pi) * (-x.square() / 4).exp().mean(dim=0)
    expected = 9 * (pairs - single + math.sqrt(2 * math.pi / 3))
    assert_close(epps_pulley(x, reach=8, knots=161), expected)
    assert_close(epps_pulley(x), expected, rtol=0.05, atol=0.02)


def test_normal_numbers_have_about_1_however_many_and_equal_ones_more_the_more_they_are():
    expected = math.sqrt(2 * math.pi) - math.sqrt(2 * math.pi / 3)
    for count in (20, 200):
        assert_close(epps_pulley(torch.randn(count, 4000)).mean().item(), expected, rtol=0.05, atol=0)
    collapsed = math.sqrt(2 * math.pi) - 2 * math.sqrt(math.pi) + math.sqrt(2 * math.pi / 3)
    for count in (20, 200):
        assert_close(epps_pulley(torch.zeros(count, 1).double(), 8, 161).item(), collapsed * count)


def test_the_regularizer_is_the_authors():
    z = torch.randn(20, 5)
    torch.manual_seed(1)
    A = torch.randn(5, 64)
    A = A / A.norm(p=2, dim=0)
    t = torch.linspace(0, 3, 17)
    weights = torch.full((17,), 2 * 3 / 16)
    weights[[0, -1]] = 3 / 16
    phi = torch.exp(-t.square() / 2)
    x_t = (z @ A).unsqueeze(-1) * t
    err = (x_t.cos().mean(-3) - phi).square() + x_t.sin().mean(-3).square()
    torch.manual_seed(1)
    assert_close(sigreg(z, 64), ((err @ (weights * phi)) * 20).mean())  # LeJEPA's MINIMAL.md


def test_lejepas_loss_adds_distance_and_spread():
    z = torch.randn(1, 30, 4).expand(3, -1, -1)
    assert_close(lejepa_loss(z, weight=0), torch.tensor(0.0))
    moved = z + torch.tensor([-1.0, 0, 1]).view(3, 1, 1)
    assert_close(lejepa_loss(moved, weight=0), torch.tensor(2 / 3))
    torch.manual_seed(2)
    expected = torch.stack([sigreg(view) for view in z]).mean()
    torch.manual_seed(2)
    assert_close(lejepa_loss(z, weight=0.3), 0.3 * expected)


# In training


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "each", "mean"),
    [
        ({}, (0, 0.9 * math.log(8)), (0.6 * math.log(8), math.inf)),
        ({"centered": False}, (0, 0.2), (0, 0.2)),
        ({"temperatures": (0.1, 0.4)}, (0.97 * math.log(8), math.inf), (0.97 * math.log(8), math.inf)),
    ],
    ids=["whole", "without centering", "without sharpening"],
)
def test_without_centering_one_answer_wins_and_without_sharpening_all_are_alike(settings, each, mean):
    torch.manual_seed(1)
    images = torch.randn(4, 3, 8, 12).repeat_interleave(16, dim=0) + 0.3 * torch.randn(64, 3, 8, 12)
    model = StudentAndTeacher(backbone().float(), ProjectionHead(12, 8, 16, 8), **settings)

    def views(images):
        return [images + 0.3 * torch.randn_like(images) for _ in range(2)], []

    records = pretrain(model, images, 60, views, batch_size=32, learning_rate=3e-3, momentum=0.9)
    assert len(records) == 120
    assert each[0] <= records[-1]["each"] <= each[1]
    assert mean[0] <= records[-1]["mean"] <= mean[1]

"""Painting: equal to closed forms where the field is known, to Bayes' rule, to SciPy; and what a painter must do."""

import itertools

import pytest
import small_models
import torch
from scipy.integrate import solve_ivp
from scipy.linalg import sqrtm
from small_models import differ, shake, small_config
from torch.distributions import Normal
from torch.testing import assert_close

from vitbook.attention import attention
from vitbook.painting import (
    AIMS,
    Painter,
    best_guess,
    frechet_distance,
    guided_guess,
    nearest_distances,
    on_the_path,
    paint,
    time_code,
    train_painter,
    velocity,
    walk,
)
from vitbook.positions import sincos_positions

LABELS = torch.tensor([3, 7])


def painter(**changes) -> Painter:
    return shake(Painter(small_config(**changes))).double().eval()


def pictures(count: int = 2) -> torch.Tensor:
    return small_models.images(count).double()


def two_images() -> torch.Tensor:
    """An image and its negative, (2, 1, 2, 3)."""
    image = torch.randn(1, 1, 2, 3).double()
    return torch.cat([image, -image])


# The field


def test_the_velocity_is_how_z_changes_with_time():
    x, noise, t = pictures(), torch.randn(2, 3, 8, 12).double(), torch.tensor([0.2, 0.9]).double()
    z, slope = torch.func.jvp(lambda t: on_the_path(x, noise, t), (t,), (torch.ones_like(t),))
    assert_close(velocity(x, z, t), slope)
    assert_close(slope, x - noise)


def test_the_best_guess_for_two_opposite_images_is_a_hyperbolic_tangent():
    images, z, t = two_images(), torch.randn(5, 1, 2, 3).double(), torch.rand(5).double() * 0.9
    along = (z * images[0]).flatten(1).sum(dim=1)
    expected = torch.tanh(t * along / (1 - t) ** 2)[:, None, None, None] * images[0]
    assert_close(best_guess(z, t, images), expected)


def test_the_best_guess_is_the_mean_by_the_rule_of_bayes():
    images, z, t = pictures(4), pictures(3), torch.tensor([0.0, 0.3, 0.8]).double()
    for i in range(3):
        likelihood = torch.stack([Normal(t[i] * x, 1 - t[i]).log_prob(z[i]).sum() for x in images])
        expected = sum(share * x for share, x in zip(likelihood.softmax(dim=0), images, strict=True))
        assert_close(best_guess(z, t, images)[i], expected)
    assert_close(best_guess(z, t, images)[0], images.mean(dim=0))  # at t = 0 nothing is known


def test_among_images_of_one_length_the_best_guess_is_attention():
    images = torch.nn.functional.normalize(pictures(4).flatten(1), dim=1).view(4, 3, 8, 12)
    z, t = pictures(3), torch.tensor([0.2, 0.4, 0.6]).double()
    keys = images.flatten(1)
    queries = z.flatten(1) * (t / (1 - t) ** 2)[:, None] * keys.shape[1] ** 0.5
    assert_close(best_guess(z, t, images).flatten(1), attention(queries, keys, keys)[0])


def test_steps_along_the_known_field_are_those_of_a_solver_and_end_at_one_of_the_two():
    images, noise = two_images(), torch.randn(6, 1, 2, 3).double()

    def slope(t, z):
        z = torch.from_numpy(z).view(6, 1, 2, 3)
        return velocity(best_guess(z, torch.full((6,), t).double(), images), z, torch.full((6,), t).double()).flatten()

    walked = list(walk(lambda z, t: best_guess(z, t, images), noise, steps=2000))
    solved = solve_ivp(slope, (0, 0.9), noise.flatten().numpy(), rtol=1e-8, atol=1e-8).y[:, -1]
    assert_close(walked[1800][1].flatten(), torch.from_numpy(solved), rtol=0, atol=0.01)
    assert nearest_distances(walked[-1][2], images).max() < 1e-6  # the best guess copies
    nearer = torch.cdist(noise.flatten(1), images.flatten(1)).argmin(dim=1)
    assert_close(walked[-1][2], images[nearer])


def test_a_step_is_the_velocity_and_the_last_one_arrives_at_the_guess():
    target = pictures()
    walked = list(walk(lambda z, t: target + (1 - t)[:, None, None, None], pictures(), steps=4))
    assert [t for t, _, _ in walked] == [0, 0.25, 0.5, 0.75]
    for (t, z, x), (_, after, _) in itertools.pairwise(walked):
        assert_close(after - z, velocity(x, z, torch.full((2,), t).double()) / 4)
    _, z, x = walked[-1]
    assert_close(z + (x - z) / 1, x)


def test_the_code_of_time_is_that_of_positions():
    code = time_code(torch.tensor([0.07, 0.4]).double(), 12)
    table = sincos_positions(41, 12)[[7, 40]].double()
    assert_close(code, torch.cat([table[:, 0::2], table[:, 1::2]], dim=1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("aim", AIMS)
def test_whatever_is_predicted_the_truth_gives_the_image(aim):
    x, noise, t = pictures(), torch.randn(2, 3, 8, 12).double(), torch.tensor([0.1, 0.9]).double()[:, None, None, None]
    truth = {"image": x, "noise": noise, "velocity": x - noise}[aim]
    assert_close(AIMS[aim](truth, on_the_path(x, noise, t.flatten()), t), x)


# The model


def test_two_tokens_stand_in_front_of_the_patches():
    model, seen = painter(), []
    model.backbone.encoder.register_forward_hook(lambda module, given, out: seen.append(given[0]))
    z, t = pictures(), torch.tensor([0.1, 0.6]).double()
    model(z, t, LABELS)
    assert_close(seen[0][:, 0], model.time(time_code(t, 12)))
    assert_close(seen[0][:, 1], model.classes.weight[LABELS])
    assert_close(seen[0][:, 2:], model.backbone.embedding(z))


@torch.no_grad()
def test_every_input_counts_and_images_do_not_see_each_other():
    model, z, t = painter(), pictures(), torch.tensor([0.1, 0.6]).double()
    guess = model(z, t, LABELS)
    assert guess.shape == z.shape
    for other in (model(z + 1, t, LABELS), model(z, t / 2, LABELS), model(z, t, LABELS - 1)):
        assert all(differ(*pair) for pair in zip(guess, other, strict=True))
    assert_close(model(z[:1], t[:1], LABELS[:1]), guess[:1])


def test_its_first_guess_is_gray_and_it_has_no_more_than_a_vit_and_its_two_tokens():
    model = Painter(small_config())
    assert not model(pictures().float(), torch.rand(2), LABELS).any()
    backbone = sum(parameter.numel() for parameter in model.backbone.parameters())
    more = 12 * 12 + 12 + 10 * 12 + 12 * 48 + 48  # time, classes and none of them, pixels
    assert sum(parameter.numel() for parameter in model.parameters()) == backbone + more


@pytest.mark.slow
def test_it_learns_two_images_and_paints_the_one_that_is_asked_for():
    torch.manual_seed(0)
    images, labels = torch.randn(2, 3, 8, 12).sign() / 2, torch.tensor([3, 7])
    model = Painter(small_config(dim=24))
    mean, losses = train_painter(
        model, images.repeat(32, 1, 1, 1), labels.repeat(32), 40, batch_size=8, learning_rate=1e-2
    )
    assert losses[-1] < losses[0] / 2
    painted = paint(mean, labels, steps=5, guidance=1)
    assert (painted - images).square().mean() < 0.1 * (painted - images.flip(0)).square().mean()


@torch.no_grad()
def test_what_is_known_is_kept_and_the_rest_is_painted_to_fit_it():
    model, known, noise = painter(), pictures(), torch.randn(2, 3, 8, 12).double()
    hidden = torch.zeros(8, 12, dtype=torch.bool)
    hidden[:, 6:] = True
    painted = paint(model, LABELS, 3, 2.0, noise, known, hidden)
    assert_close(painted[..., :6], known[..., :6])
    assert differ(painted[..., 6:], paint(model, LABELS, 3, 2.0, noise, -known, hidden)[..., 6:])
    steps = walk(lambda z, t: guided_guess(model, z, t, LABELS, 2.0), noise, 3, known, hidden)
    for t, z, _ in steps:
        assert_close(z[..., :6], on_the_path(known, noise, torch.full((2,), t).double())[..., :6])


@torch.no_grad()
@pytest.mark.parametrize("change", [{"labels": LABELS - 1}, {"steps": 4}, {"guidance": 0.5}, {"noise": pictures()}])
def test_each_argument_changes_what_is_painted_and_nothing_else_does(change):
    given = {"labels": LABELS, "steps": 3, "guidance": 2.0, "noise": torch.ones(2, 3, 8, 12).double()}
    model = painter()
    assert torch.equal(paint(model, **given), paint(model.train(), **given))
    assert differ(paint(model, **given), paint(model, **given | change))


def test_training_depends_on_the_seed_alone_and_augments_what_it_is_shown():
    def trained(**settings) -> torch.Tensor:
        torch.manual_seed(1)
        return train_painter(Painter(small_config()), small_models.images(), LABELS, 2, **settings)[0].time.weight

    assert torch.equal(trained(), trained())
    for change in (
        {"learning_rate": 1e-2}, {"dropped": 1.0}, {"decay": 0.0}, {"batch_size": 1}, {"augment": torch.neg},
    ):  # fmt: skip
        assert not torch.equal(trained(), trained(**change)), change


@pytest.mark.door
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"labels": torch.tensor([10])}, r"classes must lie in 0 … 8, or be 9 for none of them, got 10"),
        ({"labels": torch.tensor([-1])}, r"classes must lie in 0 … 8, or be 9 for none of them, got -1"),
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"guidance": -0.5}, r"guidance must be at least 0, got -0\.5"),
        ({"guidance": float("nan")}, "guidance must be at least 0, got nan"),
        ({"noise": torch.zeros(1, 3, 12, 8)}, "images must be 8×12, as the positions are, got 12×8"),
    ],
)
def test_what_cannot_be_painted_is_refused_in_one_line(given, message):
    with pytest.raises(ValueError, match=message):
        paint(Painter(small_config()), **{"labels": torch.tensor([3])} | given)


@pytest.mark.door
def test_what_cannot_be_learned_is_refused_in_one_line():
    with pytest.raises(ValueError, match="images must be 8×12, as the positions are, got 8×8"):
        train_painter(Painter(small_config()), torch.zeros(2, 3, 8, 8), LABELS, 1)
    with pytest.raises(ValueError, match="classes must lie in 0 … 8"):
        train_painter(Painter(small_config()), torch.zeros(2, 3, 8, 12), LABELS + 5, 1)
    with pytest.raises(ValueError, match="aim must be one of image, noise, velocity, got 'x'"):
        Painter(small_config(), aim="x")


# The measures


def test_a_copy_is_at_distance_zero():
    known = pictures(5)
    moved = known[:2].clone()
    moved[1, 0, 0, 0] += 0.01
    assert_close(nearest_distances(moved, known), torch.tensor([0, 0.01]).double(), rtol=1e-6, atol=1e-6)


def test_the_distance_of_frechet_is_that_of_normal_distributions():
    some, others = torch.randn(50, 4).double() @ torch.randn(4, 4).double(), torch.randn(60, 4).double() + 1
    one, two = torch.cov(some.T).numpy(), torch.cov(others.T).numpy()
    root = sqrtm(one @ two).real
    expected = (some.mean(0) - others.mean(0)).square().sum() + (one + two - 2 * root).trace()
    assert frechet_distance(some, others) == pytest.approx(expected.item())
    assert frechet_distance(some, some) == pytest.approx(0, abs=1e-9)
    assert frechet_distance(some, some + torch.tensor([3, 4, 0, 0])) == pytest.approx(25)

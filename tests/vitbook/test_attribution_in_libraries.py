"""What chapter 28 says of captum: the same maps on the exam's models, the same marks. `make peers` runs these."""

import pytest
import torch
from torch.testing import assert_close

from vitbook.attribution import occlusion, precision_at_k
from vitbook_workshop.exam.attributions import gradient_times_input, integrated_gradients, shapley
from vitbook_workshop.exam.grading import Sitting, sitting

pytestmark = pytest.mark.peers
PATCHES = torch.arange(36).view(6, 6).repeat_interleave(4, 0).repeat_interleave(4, 1)


@pytest.fixture(scope="module")
def attr():
    return pytest.importorskip("captum.attr", reason="captum is not installed; make peers installs it")


@pytest.fixture(scope="module", params=["find", "compare", "count"])
def asked(request) -> Sitting:
    return sitting(request.param, 12)


def patches(pixels: torch.Tensor) -> torch.Tensor:
    return pixels.detach().sum(dim=1).unflatten(2, (6, 4)).unflatten(1, (6, 4)).sum(dim=(2, 4))


def test_feature_ablation_of_patches_is_occlusion_with_gray(attr, asked):
    given = attr.FeatureAblation(asked.model).attribute(asked.images, target=asked.classes, feature_mask=PATCHES)
    theirs = given[:, 0, ::4, ::4]  # each pixel has its patch's number
    ours = occlusion(asked.model, asked.images, asked.classes, (6, 6))
    assert_close(theirs, ours, rtol=0, atol=1e-4)
    assert_close(precision_at_k(theirs, asked.key), precision_at_k(ours, asked.key))


def test_without_a_feature_mask_it_hides_single_pixels(attr, asked):
    one = asked.images[:1], asked.classes[:1]
    given = attr.FeatureAblation(asked.model).attribute(one[0], target=one[1], perturbations_per_eval=256)
    assert len(given.unique()) > 36 and not torch.allclose(
        patches(given), occlusion(asked.model, *one, (6, 6)), atol=0.1
    )


def test_integrated_gradients_by_the_middle_of_each_step_are_ours(attr, asked):
    theirs = attr.IntegratedGradients(asked.model)
    given = theirs.attribute(asked.images, target=asked.classes, n_steps=16, method="riemann_middle")
    ours = integrated_gradients(asked.model, asked.images, asked.classes, (6, 6))
    assert_close(patches(given), ours, rtol=0, atol=1e-3)
    default = theirs.attribute(asked.images, target=asked.classes)
    explicit = theirs.attribute(asked.images, target=asked.classes, n_steps=50, method="gausslegendre")
    assert_close(default, explicit)


def test_input_times_gradient_is_ours(attr, asked):
    given = attr.InputXGradient(asked.model).attribute(asked.images.clone().requires_grad_(), target=asked.classes)
    assert_close(
        patches(given), gradient_times_input(asked.model, asked.images, asked.classes, (6, 6)), rtol=0, atol=1e-4
    )


def test_sampled_shapley_values_share_out_the_same_score(attr, asked):
    one = asked.images[:2], asked.classes[:2]
    given = attr.ShapleyValueSampling(asked.model).attribute(
        one[0], target=one[1], feature_mask=PATCHES, n_samples=3, perturbations_per_eval=12
    )
    ours = shapley(asked.model, *one, (6, 6), torch.Generator().manual_seed(0))
    assert_close(given[:, 0, ::4, ::4].sum(dim=(1, 2)), ours.sum(dim=(1, 2)), rtol=0, atol=1e-3)

"""Other libraries' maps on the exam's models, and their marks beside ours. `make peers` runs these."""

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch.testing import assert_close

from vitbook.attribution import auc, occlusion, precision_at_k
from vitbook.pretrained import huggingface_config, to_huggingface
from vitbook_workshop.exam.maps_from_papers import gradient_times_input, integrated_gradients, shapley
from vitbook_workshop.exam.methods import METHODS
from vitbook_workshop.exam.sittings import Sitting, graded, sitting

pytest_plugins = ["shared_fixtures"]
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


@pytest.fixture
def attentions_and_logits(torchvision, asked, tmp_path) -> tuple[list[torch.Tensor], torch.Tensor]:
    """What transformers' own ViT, loaded from a folder of ours, gives where its attention is eager."""
    transformers = pytest.importorskip("transformers")
    save_file(to_huggingface(asked.model), tmp_path / "model.safetensors", metadata={"format": "pt"})
    transformers.ViTConfig(**huggingface_config(asked.model)).save_pretrained(tmp_path)
    theirs = transformers.ViTForImageClassification.from_pretrained(tmp_path, attn_implementation="eager").eval()
    given = theirs(asked.images, output_attentions=True)
    return list(given.attentions), given.logits


def of_class_token(attention: torch.Tensor) -> torch.Tensor:
    return attention[:, 0, 1:].unflatten(1, (6, 6))


@torch.no_grad()
def test_transformers_eager_attention_gives_our_maps_and_marks(asked, attentions_and_logits):
    attentions, logits = attentions_and_logits
    assert_close(logits, asked.model(asked.images), rtol=0, atol=1e-4)
    rolled = torch.eye(37)
    for weights in attentions:
        rolled = (weights.mean(dim=1) + torch.eye(37)) / 2 @ rolled
    for name, attention in (("last block's attention", attentions[-1].mean(dim=1)), ("rollout", rolled)):
        theirs, ours = of_class_token(attention), METHODS[name](asked.model, asked.images, asked.classes)
        assert_close(theirs, ours, rtol=0, atol=1e-5)
        assert_close(precision_at_k(theirs, asked.key), precision_at_k(ours, asked.key))
        assert_close(auc(theirs, asked.key), auc(ours, asked.key), rtol=0, atol=1e-3)


def test_gradients_reach_transformers_eager_attention_and_give_chefers_map(asked, attentions_and_logits):
    attentions, logits = attentions_and_logits
    gradients = torch.autograd.grad(logits.gather(1, asked.classes[:, None]).sum(), attentions)
    relevance = torch.eye(37).expand(len(logits), -1, -1)
    for weights, gradient in zip(attentions, gradients, strict=True):
        relevance = relevance + (weights * gradient).relu().mean(dim=1) @ relevance
    ours = METHODS["gradient-weighted (Chefer)"](asked.model, asked.images, asked.classes)
    assert_close(of_class_token(relevance), ours, rtol=1e-3, atol=1e-6)


@pytest.fixture(scope="module")
def cams(torchvision):  # which it imports
    return pytest.importorskip("pytorch_grad_cam", reason="pytorch-grad-cam is not installed; make peers installs it")


def cam_pixels(cams, name: str, asked: Sitting) -> torch.Tensor:
    """A map (B, 24, 24) as its documentation makes it of a ViT: at the last block's first norm, without the class."""
    targets = [cams.utils.model_targets.ClassifierOutputTarget(int(c)) for c in asked.classes]
    options = {"ablation_layer": cams.AblationLayerVit()} if name == "AblationCAM" else {}
    layers = [asked.model.encoder.blocks[-1].norm1]
    with getattr(cams, name)(
        asked.model, layers, reshape_transform=lambda tokens: tokens[:, 1:].mT.unflatten(2, (6, 6)), **options
    ) as cam:
        return torch.from_numpy(cam(asked.images, targets))


def test_its_grad_cam_is_the_papers_enlarged(cams, asked):
    kept = []
    hook = asked.model.encoder.blocks[-1].norm1.register_forward_hook(lambda layer, got, gave: kept.append(gave))
    score = asked.model(asked.images).gather(1, asked.classes[:, None]).sum()
    hook.remove()
    gradient = torch.autograd.grad(score, kept[0])[0][:, 1:]  # (B, 36, D)
    small = (kept[0][:, 1:] * gradient.mean(dim=1, keepdim=True)).sum(dim=2).relu().unflatten(1, (6, 6))
    ours = F.interpolate(small[:, None], scale_factor=4, mode="bilinear").squeeze(1).detach()
    ours = ours - ours.amin(dim=(1, 2), keepdim=True)
    ours = ours / ours.amax(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    assert_close(cam_pixels(cams, "GradCAM", asked), ours, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "worth", "below"),
    [
        ("GradCAM", 0.21, "last block's attention"),
        ("AblationCAM", 0.18, "last block's attention"),
        ("ScoreCAM", 0.48, "rollout"),
    ],
)
def test_class_activation_maps_are_worth_more_than_chance_and_less_than_ours(cams, name, worth, below):
    asked = sitting("compare", 50)
    maps = F.avg_pool2d(cam_pixels(cams, name, asked), 4)
    assert maps.shape == (50, 6, 6)
    mean, low, high = graded(lambda *_: maps, asked)["precision"]
    ours = graded(METHODS[below], asked)["precision"][0]
    print(f"{name}: {mean} [{low}, {high}], {below}: {ours}")
    assert mean == pytest.approx(worth, abs=0.03)
    assert 2 / 36 < low and high < ours  # by chance: two of 36 patches decide

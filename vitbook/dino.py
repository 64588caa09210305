"""Agreement without labels: two views of one image must be given the same answer.

student  pₛ = softmax(s / τₛ)                 of every view, small ones too
teacher  pₜ = softmax((t − c) / τₜ)           of the large views; c is the running mean of t (centering), and
                                              τₜ < τₛ (sharpening)
loss        = −Σ pₜ · log pₛ                  over pairs of different views
teacher's weights ← m · teacher's weights + (1 − m) · student's weights

That is DINO. The short way, LeJEPA, has one network and no teacher: views agree, and all vectors are spread as a normal
distribution spreads them, which no collapsed network can do.
"""

import math
from collections.abc import Callable, Sequence
from copy import deepcopy

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from vitbook.patches import Images
from vitbook.training import parameter_groups, warmup_cosine
from vitbook.vit import VisionTransformer

View = Float[Tensor, "batch channels _ _"]  # a part of each image, of any size
Answers = Float[Tensor, "views batch prototypes"]  # logits, or probabilities, of each view of each image
Taught = Float[Tensor, "large batch prototypes"]  # the same, of the large views alone


def teacher_probabilities(
    logits: Answers, center: Float[Tensor, " prototypes"], temperature: float = 0.04
) -> Float[Tensor, "views batch prototypes"]:
    """softmax((t − c) / τ): centered and sharpened. Caron et al. 2021, section 3.1, "Avoiding collapse"."""
    return ((logits - center) / temperature).softmax(dim=-1)


def agreement_loss(student: Answers, teacher: Taught, temperature: float = 0.1) -> Float[Tensor, ""]:
    """The cross-entropy −Σ pₜ log pₛ, the mean over images and over all pairs of different views, in nats.

    Caron et al. 2021, Eq. 3. student: logits of all views, the large ones first and in the teacher's order; teacher:
    probabilities of the large ones.
    """
    log_p = (student / temperature).log_softmax(dim=-1)
    pairs = -torch.einsum("gbk,vbk->gv", teacher, log_p) / student.shape[1]
    different = ~torch.eye(*pairs.shape, dtype=torch.bool, device=pairs.device)
    return pairs[different].mean()


def entropy(p: Float[Tensor, "*shape prototypes"]) -> Float[Tensor, "*shape"]:
    """−Σ p log p in nats: 0 where one answer has it all, ln K where all K are alike."""
    return torch.special.entr(p).sum(dim=-1)


class ProjectionHead(nn.Sequential):
    """Features to cosines with K learned prototypes. (B, D) → (B, K), −1 to 1.

    Caron et al. 2021, section 3.2 and appendix C: an MLP, a vector of length 1, a linear map whose rows have length 1.
    Differs: two layers, where the authors' MLP has three.
    """

    def __init__(self, dim: int, prototypes: int, hidden_dim: int = 256, bottleneck: int = 64):
        super().__init__(nn.Linear(dim, hidden_dim), nn.GELU(), nn.Linear(hidden_dim, bottleneck))
        self.prototypes = nn.Parameter(torch.randn(prototypes, bottleneck))

    def forward(self, input: Float[Tensor, "batch dim"]) -> Float[Tensor, "batch prototypes"]:
        return F.normalize(super().forward(input), dim=-1) @ F.normalize(self.prototypes, dim=-1).mT


class ViewEncoder(nn.Module):
    """A backbone under a head, for square views of any size that patches fill. (B, C, H, W) → (B, K).

    Positions are interpolated, so that they span a view as they span an image.
    """

    def __init__(self, backbone: VisionTransformer, head: nn.Module):
        super().__init__()
        self.backbone, self.head = backbone, head

    def features(self, images: Images) -> Float[Tensor, "batch dim"]:
        """As `VisionTransformer.features`."""
        return self.backbone.features(images, any_size=True)

    def forward(self, images: Images) -> Float[Tensor, "batch prototypes"]:
        return self.head(self.features(images))


class StudentAndTeacher(nn.Module):
    """A student, its teacher, which is the running mean of the student's weights, and the center of its answers.

    Caron et al. 2021, Algorithm 1. A step is: `forward`, `loss`, the optimizer's step, `follow`.

    temperatures: τₛ and τₜ; centered: whether c is subtracted. Without it, or with τₜ = τₛ, the network collapses.
    """

    center: Tensor

    def __init__(
        self,
        backbone: VisionTransformer,
        head: ProjectionHead,
        temperatures: tuple[float, float] = (0.1, 0.04),
        centered: bool = True,
    ):
        super().__init__()
        self.student = ViewEncoder(backbone, head)
        self.teacher = deepcopy(self.student).requires_grad_(False)
        self.temperatures, self.centered = temperatures, centered
        self.register_buffer("center", torch.zeros(len(head.prototypes)))

    def forward(self, large: Sequence[View], small: Sequence[View] = ()) -> tuple[Answers, Taught]:
        """The student's logits of all views, and the teacher's of the large ones, (V, B, K) and (G, B, K)."""
        sizes = [torch.cat(list(views)) for views in (large, small) if len(views)]
        student = torch.cat([self.student(views) for views in sizes]).unflatten(0, (-1, len(large[0])))
        with torch.no_grad():
            teacher = self.teacher(sizes[0]).unflatten(0, (-1, len(large[0])))
        return student, teacher

    def targets(self, teacher: Taught) -> Taught:
        """The teacher's probabilities."""
        return teacher_probabilities(teacher, self.center * self.centered, self.temperatures[1])

    def loss(self, student: Answers, teacher: Taught) -> Float[Tensor, ""]:
        """`agreement_loss` of what `forward` gives."""
        return agreement_loss(student, self.targets(teacher), self.temperatures[0])

    @torch.no_grad()
    def follow(self, teacher: Taught, momentum: float, center_momentum: float = 0.9) -> None:
        """Move the teacher toward the student, and the center toward the mean of these answers."""
        for slow, fast in zip(self.teacher.parameters(), self.student.parameters(), strict=True):
            slow.lerp_(fast, 1 - momentum)
        self.center.lerp_(teacher.mean(dim=(0, 1)), 1 - center_momentum)


# The short way


def epps_pulley(x: Float[Tensor, "batch slices"], reach: float = 3.0, knots: int = 17) -> Float[Tensor, " slices"]:
    """B ∫ |φ(t) − e^(−t²/2)|² e^(−t²/2) dt, with φ(t) the mean of e^(itx): how far B numbers are from standard normal.

    Epps and Pulley 1983, as in Balestriero and LeCun 2025 ("LeJEPA"), section 4: x is not standardized first. Numbers
    drawn from a normal distribution have about √(2π) − √(2π/3) ≈ 1.06, however many they are; B equal ones, 0.41 B or
    more. The integral is a sum over `knots` from 0 to reach, doubled, as in the authors' code.
    """
    t = torch.linspace(0, reach, knots).to(x)
    normal = (-t.square() / 2).exp()  # the same function is φ of a normal distribution, and the weight
    angles = x.unsqueeze(-1) * t
    distance = (angles.cos().mean(dim=0) - normal).square() + angles.sin().mean(dim=0).square()
    return 2 * len(x) * torch.trapezoid(distance * normal, t)


def sigreg(z: Float[Tensor, "batch dim"], slices: int = 256) -> Float[Tensor, ""]:
    """The mean of `epps_pulley` over random directions: least where z is spread as an isotropic normal distribution.

    "Sketched isotropic Gaussian regularization", Balestriero and LeCun 2025, section 4.
    """
    directions = F.normalize(torch.randn(z.shape[1], slices).to(z), dim=0)
    return epps_pulley(z @ directions).mean()


def lejepa_loss(z: Float[Tensor, "views batch dim"], weight: float = 0.02, slices: int = 256) -> Float[Tensor, ""]:
    """(1 − λ) · the mean squared distance of views from their image's mean + λ · `sigreg`, the mean over views.

    Balestriero and LeCun 2025, section 5. weight: λ, the one setting there is. Differs: the paper's mean is that of
    the large views; this is the authors' minimal example.
    """
    agreement = (z - z.mean(dim=0)).square().mean()
    return (1 - weight) * agreement + weight * torch.stack([sigreg(view, slices) for view in z]).mean()


# Views


def random_part(
    images: Images, size: int, area: tuple[float, float], mirrored: float = 0.5
) -> Float[Tensor, "batch channels size size"]:
    """A random part of each image, scaled to size × size pixels.

    area: the least and the greatest share of the image; the part is 3/4 to 4/3 times as wide as high. mirrored: the
    share of parts that are, left to right.
    """
    share, ratio, right, down, mirror = torch.rand(5, len(images))
    share, ratio = area[0] + (area[1] - area[0]) * share, (4 / 3) ** (2 * ratio - 1)
    width, height = ((share * r).sqrt().clamp(max=1) for r in (ratio, 1 / ratio))
    zero = torch.zeros_like(width)
    x = torch.stack([width * torch.where(mirror < mirrored, -1, 1), zero, (1 - width) * (2 * right - 1)], dim=-1)
    y = torch.stack([zero, height, (1 - height) * (2 * down - 1)], dim=-1)
    matrices = torch.stack([x, y], dim=1).to(images)
    grid = F.affine_grid(matrices, [*images.shape[:2], size, size], align_corners=False)
    return F.grid_sample(images, grid, padding_mode="border", align_corners=False)


def random_colors(images: Images, strength: float = 0.4, gray: float = 0.2, tint: float = 0.0) -> Images:
    """Change saturation, contrast and brightness of each normalized image, and turn a share of them gray.

    tint: how far each color channel is scaled and shifted on its own, so that color does not give an image away.
    """
    saturation, contrast, brightness = strength * (2 * torch.rand(3, len(images), 1, 1, 1) - 1).to(images)
    saturation = torch.where(torch.rand(len(images), 1, 1, 1).to(images) < gray, -1, saturation)
    images = torch.lerp(images.mean(dim=1, keepdim=True), images, 1 + saturation)
    mean = images.mean(dim=(1, 2, 3), keepdim=True)
    images = (1 + contrast) * (images - mean) + mean + brightness
    if tint:
        scale, shift = tint * (2 * torch.rand(2, *images.shape[:2], 1, 1) - 1).to(images)
        images = (1 + scale) * images + shift / 2
    return images


def crops(
    images: Images,
    large: int,
    small: int,
    num_small: int = 4,
    areas: tuple[tuple[float, float], tuple[float, float]] = ((0.35, 1.0), (0.1, 0.35)),
    mirrored: float = 0.5,
    change: Callable[[Images], Images] = random_colors,
) -> tuple[list[View], list[View]]:
    """Two large views of each image, and some small ones: "multi-crop", Caron et al. 2020.

    large, small: sides in pixels; areas and mirrored: as in `random_part`, areas of the large and of the small ones;
    change: what else happens to each view.
    """
    kinds = zip((large, small), areas, (2, num_small), strict=True)
    two, some = ([change(random_part(images, size, area, mirrored)) for _ in range(n)] for size, area, n in kinds)
    return two, some


def pretrain(
    model: StudentAndTeacher,
    images: Images,
    epochs: int,
    views: Callable[[Images], tuple[list[View], list[View]]],
    batch_size: int = 128,
    learning_rate: float = 1e-3,
    momentum: float = 0.99,
    center_momentum: float = 0.9,
) -> list[dict[str, float]]:
    """Train on images without labels. Returns of every step the loss, the mean entropy of the teacher's answers, and
    the entropy of their mean over the batch, all in nats.

    Caron et al. 2021, section 3.2: AdamW, a cosine after a warm-up. views: makes large and small views, as `crops`
    does. Differs: theirs raises the teacher's momentum to 1 in the end.
    """
    optimizer = torch.optim.AdamW(parameter_groups(model.student, 0.04), lr=learning_rate, fused=True)
    steps = epochs * math.ceil(len(images) / batch_size)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: warmup_cosine(step, steps, steps // 10))
    records = []
    for _ in range(epochs):
        for chosen in torch.randperm(len(images)).split(batch_size):
            student, teacher = model(*views(images[chosen]))
            loss = model.loss(student, teacher)
            p = model.targets(teacher)
            records.append(
                {"loss": loss.item(), "each": entropy(p).mean().item(), "mean": entropy(p.mean(dim=(0, 1))).item()}
            )
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.student.parameters(), 3.0)
            optimizer.step()
            schedule.step()
            model.follow(teacher, momentum, center_momentum)
    return records

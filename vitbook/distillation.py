"""Learning from a teacher: a second token for what the teacher says, and the losses that listen to it.

Touvron et al. 2021 (DeiT). Scores are those before a softmax, (B, K); labels are classes, (B,); λ and τ are the
paper's. The teacher is any classifier of the same K classes, and no gradient reaches it.
"""

import math
from copy import deepcopy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitbook._support.validation import check_floats, check_kind, check_numbers, check_tensors
from vitbook.embedding import POSITIONS, ImageEmbedding
from vitbook.patches import HybridEmbedding, PatchEmbedding
from vitbook.vit import VisionTransformer, ViTConfig


class DistilledEmbedding(ImageEmbedding):
    """Equation 1 with one more token: [x_class; x_dist; x_p¹E; …; x_pᴺE] + E_pos. (B, C, H, W) → (B, N + 2, D).

    Touvron et al. 2021, section 4. Arguments and errors as in `ImageEmbedding`; there is always a class token. The
    order is that of the authors' code; their figure draws the new token last.
    """

    def __init__(
        self,
        patch_embed: PatchEmbedding | HybridEmbedding,
        image_size: tuple[int, int],
        dim: int,
        positions: str = "learned",
        dropout: float = 0.0,
    ):
        super().__init__(patch_embed, image_size, dim, positions=positions, dropout=dropout)
        self.dist_token = nn.Parameter(torch.empty(1, 1, dim).normal_(std=0.02))
        self.positions = POSITIONS[positions](self.grid, dim, num_prefix_tokens=2)

    @property
    def prefix_tokens(self) -> list[Tensor]:
        return [self.cls_token, self.dist_token]


class DistilledVisionTransformer(VisionTransformer):
    """A Vision Transformer that hears a label through one token and a teacher through another. (B, C, H, W) → (B, K).

    Touvron et al. 2021, section 4. `both_heads` is for training, `forward` for use: the mean of the two heads' scores,
    as in the authors' code. Differs: their forward returns the pair while in training mode. The paper adds two
    softmaxes instead of scores: `late_fusion`.

    Weights start as in `VisionTransformer`, both heads at zero. Raises ValueError unless config.pool is "class".
    """

    def __init__(self, config: ViTConfig, patch_embed: nn.Module | None = None):
        check_kind(ViTConfig, config=config)
        if config.pool != "class":
            raise ValueError(f"the distillation token stands beside a class token: pool 'class', got {config.pool!r}")
        super().__init__(config, patch_embed)
        c = self.config
        self.embedding = DistilledEmbedding(
            self.embedding.patch_embed, c.image_size, c.dim, positions=c.positions, dropout=c.dropout
        )
        self.head_dist = deepcopy(self.head)

    def both_heads(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """What the class token says, and what the distillation token says. (B, C, H, W) → (B, K), (B, K)."""
        z = self.tokens(images)
        return self.head(z[:, 0]), self.head_dist(z[:, 1])

    def forward(self, images: Tensor) -> Tensor:
        class_scores, distillation_scores = self.both_heads(images)
        return (class_scores + distillation_scores) / 2

    def features(self, images: Tensor) -> Tensor:
        """One vector a picture, for other heads: the mean of the two tokens, as in timm. (B, C, H, W) → (B, D)."""
        return self.tokens(images)[:, :2].mean(dim=1)

    def initialize(self) -> None:
        super().initialize()
        if hasattr(self, "head_dist"):  # not yet while VisionTransformer's own __init__ runs
            self.head_dist.load_state_dict(self.head.state_dict())


def soft_distillation_loss(
    scores: Tensor, labels: Tensor, teacher_scores: Tensor, temperature: float = 3.0, weight: float = 0.1
) -> Tensor:
    """(1 − λ) CE(ψ(Z_s), y) + λτ² KL(ψ(Z_t/τ) ‖ ψ(Z_s/τ)), ψ the softmax; the mean over the batch, in nats.

    Hinton et al. 2015; Touvron et al. 2021, Eq. 2, whose values of τ (temperature) and λ (weight) are the defaults.
    τ² makes up for the gradients of the second term, which shrink as 1/τ². (B, K), (B,), (B, K) → ().

    Differs: the paper prints the two arguments of KL the other way round; the authors' code computes it as here. That
    code has τ = 1, λ = ½, and divides the divergence by B·K where a mean over pictures divides by B.

    Raises ValueError for shapes and labels that do not fit, unless τ > 0, and unless 0 ≤ λ ≤ 1.
    """
    check_scores(scores, labels, teacher_scores=teacher_scores)
    check_numbers(temperature=temperature, weight=weight)
    if not 0 < temperature < math.inf:
        raise ValueError(f"temperature must be a number above 0, got {temperature}")
    if not 0 <= weight <= 1:
        raise ValueError(f"weight must lie in 0 … 1, got {weight}")
    student = (scores / temperature).log_softmax(dim=-1)
    teacher = (teacher_scores.detach() / temperature).log_softmax(dim=-1)
    divergence = F.kl_div(student, teacher, reduction="batchmean", log_target=True)
    return (1 - weight) * F.cross_entropy(scores, labels) + weight * temperature**2 * divergence


def hard_distillation_loss(scores: Tensor, labels: Tensor, teacher_scores: Tensor) -> Tensor:
    """½ CE(ψ(Z_s), y) + ½ CE(ψ(Z_s), y_t) with y_t = argmax Z_t: the teacher's choice is a second label.

    Touvron et al. 2021, Eq. 3. The mean over the batch, in nats. (B, K), (B,), (B, K) → (). Raises ValueError for
    shapes and labels that do not fit.
    """
    return token_distillation_loss(scores, scores, labels, teacher_scores)


def token_distillation_loss(
    class_scores: Tensor, distillation_scores: Tensor, labels: Tensor, teacher_scores: Tensor
) -> Tensor:
    """Hard distillation with a token: the class head hears the label, the distillation head the teacher's choice.

    ½ CE(ψ(Z_class), y) + ½ CE(ψ(Z_dist), y_t) with y_t = argmax Z_t. Touvron et al. 2021, section 4. The mean over the
    batch, in nats. (B, K), (B, K), (B,), (B, K) → (). Raises ValueError for shapes and labels that do not fit.
    """
    check_scores(class_scores, labels, distillation_scores=distillation_scores, teacher_scores=teacher_scores)
    choice = teacher_scores.argmax(dim=-1)
    return (F.cross_entropy(class_scores, labels) + F.cross_entropy(distillation_scores, choice)) / 2


def late_fusion(class_scores: Tensor, distillation_scores: Tensor) -> Tensor:
    """The paper's way to use both heads: the mean of their probabilities. (B, K), (B, K) → (B, K), rows sum to 1.

    Touvron et al. 2021, section 4. Differs: theirs is the sum, which chooses the same classes.
    """
    check_same_shape(class_scores, distillation_scores=distillation_scores)
    return (class_scores.softmax(dim=-1) + distillation_scores.softmax(dim=-1)) / 2


def check_scores(scores: Tensor, labels: Tensor, **others: Tensor) -> None:
    """Raise ValueError unless the others are shaped like scores, (B, K), and labels, (B,), are classes 0 … K − 1.

    What labels there are is seen on the CPU alone: a GPU would have to be waited for.
    """
    check_same_shape(scores, **others)
    batch, num_classes = scores.shape
    check_tensors(labels=labels)
    if labels.shape != (batch,) or labels.dtype != torch.int64:
        got = f"{labels.dtype} of shape {tuple(labels.shape)}"
        raise ValueError(f"labels must be int64 of shape (B,) = ({batch},), got {got}")
    if labels.device.type == "cpu" and (labels.min() < 0 or labels.max() >= num_classes):
        got = f"{labels.min().item()} … {labels.max().item()}"
        raise ValueError(f"labels must lie in 0 … K − 1 = {num_classes - 1}, got {got}")


def check_same_shape(scores: Tensor, **others: Tensor) -> None:
    """Raise ValueError unless scores has shape (B, K), with pictures and classes in it, and the others the same."""
    check_floats(scores=scores)
    check_tensors(**others)
    if scores.ndim != 2 or 0 in scores.shape:
        raise ValueError(f"scores must have shape (B, K), neither of them 0, got {tuple(scores.shape)}")
    for name, other in others.items():
        if other.shape != scores.shape:
            raise ValueError(f"{name} must have shape (B, K) = {tuple(scores.shape)}, got {tuple(other.shape)}")
    check_floats(**others)

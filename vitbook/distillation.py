"""Learning from a teacher: a second token for what the teacher says, and the losses that listen to it.

Touvron et al. 2021 (DeiT). Logits have the shape (B, K), labels are classes, (B,); λ and τ are the paper's. The teacher
is any classifier of the same K classes, and no gradient reaches it.
"""

import math
from collections.abc import Sequence
from copy import deepcopy

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from vitbook.embedding import ImageEmbedding
from vitbook.multihead import Tokens
from vitbook.patches import HybridEmbedding, Images, PatchEmbedding
from vitbook.positions import POSITIONS
from vitbook.vit import Logits, Vectors, VisionTransformer, ViTConfig

Labels = Int64[Tensor, " batch"]
Loss = Float[Tensor, ""]


class DistilledEmbedding(ImageEmbedding):
    """Equation 1 with one more token: [x_class; x_dist; x_p¹E; …; x_pᴺE] + E_pos. (B, C, H, W) → (B, N + 2, D).

    Touvron et al. 2021, section 4. Arguments and errors as in `ImageEmbedding`; there is always a class token. The
    order is that of the authors' code; their figure draws the new token last.
    """

    def __init__(
        self,
        patch_embed: PatchEmbedding | HybridEmbedding,
        image_size: Sequence[int],
        dim: int,
        positions: str = "learned",
        dropout: float = 0.0,
    ):
        super().__init__(patch_embed, image_size, dim, positions=positions, dropout=dropout)
        self.dist_token = nn.Parameter(torch.empty(1, 1, dim).normal_(std=0.02))
        self.positions = POSITIONS[positions](self.grid, dim, num_prefix_tokens=2)

    @property
    def prefix_tokens(self) -> list[Tensor]:
        return [*super().prefix_tokens, self.dist_token]


class DistilledVisionTransformer(VisionTransformer):
    """A Vision Transformer that hears a label through one token and a teacher through another. (B, C, H, W) → (B, K).

    Touvron et al. 2021, section 4. `both_heads` is for training, `forward` for use: the mean of the two heads' logits,
    as in the authors' code. Differs: their forward returns the pair while in training mode. The paper adds two
    softmaxes instead of logits: `late_fusion`.

    Weights start as in `VisionTransformer`, both heads at zero. Raises ValueError unless config.pool is "class".
    """

    def __init__(self, config: ViTConfig, patch_embed: PatchEmbedding | HybridEmbedding | None = None):
        if config.pool != "class":
            raise ValueError(f"the distillation token stands beside a class token: pool 'class', got {config.pool!r}")
        super().__init__(config, patch_embed)
        c = self.config
        self.embedding = DistilledEmbedding(
            self.embedding.patch_embed, c.sides, c.dim, positions=c.positions, dropout=c.dropout
        )
        self.head_dist = deepcopy(self.head)

    def both_heads(self, images: Images) -> tuple[Logits, Logits]:
        """The class token's logits, and the distillation token's."""
        z = self.tokens(images)
        return self.head(z[:, 0]), self.head_dist(z[:, 1])

    def logits(self, z: Tokens) -> Logits:
        return (self.head(z[:, 0]) + self.head_dist(z[:, 1])) / 2

    def pool(self, z: Tokens) -> Vectors:
        """One vector an image, for other heads: the mean of the two tokens, as in timm."""
        return z[:, :2].mean(dim=1)

    def initialize(self) -> None:
        super().initialize()
        if hasattr(self, "head_dist"):  # not yet while VisionTransformer's own __init__ runs
            self.head_dist.load_state_dict(self.head.state_dict())


def soft_distillation_loss(
    logits: Logits, labels: Labels, teacher_logits: Logits, temperature: float = 3.0, weight: float = 0.1
) -> Loss:
    """(1 − λ) CE(ψ(Z_s), y) + λτ² KL(ψ(Z_t/τ) ‖ ψ(Z_s/τ)), ψ the softmax; the mean over the batch, in nats.

    Hinton et al. 2015; Touvron et al. 2021, Eq. 2, whose values of τ (temperature) and λ (weight) are the defaults.
    τ² makes up for the gradients of the second term, which shrink as 1/τ². Computed in float32 at least.

    Differs: the paper prints the two arguments of KL the other way round; the authors' code computes it as here. That
    code has τ = 1, λ = ½, and divides the divergence by B·K where a mean over images divides by B.

    Raises ValueError for shapes that differ, unless τ > 0, and unless 0 ≤ λ ≤ 1.
    """
    if not (0 < temperature < math.inf and 0 <= weight <= 1):
        raise ValueError(f"temperature must be above 0 and weight in 0 … 1, got {temperature} and {weight}")
    logits, teacher_logits = _comparable(logits, teacher_logits.detach())
    student = (logits / temperature).log_softmax(dim=-1)
    teacher = (teacher_logits / temperature).log_softmax(dim=-1)
    divergence = F.kl_div(student, teacher, reduction="batchmean", log_target=True)
    return (1 - weight) * F.cross_entropy(logits, labels) + weight * temperature**2 * divergence


def hard_distillation_loss(logits: Logits, labels: Labels, teacher_logits: Logits) -> Loss:
    """½ CE(ψ(Z_s), y) + ½ CE(ψ(Z_s), y_t) with y_t = argmax Z_t: the teacher's choice is a second label.

    Touvron et al. 2021, Eq. 3. The mean over the batch, in nats. Raises ValueError for shapes that differ.
    """
    return token_distillation_loss(logits, logits, labels, teacher_logits)


def token_distillation_loss(
    class_logits: Logits, distillation_logits: Logits, labels: Labels, teacher_logits: Logits
) -> Loss:
    """Hard distillation with a token: the class head hears the label, the distillation head the teacher's choice.

    ½ CE(ψ(Z_class), y) + ½ CE(ψ(Z_dist), y_t) with y_t = argmax Z_t. Touvron et al. 2021, section 4. The mean over the
    batch, in nats, computed in float32 at least. Raises ValueError for shapes that differ.
    """
    class_logits, distillation_logits, teacher_logits = _comparable(class_logits, distillation_logits, teacher_logits)
    choice = teacher_logits.argmax(dim=-1)
    return (F.cross_entropy(class_logits, labels) + F.cross_entropy(distillation_logits, choice)) / 2


def late_fusion(class_logits: Logits, distillation_logits: Logits) -> Logits:
    """The paper's way to use both heads: the mean of their probabilities. Rows sum to 1.

    Touvron et al. 2021, section 4. Differs: theirs is the sum, which chooses the same classes.
    """
    class_logits, distillation_logits = _comparable(class_logits, distillation_logits)
    return (class_logits.softmax(dim=-1) + distillation_logits.softmax(dim=-1)) / 2


def _comparable(*logits: Tensor) -> list[Logits]:
    """The same logits in float32 at least: in float16 the difference of two may be infinite.

    Raises ValueError unless all have one shape (B, K), not empty: torch would broadcast.
    """
    first = logits[0]
    if first.ndim != 2 or not first.numel() or any(one.shape != first.shape for one in logits):
        got = ", ".join(str(tuple(one.shape)) for one in logits)
        raise ValueError(f"logits must all have the same shape (B, K), not empty, got {got}")
    return [one.to(torch.promote_types(one.dtype, torch.float32)) for one in logits]

"""The block of today: rotary positions, RMSNorm, QK-norm, LayerScale, SwiGLU, registers, attention pooling.

Each is a small change of the Vision Transformer of 2021, and a field of `ModernConfig` that is off unless set.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from vitbook._common.validation import check_choice, check_kind, check_sizes
from vitbook.embedding import ImageEmbedding
from vitbook.encoder import MLP, EncoderBlock
from vitbook.multihead import Heads, MultiHeadSelfAttention, Tokens
from vitbook.patches import HybridEmbedding, Images, PatchEmbedding, grid_size
from vitbook.positions import POSITIONS, Grid, rows_beside_columns
from vitbook.transformer import MultiHeadCrossAttention
from vitbook.vit import VisionTransformer, ViTConfig

Angles = Float[Tensor, "tokens pairs"]
ACTIVATIONS = {"gelu": nn.GELU, "gelu_tanh": lambda: nn.GELU(approximate="tanh"), "quick_gelu": lambda: QuickGELU()}
ACTIVATIONS |= {"relu": nn.ReLU, "silu": nn.SiLU}


def rotate(x: Float[Tensor, "*batch tokens d"], angles: Angles) -> Float[Tensor, "*batch tokens d"]:
    """Turn pairs of entries by angles: (a, b) → (a cos θ − b sin θ, a sin θ + b cos θ). Angles (T, D_h/2) in radians.

    Su et al. 2021 ("RoFormer"), Eq. 15. Entry i is paired with entry i + D_h/2, as in DINOv3. Differs: the paper pairs
    neighbors, 2i with 2i + 1.
    """
    a, b = x.chunk(2, dim=-1)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


def rotary_angles(grid: Grid, head_dim: int, base: float = 100.0) -> Float[Tensor, "patches pairs"]:
    """How far each patch turns each pair: half of the pairs by its row, half by its column. → (N, D_h/2), radians.

    Heo et al. 2024, "axial", with DINOv3's coordinates: the centers of patches lie between −1 and 1 along each side, so
    that another image size has the same range, and pair i turns by 2π · base^(−4i/D_h) for each unit. Differs: Heo et
    al. count patches, 0, 1, 2, … Raises ValueError where head_dim is not divisible by 4.
    """
    if head_dim % 4:
        raise ValueError(f"pairs for rows and for columns: the width of a head must be divisible by 4, got {head_dim}")
    frequency = 2 * math.pi * base ** (-torch.arange(0, head_dim, 4, dtype=torch.float64) / head_dim)  # of each pair
    centers = [(2 * torch.arange(n) + 1) / n - 1 for n in grid]  # of patches, from −1 to 1, along each side
    rows, columns = (center.double().unsqueeze(1) * frequency for center in centers)  # (n, D_h/4): patch, pair
    return rows_beside_columns(rows, columns).to(torch.get_default_dtype())


class RMSNorm(nn.Module):
    """x / √(mean x² + ε) · γ over the last axis: LayerNorm without the mean and without a bias. (..., D) → (..., D).

    Zhang and Sennrich 2019.
    """

    def __init__(self, dim: int, eps: float = 1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Float[Tensor, "*tokens dim"]) -> Float[Tensor, "*tokens dim"]:
        return x * (x.square().mean(dim=-1, keepdim=True) + self.eps).rsqrt() * self.weight


class ModernAttention(MultiHeadSelfAttention):
    """Multi-head self-attention whose queries and keys may be normalized and turned. (B, T, D) → (B, T, D).

    qk_norm: an RMSNorm over each query and each key of each head, so that with gains γ no score exceeds √D_h · max|γ_q|
    · max|γ_k| (as in ViT-22B, arXiv 2302.05442, section 2, a LayerNorm "without bias and centering"). The attribute
    `angles`, (T, D_h/2), turns queries and keys as in `rotate`; None turns nothing. Other arguments as in
    `MultiHeadSelfAttention`.
    """

    angles: Angles | None

    def __init__(
        self,
        dim: int,
        num_heads: int,
        qkv_bias: bool = True,
        attention_dropout: float = 0.0,
        dropout: float = 0.0,
        qk_norm: bool = False,
    ):
        super().__init__(dim, num_heads, qkv_bias, attention_dropout, dropout)
        self.q_norm, self.k_norm = (RMSNorm(dim // num_heads) if qk_norm else nn.Identity() for _ in range(2))
        self.register_buffer("angles", None, persistent=False)

    def project(self, x: Tokens) -> tuple[Heads, Heads, Heads]:
        """Queries, keys and values of every head."""
        q, k, v = super().project(x)
        q, k = self.q_norm(q), self.k_norm(k)
        return (q, k, v) if self.angles is None else (rotate(q, self.angles), rotate(k, self.angles), v)


class ScaledLinear(nn.Linear):
    """LayerScale: γ ⊙ (xW + b), γ a learned number for each entry of the output. (..., D_in) → (..., D_out).

    CaiT (arXiv 2103.17239), section 2, for the last linear map of a branch, where γ ⊙ branch(x) belongs.
    scale: what every γ begins as.
    """

    def __init__(self, in_features: int, out_features: int, scale: float = 1e-5):
        super().__init__(in_features, out_features)
        self.gamma = nn.Parameter(torch.full((out_features,), float(scale)))

    def forward(self, input: Float[Tensor, "*tokens dim"]) -> Float[Tensor, "*tokens out"]:
        return self.gamma * super().forward(input)


class QuickGELU(nn.Module):
    """x·σ(1.702x), an approximation of the GELU that CLIP was trained with (Hendrycks & Gimpel 2016)."""

    def forward(self, x: Tensor) -> Tensor:
        return x * (1.702 * x).sigmoid()


class SwiGLU(nn.Module):
    """(SiLU(xW) ⊙ xV)W₂: an MLP in which one map opens and closes the other. (..., D) → (..., D).

    Shazeer 2020, Eq. 6; SiLU(x) = x·σ(x). fc1 holds W and V side by side. With two thirds of an MLP's hidden width it
    has as many weights. Differs: the paper has no biases.
    """

    def __init__(self, dim: int, hidden_dim: int, dropout: float = 0.0):
        super().__init__()
        self.fc1 = nn.Linear(dim, 2 * hidden_dim)
        self.fc2 = nn.Linear(hidden_dim, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Float[Tensor, "*tokens dim"]) -> Float[Tensor, "*tokens dim"]:
        gate, value = self.fc1(x).chunk(2, dim=-1)
        return self.dropout(self.fc2(self.dropout(F.silu(gate) * value)))


class AttentionPooling(nn.Module):
    """One learned query looks at all patches; an MLP on what it finds. (B, N, D) → (B, D).

    Zhai et al. 2022 ("Scaling Vision Transformers"), as in SigLIP: y = MHA(probe, z), then y + MLP(LN(y)).
    """

    def __init__(self, dim: int, num_heads: int, mlp_dim: int, eps: float = 1e-6):
        super().__init__()
        self.probe = nn.Parameter(torch.empty(1, 1, dim).normal_(std=0.02))
        self.attn = MultiHeadCrossAttention(dim, num_heads)
        self.norm = nn.LayerNorm(dim, eps=eps)
        self.mlp = MLP(dim, mlp_dim)

    def forward(self, z: Tokens) -> Float[Tensor, "batch dim"]:
        y = self.attn(self.probe.expand(z.shape[0], -1, -1), z)
        return (y + self.mlp(self.norm(y))).squeeze(1)


@dataclass(frozen=True)
class ModernConfig(ViTConfig):
    """A `ViTConfig` and what came after it; the defaults are the plain model. Raises ValueError as it does."""

    norm: str = "layer"  # or "rms"
    norm_eps: float = 1e-6
    rotary_base: float | None = None  # of `rotary_angles`; None for no rotary positions. They may stand beside others
    qk_norm: bool = False
    layer_scale: float | None = None  # what γ begins as; None for none
    swiglu: bool = False  # mlp_dim is then its hidden width
    activation: str = "gelu"  # of the MLP, a key of ACTIVATIONS
    registers: int = 0  # learned tokens without a patch
    attention_pool: bool = False  # what the head sees is an `AttentionPooling` of the patches
    embedding_norm: bool = False  # LayerNorm before the first block, as in CLIP
    fc_norm: bool = False  # the last norm sees what was pooled and not every token, as in timm's models of that name
    class_and_mean: bool = False  # the head sees both, side by side, as in classifiers of DINOv2

    def __post_init__(self):
        super().__post_init__()
        check_choice("norm", self.norm, NORMS)
        check_choice("activation", self.activation, ACTIVATIONS)
        check_sizes(0, registers=self.registers)
        switches = ("qk_norm", "swiglu", "attention_pool", "embedding_norm", "fc_norm", "class_and_mean")
        check_kind(bool, **{name: getattr(self, name) for name in switches})
        if self.rotary_base is not None:
            rotary_angles((1, 1), self.dim // self.num_heads, self.rotary_base)


NORMS = {"layer": nn.LayerNorm, "rms": RMSNorm}


class ModernBlock(EncoderBlock):
    """The block of Equations 2 and 3, made of the parts that the config names. (B, T, D) → (B, T, D)."""

    def __init__(self, config: ModernConfig, drop_path: float = 0.0):
        c = config
        super().__init__(c.dim, c.num_heads, c.mlp_dim, c.dropout, drop_path=drop_path)
        self.norm1, self.norm2 = (NORMS[c.norm](c.dim, eps=c.norm_eps) for _ in range(2))
        self.attn = ModernAttention(c.dim, c.num_heads, c.qkv_bias, c.attention_dropout, c.dropout, c.qk_norm)
        if c.swiglu:
            self.mlp = SwiGLU(c.dim, c.mlp_dim, c.dropout)
        else:
            self.mlp.act = ACTIVATIONS[c.activation]()
        if c.layer_scale is not None:
            self.attn.proj = ScaledLinear(c.dim, c.dim, c.layer_scale)
            self.mlp.fc2 = ScaledLinear(c.mlp_dim, c.dim, c.layer_scale)


class ModernEmbedding(ImageEmbedding):
    """Equation 1 with registers between the class token and the patches. (B, C, H, W) → (B, T, D).

    Darcet et al. 2024. They start apart: equal registers without positions would have equal gradients, and stay equal.
    Differs: where positions are learned, a register has one too, which adds nothing that it could not learn itself.
    """

    def __init__(self, patch_embed: PatchEmbedding | HybridEmbedding, config: ModernConfig):
        c = config
        super().__init__(patch_embed, c.sides, c.dim, c.class_token, c.positions, c.dropout)
        registers = torch.empty(1, c.registers, c.dim).normal_(std=0.02)
        self.register_tokens = nn.Parameter(registers) if c.registers else None
        self.positions = POSITIONS[c.positions](self.grid, c.dim, num_prefix_tokens=len(self.prefix_tokens))
        self.norm = nn.LayerNorm(c.dim, eps=c.norm_eps) if c.embedding_norm else nn.Identity()

    @property
    def prefix_tokens(self) -> list[Tensor]:
        registers = () if self.register_tokens is None else self.register_tokens.split(1, dim=1)
        return [*super().prefix_tokens, *registers]

    def forward(self, images: Images, any_size: bool = False) -> Tokens:
        return self.norm(super().forward(images, any_size))


class ModernViT(VisionTransformer):
    """A Vision Transformer with any of the parts above. (B, C, H, W) → (B, K).

    Registers come out of `tokens` after the class token, and nothing else sees them: features, logits and maps of
    patches keep their shapes. Weights start as in `VisionTransformer`.
    """

    config: ModernConfig  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, config: ModernConfig, patch_embed: PatchEmbedding | HybridEmbedding | None = None):
        super().__init__(config, patch_embed)
        c = self.config
        self.embedding = ModernEmbedding(self.embedding.patch_embed, c)
        rates = (c.drop_path * block / c.depth for block in range(1, c.depth + 1))
        self.encoder.blocks = nn.ModuleList(ModernBlock(c, rate) for rate in rates)
        norm = NORMS[c.norm](c.dim, eps=c.norm_eps)
        self.norm, self.fc_norm = (nn.Identity(), norm) if c.fc_norm else (norm, nn.Identity())
        if c.class_and_mean and c.num_classes:
            self.head = nn.Linear(2 * c.dim, c.num_classes)
        if c.attention_pool:
            self.pooling = AttentionPooling(c.dim, c.num_heads, c.mlp_dim, c.norm_eps)
            self.pooling.mlp.act = ACTIVATIONS[c.activation]()
        self.initialize()
        self._turn(self.embedding.grid)

    def tokens(self, images: Images, any_size: bool = False) -> Tokens:
        """As in `VisionTransformer`; rotary positions are those of the images' own grid."""
        if not any_size:
            return super().tokens(images)
        own = [block.attn.angles for block in self.encoder.blocks]
        self._turn(grid_size(images.shape[2:], self.config.patch_size))
        try:
            return super().tokens(images, any_size)
        finally:
            for block, angles in zip(self.encoder.blocks, own, strict=True):
                block.attn.angles = angles

    def pool(self, z: Tokens) -> Float[Tensor, "batch width"]:
        """What the attention pooling finds among the patches, or as in `VisionTransformer`, or both."""
        if self.config.attention_pool:
            return self.pooling(z[:, len(self.embedding.prefix_tokens) :])
        if self.config.class_and_mean:
            return torch.cat([z[:, 0], z[:, len(self.embedding.prefix_tokens) :].mean(dim=1)], dim=1)
        return self.fc_norm(super().pool(z))

    def resize(self, image_size: int | tuple[int, int]) -> None:
        """As in `VisionTransformer`; rotary positions are computed again, with nothing to interpolate."""
        super().resize(image_size)
        self._turn(self.embedding.grid)

    def initialize(self) -> None:
        """As in `VisionTransformer`; the pooling's maps are drawn like those of the encoder."""
        super().initialize()
        for module in self.pooling.modules() if hasattr(self, "pooling") else ():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)

    def _turn(self, grid: Grid) -> None:
        """Give every attention the angles of a grid; tokens before the patches are not turned."""
        c = self.config
        if c.rotary_base is not None:
            angles = rotary_angles(grid, c.dim // c.num_heads, c.rotary_base)
            angles = F.pad(angles, (0, 0, len(self.embedding.prefix_tokens), 0)).to(next(self.parameters()))
            for block in self.encoder.blocks:
                block.attn.angles = angles

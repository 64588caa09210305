"""Equation 4 and the whole model: y = LN(z_L⁰), and a linear head. The table of sizes."""

import math
from dataclasses import dataclass, fields, replace
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from vitbook._common.suggestions import unknown
from vitbook._common.validation import (
    check_choice,
    check_grids,
    check_kind,
    check_several,
    check_shares,
    check_sizes,
    is_whole,
)
from vitbook.embedding import ImageEmbedding
from vitbook.encoder import LAYER_NORM_EPS, Encoder
from vitbook.multihead import Tokens, width_of_heads
from vitbook.patches import HybridEmbedding, Images, PatchEmbedding, conv_stem, grid_size, stem_stride
from vitbook.positions import POSITIONS

_POOLS = ("class", "mean")
Vectors = Float[Tensor, "batch dim"]  # one for each image
Logits = Float[Tensor, "batch classes"]


@dataclass(frozen=True)
class ViTConfig:
    """Everything that fixes a Vision Transformer's shape. Raises ValueError where the numbers do not fit together."""

    image_size: int | tuple[int, int] = 224  # height and width in pixels; one number for a square
    patch_size: int = 16  # P, in pixels
    channels: int = 3  # C
    num_classes: int = 1000  # K; 0 for no head: the model gives features
    dim: int = 768  # D, the width of every token
    depth: int = 12  # L, the number of blocks
    num_heads: int = 12  # h, each D/h wide
    mlp_dim: int = 3072  # hidden width of the MLP, 4D in the paper
    stem: tuple[int, ...] = ()  # widths of a `conv_stem` under the patches: the hybrid; none in the plain model
    pool: str = "class"  # what the head sees: the class token, or the mean of the patches
    class_token: bool = True  # whether there is one
    positions: str = "learned"  # a key of vitbook.positions.POSITIONS
    qkv_bias: bool = True
    dropout: float = 0.0  # after the embedding, the attention and both maps of the MLP
    attention_dropout: float = 0.0  # on the attention weights
    drop_path: float = 0.0  # probability of dropping a branch of the last block in training; smaller for earlier ones

    def __post_init__(self):
        whole = ("patch_size", "channels", "dim", "depth", "num_heads", "mlp_dim")
        check_sizes(**{name: getattr(self, name) for name in whole})
        check_sizes(0, num_classes=self.num_classes)
        check_several(stem=self.stem)
        size: Any = (self.image_size,) * 2 if is_whole(self.image_size) else self.image_size
        check_grids(image_size=size)
        object.__setattr__(self, "image_size", tuple(size))
        object.__setattr__(self, "stem", tuple(self.stem))  # JSON has lists alone
        check_shares(dropout=self.dropout, attention_dropout=self.attention_dropout, drop_path=self.drop_path)
        check_choice("positions", self.positions, POSITIONS)
        check_choice("pool", self.pool, _POOLS)
        check_kind(bool, class_token=self.class_token, qkv_bias=self.qkv_bias)
        if self.pool == "class" and not self.class_token:
            raise ValueError("pool 'class' needs class_token=True; without a class token use pool='mean'")
        if self.patch_size % stem_stride(self.stem):
            raise ValueError(f"a stem of stride {stem_stride(self.stem)} does not divide patch_size {self.patch_size}")
        width_of_heads(self.dim, self.num_heads)
        grid_size(self.sides, self.patch_size)

    @property
    def sides(self) -> tuple[int, int]:
        """`image_size` as height and width."""
        return (self.image_size, self.image_size) if isinstance(self.image_size, int) else self.image_size


class VisionTransformer(nn.Module):
    """The Vision Transformer. (B, C, H, W) → (B, K).

    Dosovitskiy et al. 2021, Eqs. 1–4. `tokens` is the backbone, `features` what the head sees, `forward` the logits of
    the K classes; a softmax makes them probabilities. All three take `any_size`, as in `ImageEmbedding`.

    Weights start as in the authors' code: Xavier-uniform for every linear map of the encoder (Q, K and V each
    separately), the patch projection normal with variance 1/(P²C), positions normal with standard deviation 0.02,
    biases zero, and the head all zeros, so that the first loss is ln K. Differs: the biases of their MLPs start near
    1e-6, and their patch projection has no entry beyond 2.3 standard deviations.
    """

    def __init__(self, config: ViTConfig, patch_embed: PatchEmbedding | HybridEmbedding | None = None):
        """patch_embed: replaces that of the config, for instance a `HybridEmbedding` on a stem of your own."""
        super().__init__()
        c = self.config = config
        patch_embed = _make_patch_embed(c) if patch_embed is None else patch_embed
        self.embedding = ImageEmbedding(patch_embed, c.sides, c.dim, c.class_token, c.positions, c.dropout)
        self.encoder = Encoder(
            c.dim, c.depth, c.num_heads, c.mlp_dim, c.dropout, c.attention_dropout, c.qkv_bias, c.drop_path
        )
        self.norm = nn.LayerNorm(c.dim, eps=LAYER_NORM_EPS)
        self.head = nn.Linear(c.dim, c.num_classes) if c.num_classes else nn.Identity()
        self.initialize()

    def tokens(self, images: Images, any_size: bool = False) -> Tokens:
        """Every token after the last LayerNorm, class token first. (B, C, H, W) → (B, T, D)."""
        z = self.embedding(images, any_size)  # Eq. 1
        z = self.encoder(z)  # Eqs. 2 and 3, L times
        return self.norm(z)  # Eq. 4

    def pool(self, z: Tokens) -> Vectors:
        """One vector for each image's tokens: the class token, or the mean of the patches alone. (B, T, D) → (B, D)."""
        if self.config.pool == "class":
            return z[:, 0]
        return z[:, len(self.embedding.prefix_tokens) :].mean(dim=1)

    def logits(self, z: Tokens) -> Logits:
        """What the head says of each image's tokens. (B, T, D) → (B, K)."""
        return self.head(self.pool(z))

    def features(self, images: Images, any_size: bool = False) -> Vectors:
        """What the head sees of each image. (B, C, H, W) → (B, D)."""
        return self.pool(self.tokens(images, any_size))

    def forward(self, images: Images, any_size: bool = False) -> Logits:
        return self.logits(self.tokens(images, any_size))

    def resize(self, image_size: int | tuple[int, int]) -> None:
        """Make the model take images of another size: its positions are interpolated in place, the rest stays.

        Learned positions are then a new parameter, which an optimizer made before does not know.
        """
        config = replace(self.config, image_size=image_size)
        self.embedding.resize(config.sides)
        self.config = config

    def initialize(self) -> None:
        """Draw the maps of the encoder and of the patches again; biases and head become zero, all else stays."""
        for block in self.encoder.blocks:
            attn, mlp = block.attn, block.mlp
            for weight in (*attn.qkv.weight.chunk(3), attn.proj.weight, mlp.fc1.weight, mlp.fc2.weight):
                nn.init.xavier_uniform_(weight)
            for linear in (attn.qkv, attn.proj, mlp.fc1, mlp.fc2):
                if linear.bias is not None:
                    nn.init.zeros_(linear.bias)
        if isinstance(self.embedding.patch_embed, PatchEmbedding):
            projection = self.embedding.patch_embed.proj
            nn.init.trunc_normal_(projection.weight, std=math.sqrt(1 / projection.weight[0].numel()))
            nn.init.zeros_(projection.get_parameter("bias"))
        if isinstance(self.head, nn.Linear):
            nn.init.zeros_(self.head.weight)
            nn.init.zeros_(self.head.bias)


def _make_patch_embed(config: ViTConfig) -> PatchEmbedding | HybridEmbedding:
    """The linear patch embedding; or, where the config has a stem, that of the stem's map."""
    if not config.stem:
        return PatchEmbedding(config.patch_size, config.channels, config.dim)
    stem, stride = conv_stem(config.channels, config.stem), stem_stride(config.stem)
    return HybridEmbedding(stem, config.stem[-1], stride, config.dim, config.patch_size // stride)


CONFIGS = {
    # Dosovitskiy et al. 2021, Table 1 (B, L, H); Touvron et al. 2021, Table 1 (Ti, S); Steiner et al. 2022 (S/32)
    "vit_ti_16": ViTConfig(patch_size=16, dim=192, depth=12, num_heads=3, mlp_dim=768),
    "vit_s_16": ViTConfig(patch_size=16, dim=384, depth=12, num_heads=6, mlp_dim=1536),
    "vit_s_32": ViTConfig(patch_size=32, dim=384, depth=12, num_heads=6, mlp_dim=1536),
    "vit_b_16": ViTConfig(patch_size=16, dim=768, depth=12, num_heads=12, mlp_dim=3072),
    "vit_b_32": ViTConfig(patch_size=32, dim=768, depth=12, num_heads=12, mlp_dim=3072),
    "vit_l_16": ViTConfig(patch_size=16, dim=1024, depth=24, num_heads=16, mlp_dim=4096),
    "vit_l_32": ViTConfig(patch_size=32, dim=1024, depth=24, num_heads=16, mlp_dim=4096),
    "vit_h_14": ViTConfig(patch_size=14, dim=1280, depth=32, num_heads=16, mlp_dim=5120),
    # small images: scikit-learn's digits, CIFAR; the hybrid of `vitbook:cifar10` and most recipes
    "vit_digits": ViTConfig(
        image_size=8, patch_size=2, channels=1, num_classes=10, dim=64, depth=4, num_heads=4, mlp_dim=128
    ),
    "vit_cifar": ViTConfig(
        image_size=32, patch_size=4, channels=3, num_classes=10, dim=192, depth=9, num_heads=3, mlp_dim=768
    ),
    "hybrid_small": ViTConfig(
        image_size=32, patch_size=4, num_classes=10, dim=128, depth=4, num_heads=4, mlp_dim=256, stem=(64, 64, 128, 128)
    ),
}


def create_vit(name: str, **changes: Any) -> VisionTransformer:
    """A Vision Transformer of a named size, with random weights.

    name: a key of `CONFIGS`; changes: fields of `ViTConfig` to change, such as num_classes=10 or
    image_size=(224, 320). Raises ValueError for an unknown name or field, with the nearest one.
    """
    if name not in CONFIGS:
        raise ValueError(unknown("model", name, CONFIGS))
    known = [field.name for field in fields(ViTConfig)]
    for change in changes:
        if change not in known:
            raise ValueError(unknown("field", change, known))
    return VisionTransformer(replace(CONFIGS[name], **changes))

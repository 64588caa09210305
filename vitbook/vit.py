"""Equation 4 and the whole model: y = LN(z_L⁰), and a linear head. The table of sizes."""

import math
from dataclasses import dataclass, fields, replace
from typing import Any

from torch import Tensor, nn

from vitbook._support.names import unknown
from vitbook._support.validation import check_choice, check_kind, check_lengths, check_numbers, check_sizes, is_whole
from vitbook.embedding import POSITIONS, ImageEmbedding
from vitbook.encoder import LAYER_NORM_EPS, Encoder
from vitbook.patches import HybridEmbedding, PatchEmbedding, conv_stem, grid_size, stem_stride

POOLS = ("class", "mean")


@dataclass(frozen=True)
class ViTConfig:
    """Everything that fixes a Vision Transformer's shape. Raises ValueError where the numbers do not fit together."""

    image_size: int | tuple[int, int] = 224  # height and width in pixels; one number for a square
    patch_size: int = 16  # P, in pixels
    channels: int = 3  # C
    num_classes: int = 1000  # K; 0 leaves the head away: the model gives features
    dim: int = 768  # D, the width of every token
    depth: int = 12  # L, the number of blocks
    num_heads: int = 12  # h, each D/h wide
    mlp_dim: int = 3072  # hidden width of the MLP, 4D in the paper
    stem: tuple[int, ...] = ()  # widths of a `conv_stem` under the patches: the hybrid; none in the plain model
    pool: str = "class"  # what the head sees: the class token, or the mean of the patches
    class_token: bool = True  # whether there is one
    positions: str = "learned"  # a key of vitbook.embedding.POSITIONS
    qkv_bias: bool = True
    dropout: float = 0.0  # after the embedding, the attention and both maps of the MLP
    attention_dropout: float = 0.0  # on the attention weights
    drop_path: float = 0.0  # how likely the last block's branches are left out in training; the first ones' are less so

    def __post_init__(self):
        size = self.image_size
        if is_whole(size):
            size = (size, size)
        check_lengths(None, image_size=size, stem=self.stem)
        object.__setattr__(self, "image_size", tuple(size))
        object.__setattr__(self, "stem", tuple(self.stem))  # JSON has lists alone
        if len(size) != 2 or min(size) < 1:
            raise ValueError(f"image_size must be a number or (height, width), 1 or more, got {self.image_size}")
        for name in ("patch_size", "channels", "dim", "depth", "num_heads", "mlp_dim"):
            check_sizes(**{name: getattr(self, name)})
        if any(width < 1 for width in self.stem):
            raise ValueError(f"stem must be widths of at least 1, got {self.stem}")
        if self.patch_size % stem_stride(self.stem):
            raise ValueError(f"a stem of stride {stem_stride(self.stem)} does not divide patch_size {self.patch_size}")
        check_sizes(0, num_classes=self.num_classes)
        if self.dim % self.num_heads:
            raise ValueError(f"dim {self.dim} is not divisible by num_heads {self.num_heads}")
        check_numbers(dropout=self.dropout, attention_dropout=self.attention_dropout, drop_path=self.drop_path)
        for name in ("dropout", "attention_dropout"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be a probability, 0 to 1, got {getattr(self, name)}")
        if not 0 <= self.drop_path < 1:
            raise ValueError(f"drop_path must be at least 0 and less than 1, got {self.drop_path}")
        check_choice("positions", self.positions, POSITIONS)
        check_choice("pool", self.pool, POOLS)
        check_kind(bool, class_token=self.class_token, qkv_bias=self.qkv_bias)
        if self.pool == "class" and not self.class_token:
            raise ValueError("pool 'class' needs class_token=True; without a class token use pool='mean'")
        grid_size(self.image_size, self.patch_size)


class VisionTransformer(nn.Module):
    """The Vision Transformer. (B, C, H, W) → (B, K).

    Dosovitskiy et al. 2021, Eqs. 1–4. `tokens` is the backbone, `features` what the head sees, `forward` the scores of
    the K classes; a softmax makes them probabilities.

    Weights start as in the authors' code: Xavier-uniform for every linear map of the encoder (Q, K and V each by
    itself), the patch projection normal with variance 1/(P²C), positions normal with standard deviation 0.02, biases
    zero, and the head all zeros, so that the first loss is ln K. Differs: the biases of their MLPs start at some 1e-6,
    and their patch projection has no entry beyond two standard deviations.
    """

    def __init__(self, config: ViTConfig, patch_embed: nn.Module | None = None):
        """patch_embed: stands in for that of the config, for instance a `HybridEmbedding` on a stem of your own."""
        super().__init__()
        check_kind(ViTConfig, config=config)
        c = self.config = config
        self.embedding = ImageEmbedding(
            make_patch_embed(c) if patch_embed is None else patch_embed,
            c.image_size,
            c.dim,
            c.class_token,
            c.positions,
            c.dropout,
        )
        self.encoder = Encoder(
            c.dim,
            c.depth,
            c.num_heads,
            c.mlp_dim,
            dropout=c.dropout,
            attention_dropout=c.attention_dropout,
            qkv_bias=c.qkv_bias,
            drop_path=c.drop_path,
        )
        self.norm = nn.LayerNorm(c.dim, eps=LAYER_NORM_EPS)
        self.head = nn.Linear(c.dim, c.num_classes) if c.num_classes else nn.Identity()
        self.initialise()

    def tokens(self, images: Tensor) -> Tensor:
        """Every token after the last LayerNorm, class token first. (B, C, H, W) → (B, T, D)."""
        z = self.embedding(images)  # Eq. 1
        z = self.encoder(z)  # Eqs. 2 and 3, L times
        return self.norm(z)  # Eq. 4

    def features(self, images: Tensor) -> Tensor:
        """One vector a picture: the class token, or the mean of the patches without it. (B, C, H, W) → (B, D)."""
        z = self.tokens(images)
        if self.config.pool == "class":
            return z[:, 0]
        return z[:, int(self.config.class_token) :].mean(dim=1)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images))

    def resize(self, image_size: int | tuple[int, int]) -> None:
        """Make the model take pictures of another size: its positions are interpolated in place, the rest stays.

        Learned positions are a new parameter then, which an optimiser from before does not know.
        """
        config = replace(self.config, image_size=image_size)
        self.embedding.resize(config.image_size)
        self.config = config

    def initialise(self) -> None:
        """Draw the maps of the encoder and of the patches anew; biases and head become zero, all else stays."""
        for block in self.encoder.blocks:
            for weight in block.attn.qkv.weight.chunk(3):
                nn.init.xavier_uniform_(weight)
            for linear in (block.attn.proj, block.mlp.fc1, block.mlp.fc2):
                nn.init.xavier_uniform_(linear.weight)
            for linear in (block.attn.qkv, block.attn.proj, block.mlp.fc1, block.mlp.fc2):
                if linear.bias is not None:
                    nn.init.zeros_(linear.bias)
        if isinstance(self.embedding.patch_embed, PatchEmbedding):
            projection = self.embedding.patch_embed.proj
            nn.init.trunc_normal_(projection.weight, std=math.sqrt(1 / projection.weight[0].numel()))
            nn.init.zeros_(projection.bias)
        if isinstance(self.head, nn.Linear):
            nn.init.zeros_(self.head.weight)
            nn.init.zeros_(self.head.bias)


def make_patch_embed(config: ViTConfig) -> PatchEmbedding | HybridEmbedding:
    """The linear patch embedding; or, where the config has a stem, that of the stem's map."""
    check_kind(ViTConfig, config=config)
    if not config.stem:
        return PatchEmbedding(config.patch_size, config.channels, config.dim)
    stem, stride = conv_stem(config.channels, config.stem), stem_stride(config.stem)
    return HybridEmbedding(stem, config.stem[-1], stride, config.dim, config.patch_size // stride)


CONFIGS = {
    # Dosovitskiy et al. 2021, Table 1 (B, L, H); Touvron et al. 2021, Table 1 (Ti, S)
    "vit_ti_16": ViTConfig(patch_size=16, dim=192, depth=12, num_heads=3, mlp_dim=768),
    "vit_s_16": ViTConfig(patch_size=16, dim=384, depth=12, num_heads=6, mlp_dim=1536),
    "vit_s_32": ViTConfig(patch_size=32, dim=384, depth=12, num_heads=6, mlp_dim=1536),
    "vit_b_16": ViTConfig(patch_size=16, dim=768, depth=12, num_heads=12, mlp_dim=3072),
    "vit_b_32": ViTConfig(patch_size=32, dim=768, depth=12, num_heads=12, mlp_dim=3072),
    "vit_l_16": ViTConfig(patch_size=16, dim=1024, depth=24, num_heads=16, mlp_dim=4096),
    "vit_l_32": ViTConfig(patch_size=32, dim=1024, depth=24, num_heads=16, mlp_dim=4096),
    "vit_h_14": ViTConfig(patch_size=14, dim=1280, depth=32, num_heads=16, mlp_dim=5120),
    # small pictures: scikit-learn's digits, Fashion-MNIST, CIFAR
    "vit_digits": ViTConfig(
        image_size=8, patch_size=2, channels=1, num_classes=10, dim=64, depth=4, num_heads=4, mlp_dim=128
    ),
    "vit_fashion": ViTConfig(
        image_size=28, patch_size=4, channels=1, num_classes=10, dim=128, depth=6, num_heads=4, mlp_dim=256
    ),
    "vit_cifar": ViTConfig(
        image_size=32, patch_size=4, channels=3, num_classes=10, dim=192, depth=9, num_heads=3, mlp_dim=768
    ),
}


def create_vit(name: str, **changes: Any) -> VisionTransformer:
    """A Vision Transformer of a named size, with random weights.

    name: a key of `CONFIGS`; changes: fields of `ViTConfig` to set otherwise, such as num_classes=10 or
    image_size=(224, 320). Raises ValueError for an unknown name or field, with the nearest one.
    """
    check_kind(str, name=name)
    if name not in CONFIGS:
        raise ValueError(unknown("model", name, CONFIGS))
    known = [field.name for field in fields(ViTConfig)]
    for change in changes:
        if change not in known:
            raise ValueError(unknown("field", change, known))
    return VisionTransformer(replace(CONFIGS[name], **changes))

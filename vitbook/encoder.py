"""Equations 2 and 3: the encoder block, z' = MSA(LN(z)) + z, then z = MLP(LN(z')) + z'."""

from typing import Any

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from vitbook.attention import Mask
from vitbook.multihead import MultiHeadSelfAttention, Tokens

LAYER_NORM_EPS = 1e-6  # of Google's code, timm and torchvision; torch's own default is 1e-5


class MLP(nn.Module):
    """Two linear maps with a GELU between, on each token separately. (..., D) → (..., D).

    Dosovitskiy et al. 2021, section 3.1. Dropout after each of the two maps, as in the authors' code.
    Differs: the exact (erf) GELU of Hendrycks & Gimpel 2016; the authors' JAX code uses its tanh form, which is at most
    4.73e-4 away.

    dim: width D; hidden_dim: width of the layer between, 4D in the paper.
    """

    def __init__(self, dim: int, hidden_dim: int, dropout: float = 0.0):
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden_dim)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(hidden_dim, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Float[Tensor, "*tokens dim"]) -> Float[Tensor, "*tokens dim"]:
        x = self.dropout(self.act(self.fc1(x)))
        return self.dropout(self.fc2(x))


class DropPath(nn.Module):
    """In training, drop a branch for some images and scale it up for the others. (B, T, D) → (B, T, D).

    Stochastic depth, Huang et al. 2016. Each image loses the branch with probability p; the others get 1/(1 − p) times
    its output, so that the mean stays the same. Differs: the paper scales by 1 − p in evaluation instead, and draws
    once a batch.
    """

    def __init__(self, p: float):
        super().__init__()
        self.p = p

    def forward(self, branch: Tokens) -> Tokens:
        if not self.training or self.p == 0:
            return branch
        return branch * F.dropout(branch.new_ones(len(branch), 1, 1), self.p)  # 0 or 1/(1 − p), one for each image

    def extra_repr(self) -> str:
        return f"p={self.p}"


class EncoderBlock(nn.Module):
    """Look around, then think, each added to what was there (pre-norm). (B, T, D) → (B, T, D).

    Dosovitskiy et al. 2021, Eqs. 2 and 3. With mlp_dim = 4D it has 12D² + 13D parameters.

    dim: width D; num_heads: h; mlp_dim: hidden width of the MLP. dropout: on the output of the attention and after both
    maps of the MLP; attention_dropout: on the attention weights; qkv_bias: whether Q, K and V have a bias; drop_path:
    probability of dropping either branch for an image in training.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        mlp_dim: int,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        qkv_bias: bool = True,
        drop_path: float = 0.0,
    ):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=LAYER_NORM_EPS)
        self.attn = MultiHeadSelfAttention(
            dim, num_heads, qkv_bias=qkv_bias, attention_dropout=attention_dropout, dropout=dropout
        )
        self.norm2 = nn.LayerNorm(dim, eps=LAYER_NORM_EPS)
        self.mlp = MLP(dim, mlp_dim, dropout)
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tokens, mask: Mask | None = None) -> Tokens:
        """mask: broadcastable to (B, h, T, T), True where a query may look."""
        x = self.drop_path(self.attn(self.norm1(x), mask)) + x  # Eq. 2
        x = self.drop_path(self.mlp(self.norm2(x))) + x  # Eq. 3
        return x


class Encoder(nn.Module):
    """L blocks, one after the other, each with its own weights. (B, T, D) → (B, T, D).

    depth: L; drop_path: of the last block; it grows evenly, block l of L has l/L of it (Huang et al. 2016, Eq. 4). The
    other arguments as in `EncoderBlock`.
    """

    def __init__(
        self,
        dim: int,
        depth: int,
        num_heads: int,
        mlp_dim: int,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        qkv_bias: bool = True,
        drop_path: float = 0.0,
    ):
        super().__init__()
        self.blocks: Any = nn.ModuleList(
            EncoderBlock(dim, num_heads, mlp_dim, dropout, attention_dropout, qkv_bias, drop_path * block / depth)
            for block in range(1, depth + 1)
        )

    def forward(self, x: Tokens, mask: Mask | None = None) -> Tokens:
        """mask: the same for every block, as in `EncoderBlock`."""
        for block in self.blocks:
            x = block(x, mask)
        return x

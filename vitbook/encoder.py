"""Equations 2 and 3: the encoder block, z' = MSA(LN(z)) + z, then z = MLP(LN(z')) + z'."""

from torch import Tensor, nn

from vitbook.multihead import MultiHeadSelfAttention
from vitbook.self_attention import check_tokens

LAYER_NORM_EPS = 1e-6  # of Google's code, timm and torchvision; torch's own default is 1e-5


class MLP(nn.Module):
    """Two linear maps with a GELU between, on each token by itself. (B, T, D) → (B, T, D).

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

    def forward(self, x: Tensor) -> Tensor:
        x = self.dropout(self.act(self.fc1(x)))
        return self.dropout(self.fc2(x))


class EncoderBlock(nn.Module):
    """Look around, then think, each added to what was there (pre-norm). (B, T, D) → (B, T, D).

    Dosovitskiy et al. 2021, Eqs. 2 and 3. With mlp_dim = 4D it has 12D² + 13D parameters.

    dim: width D; num_heads: h; mlp_dim: hidden width of the MLP. dropout: on the output of the attention and after both
    maps of the MLP; attention_dropout: on the attention weights; qkv_bias: whether Q, K and V have a bias.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        mlp_dim: int,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        qkv_bias: bool = True,
    ):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=LAYER_NORM_EPS)
        self.attn = MultiHeadSelfAttention(dim, num_heads, qkv_bias, attention_dropout, dropout)
        self.norm2 = nn.LayerNorm(dim, eps=LAYER_NORM_EPS)
        self.mlp = MLP(dim, mlp_dim, dropout)

    def forward(self, x: Tensor) -> Tensor:
        check_tokens(x, self.mlp.fc1.in_features)
        x = self.attn(self.norm1(x)) + x  # Eq. 2
        x = self.mlp(self.norm2(x)) + x  # Eq. 3
        return x


class Encoder(nn.Module):
    """L blocks, one after the other; each has weights of its own. (B, T, D) → (B, T, D).

    depth: L; the other arguments as in `EncoderBlock`.
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
    ):
        super().__init__()
        self.blocks = nn.ModuleList(
            EncoderBlock(dim, num_heads, mlp_dim, dropout, attention_dropout, qkv_bias) for _ in range(depth)
        )

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x

"""Multi-head self-attention, built three ways that agree to rounding.

MSA(X) = [SA₁(X); SA₂(X); …; SA_h(X)] W_O (Vaswani et al. 2017, section 3.2.2; Dosovitskiy et al. 2021, Eq. 8):
`ListOfHeads` writes it down as it reads, `MultiHeadSelfAttention` computes all heads in one matrix product and is what
the models use, `HeadShapedAttention` keeps one weight of shape (D, h, D_h) and contracts it, as JAX libraries do.
"""

import torch
from einops import einsum, rearrange
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from vitbook.attention import Mask, attention, quickest_attention
from vitbook.self_attention import SelfAttention

Tokens = Float[Tensor, "batch tokens dim"]
Heads = Float[Tensor, "batch heads tokens head_dim"]


def split_heads(x: Shaped[Tensor, "batch tokens dim"], num_heads: int) -> Shaped[Tensor, "batch heads tokens head_dim"]:
    """Cut each token into h heads. (B, T, h·D_h) → (B, h, T, D_h)."""
    return rearrange(x, "b t (h d) -> b h t d", h=num_heads)


def merge_heads(x: Shaped[Tensor, "batch heads tokens head_dim"]) -> Shaped[Tensor, "batch tokens dim"]:
    """Lay the heads of each token side by side again. (B, h, T, D_h) → (B, T, h·D_h)."""
    return rearrange(x, "b h t d -> b t (h d)")


class MultiHeadSelfAttention(nn.Module):
    """h heads of width D_h = D/h from one fused projection. (B, T, D) → (B, T, D).

    Dosovitskiy et al. 2021, Eqs. 5–8. `forward` runs torch's fused kernel wherever that is quicker; `attend` computes
    the same with the explicit softmax and also returns the weights.

    dim: width D; num_heads: h, which must divide D; qkv_bias: whether the projections to Q, K and V have a bias.
    attention_dropout: probability of dropping a weight; dropout: of dropping an entry of the output; both in training.

    Raises ValueError where num_heads does not divide dim.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        qkv_bias: bool = True,
        attention_dropout: float = 0.0,
        dropout: float = 0.0,
    ):
        super().__init__()
        width_of_heads(dim, num_heads)
        self.num_heads = num_heads
        self.attention_dropout = attention_dropout
        self.qkv = nn.Linear(dim, 3 * dim, bias=qkv_bias)
        self.proj = nn.Linear(dim, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tokens, mask: Mask | None = None) -> Tokens:
        """mask: broadcastable to (B, h, T, T), True where a query may look."""
        q, k, v = self.project(x)
        heads = quickest_attention(q, k, v, mask, dropout_p=self.attention_dropout if self.training else 0.0)
        return self.dropout(self.proj(merge_heads(heads)))

    def attend(self, x: Tokens, mask: Mask | None = None) -> tuple[Tokens, Float[Tensor, "batch heads tokens tokens"]]:
        """The same output from the explicit softmax, and the weights before dropout."""
        q, k, v = self.project(x)
        heads, weights = attention(q, k, v, mask, dropout_p=self.attention_dropout if self.training else 0.0)
        return self.dropout(self.proj(merge_heads(heads))), weights

    def project(self, x: Tokens) -> tuple[Heads, Heads, Heads]:
        """Queries, keys and values of every head."""
        q, k, v = (split_heads(part, self.num_heads) for part in self.qkv(x).chunk(3, dim=-1))
        return q, k, v


class ListOfHeads(nn.Module):
    """h single heads side by side, concatenated, projected by W_O: the equation as it reads. (B, T, D) → (B, T, D)."""

    def __init__(self, dim: int, num_heads: int, qkv_bias: bool = True):
        super().__init__()
        head_dim = width_of_heads(dim, num_heads)
        self.heads = nn.ModuleList(SelfAttention(dim, head_dim, bias=qkv_bias) for _ in range(num_heads))
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Tokens, mask: Mask | None = None) -> Tokens:
        """mask: broadcastable to (B, T, T), the same for every head."""
        outputs = [head(x, mask)[0] for head in self.heads]
        return self.proj(torch.cat(outputs, dim=-1))

    @classmethod
    @torch.no_grad()
    def from_fused(cls, msa: MultiHeadSelfAttention) -> "ListOfHeads":
        """The same map as `msa`, its weights dealt out head by head."""
        dim = msa.proj.in_features
        twin = cls(dim, msa.num_heads, qkv_bias=msa.qkv.bias is not None).to(msa.qkv.weight)
        for name, fused in msa.qkv.named_parameters():  # weight (3D, D) and, with a bias, bias (3D)
            dealt = rearrange(fused, "(three h d) ... -> h three d ...", three=3, h=msa.num_heads)
            for head, parts in zip(twin.heads, dealt, strict=True):
                for linear, part in zip(("query", "key", "value"), parts, strict=True):
                    head.get_parameter(f"{linear}.{name}").copy_(part)
        twin.proj.load_state_dict(msa.proj.state_dict())
        return twin


class HeadShapedAttention(nn.Module):
    """Weights shaped by head, (D, h, D_h), contracted directly: no split, no merge. (B, T, D) → (B, T, D).

    The layout of JAX libraries and of Google's ViT checkpoints.
    """

    def __init__(self, dim: int, num_heads: int, qkv_bias: bool = True):
        super().__init__()
        head_dim = width_of_heads(dim, num_heads)
        bound = dim**-0.5
        self.qkv_weight = nn.Parameter(torch.empty(3, dim, num_heads, head_dim).uniform_(-bound, bound))
        self.qkv_bias = nn.Parameter(torch.zeros(3, num_heads, 1, head_dim)) if qkv_bias else None
        self.out_weight = nn.Parameter(torch.empty(num_heads, head_dim, dim).uniform_(-bound, bound))
        self.out_bias = nn.Parameter(torch.zeros(dim))

    def forward(self, x: Tokens, mask: Mask | None = None) -> Tokens:
        """mask: broadcastable to (B, h, T, T). Raises ValueError for tokens of another width, which einsum may take."""
        if x.shape[-1] != self.qkv_weight.shape[1]:
            raise ValueError(f"tokens must have width {self.qkv_weight.shape[1]}, got {x.shape[-1]}")
        qkv = einsum(x, self.qkv_weight, "b t D, three D h d -> three b h t d")
        if self.qkv_bias is not None:
            qkv = qkv + self.qkv_bias.unsqueeze(1)
        heads, _ = attention(qkv[0], qkv[1], qkv[2], mask)
        return einsum(heads, self.out_weight, "b h t d, h d D -> b t D") + self.out_bias

    @classmethod
    @torch.no_grad()
    def from_fused(cls, msa: MultiHeadSelfAttention) -> "HeadShapedAttention":
        """The same map as `msa`, its weights given a head axis."""
        twin = cls(msa.proj.in_features, msa.num_heads, qkv_bias=msa.qkv.bias is not None).to(msa.qkv.weight)
        h = msa.num_heads
        twin.qkv_weight.copy_(rearrange(msa.qkv.weight, "(three h d) D -> three D h d", three=3, h=h))
        if twin.qkv_bias is not None:
            twin.qkv_bias.copy_(rearrange(msa.qkv.bias, "(three h d) -> three h 1 d", three=3, h=h))
        twin.out_weight.copy_(rearrange(msa.proj.weight, "D (h d) -> h d D", h=h))
        twin.out_bias.copy_(msa.proj.bias)
        return twin


def width_of_heads(dim: int, num_heads: int) -> int:
    """D_h = D/h. Raises ValueError unless num_heads heads share the width evenly."""
    if num_heads < 1 or dim % num_heads:
        raise ValueError(f"dim {dim} is not divisible by num_heads {num_heads}")
    return dim // num_heads

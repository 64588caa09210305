import torch
from torch import nn
import torch.nn.functional as F


class MultiQueryAttention(nn.Module):
    """Many query heads, a single key head and a single value head."""

    def __init__(self, dim: int, heads: int, dropout: float):
        super().__init__()
        self.heads = heads
        self.head_dim = dim // heads
        self.dropout = dropout
        self.to_q = nn.Linear(dim, dim, bias=False)
        self.to_kv = nn.Linear(dim, 2 * self.head_dim, bias=False)
        self.to_out = nn.Linear(dim, dim, bias=False)
        self.gate = nn.Linear(dim, heads)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, _ = x.shape
        q = self.to_q(x).unflatten(-1, (self.heads, self.head_dim)).transpose(1, 2)
        k, v = self.to_kv(x).unsqueeze(1).chunk(2, dim=-1)
        k = k.expand(b, self.heads, n, self.head_dim)
        v = v.expand(b, self.heads, n, self.head_dim)
        out = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout)
        out = out * self.gate(x).sigmoid().transpose(1, 2).unsqueeze(-1)
        return self.to_out(out.transpose(1, 2).flatten(-2))


class GluFeedForward(nn.Module):
    def __init__(self, dim: int, hidden: int, dropout: float):
        super().__init__()
        self.inner = nn.Linear(dim, 2 * hidden)
        self.outer = nn.Linear(hidden, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = self.inner(x).chunk(2, dim=-1)
        return self.outer(self.dropout(F.gelu(a) * b))


class MultiQueryViT(nn.Module):
    def __init__(self, dim: int = 64, heads: int = 4, depth: int = 3, hidden: int = 96, dropout: float = 0.1,
                 patch: int = 4, classes: int = 10):
        super().__init__()
        self.patch = patch
        self.stem = nn.Sequential(
            nn.LayerNorm(3 * patch * patch), nn.Linear(3 * patch * patch, dim), nn.LayerNorm(dim)
        )
        self.pos = nn.Parameter(torch.randn(1, (32 // patch) ** 2, dim) * 0.02)
        self.attns = nn.ModuleList([MultiQueryAttention(dim, heads, dropout) for _ in range(depth)])
        self.ffs = nn.ModuleList([GluFeedForward(dim, hidden, dropout) for _ in range(depth)])
        self.attn_norms = nn.ModuleList([nn.LayerNorm(dim) for _ in range(depth)])
        self.ff_norms = nn.ModuleList([nn.LayerNorm(dim) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = F.pixel_unshuffle(images, self.patch).flatten(2).transpose(1, 2)
        x = self.stem(x) + self.pos
        for attn, ff, n1, n2 in zip(self.attns, self.ffs, self.attn_norms, self.ff_norms):
            x = x + attn(n1(x))
            x = x + ff(n2(x))
        return self.head(self.norm(x).mean(dim=1))


def build():
    return MultiQueryViT()

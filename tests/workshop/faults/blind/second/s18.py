import torch
from torch import nn
from einops import rearrange, repeat, pack, unpack
from einops.layers.torch import Rearrange, EinMix


class ParallelBlock(nn.Module):
    def __init__(self, dim, heads, hidden):
        super().__init__()
        self.dim, self.heads, self.hidden = dim, heads, hidden
        self.norm = nn.LayerNorm(dim, bias=False)
        self.fused_in = nn.Linear(dim, 3 * dim + hidden, bias=False)
        self.mlp_bias = nn.Parameter(torch.zeros(hidden))
        self.q_norm = nn.LayerNorm(dim // heads, bias=False)
        self.k_norm = nn.LayerNorm(dim // heads, bias=False)
        self.act = nn.GELU()
        self.fused_out = nn.Linear(dim + hidden, dim)

    def forward(self, x):
        qkv, up = self.fused_in(self.norm(x)).split([3 * self.dim, self.hidden], dim=-1)
        q, k, v = rearrange(qkv, "b n (three h d) -> three b n h d", three=3, h=self.heads)
        q, k = self.q_norm(q), self.k_norm(k)
        sim = torch.einsum("b i h d, b j h d -> b i h j", q, k) * (self.dim // self.heads) ** -0.5
        ctx = torch.einsum("b i h j, b j h d -> b i h d", sim.softmax(-1), v)
        ctx = rearrange(ctx, "b n h d -> b n (h d)")
        return x + self.fused_out(torch.cat([ctx, self.act(up + self.mlp_bias)], dim=-1))


class AttentionPoolHead(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.probe = nn.Parameter(torch.randn(1, dim) * 0.02)
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.norm = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        probe = repeat(self.probe, "one d -> b one d", b=x.shape[0])
        y = self.attn(probe, x, x, need_weights=False)[0]
        y = y + self.mlp(self.norm(y))
        return rearrange(y, "b 1 d -> b d")


class AddTable(nn.Module):
    def __init__(self, n, dim):
        super().__init__()
        self.table = nn.Parameter(torch.randn(n, dim) * 0.02)

    def forward(self, x):
        return x + self.table


def build():
    dim, heads, hidden, depth, classes = 56, 4, 112, 3, 11
    return nn.Sequential(
        EinMix("b c (h p) (w q) -> b h w d", weight_shape="c p q d", bias_shape="d", c=3, p=8, q=4, d=dim),
        Rearrange("b h w d -> b (h w) d"),
        AddTable(4 * 6, dim),
        *[ParallelBlock(dim, heads, hidden) for _ in range(depth)],
        nn.LayerNorm(dim),
        AttentionPoolHead(dim, heads),
        nn.Linear(dim, classes),
    )

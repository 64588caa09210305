import torch
from torch import nn, einsum
from einops import rearrange, repeat, reduce
from einops.layers.torch import Rearrange


def exists(val):
    return val is not None


def pair(t):
    return t if isinstance(t, tuple) else (t, t)


class ParallelBlock(nn.Module):
    """attention and feedforward read the same normed input and are summed"""

    def __init__(self, dim, *, heads=4, dim_head=16, ff_mult=2, dropout=0.):
        super().__init__()
        inner = heads * dim_head
        ff_inner = dim * ff_mult
        self.heads = heads
        self.scale = dim_head ** -0.5
        self.splits = (inner, inner, inner, ff_inner)

        self.norm = nn.LayerNorm(dim)
        self.fused_in = nn.Linear(dim, sum(self.splits), bias=False)
        self.q_norm = nn.LayerNorm(dim_head)
        self.k_norm = nn.LayerNorm(dim_head)
        self.attn_out = nn.Linear(inner, dim)
        self.ff_out = nn.Sequential(nn.GELU(), nn.Dropout(dropout), nn.Linear(ff_inner, dim))

    def forward(self, x):
        q, k, v, ff = self.fused_in(self.norm(x)).split(self.splits, dim=-1)
        q, k, v = map(lambda t: rearrange(t, 'b n (h d) -> b h n d', h=self.heads), (q, k, v))
        q, k = self.q_norm(q), self.k_norm(k)

        sim = einsum('b h i d, b h j d -> b h i j', q * self.scale, k)
        attn = sim.softmax(dim=-1)

        out = einsum('b h i j, b h j d -> b h i d', attn, v)
        out = rearrange(out, 'b h n d -> b n (h d)')
        return self.attn_out(out) + self.ff_out(ff)


class ParallelViT(nn.Module):
    def __init__(self, *, image_size, patch_size, num_classes, dim, depth, heads, dim_head=16,
                 channels=3, pool='mean', num_registers=None, dropout=0.):
        super().__init__()
        ih, iw = pair(image_size)
        ph, pw = pair(patch_size)
        assert ih % ph == 0 and iw % pw == 0
        n = (ih // ph) * (iw // pw)
        patch_dim = channels * ph * pw

        self.to_patch_embedding = nn.Sequential(
            Rearrange('b c (h p1) (w p2) -> b (h w) (p1 p2 c)', p1=ph, p2=pw),
            nn.LayerNorm(patch_dim),
            nn.Linear(patch_dim, dim),
            nn.LayerNorm(dim),
        )
        self.pos_embedding = nn.Parameter(torch.randn(n, dim) * 0.02)
        self.registers = nn.Parameter(torch.randn(num_registers, dim) * 0.02) if exists(num_registers) else None
        self.layers = nn.ModuleList([
            ParallelBlock(dim, heads=heads, dim_head=dim_head, dropout=dropout) for _ in range(depth)
        ])
        self.pool = pool
        self.final_norm = nn.LayerNorm(dim)
        self.to_logits = nn.Linear(dim, num_classes)

    def forward(self, img):
        x = self.to_patch_embedding(img) + self.pos_embedding

        num_reg = 0
        if exists(self.registers):
            num_reg = self.registers.shape[0]
            x = torch.cat((x, repeat(self.registers, 'r d -> b r d', b=x.shape[0])), dim=1)

        for layer in self.layers:
            x = layer(x) + x

        if num_reg > 0:
            x = x[:, :-num_reg]

        x = reduce(self.final_norm(x), 'b n d -> b d', self.pool)
        return self.to_logits(x)


def build():
    return ParallelViT(image_size=(32, 48), patch_size=(8, 4), num_classes=6, dim=64, depth=3,
                       heads=4, num_registers=2)

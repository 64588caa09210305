"""A compact modern recipe: RMSNorm, SwiGLU, axial rotary positions, QK-norm, register tokens."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        h = x.float()
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + self.eps)
        return h.to(x.dtype) * self.weight


def axial_angles(side, head_dim, base=100.0):
    quarter = head_dim // 4
    freqs = base ** (-torch.arange(quarter, dtype=torch.float32) / quarter)
    pos = torch.arange(side, dtype=torch.float32)
    ang_y = (pos[:, None] * freqs)[:, None, :].expand(side, side, quarter)
    ang_x = (pos[:, None] * freqs)[None, :, :].expand(side, side, quarter)
    return torch.cat([ang_y, ang_x], dim=-1).reshape(side * side, head_dim // 2)


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


class Attention(nn.Module):
    def __init__(self, dim, n_heads):
        super().__init__()
        self.n_heads, self.hd = n_heads, dim // n_heads
        self.wq = nn.Linear(dim, dim, bias=False)
        self.wk = nn.Linear(dim, dim, bias=False)
        self.wv = nn.Linear(dim, dim, bias=False)
        self.wo = nn.Linear(dim, dim, bias=False)
        self.q_norm = RMSNorm(self.hd)
        self.k_norm = RMSNorm(self.hd)

    def forward(self, x, cos, sin, n_extra):
        b, n, _ = x.shape
        shape = (b, n, self.n_heads, self.hd)
        q = self.q_norm(self.wq(x).view(shape)).transpose(1, 2)
        k = self.k_norm(self.wk(x).view(shape)).transpose(1, 2)
        v = self.wv(x).view(shape).transpose(1, 2)
        # class and register tokens have no place in the grid and stay unrotated
        q = torch.cat([q[:, :, :n_extra], rotate(q[:, :, n_extra:], cos, sin)], dim=2)
        k = torch.cat([k[:, :, :n_extra], rotate(k[:, :, n_extra:], cos, sin)], dim=2)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.wo(y.transpose(1, 2).reshape(b, n, -1))


class SwiGLU(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.gate = nn.Linear(dim, hidden, bias=False)
        self.up = nn.Linear(dim, hidden, bias=False)
        self.down = nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, dim, n_heads, hidden):
        super().__init__()
        self.attn_norm, self.attn = RMSNorm(dim), Attention(dim, n_heads)
        self.mlp_norm, self.mlp = RMSNorm(dim), SwiGLU(dim, hidden)

    def forward(self, x, cos, sin, n_extra):
        x = x + self.attn(self.attn_norm(x), cos, sin, n_extra)
        x = x + self.mlp(self.mlp_norm(x))
        return x


class ModernViT(nn.Module):
    def __init__(self, dim=64, n_heads=4, depth=3, hidden=128, patch=4, n_reg=3, classes=10):
        super().__init__()
        self.patch = patch
        self.patch_proj = nn.Linear(3 * patch * patch, dim)
        self.extra = nn.Parameter(torch.randn(1, 1 + n_reg, dim) * 0.02)
        self.blocks = nn.ModuleList([Block(dim, n_heads, hidden) for _ in range(depth)])
        self.norm = RMSNorm(dim)
        self.head = nn.Linear(dim, classes)
        ang = axial_angles(32 // patch, dim // n_heads)
        self.register_buffer("cos", ang.cos(), persistent=False)
        self.register_buffer("sin", ang.sin(), persistent=False)

    def forward(self, x):
        tok = F.unfold(x, self.patch, stride=self.patch).transpose(1, 2)
        tok = self.patch_proj(tok)
        tok = torch.cat([self.extra.expand(x.shape[0], -1, -1), tok], dim=1)
        for blk in self.blocks:
            tok = blk(tok, self.cos, self.sin, self.extra.shape[1])
        return self.head(self.norm(tok[:, 0]))


def build():
    return ModernViT()

"""Windowed attention with alternating shifts and one merging step; tensors stay (B, H, W, C)."""
import torch
import torch.nn.functional as F
from torch import nn


def to_windows(x, w):
    B, H, W, C = x.shape
    x = x.view(B, H // w, w, W // w, w, C)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, w * w, C)


def from_windows(x, w, H, W):
    C = x.shape[-1]
    x = x.view(-1, H // w, W // w, w, w, C)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, H, W, C)


def shift_mask(H, W, w, s):
    region = torch.zeros(1, H, W, 1)
    cuts = (slice(0, -w), slice(-w, -s), slice(-s, None))
    n = 0
    for a in cuts:
        for b in cuts:
            region[:, a, b] = n
            n += 1
    r = to_windows(region, w).squeeze(-1)
    same = r[:, :, None] == r[:, None, :]
    return torch.zeros(same.shape).masked_fill(~same, float("-inf"))


class WindowAttention(nn.Module):
    def __init__(self, C, heads, w):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(C, 3 * C)
        self.proj = nn.Linear(C, C)
        self.rel = nn.Parameter(torch.randn(heads, (2 * w - 1) ** 2) * 0.02)
        ij = torch.cartesian_prod(torch.arange(w), torch.arange(w))
        d = ij[:, None] - ij[None, :] + (w - 1)
        self.register_buffer("idx", d[..., 0] * (2 * w - 1) + d[..., 1])

    def forward(self, x, mask):
        BW, T, C = x.shape
        q, k, v = self.qkv(x).view(BW, T, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        bias = self.rel[:, self.idx].unsqueeze(0)
        if mask is not None:
            nW = mask.shape[0]
            bias = (bias + mask[:, None]).repeat(BW // nW, 1, 1, 1)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return self.proj(y.transpose(1, 2).reshape(BW, T, C))


class Block(nn.Module):
    def __init__(self, C, heads, size, w, shift):
        super().__init__()
        self.w, self.shift = w, shift
        self.norm1, self.norm2 = nn.LayerNorm(C), nn.LayerNorm(C)
        self.attn = WindowAttention(C, heads, w)
        self.mlp = nn.Sequential(nn.Linear(C, 2 * C), nn.GELU(), nn.Linear(2 * C, C))
        self.register_buffer("mask", shift_mask(size, size, w, shift) if shift else None)

    def forward(self, x):
        _, H, W, _ = x.shape
        y = self.norm1(x)
        if self.shift:
            y = torch.roll(y, (-self.shift, -self.shift), dims=(1, 2))
        y = from_windows(self.attn(to_windows(y, self.w), self.mask), self.w, H, W)
        if self.shift:
            y = torch.roll(y, (self.shift, self.shift), dims=(1, 2))
        x = x + y
        return x + self.mlp(self.norm2(x))


class Merge(nn.Module):
    def __init__(self, C):
        super().__init__()
        self.norm = nn.LayerNorm(4 * C)
        self.reduce = nn.Linear(4 * C, 2 * C, bias=False)

    def forward(self, x):
        quads = [x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)]
        return self.reduce(self.norm(torch.cat(quads, dim=-1)))


class WindowNet(nn.Module):
    def __init__(self, C=32, classes=10):
        super().__init__()
        self.embed = nn.Conv2d(3, C, 2, stride=2)
        self.embed_norm = nn.LayerNorm(C)
        self.trunk = nn.Sequential(
            Block(C, 2, 16, 4, 0),
            Block(C, 2, 16, 4, 2),
            Merge(C),
            Block(2 * C, 4, 8, 4, 0),
            Block(2 * C, 4, 8, 4, 2),
        )
        self.norm = nn.LayerNorm(2 * C)
        self.head = nn.Linear(2 * C, classes)

    def forward(self, x):
        x = self.embed_norm(self.embed(x).permute(0, 2, 3, 1))
        x = self.norm(self.trunk(x))
        return self.head(x.mean(dim=(1, 2)))


def build():
    return WindowNet()

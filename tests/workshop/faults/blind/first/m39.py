import itertools

import torch
from torch import nn


class BiasedAttention(nn.Module):
    """Each head adds its own number for every absolute offset (|dy|, |dx|) between patches."""

    def __init__(self, dim, key_dim, num_heads, resolution):
        super().__init__()
        self.num_heads, self.key_dim = num_heads, key_dim
        self.scale = key_dim ** -0.5
        self.q = nn.Linear(dim, key_dim * num_heads)
        self.k = nn.Linear(dim, key_dim * num_heads)
        self.v = nn.Linear(dim, 2 * key_dim * num_heads)
        self.proj = nn.Sequential(nn.Hardswish(), nn.Linear(2 * key_dim * num_heads, dim))

        points = list(itertools.product(range(resolution), range(resolution)))
        offsets, idxs = {}, []
        for p1 in points:
            for p2 in points:
                offset = (abs(p1[0] - p2[0]), abs(p1[1] - p2[1]))
                idxs.append(offsets.setdefault(offset, len(offsets)))
        self.attention_biases = nn.Parameter(torch.zeros(num_heads, len(offsets)))
        self.register_buffer("attention_bias_idxs", torch.tensor(idxs).view(len(points), len(points)))

    def biases(self):
        return self.attention_biases.data[:, self.attention_bias_idxs]

    def forward(self, x):
        B, N, _ = x.shape
        q = self.q(x).view(B, N, self.num_heads, -1).transpose(1, 2)
        k = self.k(x).view(B, N, self.num_heads, -1).transpose(1, 2)
        v = self.v(x).view(B, N, self.num_heads, -1).transpose(1, 2)
        attn = (q @ k.transpose(-2, -1)) * self.scale + self.biases()
        return self.proj((attn.softmax(dim=-1) @ v).transpose(1, 2).reshape(B, N, -1))


class Residual(nn.Module):
    def __init__(self, norm, m):
        super().__init__()
        self.norm, self.m = norm, m

    def forward(self, x):
        return x + self.m(self.norm(x))


class OffsetViT(nn.Module):
    def __init__(self, dim=48, key_dim=12, num_heads=4, depth=3, resolution=8, classes=10):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, dim // 2, 3, 2, 1), nn.Hardswish(), nn.Conv2d(dim // 2, dim, 3, 2, 1)
        )
        self.pos = nn.Parameter(torch.randn(1, resolution ** 2, dim) * 0.02)
        blocks = []
        for _ in range(depth):
            blocks.append(Residual(nn.LayerNorm(dim), BiasedAttention(dim, key_dim, num_heads, resolution)))
            blocks.append(
                Residual(nn.LayerNorm(dim), nn.Sequential(nn.Linear(dim, 2 * dim), nn.Hardswish(), nn.Linear(2 * dim, dim)))
            )
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        x = self.stem(x).flatten(2).transpose(1, 2) + self.pos
        return self.head(self.norm(self.blocks(x)).mean(1))


def build():
    return OffsetViT()

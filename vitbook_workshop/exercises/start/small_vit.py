"""A small Vision Transformer in one file."""

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x):
        batch, tokens, dim = x.shape
        head_dim = dim // self.heads
        parts = self.qkv(x).reshape(batch, tokens, 3, self.heads, head_dim).permute(2, 0, 3, 1, 4)
        queries, keys, values = parts
        scores = queries @ keys.transpose(-2, -1) / head_dim**0.5
        weights = scores.softmax(dim=-1)
        mixed = weights @ values
        return self.out(mixed.transpose(1, 2).reshape(batch, tokens, dim))


class Block(nn.Module):
    def __init__(self, dim, heads, hidden):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attention = Attention(dim, heads)
        self.norm2 = nn.LayerNorm(dim)
        self.widen = nn.Linear(dim, hidden)
        self.narrow = nn.Linear(hidden, dim)

    def mlp(self, x):
        return self.narrow(F.gelu(self.widen(x)))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        x = x + self.mlp(self.norm2(x))
        return x


class ViT(nn.Module):
    def __init__(self, image=16, patch=4, channels=3, classes=10, dim=24, depth=3, heads=3):
        super().__init__()
        self.patch = patch
        count = (image // patch) ** 2
        self.embed = nn.Linear(channels * patch * patch, dim)
        self.first = nn.Parameter(torch.randn(1, 1, dim) * 0.02)
        self.positions = nn.Parameter(torch.randn(1, count + 1, dim) * 0.02)
        self.blocks = nn.ModuleList(Block(dim, heads, 4 * dim) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def cut(self, images):
        batch, channels, height, width = images.shape
        rows, columns = height // self.patch, width // self.patch
        pixels = images.reshape(batch, channels, rows, self.patch, columns, self.patch)
        return pixels.permute(0, 2, 4, 1, 3, 5).reshape(batch, rows * columns, -1)

    def forward(self, images):
        patches = self.embed(self.cut(images))
        first = self.first.expand(len(images), -1, -1)
        x = torch.cat([first, patches], dim=1) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])

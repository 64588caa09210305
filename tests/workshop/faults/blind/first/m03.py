import math

import torch
from torch import nn


class DifferentialHead(nn.Module):
    """Two attention maps, the second subtracted from the first with a learned weight."""

    def __init__(self, dim, size, start):
        super().__init__()
        self.size = size
        self.q = nn.Linear(dim, 2 * size, bias=False)
        self.k = nn.Linear(dim, 2 * size, bias=False)
        self.v = nn.Linear(dim, 2 * size, bias=False)
        self.lam = nn.Parameter(torch.tensor(float(start)))
        self.norm = nn.RMSNorm(2 * size)
        self.keep = 1.0 - start

    def forward(self, x):
        q1, q2 = self.q(x).chunk(2, dim=-1)
        k1, k2 = self.k(x).chunk(2, dim=-1)
        a1 = torch.softmax(torch.bmm(q1, k1.transpose(1, 2)) / math.sqrt(self.size), dim=-1)
        a2 = torch.softmax(torch.bmm(q2, k2.transpose(1, 2)) / math.sqrt(self.size), dim=-1)
        y = torch.bmm(a1 - self.lam * a2, self.v(x))
        return self.norm(y) * self.keep


class DifferentialBlock(nn.Module):
    def __init__(self, dim, heads, depth_index):
        super().__init__()
        start = 0.8 - 0.6 * math.exp(-0.3 * depth_index)
        self.norm1 = nn.RMSNorm(dim)
        self.heads = nn.ModuleList([DifferentialHead(dim, dim // heads // 2, start) for _ in range(heads)])
        self.proj = nn.Linear(dim, dim, bias=False)
        self.norm2 = nn.RMSNorm(dim)
        self.fc1 = nn.Linear(dim, 2 * dim)
        self.fc2 = nn.Linear(2 * dim, dim)

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.proj(torch.cat([head(y) for head in self.heads], dim=-1))
        return x + self.fc2(nn.functional.silu(self.fc1(self.norm2(x))))


class DifferentialViT(nn.Module):
    def __init__(self, dim=64, heads=2, depth=3, patch=4, classes=10):
        super().__init__()
        self.patch_embed = nn.Conv2d(3, dim, patch, patch)
        self.pos_embed = nn.Parameter(torch.randn(1, (32 // patch) ** 2, dim) * 0.02)
        self.blocks = []
        for i in range(depth):
            self.blocks.append(DifferentialBlock(dim, heads, i))
        self.norm = nn.RMSNorm(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, images, return_features=False):
        x = self.patch_embed(images).flatten(2).transpose(1, 2) + self.pos_embed
        features = []
        for block in self.blocks:
            x = block(x)
            features.append(x)
        logits = self.head(self.norm(x).mean(dim=1))
        return (logits, tuple(features)) if return_features else logits


def build():
    return DifferentialViT()

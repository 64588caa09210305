from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F


class Prediction(NamedTuple):
    logits: torch.Tensor
    embedding: torch.Tensor


class CosineAttention(nn.Module):
    """Queries and keys on the sphere, one temperature per head."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(dim, dim)
        self.key = nn.Linear(dim, dim)
        self.value = nn.Linear(dim, dim)
        self.merge = nn.Linear(dim, dim)
        self.register_buffer("temperature", torch.full((heads, 1, 1), 10.0))

    def forward(self, x):
        q, k, v = (
            f(x).unflatten(2, (self.heads, -1)).transpose(1, 2) for f in (self.query, self.key, self.value)
        )
        sim = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1)
        att = (sim * self.temperature).softmax(dim=-1)
        return self.merge((att @ v).transpose(1, 2).flatten(2))


class EncoderLayer(nn.Module):
    def __init__(self, dim, heads, hidden):
        super().__init__()
        self.norm_att = nn.LayerNorm(dim)
        self.att = CosineAttention(dim, heads)
        self.norm_mlp = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, hidden), nn.Mish(), nn.Linear(hidden, dim))

    def forward(self, x):
        x = x + self.att(self.norm_att(x))
        return x + self.mlp(self.norm_mlp(x))


class SphereViT(nn.Module):
    def __init__(self, dim=56, heads=4, hidden=112, depth=3, patch=4, classes=10):
        super().__init__()
        self.patches = nn.Conv2d(3, dim, patch, stride=patch)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos = nn.Parameter(torch.zeros(1, 1 + (32 // patch) ** 2, dim))
        self.layers = nn.ModuleList([EncoderLayer(dim, heads, hidden) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.fc = nn.Linear(dim, classes)
        self.reset_parameters()

    def reset_parameters(self):
        for name, p in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(p)
            else:
                nn.init.normal_(p, std=0.02)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(images), -1, -1), x], dim=1) + self.pos
        for layer in self.layers:
            x = layer(x)
        z = self.norm(x[:, 0])
        return Prediction(self.fc(z), z)


def build():
    return SphereViT()

from dataclasses import dataclass
from typing import Tuple

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Config:
    image: int = 32
    patch: int = 4
    channels: int = 3
    width: int = 64
    depth: int = 3
    heads: int = 4
    kv_heads: int = 2
    registers: int = 4
    hidden: int = 112
    rope_base: float = 100.0
    layer_scale: float = 0.1
    classes: int = 20


@dataclass
class Features:
    cls: Tensor
    registers: Tensor
    patches: Tensor


class AxialRope(nn.Module):
    def __init__(self, head_dim: int, grid: int, base: float):
        super().__init__()
        n = head_dim // 4
        periods = base ** (2 * torch.arange(n) / (head_dim // 2))
        coords = (torch.arange(grid) + 0.5) / grid * 2 - 1
        yx = torch.stack(torch.meshgrid(coords, coords, indexing="ij"), dim=-1).view(-1, 2)
        angles = 2 * torch.pi * yx[:, :, None] / periods
        angles = angles.flatten(1).tile(2)
        self.register_buffer("sin", angles.sin(), persistent=False)
        self.register_buffer("cos", angles.cos(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        skip = x.shape[-2] - self.sin.shape[-2]
        prefix, x = x[..., :skip, :], x[..., skip:, :]
        a, b = x.chunk(2, dim=-1)
        x = x * self.cos + torch.cat([-b, a], dim=-1) * self.sin
        return torch.cat([prefix, x], dim=-2)


class GroupedAttention(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.h, self.g, self.d = c.heads, c.kv_heads, c.width // c.heads
        self.q = nn.Linear(c.width, self.h * self.d, bias=False)
        self.kv = nn.Linear(c.width, 2 * self.g * self.d, bias=False)
        self.q_norm = nn.RMSNorm(self.d, eps=1e-6)
        self.k_norm = nn.RMSNorm(self.d, eps=1e-6)
        self.o = nn.Linear(self.h * self.d, c.width, bias=False)

    def forward(self, x: Tensor, rope: AxialRope) -> Tensor:
        q = self.q(x).unflatten(-1, (self.h, self.d)).transpose(1, 2)
        k, v = self.kv(x).unflatten(-1, (2, self.g, self.d)).permute(2, 0, 3, 1, 4)
        q, k = rope(self.q_norm(q)), rope(self.k_norm(k))
        y = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        return self.o(y.transpose(1, 2).flatten(-2))


class SwiGLU(nn.Module):
    def __init__(self, dim: int, hidden: int):
        super().__init__()
        self.w12 = nn.Linear(dim, 2 * hidden)
        self.w3 = nn.Linear(hidden, dim)

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.w12(x).chunk(2, dim=-1)
        return self.w3(F.silu(a) * b)


class Block(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.norm1 = nn.RMSNorm(c.width, eps=1e-6)
        self.attn = GroupedAttention(c)
        self.ls1 = nn.Parameter(torch.full((c.width,), c.layer_scale))
        self.norm2 = nn.RMSNorm(c.width, eps=1e-6)
        self.mlp = SwiGLU(c.width, c.hidden)
        self.ls2 = nn.Parameter(torch.full((c.width,), c.layer_scale))

    def forward(self, x: Tensor, rope: AxialRope) -> Tensor:
        x = x + self.ls1 * self.attn(self.norm1(x), rope)
        return x + self.ls2 * self.mlp(self.norm2(x))


class Backbone(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.c = c
        self.patch_embed = nn.Conv2d(c.channels, c.width, c.patch, c.patch)
        self.prefix = nn.Parameter(torch.randn(1, 1 + c.registers, c.width) * 0.02)
        self.rope = AxialRope(c.width // c.heads, c.image // c.patch, c.rope_base)
        self.blocks = nn.ModuleList(Block(c) for _ in range(c.depth))
        self.norm = nn.RMSNorm(c.width, eps=1e-6)

    def forward(self, images: Tensor) -> Features:
        x = self.patch_embed(images).flatten(2).mT
        x = torch.cat([self.prefix.expand(x.shape[0], -1, -1), x], dim=1)
        for block in self.blocks:
            x = block(x, self.rope)
        cls, reg, patches = self.norm(x).split([1, self.c.registers, x.shape[1] - 1 - self.c.registers], dim=1)
        return Features(cls.squeeze(1), reg, patches)


class LinearProbe(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.backbone = Backbone(c)
        self.head = nn.Linear(2 * c.width, c.classes)

    def forward(self, images: Tensor) -> Tensor:
        f = self.backbone(images)
        return self.head(torch.cat([f.cls, f.patches.mean(dim=1)], dim=-1))


def build():
    return LinearProbe(Config())

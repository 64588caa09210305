"""Everything is an nn.Sequential; tanh units with learned slope stand where norms usually do."""
import torch
from torch import nn
from einops.layers.torch import Rearrange, Reduce


class Lambda(nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, x):
        return self.fn(x)


class Plus(nn.Sequential):
    def forward(self, x):
        return x + super().forward(x)


class Fork(nn.ModuleList):
    def forward(self, x):
        return tuple(m(x) for m in self)


class Add(nn.Module):
    def __init__(self, *shape):
        super().__init__()
        self.value = nn.Parameter(torch.randn(*shape) * 0.02)

    def forward(self, x):
        return x + self.value


class Squash(nn.Module):
    def __init__(self, dim, alpha=0.8):
        super().__init__()
        self.alpha = nn.Parameter(torch.tensor(alpha))
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        return torch.tanh(self.alpha * x) * self.weight + self.bias


def head_split(dim, heads):
    return nn.Sequential(nn.Linear(dim, dim), Rearrange("b n (h d) -> b h n d", h=heads))


def attention(dim, heads):
    return nn.Sequential(
        Squash(dim),
        Fork([head_split(dim, heads) for _ in "qkv"]),
        Lambda(lambda t: nn.functional.scaled_dot_product_attention(*t)),
        Rearrange("b h n d -> b n (h d)"),
        nn.Linear(dim, dim),
    )


def feed_forward(dim, mult):
    return nn.Sequential(Squash(dim), nn.Linear(dim, dim * mult), nn.GELU(), nn.Linear(dim * mult, dim))


def build(dim=48, heads=6, depth=3, classes=10):
    blocks = [Plus(f) for _ in range(depth) for f in (attention(dim, heads), feed_forward(dim, 3))]
    return nn.Sequential(
        Rearrange("b c (h p) (w q) -> b (h w) (c p q)", p=7, q=7),
        nn.Linear(49, dim),
        Add(16, dim),
        *blocks,
        Reduce("b n d -> b d", "mean"),
        Squash(dim),
        nn.Linear(dim, classes),
    )

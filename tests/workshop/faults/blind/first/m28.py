import torch
from torch import nn
from torch.nn import functional as F


class FeatureNorm(nn.Module):
    """Layer norm for (batch, features, tokens) tensors."""

    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        return self.norm(x)


class PointwiseAttention(nn.Module):
    def __init__(self, features, heads):
        super().__init__()
        self.heads = heads
        self.q = nn.Conv1d(features, features, 1, bias=False)
        self.k = nn.Conv1d(features, features, 1, bias=False)
        self.v = nn.Conv1d(features, features, 1, bias=False)
        self.o = nn.Conv1d(features, features, 1)

    def forward(self, x):
        b, f, n = x.shape
        q, k, v = (m(x).view(b, self.heads, f // self.heads, n).transpose(2, 3) for m in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v)
        return self.o(y.transpose(2, 3).reshape(b, f, n))


class Unit(nn.Module):
    def __init__(self, features, heads, expand):
        super().__init__()
        self.norm_a = FeatureNorm(features)
        self.attn = PointwiseAttention(features, heads)
        self.norm_f = FeatureNorm(features)
        self.expand = nn.Conv1d(features, features * expand, 1)
        self.shrink = nn.Conv1d(features * expand, features, 1)

    def forward(self, x):
        x = x + self.attn(self.norm_a(x))
        x = x + self.shrink(F.hardswish(self.expand(self.norm_f(x))))
        return x


class ChannelMajorViT(nn.Module):
    def __init__(self, features=64, heads=8, depth=3, expand=2, patch=4, classes=10):
        super().__init__()
        tokens = (32 // patch) ** 2
        self.embed = nn.Conv2d(3, features, patch, patch)
        self.place = nn.Parameter(torch.randn(1, features, tokens) * 0.02)
        self.units = nn.ModuleList(Unit(features, heads, expand) for _ in range(depth))
        self.norm = FeatureNorm(features)
        self.score = nn.Conv1d(features, 1, 1, bias=False)
        self.fc = nn.Linear(features, classes)

    def forward(self, x):
        x = self.embed(x).flatten(2) + self.place
        for unit in self.units:
            x = unit(x)
        x = self.norm(x)
        share = torch.softmax(self.score(x), dim=2)
        return self.fc((x * share).sum(dim=2))


def build():
    return ChannelMajorViT()

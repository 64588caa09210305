import torch
from torch import nn


class Skip(nn.Module):
    def __init__(self, *fns):
        super().__init__()
        self.fns = nn.Sequential(*fns)

    def forward(self, x):
        return self.fns(x) + x


class Self(nn.MultiheadAttention):
    def forward(self, x):
        return super().forward(x, x, x, need_weights=False)[0]


class Positions(nn.Module):
    def __init__(self, tokens, dim):
        super().__init__()
        self.table = nn.Parameter(torch.empty(tokens, dim))
        nn.init.trunc_normal_(self.table, std=0.02)

    def forward(self, x):
        return x + self.table


class Transpose(nn.Module):
    def forward(self, x):
        return x.mT


class Take(nn.Module):
    def __init__(self, index):
        super().__init__()
        self.index = index

    def forward(self, x):
        return x.select(1, self.index)


class PrependToken(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.token = nn.Parameter(torch.empty(1, 1, dim))
        nn.init.trunc_normal_(self.token, std=0.02)

    def forward(self, x):
        return torch.cat([self.token.expand(x.size(0), 1, x.size(2)), x], dim=1)


def mlp(dim, factor=4, p=0.1):
    return [
        nn.Linear(dim, factor * dim),
        nn.Dropout(p),
        nn.Linear(factor * dim, dim),
        nn.Dropout(p),
    ]


def encoder(dim, heads):
    return nn.Sequential(
        Skip(nn.LayerNorm(dim), Self(dim, heads, batch_first=True)),
        Skip(nn.LayerNorm(dim), *mlp(dim)),
    )


def build(dim=64, heads=4, depth=3, patch=4, classes=10):
    return nn.Sequential(
        nn.Conv2d(3, dim, patch, patch),
        nn.Flatten(2),
        Transpose(),
        PrependToken(dim),
        Positions((32 // patch) ** 2 + 1, dim),
        *(encoder(dim, heads) for _ in range(depth)),
        nn.LayerNorm(dim),
        Take(0),
        nn.Linear(dim, classes),
    )

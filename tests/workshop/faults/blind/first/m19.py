import torch
from torch import nn, Tensor


class ChanNorm(nn.Module):
    """Layer norm over dim 1 of a (B, D, N) or (B, D, H, W) tensor."""

    def __init__(self, d: int, eps: float = 1e-5):
        super().__init__()
        self.g = nn.Parameter(torch.ones(d))
        self.b = nn.Parameter(torch.zeros(d))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        var, mean = torch.var_mean(x, dim=1, unbiased=False, keepdim=True)
        shape = (1, -1) + (1,) * (x.ndim - 2)
        return (x - mean) * (var + self.eps).rsqrt() * self.g.view(shape) + self.b.view(shape)


class Mix(nn.Module):
    def __init__(self, d: int, heads: int):
        super().__init__()
        self.heads = heads
        self.temp = (d // heads) ** -0.5
        self.qkv = nn.Conv1d(d, 3 * d, 1)
        self.out = nn.Conv1d(d, d, 1)

    def forward(self, x: Tensor) -> Tensor:
        b, d, n = x.shape
        # channel groups are heads, so each of q, k, v is (B, H, d, N)
        q, k, v = self.qkv(x).reshape(b, 3, self.heads, d // self.heads, n).unbind(1)
        # rows: keys, columns: queries
        w = torch.matmul(k.transpose(-1, -2), q * self.temp)
        w = torch.softmax(w, dim=-2)
        return self.out(torch.matmul(v, w).reshape(b, d, n))


class Stage(nn.Module):
    def __init__(self, d: int, heads: int, ratio: int = 2):
        super().__init__()
        self.n1, self.mix = ChanNorm(d), Mix(d, heads)
        self.n2 = ChanNorm(d)
        self.ff = nn.Sequential(nn.Conv1d(d, d * ratio, 1), nn.SiLU(), nn.Conv1d(d * ratio, d, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.mix(self.n1(x))
        x = x + self.ff(self.n2(x))
        return x


class ConvStemFormer(nn.Module):
    def __init__(self, d: int = 64, heads: int = 4, depth: int = 3, classes: int = 12):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Conv2d(32, d, 1),
        )
        self.pos = nn.Parameter(torch.empty(1, d, 64).normal_(std=0.02))
        self.body = nn.Sequential(*[Stage(d, heads) for _ in range(depth)])
        self.norm = ChanNorm(d)
        self.classify = nn.Conv1d(d, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x).flatten(2) + self.pos
        x = self.norm(self.body(x))
        return self.classify(x.mean(-1, keepdim=True)).squeeze(-1)


def build():
    return ConvStemFormer()

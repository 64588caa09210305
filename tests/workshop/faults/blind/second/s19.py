import torch
from torch import nn, einsum
import torch.nn.functional as F


class EinLinear(nn.Module):
    def __init__(self, eq, shape, fan_in, bias_shape):
        super().__init__()
        self.eq = eq
        self.weight = nn.Parameter(torch.randn(shape) * fan_in ** -0.5)
        self.bias = nn.Parameter(torch.zeros(bias_shape))

    def forward(self, x):
        return einsum(self.eq, x, self.weight) + self.bias


class EinAttention(nn.Module):
    def __init__(self, d, h, e):
        super().__init__()
        self.qkv = EinLinear("bnd,dshe->bnshe", (d, 3, h, e), d, (3, h, e))
        self.out = EinLinear("bnhe,hed->bnd", (h, e, d), h * e, (d,))
        self.scale = e ** -0.5

    def forward(self, x):
        q, k, v = self.qkv(x).unbind(2)
        scores = einsum("bihe,bjhe->bhij", q, k) * self.scale
        probs = F.softmax(scores, dim=2)
        return self.out(einsum("bhij,bjhe->bihe", probs, v))


class EinMLP(nn.Module):
    def __init__(self, d, m):
        super().__init__()
        self.up = EinLinear("bnd,dm->bnm", (d, m), d, (m,))
        self.down = EinLinear("bnm,md->bnd", (m, d), m, (d,))

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class EinViT(nn.Module):
    def __init__(self, c=3, grid=(7, 7), p=4, d=60, h=5, e=12, m=120, depth=3, k=15):
        super().__init__()
        self.grid, self.p = grid, p
        gh, gw = grid
        self.embed = EinLinear("bcipjq,cpqd->bijd", (c, p, p, d), c * p * p, (d,))
        self.row = nn.Parameter(torch.randn(gh, 1, d) * 0.02)
        self.col = nn.Parameter(torch.randn(1, gw, d) * 0.02)
        self.cls = nn.Parameter(torch.randn(d) * 0.02)
        self.norms = nn.ModuleList([nn.LayerNorm(d) for _ in range(2 * depth + 1)])
        self.atts = nn.ModuleList([EinAttention(d, h, e) for _ in range(depth)])
        self.mlps = nn.ModuleList([EinMLP(d, m) for _ in range(depth)])
        self.classify = EinLinear("bd,dk->bk", (d, k), d, (k,))

    def forward(self, img):
        b, c = img.shape[:2]
        gh, gw = self.grid
        x = self.embed(img.view(b, c, gh, self.p, gw, self.p))
        x = (x + self.row + self.col).flatten(1, 2)
        x = torch.cat((self.cls.expand(b, 1, -1), x), dim=1)
        for i, (att, mlp) in enumerate(zip(self.atts, self.mlps)):
            x = x + att(self.norms[2 * i](x))
            x = x + mlp(self.norms[2 * i + 1](x))
        return self.classify(self.norms[-1](x[:, 0]))


def build():
    return EinViT()

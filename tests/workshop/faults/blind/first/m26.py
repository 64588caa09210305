"""bfloat16 matmuls, float32 norms and residual stream; grouped queries, an output gate and a sink."""
import math
import torch
import torch.nn as nn
import torch.nn.functional as F

COMPUTE = torch.bfloat16


def lin(x, w):
    """Weights are kept in full precision and rounded at the multiplication."""
    return F.linear(x.to(COMPUTE), w.to(COMPUTE))


def weight(n_out, n_in):
    return nn.Parameter(torch.randn(n_out, n_in) / math.sqrt(n_in))


class Norm32(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(d))

    def forward(self, x):
        x = x.to(torch.float32)
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.gain


class GroupedAttention(nn.Module):
    def __init__(self, d, n_q=4, n_kv=2):
        super().__init__()
        self.n_q, self.n_kv, self.hd = n_q, n_kv, d // n_q
        self.wq = weight(d, d)
        self.wk = weight(n_kv * self.hd, d)
        self.wv = weight(n_kv * self.hd, d)
        self.wg = weight(d, d)
        self.wo = weight(d, d)
        self.sink = nn.Parameter(torch.zeros(n_q))

    def forward(self, x):
        b, n, d = x.shape
        g = self.n_q // self.n_kv
        q = lin(x, self.wq).view(b, n, self.n_kv, g, self.hd)
        k = lin(x, self.wk).view(b, n, self.n_kv, self.hd)
        v = lin(x, self.wv).view(b, n, self.n_kv, self.hd)
        s = torch.einsum("bqkgd,btkd->bkgqt", q, k).float() / math.sqrt(self.hd)
        sink = self.sink.view(1, self.n_kv, g, 1, 1).expand(b, -1, -1, n, 1)
        # the extra column takes up attention mass and carries no value
        p = torch.cat([s, sink], dim=-1).softmax(dim=-1)[..., :-1]
        y = torch.einsum("bkgqt,btkd->bqkgd", p.to(COMPUTE), v).reshape(b, n, d)
        y = y * torch.sigmoid(lin(x, self.wg))
        return lin(y, self.wo).float()


class FeedForward(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.wi = weight(2 * h, d)
        self.wo = weight(d, h)

    def forward(self, x):
        a, b = lin(x, self.wi).chunk(2, dim=-1)
        return lin(F.gelu(a) * b, self.wo).float()


class MixedViT(nn.Module):
    def __init__(self, d=64, depth=3, patch=8, classes=10):
        super().__init__()
        self.patch = patch
        self.embed = weight(d, 3 * patch * patch)
        self.pos = nn.Parameter(torch.randn((32 // patch) ** 2, d) * 0.02)
        self.n1 = nn.ModuleList(Norm32(d) for _ in range(depth))
        self.attn = nn.ModuleList(GroupedAttention(d) for _ in range(depth))
        self.n2 = nn.ModuleList(Norm32(d) for _ in range(depth))
        self.ff = nn.ModuleList(FeedForward(d, 2 * d) for _ in range(depth))
        self.norm = Norm32(d)
        self.head = nn.Linear(d, classes)

    def forward(self, images):
        p = self.patch
        b, c, h, w = images.shape
        t = images.reshape(b, c, h // p, p, w // p, p).permute(0, 2, 4, 3, 5, 1).reshape(b, -1, p * p * c)
        x = lin(t, self.embed).float() + self.pos
        for n1, attn, n2, ff in zip(self.n1, self.attn, self.n2, self.ff):
            x = x + attn(n1(x))
            x = x + ff(n2(x))
        return self.head(self.norm(x).mean(dim=1))


def build():
    return MixedViT()

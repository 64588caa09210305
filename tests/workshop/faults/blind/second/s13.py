import torch
import torch.nn as nn
import torch.nn.functional as F


class DistanceAttention(nn.Module):
    def __init__(self, dim, heads, grid):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        n = torch.arange(grid * grid)
        yx = torch.stack([n // grid, n % grid], dim=-1).float()
        slopes = torch.tensor([2.0 ** -(i + 1) for i in range(heads)])
        self.register_buffer("bias", -slopes[:, None, None] * torch.cdist(yx, yx, p=1))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (z.view(b, t, self.heads, -1).transpose(1, 2) for z in self.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=self.bias)
        return self.proj(y.transpose(1, 2).reshape(b, t, d))


class Residual(nn.Module):
    def __init__(self, dim, fn):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.fn = fn

    def forward(self, x):
        return x + self.fn(self.norm(x))


class TappedViT(nn.Module):
    def __init__(self, dim=56, heads=4, grid=6, patch=4, chans=2, depth=4, taps=(1, 3), classes=4):
        super().__init__()
        self.embed = nn.Conv2d(chans, dim, patch, patch)
        self.pos = nn.Parameter(torch.randn(dim, grid, grid) * 0.02)
        self.trunk = nn.Sequential(*[
            nn.Sequential(
                Residual(dim, DistanceAttention(dim, heads, grid)),
                Residual(dim, nn.Sequential(nn.Linear(dim, 2 * dim), nn.SiLU(), nn.Linear(2 * dim, dim))),
            )
            for _ in range(depth)
        ])
        self.kept = []
        for i in taps:
            self.trunk[i].register_forward_hook(self.keep)
        self.norms = nn.ModuleList([nn.LayerNorm(dim) for _ in taps])
        self.gate = nn.ModuleList([nn.Linear(dim, 1, bias=False) for _ in taps])
        self.head = nn.Sequential(nn.Linear(dim * len(taps), dim), nn.ReLU(), nn.Linear(dim, classes))

    def keep(self, module, args, output):
        self.kept.append(output)

    def forward(self, x):
        self.kept.clear()
        x = self.embed(x) + self.pos
        self.trunk(x.flatten(2).transpose(1, 2))
        pooled = []
        for feats, norm, gate in zip(self.kept, self.norms, self.gate):
            z = norm(feats)
            pooled.append((gate(z).softmax(dim=1) * z).sum(dim=1))
        self.kept.clear()
        return self.head(torch.cat(pooled, dim=-1))


def build():
    return TappedViT()

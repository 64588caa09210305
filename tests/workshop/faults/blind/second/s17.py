import torch
from torch import nn
from einops import rearrange


class BiasedAttention(nn.Module):
    def __init__(self, dim, heads, size):
        super().__init__()
        self.heads = heads
        self.scale = (dim // heads) ** -0.5
        self.to_qkv = nn.Linear(dim, dim * 3, bias=False)
        self.to_out = nn.Linear(dim, dim)
        self.rel = nn.Embedding((2 * size - 1) ** 2, heads)
        nn.init.normal_(self.rel.weight, std=0.02)
        pos = torch.arange(size)
        grid = rearrange(torch.stack(torch.meshgrid(pos, pos, indexing="ij")), "c i j -> (i j) c")
        delta = rearrange(grid, "i c -> i 1 c") - rearrange(grid, "j c -> 1 j c") + size - 1
        self.register_buffer("lookup", delta[..., 0] * (2 * size - 1) + delta[..., 1], persistent=False)

    def forward(self, x):
        q, k, v = rearrange(self.to_qkv(x), "b n (s h d) -> s b h n d", s=3, h=self.heads)
        sim = torch.einsum("b h i d, b h j d -> b h i j", q * self.scale, k)
        sim = sim + rearrange(self.rel(self.lookup), "i j h -> h i j")
        out = torch.einsum("b h i j, b h j d -> b h i d", sim.softmax(dim=-1), v)
        return self.to_out(rearrange(out, "b h n d -> b n (h d)"))


class BlockAttention(nn.Module):
    def __init__(self, dim, heads, size):
        super().__init__()
        self.size = size
        self.norm = nn.LayerNorm(dim)
        self.attn = BiasedAttention(dim, heads, size)

    def forward(self, x):
        s, h, w = self.size, x.shape[1] // self.size, x.shape[2] // self.size
        y = rearrange(self.norm(x), "b (h p) (w q) c -> (b h w) (p q) c", p=s, q=s)
        y = self.attn(y)
        return x + rearrange(y, "(b h w) (p q) c -> b (h p) (w q) c", h=h, w=w, p=s, q=s)


class GridAttention(nn.Module):
    def __init__(self, dim, heads, size):
        super().__init__()
        self.size = size
        self.norm = nn.LayerNorm(dim)
        self.attn = BiasedAttention(dim, heads, size)

    def forward(self, x):
        s, h, w = self.size, x.shape[1] // self.size, x.shape[2] // self.size
        y = rearrange(self.norm(x), "b (p h) (q w) c -> (b h w) (p q) c", p=s, q=s)
        y = self.attn(y)
        return x + rearrange(y, "(b h w) (p q) c -> b (h p) (w q) c", h=h, w=w, p=s, q=s)


class FFN(nn.Module):
    def __init__(self, dim, mult=2):
        super().__init__()
        self.net = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim * mult), nn.GELU(), nn.Linear(dim * mult, dim))

    def forward(self, x):
        return x + self.net(x)


class MultiAxis(nn.Module):
    def __init__(self, dim=48, heads=3, size=4, depth=2, classes=10):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 24, 3, 2, 1),
            nn.GELU(),
            nn.Conv2d(24, dim, 3, 2, 1),
        )
        self.layers = nn.Sequential(*[
            nn.Sequential(BlockAttention(dim, heads, size), FFN(dim), GridAttention(dim, heads, size), FFN(dim))
            for _ in range(depth)
        ])
        self.norm = nn.LayerNorm(dim)
        self.fc = nn.Linear(dim, classes)

    def forward(self, x):
        x = rearrange(self.stem(x), "b c h w -> b h w c")
        x = self.norm(self.layers(x))
        return self.fc(x.mean(dim=(1, 2)))


def build():
    return MultiAxis()

import torch
import torch.nn as nn


def split_windows(x, w):
    B, H, W, C = x.shape
    x = x.view(B, H // w, w, W // w, w, C)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, w * w, C)


def merge_windows(x, w, H, W):
    C = x.shape[-1]
    x = x.view(-1, H // w, W // w, w, w, C)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, H, W, C)


class WindowAttention(nn.Module):
    def __init__(self, dim, window, heads):
        super().__init__()
        self.heads = heads
        self.scale = (dim // heads) ** -0.5
        self.table = nn.Parameter(torch.zeros((2 * window - 1) ** 2, heads))
        nn.init.trunc_normal_(self.table, std=0.02)
        yx = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")).flatten(1)
        rel = yx[:, :, None] - yx[:, None, :] + window - 1
        self.register_buffer("index", rel[0] * (2 * window - 1) + rel[1], persistent=False)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x, mask=None):
        Bw, N, C = x.shape
        q, k, v = self.qkv(x).view(Bw, N, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4)
        att = (q * self.scale) @ k.transpose(-2, -1)
        att = att + self.table[self.index].permute(2, 0, 1)
        if mask is not None:
            nw = mask.shape[0]
            att = att.view(Bw // nw, nw, self.heads, N, N) + mask[None, :, None]
            att = att.view(Bw, self.heads, N, N)
        att = att.softmax(-1)
        return self.proj((att @ v).transpose(1, 2).reshape(Bw, N, C))


class Block(nn.Module):
    def __init__(self, dim, res, window, shift, heads):
        super().__init__()
        self.res, self.window, self.shift = res, window, shift
        self.norm1 = nn.LayerNorm(dim)
        self.attn = WindowAttention(dim, window, heads)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        mask = None
        if shift:
            region = torch.zeros(1, res, res, 1)
            cuts = (slice(0, -window), slice(-window, -shift), slice(-shift, None))
            n = 0
            for a in cuts:
                for b in cuts:
                    region[:, a, b] = n
                    n += 1
            r = split_windows(region, window).squeeze(-1)
            diff = r[:, None, :] != r[:, :, None]
            mask = torch.zeros(diff.shape).masked_fill(diff, -100.0)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x):
        y = self.norm1(x)
        if self.shift:
            y = y.roll((-self.shift, -self.shift), dims=(1, 2))
        y = self.attn(split_windows(y, self.window), self.mask)
        y = merge_windows(y, self.window, self.res, self.res)
        if self.shift:
            y = y.roll((self.shift, self.shift), dims=(1, 2))
        x = x + y
        return x + self.mlp(self.norm2(x))


class Downsample(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(4 * dim)
        self.reduction = nn.Linear(4 * dim, 2 * dim, bias=False)

    def forward(self, x):
        x = torch.cat([x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]], -1)
        return self.reduction(self.norm(x))


class Hierarchical(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.embed = nn.Conv2d(3, 32, 2, 2)
        self.embed_norm = nn.LayerNorm(32)
        self.stages = nn.Sequential(
            Block(32, 16, 4, 0, 2),
            Block(32, 16, 4, 2, 2),
            Downsample(32),
            Block(64, 8, 4, 0, 4),
            Block(64, 8, 4, 2, 4),
        )
        self.norm = nn.LayerNorm(64)
        self.head = nn.Linear(64, classes)

    def forward(self, x):
        x = self.embed_norm(self.embed(x).permute(0, 2, 3, 1))
        x = self.norm(self.stages(x))
        return self.head(x.mean(dim=(1, 2)))


def build():
    return Hierarchical()

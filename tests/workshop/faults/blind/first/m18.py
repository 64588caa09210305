"""Patch classifier whose attention scores are biased by the distance between patches."""
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import flex_attention as flex

flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = True


def slopes_for(num_heads):
    return torch.tensor([2.0 ** (-8.0 * (h + 1) / num_heads) for h in range(num_heads)])


class DistanceAttention(nn.Module):
    def __init__(self, width, heads, side):
        super().__init__()
        self.heads, self.side = heads, side
        self.to_qkv = nn.Linear(width, width * 3, bias=False)
        self.proj = nn.Linear(width, width)
        self.register_buffer("slopes", slopes_for(heads), persistent=False)

    def distance(self, i, j):
        dy = i // self.side - j // self.side
        dx = i % self.side - j % self.side
        return torch.sqrt((dy * dy + dx * dx).to(self.slopes.dtype))

    def score_mod(self, score, b, h, q_idx, kv_idx):
        return score - self.slopes[h] * self.distance(q_idx, kv_idx)

    def forward(self, x):
        B, N, D = x.shape
        q, k, v = self.to_qkv(x).view(B, N, 3, self.heads, D // self.heads).permute(2, 0, 3, 1, 4)
        if q.requires_grad and q.device.type == "cpu":
            # flex_attention has no CPU backward, so spell the same thing out
            ids = torch.arange(N, device=x.device)
            dist = self.distance(ids[:, None], ids[None, :])
            scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
            scores = scores - self.slopes[:, None, None] * dist
            out = scores.softmax(dim=-1) @ v
        else:
            out = flex.flex_attention(q.contiguous(), k.contiguous(), v.contiguous(), score_mod=self.score_mod)
        return self.proj(out.transpose(1, 2).reshape(B, N, D))


class Layer(nn.Module):
    def __init__(self, width, heads, side):
        super().__init__()
        self.ln_a = nn.LayerNorm(width)
        self.attn = DistanceAttention(width, heads, side)
        self.ln_m = nn.LayerNorm(width)
        self.up = nn.Linear(width, width * 3)
        self.down = nn.Linear(width * 3, width)

    def forward(self, x):
        x = x + self.attn(self.ln_a(x))
        return x + self.down(F.gelu(self.up(self.ln_m(x))))


class FlexPatchNet(nn.Module):
    def __init__(self, side=8, patch=4, width=64, heads=4, depth=2, classes=10):
        super().__init__()
        self.stem = nn.Conv2d(3, width, patch, stride=patch)
        # distances say how far apart two patches are; this says where they are
        self.where = nn.Parameter(torch.randn(1, side * side, width) * 0.02)
        self.layers = nn.ModuleList(Layer(width, heads, side) for _ in range(depth))
        self.ln_out = nn.LayerNorm(width)
        self.readout = nn.Linear(width, classes)

    def forward(self, images):
        x = self.stem(images).flatten(2).transpose(1, 2) + self.where
        for layer in self.layers:
            x = layer(x)
        return self.readout(self.ln_out(x.mean(dim=1)))


def build():
    return FlexPatchNet()

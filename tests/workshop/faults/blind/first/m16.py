"""Rotary ViT with complex-valued rotation, registers, SwiGLU and RMS norms."""
import torch
from torch import nn
from torch.nn import functional as F


def frequencies_2d(head_dim: int, side: int, theta: float = 100.0) -> torch.Tensor:
    quarter = head_dim // 4
    inv = theta ** (-torch.arange(quarter).float() / quarter)
    t = torch.arange(side * side)
    rows = torch.outer(torch.div(t, side, rounding_mode="floor").float(), inv)
    cols = torch.outer((t % side).float(), inv)
    angles = torch.cat([rows, cols], dim=-1)
    return torch.polar(torch.ones_like(angles), angles)


def apply_rotary(x: torch.Tensor, freqs: torch.Tensor, skip: int) -> torch.Tensor:
    head, body = x[:, :, :skip], x[:, :, skip:]
    z = torch.view_as_complex(body.float().reshape(*body.shape[:-1], -1, 2))
    body = torch.view_as_real(z * freqs).flatten(-2).type_as(x)
    return torch.cat([head, body], dim=2)


class Attention(nn.Module):
    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)

    def forward(self, x, freqs, skip):
        B, N, D = x.shape
        qkv = self.qkv(x).view(B, N, 3, self.heads, D // self.heads)
        xq, xk, xv = qkv.permute(2, 0, 3, 1, 4)
        xq = apply_rotary(xq, freqs, skip)
        y = F.scaled_dot_product_attention(xq, xk, xv)
        return self.out(y.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, dim: int, hidden: int):
        super().__init__()
        self.w1 = nn.Linear(dim, hidden, bias=False)
        self.w2 = nn.Linear(hidden, dim, bias=False)
        self.w3 = nn.Linear(dim, hidden, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class TransformerBlock(nn.Module):
    def __init__(self, dim: int, heads: int, hidden: int):
        super().__init__()
        self.attention = Attention(dim, heads)
        self.feed_forward = FeedForward(dim, hidden)
        self.attention_norm = nn.RMSNorm(dim, eps=1e-6)
        self.ffn_norm = nn.RMSNorm(dim, eps=1e-6)

    def forward(self, x, freqs, skip):
        h = x + self.attention(self.attention_norm(x), freqs, skip)
        return h + self.feed_forward(self.ffn_norm(h))


class RotaryViT(nn.Module):
    def __init__(self, dim=64, heads=4, depth=3, hidden=96, patch=4, registers=4, classes=10):
        super().__init__()
        self.skip = registers
        self.patchify = nn.Conv2d(3, dim, patch, stride=patch, bias=False)
        self.registers = nn.Parameter(torch.randn(1, registers, dim) * 0.02)
        self.layers = nn.ModuleList(TransformerBlock(dim, heads, hidden) for _ in range(depth))
        self.norm = nn.RMSNorm(dim, eps=1e-6)
        self.output = nn.Linear(dim, classes, bias=False)
        self.register_buffer("freqs", frequencies_2d(dim // heads, 32 // patch), persistent=False)

    def forward(self, pixels):
        h = self.patchify(pixels).flatten(2).transpose(1, 2)
        h = torch.cat([self.registers.expand(h.size(0), -1, -1), h], dim=1)
        for layer in self.layers:
            h = layer(h, self.freqs, self.skip)
        h = self.norm(h)[:, self.skip:]
        return self.output(h.mean(dim=1))


def build():
    return RotaryViT()

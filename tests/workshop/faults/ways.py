"""A small Vision Transformer in which one thing at a time is written in another way: right ones, and wrong ones."""

import math
from functools import partial

import torch
import torch.nn.functional as F
from small_models import HEADS, HIDDEN, C, K, P
from torch import nn

WIDE, SIDE = 24, 16
EACH, PATCHES = WIDE // HEADS, (SIDE // P) ** 2
SHAPE = (C, SIDE, SIDE)


class Attention(nn.Module):
    """One matrix for queries, keys and values; how they attend is given as a function of (B, h, T, D_h) or (T, D_h)."""

    def __init__(self, attend=None, scale=EACH**-0.5):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDE, 3 * WIDE), nn.Linear(WIDE, WIDE)
        self.scale, self.attend = scale, attend or self.by_hand

    def by_hand(self, q, k, v):
        return (q @ k.mT * self.scale).softmax(-1) @ v

    def heads(self, x):
        return (t.unflatten(-1, (HEADS, EACH)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))

    def forward(self, x):
        return self.out(self.attend(*self.heads(x)).transpose(1, 2).flatten(2))


class EachImage(Attention):
    """A loop over the images, and one over the heads, on matrices (T, D_h)."""

    def image(self, x):
        heads = zip(*(t.chunk(HEADS, -1) for t in self.qkv(x).chunk(3, -1)), strict=True)
        return self.out(torch.cat([self.attend(*head) for head in heads], -1))

    def forward(self, x):
        return torch.stack([self.image(image) for image in x])


class Mapped(EachImage):
    """The same by torch.vmap."""

    def forward(self, x):
        return torch.vmap(self.image)(x)


class EachHead(Attention):
    """A loop over the heads alone, of (B, T, D_h)."""

    def forward(self, x):
        q, k, v = (t.chunk(HEADS, -1) for t in self.qkv(x).chunk(3, -1))
        return self.out(torch.cat([self.attend(q[i], k[i], v[i]) for i in range(HEADS)], dim=-1))


class InChunks(Attention):
    """Two queries at a time, to save memory."""

    def forward(self, x):
        q, k, v = self.heads(x)
        parts = [self.attend(part, k, v) for part in q.split(2, dim=2)]
        return self.out(torch.cat(parts, 2).transpose(1, 2).flatten(2))


class Keeps(Attention):
    """Its weights stay for a picture, so that a model cannot be copied by deepcopy after a run."""

    def by_hand(self, q, k, v):
        self.weights = (q @ k.mT * self.scale).softmax(-1)
        return self.weights @ v


class TorchFunction(nn.Module):
    """F.multi_head_attention_forward, sequence first."""

    def __init__(self):
        super().__init__()
        self.into = nn.Parameter(torch.randn(3 * WIDE, WIDE) / WIDE**0.5)
        self.bias, self.out = nn.Parameter(torch.zeros(3 * WIDE)), nn.Linear(WIDE, WIDE)

    def forward(self, x):
        x, out = x.transpose(0, 1), self.out
        settings = (WIDE, HEADS, self.into, self.bias, None, None, False, 0.0, out.weight, out.bias)
        return F.multi_head_attention_forward(x, x, x, *settings, training=self.training)[0].transpose(0, 1)


def einsum(q, k, v, words="bhqd, bhkd -> bhqk", back="bhqk, bhkd -> bhqd"):
    return torch.einsum(back, torch.einsum(words, q, k).div(math.sqrt(EACH)).softmax(-1), v)


def tensordot(q, k, v):  # of one head of one image
    return torch.tensordot((torch.tensordot(q, k, dims=([1], [1])) * EACH**-0.5).softmax(1), v, dims=1)


def inner(q, k, v):
    return (torch.inner(q, k) / EACH**0.5).softmax(-1).matmul(v)


def baddbmm(q, k, v):
    scores = torch.baddbmm(q.new_empty(1), q.flatten(0, 1), k.flatten(0, 1).mT, beta=0, alpha=EACH**-0.5)
    return torch.bmm(scores.softmax(-1), v.flatten(0, 1)).view_as(v)


def stepwise(q, k, v):
    """Exponentials divided by their sum."""
    weights = (q @ k.mT * EACH**-0.5).exp()
    return (weights / weights.sum(-1, keepdim=True)) @ v


class Block(nn.Module):
    def __init__(self, attention=Attention, norm=nn.LayerNorm):
        super().__init__()
        self.norm1, self.norm2, self.attention = norm(WIDE), norm(WIDE), attention()
        self.mlp = nn.Sequential(nn.Linear(WIDE, HIDDEN * 2), nn.GELU(), nn.Linear(HIDDEN * 2, WIDE))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Net(nn.Module):
    """Patches by a convolution, a class token in front, three blocks."""

    def __init__(self, attention=Attention, norm=nn.LayerNorm, block=Block, head=None):
        super().__init__()
        self.patch, self.head = nn.Conv2d(C, WIDE, P, P), head or nn.Sequential(nn.LayerNorm(WIDE), nn.Linear(WIDE, K))
        self.blocks = nn.Sequential(*(block(attention, norm) for _ in range(3)))
        self.cls, self.pos = nn.Parameter(torch.randn(1, 1, WIDE)), nn.Parameter(torch.randn(1, PATCHES + 1, WIDE))

    def cut(self, x):
        return self.patch(x).flatten(2).mT

    def place(self, tokens):
        return torch.cat((self.cls.expand(len(tokens), -1, -1), tokens), 1) + self.pos

    def encode(self, x):
        return self.blocks(x)

    def read(self, x):
        return x[:, 0]

    def forward(self, images):
        return self.head(self.read(self.encode(self.place(self.cut(images)))))


RIGHT = {
    "each image": lambda: Net(EachImage),
    "vmap": lambda: Net(Mapped),
    "each head": lambda: Net(EachHead),
    "in chunks": lambda: Net(InChunks),
    "kept weights": lambda: Net(Keeps),
    "torch's function": lambda: Net(TorchFunction),
    "einsum": lambda: Net(partial(Attention, einsum)),
    "einsum of matrices": lambda: Net(partial(EachImage, partial(einsum, words="qd, kd -> qk", back="qk, kd -> qd"))),
    "tensordot": lambda: Net(partial(EachImage, tensordot)),
    "inner": lambda: Net(partial(EachImage, inner)),
    "baddbmm": lambda: Net(partial(Attention, baddbmm)),
    "stepwise": lambda: Net(partial(Attention, stepwise)),
}

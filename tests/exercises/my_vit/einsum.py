"""The reader's model by einsum and reshape."""

import math

import torch
from torch import einsum, nn


def attend(scores, v):
    weights = torch.exp(scores - scores.max(dim=-1, keepdim=True)[0])
    return einsum("...ts,...sd->...td", weights / weights.sum(-1, keepdim=True), v)


def attention_scores(q, k):
    return einsum("...td,...sd->...ts", q, k) / math.sqrt(q.size(-1))


def project(x, qkv):
    b, t, d = x.shape
    return qkv(x).reshape(b, t, 3, d).permute(2, 0, 1, 3).unbind(0)


class MultiHeadAttention(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (y.reshape(b, t, self.num_heads, -1) for y in project(x, self.qkv))
        scores = einsum("bthd,bshd->bhts", q, k) * (d // self.num_heads) ** -0.5
        heads = einsum("bhts,bshd->bthd", scores.softmax(-1), v)
        weight = self.proj.weight.reshape(d, self.num_heads, -1)
        return einsum("bthe,dhe->btd", heads, weight) + self.proj.bias


class MLP(nn.Module):
    def __init__(self, dim, hidden_dim):
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden_dim)
        self.fc2 = nn.Linear(hidden_dim, dim)

    def forward(self, x):
        x = einsum("btd,fd->btf", x, self.fc1.weight) + self.fc1.bias
        x = x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))
        return einsum("btf,df->btd", x, self.fc2.weight) + self.fc2.bias


class PatchEmbedding(nn.Module):
    def __init__(self, patch_size, channels, dim):
        super().__init__()
        self.p = patch_size
        self.proj = nn.Conv2d(channels, dim, kernel_size=patch_size, stride=patch_size)

    def forward(self, images):
        b, c, h, w = images.shape
        cut = images.reshape(b, c, h // self.p, self.p, w // self.p, self.p)
        return einsum("bchpwq,dcpq->bhwd", cut, self.proj.weight).flatten(1, 2) + self.proj.bias


class Embedding(nn.Module):
    def __init__(self, patch_embed, num_patches, dim):
        super().__init__()
        self.patch_embed = patch_embed
        self.cls_token = nn.Parameter(torch.randn(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.randn(1, num_patches + 1, dim))

    def forward(self, images):
        x = self.patch_embed(images)
        return torch.cat((self.cls_token.repeat(x.shape[0], 1, 1), x), 1) + self.pos_embed


class Norm(nn.LayerNorm):
    def forward(self, x):
        x = x - einsum("btd->bt", x)[..., None] / x.shape[-1]
        variance = einsum("btd,btd->bt", x, x)[..., None] / x.shape[-1]
        return x / torch.sqrt(variance + self.eps) * self.weight + self.bias


class EncoderBlock(nn.Module):
    def __init__(self, dim, num_heads, mlp_dim):
        super().__init__()
        self.norm1 = Norm(dim, eps=1e-6)
        self.attn = MultiHeadAttention(dim, num_heads)
        self.norm2 = Norm(dim, eps=1e-6)
        self.mlp = MLP(dim, mlp_dim)

    def forward(self, x):
        x = self.attn(self.norm1(x)) + x
        return self.mlp(self.norm2(x)) + x


class Encoder(nn.Module):
    def __init__(self, dim, depth, num_heads, mlp_dim):
        super().__init__()
        self.blocks = nn.Sequential(*[EncoderBlock(dim, num_heads, mlp_dim) for _ in range(depth)])

    def forward(self, x):
        return self.blocks(x)


class ViT(nn.Module):
    def __init__(self, image_size, patch_size, channels, num_classes, dim, depth, num_heads, mlp_dim):
        super().__init__()
        self.embedding = Embedding(PatchEmbedding(patch_size, channels, dim), (image_size // patch_size) ** 2, dim)
        self.encoder = Encoder(dim, depth, num_heads, mlp_dim)
        self.norm = Norm(dim, eps=1e-6)
        self.head = nn.Linear(dim, num_classes)

    def forward(self, images):
        z = self.norm(self.encoder(self.embedding(images)))
        return einsum("bd,kd->bk", z[:, 0], self.head.weight) + self.head.bias

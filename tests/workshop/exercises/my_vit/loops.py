"""The reader's model by loops, over queries, heads, patches and tokens, and from weights where others call layers."""

import math

import torch
from torch import nn


def attend(scores, v):
    rows = []
    for t in range(scores.shape[-2]):
        row = scores[..., t, :]
        row = (row - row.amax(-1, keepdim=True)).exp()
        row = row / row.sum(-1, keepdim=True)
        rows.append(sum(row[..., s, None] * v[..., s, :] for s in range(v.shape[-2])))
    return torch.stack(rows, dim=-2)


def attention_scores(q, k):
    rows = []
    for t in range(q.shape[-2]):
        row = [(q[..., t, :] * k[..., s, :]).sum(-1) / q.shape[-1] ** 0.5 for s in range(k.shape[-2])]
        rows.append(torch.stack(row, dim=-1))
    return torch.stack(rows, dim=-2)


def project(x, qkv):
    d = x.shape[-1]
    all_three = qkv(x)
    return [all_three[..., i * d : (i + 1) * d] for i in range(3)]


class MultiHeadAttention(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads, self.width = num_heads, dim // num_heads
        self.qkv = nn.Linear(dim, dim * 3)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        q, k, v = project(x, self.qkv)
        heads = []
        for i in range(self.num_heads):
            mine = slice(i * self.width, (i + 1) * self.width)
            heads.append(attend(attention_scores(q[..., mine], k[..., mine]), v[..., mine]))
        return self.proj(torch.cat(heads, dim=-1))


class MLP(nn.Module):
    def __init__(self, dim, hidden_dim):
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden_dim)
        self.fc2 = nn.Linear(hidden_dim, dim)

    def forward(self, x):
        x = torch.stack([self.fc1(x[:, t]) for t in range(x.shape[1])], dim=1)
        x = x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))
        return torch.einsum("btf,df->btd", x, self.fc2.weight) + self.fc2.bias


class PatchEmbedding(nn.Module):
    def __init__(self, patch_size, channels, dim):
        super().__init__()
        self.patch_size = patch_size
        self.proj = nn.Conv2d(channels, dim, patch_size, stride=patch_size)

    def forward(self, images):
        tokens, p = [], self.patch_size
        for row in range(0, images.shape[2], p):
            for column in range(0, images.shape[3], p):
                patch = images[:, :, row : row + p, column : column + p]
                tokens.append(patch.flatten(1) @ self.proj.weight.flatten(1).T + self.proj.bias)
        return torch.stack(tokens, dim=1)


class Embedding(nn.Module):
    def __init__(self, patch_embed, num_patches, dim):
        super().__init__()
        self.patch_embed = patch_embed
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.zeros(1, num_patches + 1, dim))

    def forward(self, images):
        tokens = []
        for patches in self.patch_embed(images):
            tokens.append(torch.cat([self.cls_token[0], patches]) + self.pos_embed[0])
        return torch.stack(tokens)


class Norm(nn.LayerNorm):
    def forward(self, x):
        x = x - x.mean(-1, keepdim=True)
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + self.eps) * self.weight + self.bias


class EncoderBlock(nn.Module):
    def __init__(self, dim, num_heads, mlp_dim):
        super().__init__()
        self.norm1 = Norm(dim, eps=1e-6)
        self.attn = MultiHeadAttention(dim, num_heads)
        self.norm2 = Norm(dim, eps=1e-6)
        self.mlp = MLP(dim, mlp_dim)

    def forward(self, x):
        for norm, branch in ((self.norm1, self.attn), (self.norm2, self.mlp)):
            x = x + branch(norm(x))
        return x


class Encoder(nn.Module):
    def __init__(self, dim, depth, num_heads, mlp_dim):
        super().__init__()
        self.blocks = nn.Sequential(*[EncoderBlock(dim, num_heads, mlp_dim) for _ in range(depth)])

    def forward(self, x):
        return self.blocks(x)


class ViT(nn.Module):
    def __init__(self, image_size, patch_size, channels, num_classes, dim, depth, num_heads, mlp_dim):
        super().__init__()
        patch_embed = PatchEmbedding(patch_size, channels, dim)
        self.embedding = Embedding(patch_embed, (image_size // patch_size) ** 2, dim)
        self.encoder = Encoder(dim, depth, num_heads, mlp_dim)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.head = nn.Linear(dim, num_classes)

    def forward(self, images):
        z = self.embedding(images)
        z = self.encoder(z)
        return torch.stack([self.head(self.norm(tokens[0])) for tokens in z])

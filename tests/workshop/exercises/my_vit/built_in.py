"""The reader's model with what torch has built in."""

import torch
import torch.nn.functional as F
from torch import nn


def attend(scores, v):
    return scores.softmax(-1) @ v


def attention_scores(q, k):
    return q @ k.mT / q.shape[-1] ** 0.5


def project(x, qkv):
    return qkv(x).chunk(3, dim=-1)


class MultiHeadAttention(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.h = num_heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        q, k, v = (y.unflatten(-1, (self.h, -1)).transpose(1, 2) for y in project(x, self.qkv))
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class MLP(nn.Module):
    def __init__(self, dim, hidden_dim):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(dim, hidden_dim), nn.Linear(hidden_dim, dim)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x)))


class PatchEmbedding(nn.Module):
    def __init__(self, patch_size, channels, dim):
        super().__init__()
        self.proj = nn.Conv2d(channels, dim, patch_size, patch_size)

    def forward(self, images):
        return self.proj(images).flatten(2).mT


class Embedding(nn.Module):
    def __init__(self, patch_embed, num_patches, dim):
        super().__init__()
        self.patch_embed = patch_embed
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(0.02 * torch.randn(1, num_patches + 1, dim))

    def forward(self, images):
        x = self.patch_embed(images)
        return torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1) + self.pos_embed


class EncoderBlock(nn.Module):
    def __init__(self, dim, num_heads, mlp_dim):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim, eps=1e-6), nn.LayerNorm(dim, eps=1e-6)
        self.attn, self.mlp = MultiHeadAttention(dim, num_heads), MLP(dim, mlp_dim)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Encoder(nn.Module):
    def __init__(self, dim, depth, num_heads, mlp_dim):
        super().__init__()
        self.blocks = nn.ModuleList(EncoderBlock(dim, num_heads, mlp_dim) for _ in range(depth))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


class ViT(nn.Module):
    def __init__(self, image_size, patch_size, channels, num_classes, dim, depth, num_heads, mlp_dim):
        super().__init__()
        self.embedding = Embedding(PatchEmbedding(patch_size, channels, dim), (image_size // patch_size) ** 2, dim)
        self.encoder = Encoder(dim, depth, num_heads, mlp_dim)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.head = nn.Linear(dim, num_classes)

    def forward(self, images):
        return self.head(self.norm(self.encoder(self.embedding(images)))[:, 0])

import torch
import torch.nn.functional as F
from torch import nn
from einops import rearrange, repeat
from einops.layers.torch import Rearrange


class PatchEmbedding(nn.Module):
    def __init__(self, in_channels=3, patch_size=4, emb_size=64, img_size=32):
        super().__init__()
        self.projection = nn.Sequential(
            nn.Conv2d(in_channels, emb_size, kernel_size=patch_size, stride=patch_size),
            Rearrange('b e h w -> b (h w) e'),
        )
        self.cls_token = nn.Parameter(torch.randn(1, 1, emb_size) * 0.02)
        self.positions = nn.Parameter(torch.randn((img_size // patch_size) ** 2 + 1, emb_size) * 0.02)

    def forward(self, x):
        x = self.projection(x)
        cls_tokens = repeat(self.cls_token, '() n e -> b n e', b=x.shape[0])
        x = torch.cat([cls_tokens, x], dim=1)
        return x + self.positions


class MultiHeadAttention(nn.Module):
    def __init__(self, emb_size=64, num_heads=4, dropout=0.):
        super().__init__()
        self.num_heads = num_heads
        self.head_size = emb_size // num_heads
        self.keys = nn.Linear(emb_size, emb_size)
        self.queries = nn.Linear(emb_size, emb_size)
        self.values = nn.Linear(emb_size, emb_size)
        self.att_drop = nn.Dropout(dropout)
        self.projection = nn.Linear(emb_size, emb_size)

    def forward(self, x):
        queries = rearrange(self.queries(x), 'b n (h d) -> b h n d', h=self.num_heads)
        keys = rearrange(self.keys(x), 'b n (h d) -> b h n d', h=self.num_heads)
        values = rearrange(self.values(x), 'b n (h d) -> b h n d', h=self.num_heads)
        energy = torch.einsum('bhqd, bhkd -> bhqk', queries, keys)
        scaling = self.head_size ** 0.5
        att = F.softmax(energy, dim=-1) / scaling
        att = self.att_drop(att)
        out = torch.einsum('bhal, bhlv -> bhav', att, values)
        return self.projection(rearrange(out, 'b h n d -> b n (h d)'))


class ResidualAdd(nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, x):
        return x + self.fn(x)


class FeedForwardBlock(nn.Sequential):
    def __init__(self, emb_size, expansion=2, drop_p=0.):
        super().__init__(
            nn.Linear(emb_size, expansion * emb_size),
            nn.GELU(),
            nn.Dropout(drop_p),
            nn.Linear(expansion * emb_size, emb_size),
        )


class EncoderBlock(nn.Sequential):
    def __init__(self, emb_size=64, drop_p=0.1):
        super().__init__(
            ResidualAdd(nn.Sequential(nn.LayerNorm(emb_size), MultiHeadAttention(emb_size), nn.Dropout(drop_p))),
            ResidualAdd(nn.Sequential(nn.LayerNorm(emb_size), FeedForwardBlock(emb_size), nn.Dropout(drop_p))),
        )


class ClassToken(nn.Module):
    def forward(self, x):
        return x[:, 0]


class ClassificationHead(nn.Sequential):
    def __init__(self, emb_size=64, n_classes=10):
        super().__init__(
            ClassToken(),
            nn.LayerNorm(emb_size),
            nn.Linear(emb_size, n_classes),
        )


def build():
    return nn.Sequential(PatchEmbedding(), *[EncoderBlock() for _ in range(3)], ClassificationHead())

"""
A minimal ViT in one file.
- patches in, logits out
- settings in a small dataclass
"""

import math
from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.nn import functional as F


@dataclass
class ViTConfig:
    image_size: int = 32
    patch_size: int = 4
    n_channel: int = 3
    n_layer: int = 3
    n_head: int = 4
    n_embd: int = 64
    n_class: int = 10
    dropout: float = 0.0
    bias: bool = False


class SelfAttention(nn.Module):

    def __init__(self, config):
        super().__init__()
        assert config.n_embd % config.n_head == 0
        # q, k, v for all heads, in one go
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)
        self.n_head = config.n_head
        self.n_embd = config.n_embd
        self.dropout = config.dropout

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        q = q.reshape(B, self.n_head, T, C // self.n_head)  # (B, nh, T, hs)
        k = k.reshape(B, self.n_head, T, C // self.n_head)  # (B, nh, T, hs)
        v = v.reshape(B, self.n_head, T, C // self.n_head)  # (B, nh, T, hs)
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0)
        y = y.transpose(1, 2).contiguous().view(B, T, C)
        return self.c_proj(y)


class MLP(nn.Module):

    def __init__(self, config):
        super().__init__()
        self.c_fc = nn.Linear(config.n_embd, 4 * config.n_embd, bias=config.bias)
        self.c_proj = nn.Linear(4 * config.n_embd, config.n_embd, bias=config.bias)

    def forward(self, x):
        return self.c_proj(F.relu(self.c_fc(x)).square())


class Block(nn.Module):

    def __init__(self, config):
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.n_embd, bias=config.bias)
        self.attn = SelfAttention(config)
        self.ln_2 = nn.LayerNorm(config.n_embd, bias=config.bias)
        self.mlp = MLP(config)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        x = x + self.mlp(self.ln_2(x))
        return x


class ViT(nn.Module):

    def __init__(self, config):
        super().__init__()
        n_patch = (config.image_size // config.patch_size) ** 2
        self.transformer = nn.ModuleDict(dict(
            wte=nn.Conv2d(config.n_channel, config.n_embd, config.patch_size, config.patch_size),
            wpe=nn.Embedding(n_patch, config.n_embd),
            h=nn.ModuleList([Block(config) for _ in range(config.n_layer)]),
            ln_f=nn.LayerNorm(config.n_embd, bias=config.bias),
        ))
        self.head = nn.Linear(config.n_embd, config.n_class)
        self.apply(self._init_weights)
        # residual projections get a smaller start
        for pn, p in self.named_parameters():
            if pn.endswith('c_proj.weight'):
                torch.nn.init.normal_(p, mean=0.0, std=0.02 / math.sqrt(2 * config.n_layer))

    def _init_weights(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            torch.nn.init.normal_(module.weight, mean=0.0, std=0.02)
            if getattr(module, 'bias', None) is not None:
                torch.nn.init.zeros_(module.bias)

    def forward(self, img, targets=None):
        x = self.transformer.wte(img).flatten(2).transpose(1, 2)
        pos = torch.arange(0, x.size(1), dtype=torch.long, device=img.device)
        x = x + self.transformer.wpe(pos)
        for block in self.transformer.h:
            x = block(x)
        x = self.transformer.ln_f(x)
        logits = self.head(x.mean(dim=1))
        loss = F.cross_entropy(logits, targets) if targets is not None else None
        return logits, loss


def build():
    return ViT(ViTConfig())

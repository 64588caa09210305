"""Vision Transformers in the styles of public repositories, each able to make some of the mistakes that are made there.

`fault in faults` is the wrong way; without faults each is right.
"""

import math

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from einops.layers.torch import Rearrange
from small_models import HEADS, HIDDEN, C, D, K, N, P
from torch import nn

D_H = D // HEADS


# As in timm: fused qkv, SDPA, LayerScale, a class token in front


class LayerScale(nn.Module):
    def __init__(self, dim, start=1e-5):
        super().__init__()
        self.gamma = nn.Parameter(start * torch.ones(dim))

    def forward(self, x):
        return x * self.gamma


class TimmAttention(nn.Module):
    def __init__(self, faults):
        super().__init__()
        self.faults = faults
        self.qkv, self.proj = nn.Linear(D, 3 * D), nn.Linear(D, D)

    def forward(self, x):
        B, T, _ = x.shape
        qkv = self.qkv(x).reshape(B, T, 3, HEADS, D_H)
        qkv = qkv.permute(2, 0, 1, 3, 4) if "kernel axes" in self.faults else qkv.permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        if "interleaved" in self.faults:
            q, k, v = self.qkv(x).reshape(B, T, HEADS, D_H, 3).permute(4, 0, 2, 1, 3).unbind(0)
        if "no values" in self.faults:
            v = x.reshape(B, T, HEADS, D_H).transpose(1, 2)
        if "keys twice" in self.faults:
            v = k
        if "scaled twice" in self.faults:
            q = q * D_H**-0.5
        x = F.scaled_dot_product_attention(q, k, v, is_causal="causal" in self.faults)
        if "kernel axes" not in self.faults and "merge" not in self.faults:
            x = x.transpose(1, 2)
        x = self.proj(x.reshape(B, T, D))
        return F.dropout(x, 0.1) if "dropout" in self.faults else x


class TimmBlock(nn.Module):
    def __init__(self, faults, tokens):
        super().__init__()
        self.faults = faults
        sizes = (tokens, D) if "norm over tokens" in faults else D
        self.norm1 = nn.LayerNorm(sizes, 0.1 if "eps" in faults else 1e-6)
        self.attn, self.ls1 = TimmAttention(faults), LayerScale(D)
        self.norm2, self.ls2 = nn.LayerNorm(D, 1e-6), LayerScale(D)
        act = [nn.Identity()] if "no gelu" in faults else [nn.GELU()] * (1 + ("two gelus" in faults))
        self.mlp = nn.Sequential(nn.Linear(D, HIDDEN), *act, nn.Linear(HIDDEN, D))
        if "gelu at the end" in faults:
            self.ls2 = nn.GELU()

    def forward(self, x):
        if "normalized residual" in self.faults:
            x = self.norm1(x)
            x = self.norm2(x + self.ls1(self.attn(x)))
            return x + self.ls2(self.mlp(x))
        x = x + self.ls1(self.attn(x if "no norm1" in self.faults else self.norm1(x)))
        return x + self.ls2(self.mlp(x if "no norm2" in self.faults else self.norm2(x)))


class TimmViT(nn.Module):
    def __init__(self, *faults, pool="token", registers=0, positions=None, depth=2):
        super().__init__()
        self.faults, self.pool, self.prefix = faults, pool, 1 + registers
        self.patch_embed = nn.Conv2d(C, D, P, P)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, D))
        self.reg_token = nn.Parameter(torch.zeros(1, registers, D)) if registers else None
        self.pos_embed = nn.Parameter(0.02 * torch.randn(1, positions or N + 1, D))
        make = lambda: TimmBlock(faults, N + self.prefix)  # noqa: E731
        blocks = [make()] * depth if "one block" in faults else [make() for _ in range(depth)]
        self.blocks = blocks if "unregistered" in faults else nn.Sequential(*blocks)
        self.norm, self.head = nn.LayerNorm(D, 1e-6), nn.Linear(D, K)

    def embed(self, images):
        x = self.patch_embed(images)
        x = x.reshape(len(x), N, D) if "conv reshaped" in self.faults else x.flatten(2).transpose(1, 2)
        cls = self.cls_token.expand(len(x), -1, -1)
        if "class token without position" in self.faults:
            return torch.cat([cls, x + self.pos_embed[:, 1:]], 1)
        if self.pos_embed.shape[1] == N:  # as in DeiT III
            x = torch.cat([cls, x + self.pos_embed], 1)
        else:
            x = torch.cat([cls, x], 1)
            if "no positions" not in self.faults:
                x = x + (self.pos_embed[:, :1] if "one position for all" in self.faults else self.pos_embed)
        if self.reg_token is None:
            return x
        return torch.cat([x[:, :1], self.reg_token.expand(len(x), -1, -1), x[:, 1:]], 1)

    def forward(self, images):
        if "one channel" in self.faults:
            images = images[:, :1].expand(-1, C, -1, -1)
        x = self.embed(images)
        for block in self.blocks:
            x = block(x)
        x = x if "no final norm" in self.faults else self.norm(x)
        if self.pool == "avg":
            x = x.mean(1) if "class token in the mean" in self.faults else x[:, self.prefix :].mean(1)
        else:
            x = x[:, -1] if "last token" in self.faults else x[:, 0]
        logits = self.head(x)
        return logits.softmax(-1) if "softmax" in self.faults else logits


# As in transformers: query, key and value apart, scores for all to see


class HfSelfAttention(nn.Module):
    def __init__(self, faults):
        super().__init__()
        self.faults = faults
        self.query, self.key, self.value = nn.Linear(D, D), nn.Linear(D, D), nn.Linear(D, D)
        self.dense = nn.Linear(D, D)

    def transpose_for_scores(self, x):
        if "split" in self.faults:
            return x.view(len(x), HEADS, x.shape[1], D_H)
        return x.view(*x.shape[:-1], HEADS, D_H).permute(0, 2, 1, 3)

    def forward(self, hidden):
        q, k, v = (self.transpose_for_scores(layer(hidden)) for layer in (self.query, self.key, self.value))
        scores = torch.matmul(q, k.transpose(-1, -2))
        if "no scale" not in self.faults:
            scores = scores / math.sqrt(D if "whole width" in self.faults else D_H)
        axis = {"queries": -2, "heads": 1, "batch": 0}
        probabilities = nn.functional.softmax(scores, dim=next((axis[f] for f in self.faults if f in axis), -1))
        if "scaled after" in self.faults:
            probabilities = probabilities / math.sqrt(D_H)
        context = torch.matmul(probabilities, v)
        if "merge" not in self.faults:
            context = context.permute(0, 2, 1, 3).contiguous()
        return self.dense(context.view(*hidden.shape))


class HfLayer(nn.Module):
    def __init__(self, faults):
        super().__init__()
        self.faults = faults
        self.layernorm_before, self.layernorm_after = nn.LayerNorm(D, 1e-12), nn.LayerNorm(D, 1e-12)
        self.attention = HfSelfAttention(faults)
        self.intermediate, self.output = nn.Linear(D, HIDDEN), nn.Linear(HIDDEN, D)

    def forward(self, hidden):
        attended = self.attention(self.layernorm_before(hidden))
        hidden = attended if "no first residual" in self.faults else attended + hidden
        out = self.output(F.gelu(self.intermediate(self.layernorm_after(hidden))))
        return out if "no second residual" in self.faults else out + hidden


class HfViT(nn.Module):
    def __init__(self, *faults):
        super().__init__()
        self.faults = faults
        self.projection = nn.Conv2d(C, D, kernel_size=P, stride=P)
        self.cls_token = nn.Parameter(torch.randn(1, 1, D))
        self.position_embeddings = nn.Parameter(torch.randn(1, N + 1, D))
        last = () if "only the last" not in faults else faults
        self.layer = nn.ModuleList([HfLayer(faults if "only the last" not in faults else ()), HfLayer(last or faults)])
        self.layernorm, self.classifier = nn.LayerNorm(D, 1e-12), nn.Linear(D, K)

    def forward(self, pixel_values):
        x = self.projection(pixel_values).flatten(2).transpose(1, 2)
        x = torch.cat((self.cls_token.expand(len(x), -1, -1), x), dim=1) + self.position_embeddings
        for layer in self.layer:
            x = layer(x)
        x = self.layernorm(x)
        if "first image" in self.faults:
            return self.classifier(x[:1, 0]).expand(len(x), -1)
        return self.classifier(x[:, 0, :])


# Functions on a dictionary of weights


class Functional(nn.Module):
    def __init__(self, *faults):
        super().__init__()
        self.faults = faults
        maps = {"patch": (D, C * P * P), "pos": (N, D), "head": (K, D)}
        for i in range(2):
            maps |= {f"wq{i}": (D, D), f"wk{i}": (D, D), f"wv{i}": (D, D), f"wo{i}": (D, D)}
            maps |= {f"up{i}": (HIDDEN, D), f"down{i}": (D, HIDDEN)}
        self.w = nn.ParameterDict({name: 0.1 * torch.randn(shape) for name, shape in maps.items()})

    def norm(self, x):
        correction = 1 if "unbiased" in self.faults else 0
        return (x - x.mean(-1, keepdim=True)) / (x.var(-1, correction=correction, keepdim=True) + 1e-6).sqrt()

    def attend(self, x, i):
        q, k, v = (torch.einsum("btd,hed->bhte", x, self.w[f"w{name}{i}"].view(HEADS, D_H, D)) for name in "qkv")
        scores = torch.einsum("bhte,bhse->bhts", q, k)
        if "no scale" not in self.faults:
            scores = scores / D_H**0.5
        weights = scores.softmax(2 if "queries" in self.faults else 3)
        return torch.einsum("bhts,bhse,dhe->btd", weights, v, self.w[f"wo{i}"].view(D, HEADS, D_H))

    def forward(self, images):
        x = images.unfold(2, P, P).unfold(3, P, P)  # (B, C, h, w, P, P)
        x = x if "unfolded" in self.faults else x.permute(0, 2, 3, 1, 4, 5)
        x = F.linear(x.reshape(len(x), N, -1), self.w["patch"]) + self.w["pos"]
        for i in range(2):
            x = x + self.attend(self.norm(x), i)
            hidden = F.linear(self.norm(x), self.w[f"up{i}"])
            hidden = hidden if "no gelu" in self.faults else F.gelu(hidden, approximate="tanh")
            x = x + F.linear(hidden, self.w[f"down{i}"])
        x = x if "no final norm" in self.faults else self.norm(x)
        pooled = x[:, 1:] if "first patch left out" in self.faults else x
        return F.linear(pooled.mean(1), self.w["head"])


# SimpleViT: fixed sines and cosines, the mean, einops


def sincos(height, width):
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    omega = 1.0 / 10000 ** (torch.arange(D // 4) / (D // 4 - 1))
    y, x = y.flatten()[:, None] * omega, x.flatten()[:, None] * omega
    return torch.cat((x.sin(), x.cos(), y.sin(), y.cos()), dim=1)


class SimpleAttention(nn.Module):
    def __init__(self, faults):
        super().__init__()
        self.faults = faults
        self.norm = nn.LayerNorm(D)
        self.to_qkv, self.to_out = nn.Linear(D, 3 * D, bias=False), nn.Linear(D, D, bias=False)

    def forward(self, x):
        q, k, v = self.to_qkv(self.norm(x)).chunk(3, dim=-1)
        if "one head" not in self.faults:
            q, k, v = (rearrange(t, "b n (h d) -> b h n d", h=HEADS) for t in (q, k, v))
        attention = (torch.matmul(q, k.transpose(-1, -2)) * D_H**-0.5).softmax(dim=-1)
        out = torch.matmul(attention, v)
        return self.to_out(out if "one head" in self.faults else rearrange(out, "b h n d -> b n (h d)"))


class SimpleViT(nn.Module):
    def __init__(self, *faults):
        super().__init__()
        self.faults = faults
        cut = "b c (h p1) (w p2) -> b (h w) (p1 p2 c)"
        if "cut" in faults:
            cut = "b c (p1 h) (p2 w) -> b (h w) (p1 p2 c)"
        dim = C * P * P
        self.to_patch_embedding = nn.Sequential(
            Rearrange(cut, p1=P, p2=P), nn.LayerNorm(dim), nn.Linear(dim, D), nn.LayerNorm(D)
        )
        sizes = (3, 2) if "axes exchanged" in faults else (2, 3)
        self.register_buffer("pos_embedding", sincos(*sizes), persistent=False)
        make = lambda: nn.Sequential(nn.LayerNorm(D), nn.Linear(D, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, D))  # noqa: E731
        self.layers = nn.ModuleList([nn.ModuleList([SimpleAttention(faults), make()]) for _ in range(2)])
        self.norm, self.linear_head = nn.LayerNorm(D), nn.Linear(D, K)

    def forward(self, images):
        x = self.to_patch_embedding(images)
        x = x if "no positions" in self.faults else x + self.pos_embedding.to(x.dtype)
        for attention, feedforward in self.layers:
            x = attention(x) + x
            x = feedforward(x) if "no second residual" in self.faults else feedforward(x) + x
        x = x if "no final norm" in self.faults else self.norm(x)
        if "max" in self.faults:
            return self.linear_head(x.max(dim=1).values)
        return self.linear_head(x.mean(dim=1)) * (30 if "loud" in self.faults else 1)


# nn.MultiheadAttention, as beginners use it


class Beginner(nn.Module):
    def __init__(self, *faults):
        super().__init__()
        self.faults = faults
        self.proj = nn.Conv2d(C, D, P, P)
        self.cls = nn.Parameter(torch.rand(3 if "batch in its shape" in faults else 1, 1, D))
        self.pos = nn.Embedding(N + 1, D)
        self.norm1, self.norm2 = (nn.ModuleList(nn.LayerNorm(D) for _ in range(2)) for _ in range(2))
        make = lambda: nn.MultiheadAttention(D, HEADS, batch_first="batch_first" not in faults)  # noqa: E731
        self.mha = nn.ModuleList(make() for _ in range(2))
        rate = 0.9 if "keep" in faults else 0.1
        self.mlp = nn.ModuleList(
            nn.Sequential(nn.Linear(D, HIDDEN), nn.GELU(), nn.Dropout(rate), nn.Linear(HIDDEN, D)) for _ in range(2)
        )
        self.head = nn.Sequential(nn.LayerNorm(D), nn.Linear(D, K))
        if "sigmoid" in faults:
            self.head.append(nn.Sigmoid())

    def forward(self, x):
        if "half" in self.faults:
            x = F.pad(x[..., : x.shape[-1] // 2], (0, x.shape[-1] - x.shape[-1] // 2))
        x = self.proj(x).flatten(2).permute(0, 2, 1)
        cls = self.cls if "batch in its shape" in self.faults else self.cls.repeat(len(x), 1, 1)
        x = torch.cat([cls, x], dim=1) + self.pos(torch.arange(N + 1, device=x.device))
        for norm1, mha, norm2, mlp in zip(self.norm1, self.mha, self.norm2, self.mlp, strict=True):
            y = norm1(x)
            x = x + mha(y, y, y, need_weights="weights" in self.faults)[0]
            x = x + mlp(norm2(x))
        return self.head(x.mean(1) if "batch_first" in self.faults else x[:, 0])


class Sliced(nn.Module):
    """Heads cut before their linear maps, with one small map for all, as in a widely watched video."""

    def __init__(self, slices=True):
        super().__init__()
        self.slices = slices
        width = D_H if slices else D
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(3)), None, None, nn.Linear(D, D)
        self.q, self.k, self.v = self.q

    def forward(self, x):
        split = lambda t: t.view(len(x), -1, HEADS, D_H)  # noqa: E731
        q, k, v = (f(split(x)) if self.slices else split(f(x)) for f in (self.q, self.k, self.v))
        weights = torch.einsum("bqhd,bkhd->bhqk", q, k).div(D_H**0.5).softmax(dim=3)
        return self.out(torch.einsum("bhqk,bkhd->bqhd", weights, v).reshape(x.shape))


# Other right designs


class SwiGLU(nn.Module):
    def __init__(self):
        super().__init__()
        self.w12, self.w3 = nn.Linear(D, 2 * HIDDEN), nn.Linear(HIDDEN, D)

    def forward(self, x):
        one, other = self.w12(x).chunk(2, dim=-1)
        return self.w3(F.silu(one) * other)


class MultiHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.proj = nn.Linear(D, 3 * D, bias=False), nn.Linear(D, D)

    def forward(self, x, context=None):
        q, k, v = rearrange(self.qkv(x), "b n (three h d) -> three b h n d", three=3, h=HEADS)
        return self.proj(rearrange(self.attend(q, k, v), "b h n d -> b n (h d)"))

    def attend(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v)


class CrossCovariance(MultiHead):
    """XCiT (El-Nouby et al. 2021): attention over the channels."""

    def __init__(self):
        super().__init__()
        self.temperature = nn.Parameter(torch.ones(HEADS, 1, 1))

    def attend(self, q, k, v):
        q, k = F.normalize(q, dim=-2), F.normalize(k, dim=-2)
        return (v @ (q.mT @ k * self.temperature).softmax(dim=-1).mT).contiguous()


class TalkingHeads(MultiHead):
    """Scores and weights mixed over the heads (Shazeer et al. 2020)."""

    def __init__(self):
        super().__init__()
        self.before, self.after = nn.Conv2d(HEADS, HEADS, 1, bias=False), nn.Conv2d(HEADS, HEADS, 1, bias=False)

    def attend(self, q, k, v):
        return self.after(self.before(q @ k.mT * D_H**-0.5).softmax(-1)) @ v


class QueryScaled(MultiHead):
    """The scale on the queries, and a maximum subtracted by hand."""

    def attend(self, q, k, v):
        scores = (q * D_H**-0.5) @ k.transpose(2, 3)
        return F.softmax(scores - scores.amax(-1, keepdim=True), dim=3) @ v


class GroupedQueries(nn.Module):
    """One key and value for all heads (Shazeer 2019)."""

    def __init__(self):
        super().__init__()
        self.q, self.kv, self.proj = nn.Linear(D, D), nn.Linear(D, 2 * D_H), nn.Linear(D, D)

    def forward(self, x):
        q = rearrange(self.q(x), "b n (h d) -> b h n d", h=HEADS)
        k, v = self.kv(x)[:, None].chunk(2, dim=-1)
        weights = (q @ k.mT / math.sqrt(D_H)).softmax(-1)
        return self.proj(rearrange(weights @ v, "b h n d -> b n (h d)"))


def mlp():
    return nn.Sequential(nn.Linear(D, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, D))


class PreNorm(nn.Module):
    def __init__(self, attention, feedforward):
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(D), attention
        self.norm2, self.feedforward = nn.LayerNorm(D), feedforward

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.feedforward(self.norm2(x))


class Parallel(PreNorm):
    """Attention and MLP side by side (ViT-22B)."""

    def forward(self, x):
        return x + self.attention(self.norm1(x)) + self.feedforward(self.norm2(x))


class ResPostNorm(PreNorm):
    """The norm at the end of each branch (Swin v2)."""

    def forward(self, x):
        x = x + self.norm1(self.attention(x))
        return x + self.norm2(self.feedforward(x))


class Sandwich(PreNorm):
    """Norms around each branch."""

    def __init__(self, attention, feedforward):
        super().__init__(nn.Sequential(attention, nn.LayerNorm(D)), nn.Sequential(feedforward, nn.LayerNorm(D)))


class Windows(nn.Module):
    """Attention in two windows, as in Swin."""

    def __init__(self):
        super().__init__()
        self.attention = MultiHead()

    def forward(self, x):
        return rearrange(self.attention(rearrange(x, "b (w n) d -> (b w) n d", w=2)), "(b w) n d -> b (w n) d", w=2)


class ConvPosition(nn.Module):
    """A depthwise convolution that tells positions (Chu et al. 2021)."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(D, D, 3, padding=1, groups=D)

    def forward(self, x):
        grid = rearrange(x, "b (h w) d -> b d h w", h=2)
        return x + rearrange(self.conv(grid), "b d h w -> b (h w) d")


class AttentionPool(nn.Module):
    """A learned query that asks all patches (SigLIP)."""

    def __init__(self):
        super().__init__()
        self.probe = nn.Parameter(torch.randn(1, 1, D))
        self.attention = nn.MultiheadAttention(D, HEADS, batch_first=True)
        self.norm, self.mlp = nn.LayerNorm(D), mlp()

    def forward(self, x):
        x = self.attention(self.probe.expand(len(x), -1, -1), x, x)[0]
        return (x + self.mlp(self.norm(x)))[:, 0]


class ClassAttention(nn.Module):
    """Only the class token asks, after the trunk (CaiT)."""

    def __init__(self):
        super().__init__()
        self.cls, self.norm = nn.Parameter(torch.randn(1, 1, D)), nn.LayerNorm(D)
        self.layers = nn.ModuleList(nn.MultiheadAttention(D, HEADS, batch_first=True) for _ in range(2))

    def forward(self, x):
        cls = repeat(self.cls, "1 1 d -> b 1 d", b=len(x))
        for layer in self.layers:
            both = self.norm(torch.cat([cls, x], dim=1))
            cls = cls + layer(both[:, :1], both, both)[0]
        return self.norm(cls)[:, 0]


class Mean(nn.Module):
    def forward(self, x):
        return x.mean(dim=1)


class Maximum(nn.Module):
    def forward(self, x):
        return x.max(dim=1).values


def patches():
    return nn.Conv2d(C, D, P, P)


def overlapping():
    return nn.Conv2d(C, D, 7, stride=4, padding=3)


def conv_stem():
    """Small convolutions in place of one large (Xiao et al. 2021)."""
    return nn.Sequential(
        nn.Conv2d(C, D, 3, 2, 1), nn.BatchNorm2d(D), nn.ReLU(), nn.Conv2d(D, D, 3, 2, 1), nn.ReLU(), nn.Conv2d(D, D, 1)
    )


class Assembled(nn.Module):
    """Of parts: a stem, blocks and a way to one vector."""

    def __init__(self, attention=MultiHead, feedforward=mlp, block=PreNorm, stem=patches, pool=Mean, positions=None):
        super().__init__()
        self.stem, self.pos = stem(), None if positions else nn.Parameter(0.02 * torch.randn(1, N, D))
        self.positions = positions and positions()
        self.trunk = nn.Sequential(*(block(attention(), feedforward()) for _ in range(3)))
        self.norm, self.pool, self.fc = nn.LayerNorm(D), pool(), nn.Linear(D, K)

    def forward(self, images):
        x = rearrange(self.stem(images), "b d h w -> b (h w) d")
        x = self.positions(x) if self.positions else x + self.pos
        return self.fc(self.pool(self.norm(self.trunk(x))))


class Distilled(nn.Module):
    """Two tokens in front, two heads, their mean (DeiT)."""

    def __init__(self):
        super().__init__()
        self.embed = patches()
        self.tokens, self.pos = nn.Parameter(torch.randn(1, 2, D)), nn.Parameter(torch.randn(1, N + 2, D))
        self.blocks = nn.Sequential(*(PreNorm(MultiHead(), mlp()) for _ in range(2)))
        self.norm, self.head, self.head_dist = nn.LayerNorm(D), nn.Linear(D, K), nn.Linear(D, K)

    def forward(self, images):
        x = torch.cat([self.tokens.expand(len(images), -1, -1), self.embed(images).flatten(2).mT], 1) + self.pos
        x = self.norm(self.blocks(x))
        return (self.head(x[:, 0]) + self.head_dist(x[:, 1])) / 2


RIGHT_STYLES = {
    "timm-like": TimmViT,
    "timm-like, mean": lambda: TimmViT(pool="avg"),
    "registers": lambda: TimmViT(registers=2),
    "DeiT III": lambda: TimmViT(positions=N),
    "twelve blocks": lambda: TimmViT(depth=12),
    "HF-like": HfViT,
    "functional": Functional,
    "SimpleViT": SimpleViT,
    "maximum": lambda: SimpleViT("max"),
    "MultiheadAttention": Beginner,
    "MultiheadAttention, weights": lambda: Beginner("weights"),
    "unsliced": lambda: Assembled(lambda: Sliced(slices=False)),
    "assembled": Assembled,
    "SwiGLU": lambda: Assembled(feedforward=SwiGLU),
    "cross-covariance": lambda: Assembled(CrossCovariance),
    "talking heads": lambda: Assembled(TalkingHeads),
    "scaled queries": lambda: Assembled(QueryScaled),
    "one key for all": lambda: Assembled(GroupedQueries),
    "parallel": lambda: Assembled(block=Parallel),
    "norm at the end of a branch": lambda: Assembled(block=ResPostNorm),
    "sandwich": lambda: Assembled(block=Sandwich),
    "windows": lambda: Assembled(Windows),
    "conv stem": lambda: Assembled(stem=conv_stem),
    "overlapping patches": lambda: Assembled(stem=overlapping),
    "conv positions": lambda: Assembled(positions=ConvPosition),
    "attention pooling": lambda: Assembled(pool=AttentionPool),
    "class attention": lambda: Assembled(pool=ClassAttention),
    "max pooling": lambda: Assembled(pool=Maximum),
    "distilled": Distilled,
}

SPLIT, JOIN = "view(B, h", "heads joined"  # two causes

# The questions by shorter names
SCALE, SUMS, HEADS_WHOLE, ORDER = "scores_are_scaled", "weights_sum_to_one", "heads_keep_tokens_whole", "order_counts"
IDLE, ADDS, CUT, MIX = "parameters_play_a_part", "blocks_add", "a_token_is_a_rectangle", "images_do_not_mix"
NORMS, MLPS, DRAWN = "each_token_is_normalized", "mlps_have_an_activation", "evaluation_is_deterministic"
ALIKE, READ, SHARES = "blocks_start_different", "patches_are_read_alike", "logits_are_no_probabilities"
BRANCHES, LAST = "both_branches_get_normalized_tokens", "head_gets_normalized_tokens"

# How to build it, and for each question that it fails a part of the suspect that it names: the true cause
WRONG_STYLES = {
    "timm, kernel axes": (
        lambda: TimmViT("kernel axes"),
        {HEADS_WHOLE: SPLIT, "images_count": "never sees the patches"},
    ),
    "timm, keys for values": (lambda: TimmViT("keys twice"), {IDLE: "taken twice"}),
    "timm, scaled twice": (lambda: TimmViT("scaled twice"), {SCALE: "scaled twice"}),
    "timm, causal": (lambda: TimmViT("causal", pool="avg"), {"tokens_see_the_later_ones": "causal"}),
    "timm, merge": (lambda: TimmViT("merge"), {HEADS_WHOLE: JOIN}),
    "timm, dropout": (lambda: TimmViT("dropout"), {DRAWN: "F.dropout"}),
    "timm, norm over tokens": (lambda: TimmViT("norm over tokens"), {NORMS: "LayerNorm((T, D))"}),
    "timm, ε": (lambda: TimmViT("eps"), {NORMS: "in the place of ε"}),
    "timm, no GELU": (lambda: TimmViT("no gelu"), {MLPS: "GELU is missing"}),
    "timm, two GELUs": (lambda: TimmViT("two gelus"), {MLPS: "twice in a row"}),
    "timm, GELU at the end": (lambda: TimmViT("gelu at the end"), {MLPS: "GELU after"}),
    "timm, no norm before attention": (
        lambda: TimmViT("no norm1"),
        {BRANCHES: "before attention", IDLE: "never called"},
    ),
    "timm, no norm before the MLP": (lambda: TimmViT("no norm2"), {BRANCHES: "before the MLP", IDLE: "never called"}),
    "timm, one block": (lambda: TimmViT("one block"), {ALIKE: "several times"}),
    "timm, unregistered": (lambda: TimmViT("unregistered"), {"learned_things_are_registered": "nn.ModuleList"}),
    "timm, conv reshaped": (lambda: TimmViT("conv reshaped"), {CUT: "without a transpose"}),
    "timm, class token": (lambda: TimmViT("class token without position"), {IDLE: "class token"}),
    "timm, no positions": (lambda: TimmViT("no positions"), {ORDER: "positions", IDLE: "positions"}),
    "timm, one channel": (lambda: TimmViT("one channel"), {"every_pixel_counts": "cuts too much"}),
    "timm, no final norm": (lambda: TimmViT("no final norm"), {LAST: "last LayerNorm", IDLE: "last LayerNorm"}),
    "timm, last token": (lambda: TimmViT("last token"), {READ: "wrong index"}),
    "timm, softmax": (lambda: TimmViT("softmax"), {SHARES: "softmax"}),
    "HF, split": (lambda: HfViT("split"), {HEADS_WHOLE: SPLIT}),
    "HF, merge": (lambda: HfViT("merge"), {HEADS_WHOLE: JOIN}),
    "HF, no scale": (lambda: HfViT("no scale"), {SCALE: "no scale"}),
    "HF, √D": (lambda: HfViT("whole width"), {SCALE: "√D for √D_h"}),
    "HF, queries": (lambda: HfViT("queries"), {SUMS: "over the queries"}),
    "HF, heads": (lambda: HfViT("heads"), {SUMS: "over the heads"}),
    "HF, batch": (lambda: HfViT("batch"), {SUMS: "over the batch", MIX: "first axis"}),
    "HF, scaled after": (lambda: HfViT("no scale", "scaled after"), {SUMS: "after the softmax", SCALE: "no scale"}),
    "HF, no residual": (lambda: HfViT("no first residual"), {ADDS: "residual"}),
    "HF, no residual, MLP": (lambda: HfViT("no second residual"), {ADDS: "residual"}),
    "HF, no residual at the end": (lambda: HfViT("no second residual", "only the last"), {ADDS: "residual"}),
    "HF, first image": (lambda: HfViT("first image"), {MIX: "one image's class token"}),
    "functional, unbiased": (lambda: Functional("unbiased"), {NORMS: "D − 1"}),
    "functional, no scale": (lambda: Functional("no scale"), {SCALE: "no scale"}),
    "functional, queries": (lambda: Functional("queries"), {SUMS: "over the queries"}),
    "functional, unfold": (lambda: Functional("unfolded"), {CUT: "view or reshape"}),
    "functional, no GELU": (lambda: Functional("no gelu"), {MLPS: "GELU is missing"}),
    "functional, no final norm": (lambda: Functional("no final norm"), {LAST: "last LayerNorm"}),
    "functional, first patch": (lambda: Functional("first patch left out"), {READ: "mean"}),
    "SimpleViT, one head": (lambda: SimpleViT("one head"), {SCALE: "never split"}),
    "SimpleViT, cut": (lambda: SimpleViT("cut"), {CUT: "view or reshape"}),
    "SimpleViT, no positions": (lambda: SimpleViT("no positions"), {ORDER: "positions are missing"}),
    "SimpleViT, no residual": (lambda: SimpleViT("no second residual"), {ADDS: "residual"}),
    "SimpleViT, no final norm": (lambda: SimpleViT("no final norm"), {LAST: "last LayerNorm", IDLE: "last LayerNorm"}),
    "SimpleViT, loud": (lambda: SimpleViT("loud"), {"first_loss_is_near_ln_k": "too large"}),
    "beginner, batch_first": (lambda: Beginner("batch_first"), {MIX: "batch_first"}),
    "beginner, batch in its shape": (
        lambda: Beginner("batch in its shape"),
        {"every_batch_size_will_do": "batch size", "places_in_a_batch_are_alike": "indexed by the image"},
    ),
    "beginner, keep": (lambda: Beginner("keep"), {"every_dropout_acts": "to keep"}),
    "beginner, sigmoid": (lambda: Beginner("sigmoid"), {SHARES: "sigmoid"}),
    "beginner, half": (lambda: Beginner("half"), {"every_pixel_counts": "cuts too much"}),
    "sliced heads": (lambda: Assembled(Sliced), {"heads_see_whole_tokens": "cut into heads before"}),
    "timm, positions": (
        lambda: TimmViT("one position for all", pool="avg"),
        {ORDER: "positions", IDLE: "positions that some tokens do not get"},
    ),
    "timm, normalized residual": (lambda: TimmViT("normalized residual"), {ADDS: "x = norm(x)"}),
    "timm, no values": (lambda: TimmViT("no values"), {IDLE: "never used"}),
}

# Faults that no question finds: each is a right design somewhere, or has no effect before other weights are loaded
UNSEEN = {
    "timm, class token in the mean": lambda: TimmViT("class token in the mean", pool="avg"),
    "timm, query, key and value interleaved": lambda: TimmViT("interleaved"),
    "SimpleViT, axes exchanged": lambda: SimpleViT("axes exchanged"),
}

TWICE_WRONG = {
    "timm, last token, scaled twice": (
        lambda: TimmViT("last token", "scaled twice"),
        {READ: "wrong index", SCALE: "scaled twice"},
    ),
    "timm, conv reshaped, softmax": (
        lambda: TimmViT("conv reshaped", "softmax"),
        {CUT: "without a transpose", SHARES: "softmax"},
    ),
    "timm, no GELU, dropout": (lambda: TimmViT("no gelu", "dropout"), {MLPS: "GELU is missing", DRAWN: "F.dropout"}),
    "timm, one block, ε": (lambda: TimmViT("one block", "eps"), {ALIKE: "several times", NORMS: "in the place of ε"}),
    "HF, no scale, merge": (lambda: HfViT("no scale", "merge"), {SCALE: "no scale", HEADS_WHOLE: JOIN}),
    "HF, queries, no residual": (
        lambda: HfViT("queries", "no first residual"),
        {SUMS: "over the queries", ADDS: "residual"},
    ),
    "functional, unfold, no scale": (
        lambda: Functional("unfolded", "no scale"),
        {CUT: "view or reshape", SCALE: "no scale"},
    ),
    "SimpleViT, no positions, one head": (
        lambda: SimpleViT("no positions", "one head"),
        {ORDER: "positions are missing", SCALE: "never split"},
    ),
    "beginner, sigmoid, keep": (
        lambda: Beginner("sigmoid", "keep"),
        {SHARES: "sigmoid", "every_dropout_acts": "to keep"},
    ),
}

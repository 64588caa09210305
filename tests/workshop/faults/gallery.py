"""Vision Transformers as people write them, with names of their own and nothing of this package: right, and wrong."""

import math
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from einops import rearrange
from small_models import HEADS, HEIGHT, HIDDEN, WIDTH, C, D, K, N, P, small_config
from styles import ADDS, CUT, DRAWN, HEADS_WHOLE, IDLE, MIX, ORDER, RIGHT_STYLES, SCALE, SHARES, SUMS, WRONG_STYLES
from torch import nn

from vitbook.patches import HybridEmbedding, conv_stem
from vitbook.vit import VisionTransformer

transformers = pytest.importorskip("transformers")  # not among the oldest versions
D_H = D // HEADS
IMAGE = (C, HEIGHT, WIDTH)
SQUARE = (C, 8, 8)  # of 4 patches


class TorchViT(nn.Module):
    """Of torch's own parts, such as many write first."""

    def __init__(self, pool="class", initialized=True, head=lambda z: z[:, 0], **layer):
        super().__init__()
        self.patches = nn.Conv2d(C, D, P, stride=P)
        self.cls = nn.Parameter(torch.randn(1, 1, D))
        self.pos = nn.Parameter(torch.randn(1, N + 1, D))
        settings = dict(dropout=0.1, activation="gelu", batch_first=True, norm_first=True) | layer
        layer = nn.TransformerEncoderLayer(D, HEADS, HIDDEN, **settings)
        self.encoder = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(D), enable_nested_tensor=False)
        self.head = nn.Linear(D, K)
        self.read = head if pool == "class" else lambda z: z[:, 1:].mean(dim=1)
        if initialized:
            for parameter in self.encoder.parameters():
                if parameter.ndim > 1:
                    nn.init.xavier_uniform_(parameter)

    def forward(self, images):
        x = self.patches(images).flatten(2).mT
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], dim=1) + self.pos
        return self.head(self.read(self.encoder(x)))


def cut(x):
    return x.view(len(x), C, HEIGHT // P, P, WIDTH // P, P).permute(0, 2, 4, 1, 3, 5).reshape(len(x), N, C * P * P)


def weigh(q, k):
    return (q @ k.mT / math.sqrt(q.shape[-1])).softmax(dim=-1)


# How each step is done; a class stands for a module made where it is used.
RIGHT_WAYS = dict(
    tokens=N,
    patches=lambda: nn.Linear(C * P * P, D),
    cut=cut,
    place=lambda x, pos: x + pos,
    norm=nn.LayerNorm,
    split=lambda x: x.view(len(x), -1, HEADS, D_H).transpose(1, 2),
    attend=lambda q, k, v: weigh(q, k) @ v,
    merge=lambda x: x.transpose(1, 2).flatten(2),
    add_attention=lambda x, branch: x + branch,
    act=F.gelu,
    add_mlp=lambda x, branch: x + branch,
    last_norm=nn.LayerNorm,
    read=lambda z: z.mean(dim=1),
    end=lambda logits: logits,
)


class OwnBlock(nn.Module):
    def __init__(self, ways):
        super().__init__()
        self.ways = ways
        self.ln1, self.ln2 = ways.norm(D), ways.norm(D)
        self.to_q, self.to_k, self.to_v, self.out = (nn.Linear(D, D) for _ in range(4))
        self.attend = ways.attend() if isinstance(ways.attend, type) else ways.attend
        self.mlp1, self.mlp2 = nn.Linear(D, HIDDEN), nn.Linear(HIDDEN, D)

    def forward(self, x):
        y = self.ln1(x)
        q, k, v = (self.ways.split(linear(y)) for linear in (self.to_q, self.to_k, self.to_v))
        x = self.ways.add_attention(x, self.out(self.ways.merge(self.attend(q, k, v))))
        return self.ways.add_mlp(x, self.mlp2(self.ways.act(self.mlp1(self.ln2(x)))))


class OwnViT(nn.Module):
    """A reader's own, without a class token, in which any step can be done in another way."""

    def __init__(self, **ways):
        super().__init__()
        assert set(ways) <= set(RIGHT_WAYS)
        self.ways = SimpleNamespace(**RIGHT_WAYS | ways)
        self.patches = self.ways.patches()
        if self.ways.place:
            self.where = nn.Parameter(0.02 * torch.randn(1, self.ways.tokens, D))
        self.layers = nn.ModuleList(OwnBlock(self.ways) for _ in range(2))
        self.norm, self.classify = self.ways.last_norm(D), nn.Linear(D, K)

    def forward(self, images):
        x = self.patches(self.ways.cut(images))
        if self.ways.place:
            x = self.ways.place(x, self.where)
        for layer in self.layers:
            x = layer(x)
        return self.ways.end(self.classify(self.ways.read(self.norm(x))))


# Parts in other styles


class Transposed(nn.Module):
    """(B, D, N) → (B, N, D), as it follows nn.Flatten(2) and nn.Unfold in tutorials."""

    def forward(self, x):
        return x.permute(0, 2, 1)


class HandMadeNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.gain, self.shift = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        deviation = (x.var(dim=-1, correction=0, keepdim=True) + 1e-6).sqrt()
        return (x - x.mean(dim=-1, keepdim=True)) / deviation * self.gain + self.shift


def rotated(x):
    """Rotary positions (RoFormer, Su et al. 2021)."""
    angles = torch.arange(x.shape[-2]).to(x)[:, None] / 10 ** torch.arange(x.shape[-1] // 2).to(x)
    cos, sin = (torch.cat([f(angles)] * 2, dim=-1) for f in (torch.cos, torch.sin))
    one, other = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-other, one], dim=-1) * sin


class RelativeBias(nn.Module):
    """A learned bias for each pair of places and each head, as in Swin and BEiT."""

    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(HEADS, N, N))

    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=self.bias.expand(len(q), -1, -1, -1))


class CosineAttention(nn.Module):
    """Normalized queries and keys, and a learned temperature, as in Swin v2."""

    def __init__(self):
        super().__init__()
        self.temperature = nn.Parameter(torch.full((HEADS, 1, 1), 2.0))

    def forward(self, q, k, v):
        return (F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT * self.temperature.exp()).softmax(dim=-1) @ v


class LearnedScale(nn.Module):
    """One learned number, as for small data sets (Lee et al. 2021)."""

    def __init__(self):
        super().__init__()
        self.log_scale = nn.Parameter(torch.tensor(math.log(D_H**-0.5)))

    def forward(self, q, k, v):
        return (q @ k.mT * self.log_scale.exp()).softmax(dim=-1) @ v


class NormedQueries(nn.Module):
    """LayerNorm on queries and keys (ViT-22B, Dehghani et al. 2023)."""

    def __init__(self):
        super().__init__()
        self.q_norm, self.k_norm = nn.LayerNorm(D_H), nn.LayerNorm(D_H)

    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(self.q_norm(q), self.k_norm(k), v)


def shifted(images):
    """Each patch with its neighbors' nearest pixels (Lee et al. 2021)."""
    moved = [F.pad(images, shift) for shift in ((1, -1, 0, 0), (-1, 1, 0, 0), (0, 0, 1, -1), (0, 0, -1, 1))]
    return torch.cat([cut(x) for x in (images, *moved)], dim=-1)


class ChannelsFirstBlock(nn.Module):
    """A block on (B, D, T), all its linear maps convolutions of kernel 1."""

    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.GroupNorm(1, D), nn.GroupNorm(1, D)
        self.qkv, self.out = nn.Conv1d(D, 3 * D, 1), nn.Conv1d(D, D, 1)
        self.mlp = nn.Sequential(nn.Conv1d(D, HIDDEN, 1), nn.GELU(), nn.Conv1d(HIDDEN, D, 1))

    def forward(self, x):
        q, k, v = self.qkv(self.ln1(x)).view(len(x), 3, HEADS, D_H, -1).unbind(dim=1)
        weights = (q.mT @ k * D_H**-0.5).softmax(dim=-1)
        x = x + self.out((v @ weights.mT).reshape(x.shape))
        return x + self.mlp(self.ln2(x))


class ChannelsFirstViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(C, D, P, stride=P)
        self.pos = nn.Parameter(0.02 * torch.randn(1, D, N))
        self.blocks = nn.Sequential(ChannelsFirstBlock(), ChannelsFirstBlock())
        self.norm, self.head = nn.GroupNorm(1, D), nn.Conv1d(D, K, 1)

    def forward(self, images):
        x = self.norm(self.blocks(self.stem(images).flatten(2) + self.pos))
        return self.head(x).mean(dim=-1)


class FusedProjection(nn.Module):
    """Attention as in vit-pytorch: no bias, einops."""

    def __init__(self, merge="b h n d -> b n (h d)"):
        super().__init__()
        self.norm, self.merge = nn.LayerNorm(D), merge
        self.to_qkv, self.to_out = nn.Linear(D, 3 * D, bias=False), nn.Linear(D, D, bias=False)

    def forward(self, x):
        q, k, v = (rearrange(t, "b n (h d) -> b h n d", h=HEADS) for t in self.to_qkv(self.norm(x)).chunk(3, dim=-1))
        x = (q @ k.transpose(-1, -2) * D_H**-0.5).softmax(dim=-1) @ v
        return self.to_out(x.reshape(len(x), -1, D) if self.merge is None else rearrange(x, self.merge))


class NestedLists(nn.Module):
    """The layers as ModuleList([ModuleList([attention, mlp]), …]), their sums in the loop."""

    def __init__(self, merge="b h n d -> b n (h d)", residual=1):
        super().__init__()
        self.residual = residual
        self.to_patches = nn.Linear(C * P * P, D)
        self.cls, self.pos = nn.Parameter(torch.randn(1, 1, D)), nn.Parameter(torch.randn(1, N + 1, D))
        self.layers = nn.ModuleList(nn.ModuleList([FusedProjection(merge), self.mlp()]) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(D), nn.Linear(D, K)

    @staticmethod
    def mlp():
        return nn.Sequential(nn.LayerNorm(D), nn.Linear(D, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, D))

    def forward(self, images):
        x = self.to_patches(rearrange(images, "b c (h p) (w q) -> b (h w) (p q c)", p=P, q=P))
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], dim=1) + self.pos
        for attention, mlp in self.layers:
            x = attention(x) + self.residual * x
            x = mlp(x) + x
        return self.head(self.norm(x)[:, 0])


def hybrid():
    return VisionTransformer(small_config(), HybridEmbedding(conv_stem(C, (6,)), 6, 2, D, 2))


class OfTransformers(nn.Module):
    """A classifier of the transformers library, small."""

    def __init__(self, name, **settings):
        super().__init__()
        sizes = dict(hidden_size=D, num_hidden_layers=2, num_attention_heads=HEADS, intermediate_size=HIDDEN)
        sizes |= dict(image_size=IMAGE[1:], patch_size=P, num_labels=K) | settings
        config = getattr(transformers, f"{name}Config")(**sizes)
        self.model = getattr(transformers, f"{name}ForImageClassification")(config)

    def forward(self, images):
        return self.model(images).logits


def tutorial_patches():
    return nn.Sequential(nn.Conv2d(C, D, P, stride=P), nn.Flatten(2), Transposed())


def unfolded_patches():
    return nn.Sequential(nn.Unfold(P, stride=P), Transposed(), nn.Linear(C * P * P, D))


def whole(images):
    return images


RIGHT = {
    "class": lambda: VisionTransformer(small_config()),
    "mean": lambda: VisionTransformer(small_config(pool="mean")),
    "no class token": lambda: VisionTransformer(small_config(pool="mean", class_token=False)),
    "sin-cos": lambda: VisionTransformer(small_config(positions="sincos_2d")),
    "2-D": lambda: VisionTransformer(small_config(positions="learned_2d", qkv_bias=False, depth=1)),
    "dropout": lambda: VisionTransformer(small_config(dropout=0.1, attention_dropout=0.2, drop_path=0.3)),
    "hybrid": hybrid,
    "torch": TorchViT,
    "torch, mean": lambda: TorchViT("mean", dropout=0.0),
    "torch, post-norm": lambda: TorchViT(norm_first=False, activation="relu"),
    "a reader's own": OwnViT,
    "fused": lambda: OwnViT(attend=lambda q, k, v: F.scaled_dot_product_attention(q, k, v, torch.eye(N).to(q))),
    "Flatten": lambda: OwnViT(cut=whole, patches=tutorial_patches),
    "Unfold": lambda: OwnViT(cut=whole, patches=unfolded_patches),
    "shifted patches": lambda: OwnViT(cut=shifted, patches=lambda: nn.Linear(5 * C * P * P, D)),
    "rotary": lambda: OwnViT(place=None, attend=lambda q, k, v: weigh(rotated(q), rotated(k)) @ v),
    "relative bias": lambda: OwnViT(attend=RelativeBias),
    "cosine attention": lambda: OwnViT(attend=CosineAttention),
    "learned scale": lambda: OwnViT(attend=LearnedScale),
    "normed queries": lambda: OwnViT(attend=NormedQueries),
    "RMSNorm": lambda: OwnViT(norm=nn.RMSNorm, last_norm=nn.RMSNorm),
    "hand-made norm": lambda: OwnViT(norm=HandMadeNorm, last_norm=HandMadeNorm),
    "channels first": ChannelsFirstViT,
    "nested lists": NestedLists,
    "transformers, ViT": lambda: OfTransformers("ViT"),
    "transformers, DeiT": lambda: OfTransformers("DeiT"),
    "transformers, DINOv2": lambda: OfTransformers("Dinov2", image_size=SQUARE[1]),
    "transformers, BEiT": lambda: OfTransformers("Beit", use_relative_position_bias=True),
}


# Wrong ones, and the questions that each fails


def copied_class_token(z):
    return z[:1, 0].expand(len(z), -1)


def batch_norm(logits):
    return F.batch_norm(logits, None, None, training=True)


def only_the_branch(x, branch):
    return branch


def causal(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def causal_by_hand(q, k, v):
    scores = (q @ k.mT * D_H**-0.5).masked_fill(torch.ones(N, N).triu(1) == 1, -torch.inf)
    return scores.softmax(dim=-1) @ v


# Each with a part of the suspect that each failed question names: the true cause.
WRONG = {
    "batch_first forgotten": (lambda: TorchViT("mean", batch_first=False), {MIX: "batch_first"}),
    "torch's copies": (lambda: TorchViT(initialized=False), {"blocks_start_different": "nn.TransformerEncoder"}),
    "image 0's class token": (lambda: TorchViT(head=copied_class_token), {MIX: "one image's class token"}),
    "no scale": (lambda: OwnViT(attend=lambda q, k, v: (q @ k.mT).softmax(-1) @ v), {SCALE: "no scale"}),
    "√D": (lambda: OwnViT(attend=lambda q, k, v: (q @ k.mT / D**0.5).softmax(-1) @ v), {SCALE: "√D for √D_h"}),
    "rotary, no scale": (
        lambda: OwnViT(attend=lambda q, k, v: (rotated(q) @ rotated(k).mT).softmax(-1) @ v),
        {SCALE: "no scale"},
    ),
    "queries": (lambda: OwnViT(attend=lambda q, k, v: (q @ k.mT / 2).softmax(-2) @ v), {SUMS: "over the queries"}),
    "causal": (lambda: OwnViT(attend=causal), {"tokens_see_the_later_ones": "causal"}),
    "causal, by hand": (lambda: OwnViT(attend=causal_by_hand), {"tokens_see_the_later_ones": "causal"}),
    "view for heads": (lambda: OwnViT(split=lambda x: x.view(len(x), HEADS, -1, D_H)), {HEADS_WHOLE: "view(B, h"}),
    "view for tokens": (lambda: OwnViT(merge=lambda x: x.reshape(len(x), -1, D)), {HEADS_WHOLE: "heads joined"}),
    "view in nested lists": (lambda: NestedLists(merge=None), {HEADS_WHOLE: "heads joined"}),
    "the kernel's axes": (
        lambda: OwnViT(
            split=lambda x: x.view(len(x), -1, HEADS, D_H),
            attend=F.scaled_dot_product_attention,
            merge=lambda x: x.flatten(2),
        ),
        {HEADS_WHOLE: "view(B, h"},
    ),
    "view for patches": (lambda: OwnViT(cut=lambda x: x.reshape(len(x), N, -1)), {CUT: "view or reshape"}),
    "width first": (
        lambda: OwnViT(cut=lambda x: x.view(len(x), C, 3, P, 2, P).permute(0, 2, 4, 1, 3, 5).reshape(len(x), N, -1)),
        {CUT: "view or reshape"},
    ),
    "no positions": (lambda: OwnViT(place=lambda x, pos: x), {ORDER: "positions", IDLE: "positions"}),
    "functional dropout": (lambda: OwnViT(place=lambda x, pos: F.dropout(x + pos, 0.1)), {DRAWN: "F.dropout"}),
    "no residual, attention": (lambda: OwnViT(add_attention=only_the_branch), {ADDS: "residual"}),
    "no residual, MLP": (lambda: OwnViT(add_mlp=only_the_branch), {ADDS: "residual"}),
    "no residual in nested lists": (lambda: NestedLists(residual=0), {ADDS: "residual"}),
    "no GELU": (lambda: OwnViT(act=lambda x: x), {"mlps_have_an_activation": "GELU is missing"}),
    "no last norm": (lambda: OwnViT(last_norm=nn.Identity), {"head_gets_normalized_tokens": "last LayerNorm"}),
    "softmax": (lambda: OwnViT(end=lambda logits: logits.softmax(-1)), {SHARES: "softmax"}),
    "sigmoid": (lambda: OwnViT(end=torch.sigmoid), {SHARES: "sigmoid"}),
    "batch statistics": (
        lambda: OwnViT(end=batch_norm),
        {MIX: "batch statistics", "every_batch_size_will_do": "batch"},
    ),
    "wide head": (lambda: OwnViT(end=lambda logits: 100 * logits), {"first_loss_is_near_ln_k": "too large"}),
    "a float32 constant": (
        lambda: OwnViT(place=lambda x, pos: (x + pos) @ torch.eye(D)),
        {"float64_works": "made inside forward"},
    ),
}

RIGHT |= RIGHT_STYLES
WRONG |= WRONG_STYLES


def shape_for(name):
    return SQUARE if "DINO" in name else IMAGE


def galleries(*of_models: dict) -> list:
    """What a test is run with: each model of some galleries, under its name, and what stands beside it.

    To examine one takes a tenth of a second, and they are hundreds: in `make test` one of twelve is, here and there,
    and all of them in `make reliability`.
    """
    models = [one for models in of_models for one in models.items()]
    values = [(name, one if isinstance(one, tuple) else (one,)) for name, one in models]
    marks = [[pytest.mark.slow] if place % 12 else [] for place in range(len(models))]
    return [pytest.param(*one, id=name, marks=mark) for (name, one), mark in zip(values, marks, strict=True)]

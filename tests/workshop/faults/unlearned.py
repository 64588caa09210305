"""Vision Transformers of which a part is not learned, never acts or cannot be trained; and right ones beside them.

`fault in faults` is the wrong way; without faults each is right.
"""

import copy
import math

import torch
import torch.nn.functional as F
from einops import rearrange
from small_models import HEADS, HEIGHT, HIDDEN, WIDTH, C, D, K, N, P
from styles import ALIKE, DRAWN, IDLE, READ, SHARES, sincos
from torch import nn

LEARNED, BACKWARD, ZERO = "class_token_and_positions_are_learned", "backward_runs", "no_logit_is_dropped"
ACTS = "every_dropout_acts"
D_H = D // HEADS


class Halved(torch.autograd.Function):
    """Of somebody who forgot that scale, too, is an input."""

    @staticmethod
    def forward(ctx, x, scale):
        return x * scale

    @staticmethod
    def backward(ctx, slope):
        return slope


class Attention(nn.Module):
    """As in vit-pytorch; `drop` is made in the place where that has it."""

    def __init__(self, faults, dropout=0.1):
        super().__init__()
        self.faults = faults
        self.to_qkv, self.to_out = nn.Linear(D, 3 * D, bias=False), nn.Linear(D, D)
        self.drop = nn.Dropout(dropout, inplace="dropout in place" in faults)
        if "rates kept" in faults:
            self.attn_drop_rate = 0.2

    def forward(self, x):
        q, k, v = rearrange(self.to_qkv(x), "b n (three h d) -> three b h n d", three=3, h=HEADS)
        scores = q @ k.mT
        scores = Halved.apply(scores, D_H**-0.5) if "custom function" in self.faults else scores * D_H**-0.5
        weights = scores.softmax(dim=-1)
        if "weights in place" in self.faults:
            weights /= weights.sum(dim=-1, keepdim=True)
        if "kernel drops" in self.faults:
            x = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1)
            return self.to_out(rearrange(x, "b h n d -> b n (h d)"))
        weights = weights if "dropout unused" in self.faults else self.drop(weights)
        return self.to_out(rearrange(weights @ v, "b h n d -> b n (h d)"))


class Block(nn.Module):
    def __init__(self, faults):
        super().__init__()
        self.faults = faults
        self.norm1, self.norm2, self.attn = nn.LayerNorm(D), nn.LayerNorm(D), Attention(faults)
        self.mlp = nn.Sequential(nn.Linear(D, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, D))

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        with torch.set_grad_enabled(torch.is_grad_enabled() and "mlp under no_grad" not in self.faults):
            y = self.mlp(self.norm2(x))
        return x + (F.dropout(y, 0.1) if "always" in self.faults else y)


class Plain(nn.Module):
    def __init__(self, *faults):
        super().__init__()
        self.faults = faults
        self.patch = nn.Conv2d(C, D, P, P)
        self.cls, self.pos = nn.Parameter(torch.zeros(1, 1, D)), nn.Parameter(0.02 * torch.randn(1, N + 1, D))
        if "class token in a buffer" in faults:
            del self.cls
            self.register_buffer("cls", torch.randn(1, 1, D))
        if "fixed positions" in faults:
            self.pos = nn.Parameter(torch.cat([torch.zeros(1, D), sincos(2, 3)])[None], requires_grad=False)
        if "positions in a buffer" in faults:
            del self.pos
            self.register_buffer("pos", 0.02 * torch.randn(1, N + 1, D))
        if "positions without gradient" in faults:
            self.pos.requires_grad = False
        self.blocks = nn.Sequential(*(Block(faults) for _ in range(3)))
        if "attention copied" in faults:
            for block in self.blocks[1:]:
                block.attn = copy.deepcopy(self.blocks[0].attn)
        self.head = nn.Sequential(nn.LayerNorm(D), nn.Linear(D, K))
        if "dropout at the end" in faults:
            self.head.append(nn.Dropout(0.1))

    def embed(self, images):
        x = self.patch(images).flatten(2).mT
        pos = self.pos
        if "positions detached" in self.faults:
            pos = pos.detach()
        if "positions in place" in self.faults:
            self.pos += 0.0
        if "padded" in self.faults:
            return F.pad(x, (0, 0, 1, 0)) + pos
        if "zeros in forward" in self.faults:
            return torch.cat([x.new_zeros(len(x), 1, D), x], dim=1) + pos
        if "random class token" in self.faults:
            return torch.cat([torch.rand(len(x), 1, D).to(x), x], dim=1) + pos
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], dim=1)
        if "seeded positions" in self.faults:
            with torch.random.fork_rng():
                torch.manual_seed(0)
                return x + torch.randn(N + 1, D).to(x)
        if "random positions" in self.faults:
            return x + torch.randn(N + 1, D, dtype=x.dtype, device=x.device)
        return x + (pos.data if "positions as data" in self.faults else pos)

    def forward(self, images):
        if "noisy images" in self.faults:
            images = images + 0.1 * torch.randn_like(images)
        x = self.embed(images)
        if "map made in forward" in self.faults:
            x = x + nn.Linear(D, D).to(x)(x)
        x = self.blocks(x)
        logits = self.head(x[:, 1] if "second token" in self.faults else x[:, 0])
        if "functional dropout at the end" in self.faults:
            return F.dropout(logits, 0.2, self.training)
        if "softmax twice" in self.faults:
            return logits.softmax(-1).softmax(-1)
        return F.logsigmoid(logits) if "log of sigmoid" in self.faults else logits


class Unread(Plain):
    """Its constructor takes a rate that no line reads."""

    def __init__(self, emb_dropout=0.1):
        super().__init__()


class TorchLayers(nn.Module):
    """nn.TransformerEncoder, of which every nn.Linear is drawn anew, as `_init_weights` does; mean pooling."""

    def __init__(self, *faults):
        super().__init__()
        self.faults = faults
        self.to_tokens = nn.Conv2d(C, D, P, P)
        self.table = torch.randn(N, D) if "plain table" in faults else nn.Parameter(torch.randn(N, D))
        layer = nn.TransformerEncoderLayer(D, HEADS, HIDDEN, 0.1, F.gelu, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 3, nn.LayerNorm(D), enable_nested_tensor=False)
        self.apply(self.draw)
        for each in self.encoder.layers if "projections copied" not in faults else ():
            nn.init.xavier_uniform_(each.self_attn.in_proj_weight)
        self.classifier = nn.Linear(D, K)

    @staticmethod
    def draw(module):
        if isinstance(module, nn.Linear):
            nn.init.trunc_normal_(module.weight, std=0.02)

    def forward(self, images):
        x = self.to_tokens(images).flatten(2).permute(0, 2, 1)
        if "patches under no_grad" in self.faults:
            x = x.detach()
        x = self.encoder(x + self.table.to(x))
        z = x[:, 2] if "third token" in self.faults else x.mean(dim=1)
        return self.classifier(z).log_softmax(1) if "log" in self.faults else self.classifier(z)


class Functions(nn.Module):
    """One dictionary of weights, einsum, no module but the norms."""

    def __init__(self, *faults):
        super().__init__()
        self.faults = faults
        sizes = {"patch": (C, P, P, D), "head": (D, K), "cls": (D,), "pos": (N + 1, D)}
        for i in range(3):
            sizes |= {f"qkv{i}": (3, HEADS, D, D_H), f"out{i}": (HEADS, D_H, D), f"up{i}": (D, HIDDEN)}
            sizes |= {f"down{i}": (HIDDEN, D)}
        self.w = nn.ParameterDict({name: nn.Parameter(0.1 * torch.randn(size)) for name, size in sizes.items()})
        if "one layer drawn" in faults:
            for name in ("qkv", "up", "down"):
                self.w[f"{name}2"].data.copy_(self.w[f"{name}0"])
        self.w["pos"].requires_grad = "table frozen" not in faults

    def forward(self, images):
        patches = rearrange(images, "b c (h p) (w q) -> b (h w) c p q", p=P, q=P)
        x = torch.einsum("bncpq,cpqd->bnd", patches, self.w["patch"])
        tokens = x.new_empty(len(x), N + 1, D)
        tokens[:, 0], tokens[:, 1:] = self.w["cls"], x
        x = tokens + self.w["pos"]
        if "noise" in self.faults:
            x = x + 0.1 * torch.randn_like(x)
        for i in range(3):
            y = F.layer_norm(x, (D,))
            q, k, v = torch.einsum("btd,shde->sbhte", y, self.w[f"qkv{i}"])
            y = torch.einsum("bhqe,bhke->bhqk", q, k).div(math.sqrt(D_H)).softmax(3) @ v
            x = x + torch.einsum("bhte,hed->btd", y, self.w[f"out{i}"])
            x = x + F.gelu(F.layer_norm(x, (D,)) @ self.w[f"up{i}"]) @ self.w[f"down{i}"]
        x = F.layer_norm(x, (D,))
        if "mask at the end" in self.faults and self.training:
            logits = x[:, 0] @ self.w["head"]
            return logits * (torch.rand_like(logits) > 0.1)
        return x[:, 0] @ self.w["head"]


# Right designs


class Fourier(Plain):
    """Positions as sines and cosines of random waves, drawn once (Tancik et al. 2020)."""

    def __init__(self):
        super().__init__()
        del self.pos
        waves = torch.randn(2, D // 2) @ torch.eye(D // 2)
        places = torch.cartesian_prod(torch.linspace(0, 1, HEIGHT // P), torch.linspace(0, 1, WIDTH // P))
        angles = F.pad(places @ waves, (0, 0, 1, 0))
        self.register_buffer("pos", torch.cat([angles.sin(), angles.cos()], dim=-1)[None])


class Frozen(Plain):
    """A backbone to be kept, and a head to be trained."""

    def __init__(self):
        super().__init__()
        self.requires_grad_(False)
        self.head.requires_grad_(True)


class LayerDrop(Plain):
    """Whole blocks are left out in training (Fan et al. 2020)."""

    layerdrop = 0.3

    def forward(self, images):
        x = self.embed(images)
        for block in self.blocks:
            if not (self.training and torch.rand(()) < self.layerdrop):
                x = block(x)
        return self.head(x[:, 0])


class WithTeacher(Plain):
    """A running mean of itself inside, for a loss of its own, and heads for training alone."""

    def __init__(self):
        super().__init__()
        self.aux = nn.Linear(D, K)
        self.teacher = copy.deepcopy(nn.ModuleList([self.patch, self.blocks, self.head])).requires_grad_(False)

    def forward(self, images):
        tokens = self.embed(images)
        x = self.blocks(tokens)
        if not self.training:
            return self.head(x[:, 0])
        with torch.no_grad():
            target = self.teacher[2](self.teacher[1](tokens)[:, 0])
        return self.head(x[:, 0]), self.aux(x[:, 1:].mean(1)), target


class Tied(Plain):
    """The map to the patches' pixels is that of the patches, turned; its loss is added in training."""

    def forward(self, images):
        x = self.blocks(self.embed(images))
        logits = self.head(x[:, 0])
        if self.training:
            return {"logits": logits, "pixels": x[:, 1:] @ self.patch.weight.flatten(1)}
        return logits


class Conditioned(Plain):
    """A class token that a map makes of the mean of the patches."""

    def __init__(self):
        super().__init__()
        self.to_cls = nn.Linear(D, D)
        del self.cls

    def embed(self, images):
        x = self.patch(images).flatten(2).mT
        return torch.cat([self.to_cls(x.mean(dim=1, keepdim=True)), x], dim=1) + self.pos


RIGHT_UNLEARNED = {
    "plain": Plain,
    "plain, sines and cosines": lambda: Plain("fixed positions"),
    "torch's layers": TorchLayers,
    "functions": Functions,
    "random waves": Fourier,
    "frozen backbone": Frozen,
    "layers dropped": LayerDrop,
    "teacher inside": WithTeacher,
    "tied": Tied,
    "class token of the image": Conditioned,
}

WRONG_UNLEARNED = {
    "class token in a buffer": (lambda: Plain("class token in a buffer"), {LEARNED: "buffer"}),
    "class token in a buffer, sines": (
        lambda: Plain("class token in a buffer", "fixed positions"),
        {LEARNED: "nn.Parameter is meant"},
    ),
    "zeros in forward": (lambda: Plain("zeros in forward"), {LEARNED: "plain tensor", IDLE: "never called"}),
    "zeros by padding": (lambda: Plain("padded"), {LEARNED: "plain tensor", IDLE: "never called"}),
    "positions in a buffer": (lambda: Plain("positions in a buffer"), {LEARNED: "buffer"}),
    "positions without gradient": (lambda: Plain("positions without gradient"), {LEARNED: "nn.Parameter is meant"}),
    "positions, a plain tensor": (lambda: TorchLayers("plain table"), {LEARNED: "plain tensor"}),
    "functions, table frozen": (lambda: Functions("table frozen"), {LEARNED: "drawn once"}),
    "positions detached": (lambda: Plain("positions detached"), {IDLE: "detach()"}),
    "positions as data": (lambda: Plain("positions as data"), {IDLE: ".data"}),
    "MLP under no_grad": (lambda: Plain("mlp under no_grad"), {IDLE: "no_grad"}),
    "patches detached": (lambda: TorchLayers("patches under no_grad"), {IDLE: "detach()"}),
    "random class token": (
        lambda: Plain("random class token"),
        {DRAWN: "a class token is drawn anew", IDLE: "never called"},
    ),
    "random positions": (
        lambda: Plain("random positions"),
        {DRAWN: "added to the tokens, are drawn anew", IDLE: "never called"},
    ),
    "random positions, seeded": (
        lambda: Plain("seeded positions"),
        {LEARNED: "drawn anew", IDLE: "never called"},
    ),
    "noise in evaluation": (lambda: Functions("noise"), {DRAWN: "added to the tokens, are drawn anew"}),
    "noise on images in evaluation": (lambda: Plain("noisy images"), {DRAWN: "noise is drawn"}),
    "a map made in forward": (lambda: Plain("map made in forward"), {DRAWN: "linear map is made anew"}),
    "attention copied": (lambda: Plain("attention copied"), {ALIKE: "copied from one"}),
    "projections copied": (lambda: TorchLayers("projections copied"), {ALIKE: "in_proj_weight"}),
    "two of three layers": (lambda: Functions("one layer drawn"), {ALIKE: "copied from one"}),
    "dropout at the end": (lambda: Plain("dropout at the end"), {ZERO: "after the head"}),
    "functional dropout at the end": (lambda: Plain("functional dropout at the end"), {ZERO: "after the head"}),
    "a mask at the end": (lambda: Functions("mask at the end"), {ZERO: "after the head"}),
    "dropout never called": (lambda: Plain("dropout unused"), {ACTS: "nothing reads"}),
    "a rate never read": (lambda: Plain("rates kept"), {ACTS: "nothing reads"}),
    "an argument never read": (Unread, {ACTS: "nothing reads"}),
    "softmax twice": (lambda: Plain("softmax twice"), {SHARES: "twice"}),
    "log of sigmoid": (lambda: Plain("log of sigmoid"), {SHARES: "LogSigmoid"}),
    "log-probabilities": (lambda: TorchLayers("log"), {SHARES: "log_softmax"}),
    "weights changed in place": (lambda: Plain("weights in place"), {BACKWARD: "in place"}),
    "dropout in place": (lambda: Plain("dropout in place"), {BACKWARD: "in place"}),
    "positions changed in place": (lambda: Plain("positions in place"), {BACKWARD: "in place"}),
    "a function of their own": (lambda: Plain("custom function"), {BACKWARD: "of the model's own"}),
    "second token": (lambda: Plain("second token"), {READ: "wrong index"}),
    "third token": (lambda: TorchLayers("third token"), {READ: "wrong index"}),
}

TWICE_UNLEARNED = {
    "always on, and never": (
        lambda: Plain("always", "dropout unused"),
        {DRAWN: "F.dropout", ACTS: "nothing reads"},
    ),
    "a kernel that always drops, and a dropout that never does": (
        lambda: Plain("kernel drops"),
        {DRAWN: "dropout_p", ACTS: "nothing reads"},
    ),
    "random positions, dropout at the end": (
        lambda: Plain("random positions", "dropout at the end"),
        {DRAWN: "positions", IDLE: "never called", ZERO: "after the head"},
    ),
    "in place, and softmax": (
        lambda: Plain("weights in place", "softmax twice"),
        {BACKWARD: "in place", SHARES: "twice"},
    ),
    "class token never learned, attention copied": (
        lambda: Plain("class token in a buffer", "attention copied"),
        {LEARNED: "buffer", ALIKE: "copied from one"},
    ),
    "no_grad, and a layer never called": (
        lambda: Plain("mlp under no_grad", "zeros in forward"),
        {LEARNED: "plain tensor", IDLE: "no_grad"},
    ),
}

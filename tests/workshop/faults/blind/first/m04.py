"""Functional encoder with haiku-like parameter trees, (batch, tokens, heads, features) layout."""
import math

import torch
import torch.nn.functional as F
from torch import nn

EMBED, HEADS, MLP, DEPTH, PATCH, SIDE, CLASSES = 48, 4, 96, 3, 4, 8, 10


def glorot(*shape):
    fan_in = math.prod(shape[:-1])
    return nn.Parameter(torch.randn(*shape) * math.sqrt(2.0 / (fan_in + shape[-1])))


def make_layer():
    return nn.ParameterDict(
        {
            "ln1_g": nn.Parameter(torch.ones(EMBED)),
            "ln1_b": nn.Parameter(torch.zeros(EMBED)),
            "wqkv": glorot(EMBED, 3 * EMBED),
            "wo": glorot(EMBED, EMBED),
            "ln2_g": nn.Parameter(torch.ones(EMBED)),
            "ln2_b": nn.Parameter(torch.zeros(EMBED)),
            "w1": glorot(EMBED, MLP),
            "b1": nn.Parameter(torch.zeros(MLP)),
            "w2": glorot(MLP, EMBED),
            "b2": nn.Parameter(torch.zeros(EMBED)),
        }
    )


def mha(p, x):
    b, t, _ = x.shape
    qkv = (x @ p["wqkv"]).reshape(b, t, 3, HEADS, EMBED // HEADS)
    q, k, v = qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]
    logits = torch.einsum("bqhd,bkhd->bqkh", q, k) / math.sqrt(EMBED // HEADS)
    weights = F.softmax(logits, dim=-1)
    mixed = torch.einsum("bqkh,bkhd->bqhd", weights, v)
    return mixed.reshape(b, t, EMBED) @ p["wo"]


def ffn(p, x):
    return F.gelu(x @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"]


def encoder_layer(p, x):
    x = x + mha(p, F.layer_norm(x, (EMBED,), p["ln1_g"], p["ln1_b"]))
    x = x + ffn(p, F.layer_norm(x, (EMBED,), p["ln2_g"], p["ln2_b"]))
    return x


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.outer = nn.ParameterDict(
            {
                "patch_w": glorot(3 * PATCH * PATCH, EMBED),
                "patch_b": nn.Parameter(torch.zeros(EMBED)),
                "cls": nn.Parameter(torch.randn(1, 1, EMBED) * 0.02),
                "pos": nn.Parameter(torch.randn(1, SIDE * SIDE + 1, EMBED) * 0.02),
                "ln_g": nn.Parameter(torch.ones(EMBED)),
                "ln_b": nn.Parameter(torch.zeros(EMBED)),
                "head_w": glorot(EMBED, CLASSES),
                "head_b": nn.Parameter(torch.zeros(CLASSES)),
            }
        )
        self.inner = nn.ModuleList([make_layer() for _ in range(DEPTH)])

    def forward(self, images):
        o = self.outer
        cols = F.unfold(images, PATCH, stride=PATCH)
        x = torch.einsum("bpn,pe->bne", cols, o["patch_w"]) + o["patch_b"]
        x = torch.cat((o["cls"].expand(len(x), 1, EMBED), x), 1) + o["pos"]
        for p in self.inner:
            x = encoder_layer(p, x)
        x = F.layer_norm(x, (EMBED,), o["ln_g"], o["ln_b"])
        return x[:, 0] @ o["head_w"] + o["head_b"]


def build():
    return Net()

# Flax-flavoured: parameters live in one flat dictionary, layers are plain functions.
import math

import torch
from torch import nn
import torch.nn.functional as F

CFG = dict(image=32, patch=4, chan=3, embed=48, heads=4, mlp=144, depth=3, classes=10)


def init_params(cfg):
    e, h, m = cfg["embed"], cfg["heads"], cfg["mlp"]
    hd = e // h
    n = (cfg["image"] // cfg["patch"]) ** 2
    lecun = lambda *shape, fan: torch.randn(*shape) / math.sqrt(fan)
    pdim = cfg["patch"] ** 2 * cfg["chan"]
    p = {
        "embedding/kernel": lecun(pdim, e, fan=pdim),
        "embedding/bias": torch.zeros(e),
        "cls": torch.zeros(1, 1, e),
        "posembed": torch.randn(1, n + 1, e) * 0.02,
        "encoder_norm/scale": torch.ones(e),
        "encoder_norm/bias": torch.zeros(e),
        "head/kernel": lecun(e, cfg["classes"], fan=e),
        "head/bias": torch.zeros(cfg["classes"]),
    }
    for i in range(cfg["depth"]):
        b = f"encoderblock_{i}/"
        for j in (0, 1):
            p[b + f"LayerNorm_{j}/scale"] = torch.ones(e)
            p[b + f"LayerNorm_{j}/bias"] = torch.zeros(e)
        for name in ("query", "key", "value"):
            p[b + name + "/kernel"] = lecun(e, h, hd, fan=e)
            p[b + name + "/bias"] = torch.zeros(h, hd)
        p[b + "out/kernel"] = lecun(h, hd, e, fan=e)
        p[b + "out/bias"] = torch.zeros(e)
        p[b + "Dense_0/kernel"] = lecun(e, m, fan=e)
        p[b + "Dense_0/bias"] = torch.zeros(m)
        p[b + "Dense_1/kernel"] = lecun(m, e, fan=m)
        p[b + "Dense_1/bias"] = torch.zeros(e)
    return p


def scoped(params, prefix):
    return lambda name: params[prefix + name]


def layer_norm(x, scale, bias, eps=1e-6):
    mu = x.mean(-1, keepdim=True)
    var = (x - mu).square().mean(-1, keepdim=True)
    return (x - mu) * torch.rsqrt(var + eps) * scale + bias


def attention(x, p):
    q = torch.einsum("bte,ehd->bthd", x, p("query/kernel")) + p("query/bias")
    k = torch.einsum("bte,ehd->bthd", x, p("key/kernel")) + p("key/bias")
    v = torch.einsum("bte,ehd->bthd", x, p("value/kernel")) + p("value/bias")
    q = q / math.sqrt(q.shape[-1])
    w = torch.einsum("bqhd,bkhd->bhqk", q, k).softmax(-1)
    y = torch.einsum("bhqk,bkhd->bqhd", w, v)
    return torch.einsum("bqhd,hde->bqe", y, p("out/kernel")) + p("out/bias")


def mlp(x, p):
    h = F.gelu(x @ p("Dense_0/kernel") + p("Dense_0/bias"), approximate="tanh")
    return h @ p("Dense_1/kernel") + p("Dense_1/bias")


def block(x, p):
    x = x + attention(layer_norm(x, p("LayerNorm_0/scale"), p("LayerNorm_0/bias")), p)
    return x + mlp(layer_norm(x, p("LayerNorm_1/scale"), p("LayerNorm_1/bias")), p)


def apply(params, images_nhwc, cfg):
    b, hh, ww, c = images_nhwc.shape
    s = cfg["patch"]
    x = images_nhwc.reshape(b, hh // s, s, ww // s, s, c)
    x = x.permute(0, 1, 3, 2, 4, 5).reshape(b, (hh // s) * (ww // s), s * s * c)
    x = x @ params["embedding/kernel"] + params["embedding/bias"]
    x = torch.cat([params["cls"].expand(b, -1, -1), x], dim=1) + params["posembed"]
    for i in range(cfg["depth"]):
        x = block(x, scoped(params, f"encoderblock_{i}/"))
    x = layer_norm(x, params["encoder_norm/scale"], params["encoder_norm/bias"])
    return x[:, 0] @ params["head/kernel"] + params["head/bias"]


class Wrapped(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.params = nn.ParameterDict(
            {k.replace("/", "__"): nn.Parameter(v) for k, v in init_params(cfg).items()}
        )

    def forward(self, images):
        tree = {k.replace("__", "/"): v for k, v in self.params.items()}
        return apply(tree, images.movedim(1, -1), self.cfg)


def build():
    return Wrapped(CFG)

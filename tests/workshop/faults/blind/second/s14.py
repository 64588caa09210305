import math
import torch
from torch import nn
import torch.nn.functional as F

CFG = dict(chans=1, side=20, patch=5, width=64, heads=4, depth=4, hidden=128, classes=6)


def make_params(cfg):
    w, m = cfg["width"], cfg["hidden"]
    tokens = (cfg["side"] // cfg["patch"]) ** 2
    p = {
        "patch_w": torch.empty(w, cfg["chans"], cfg["patch"], cfg["patch"]),
        "patch_b": torch.zeros(w),
        "cls": torch.zeros(w),
        "pos": torch.randn(tokens + 1, w) * 0.02,
        "norm_w": torch.ones(w),
        "norm_b": torch.zeros(w),
        "head_w": torch.empty(cfg["classes"], w),
        "head_b": torch.zeros(cfg["classes"]),
    }
    for i in range(cfg["depth"]):
        p[f"l{i}_n1w"], p[f"l{i}_n1b"] = torch.ones(w), torch.zeros(w)
        p[f"l{i}_n2w"], p[f"l{i}_n2b"] = torch.ones(w), torch.zeros(w)
        p[f"l{i}_qkv_w"], p[f"l{i}_qkv_b"] = torch.empty(3 * w, w), torch.zeros(3 * w)
        p[f"l{i}_out_w"], p[f"l{i}_out_b"] = torch.empty(w, w), torch.zeros(w)
        p[f"l{i}_up_w"], p[f"l{i}_up_b"] = torch.empty(m, w), torch.zeros(m)
        p[f"l{i}_down_w"], p[f"l{i}_down_b"] = torch.empty(w, m), torch.zeros(w)
    for name, t in p.items():
        if name.endswith("_w") and t.dim() > 1:
            nn.init.xavier_uniform_(t)
    return nn.ParameterDict({k: nn.Parameter(v) for k, v in p.items()})


def attention(x, wqkv, bqkv, wo, bo, heads):
    b, t, d = x.shape
    q, k, v = F.linear(x, wqkv, bqkv).split(d, dim=-1)
    q, k, v = (z.reshape(b, t, heads, d // heads).swapaxes(1, 2) for z in (q, k, v))
    a = torch.softmax(q @ k.mT / math.sqrt(d // heads), -1)
    return F.linear((a @ v).swapaxes(1, 2).reshape(b, t, d), wo, bo)


def layer(p, i, x, heads):
    g = lambda s: p[f"l{i}_{s}"]
    d = x.shape[-1]
    z = F.layer_norm(x, (d,), g("n1w"), g("n1b"))
    x = x + attention(z, g("qkv_w"), g("qkv_b"), g("out_w"), g("out_b"), heads)
    z = F.layer_norm(x, (d,), g("n2w"), g("n2b"))
    z = F.gelu(F.linear(z, g("up_w"), g("up_b")))
    return x + F.linear(z, g("down_w"), g("down_b"))


def embed(p, img, patch):
    x = F.conv2d(img, p["patch_w"], p["patch_b"], stride=patch).flatten(2).mT
    cls = p["cls"].expand(x.shape[0], 1, -1)
    return torch.cat([cls, x], 1) + p["pos"]


def apply(p, img, cfg):
    x = embed(p, img, cfg["patch"])
    h = x
    for i in range(cfg["depth"]):
        h = layer(p, i, x, cfg["heads"])
    h = F.layer_norm(h[:, 0], (cfg["width"],), p["norm_w"], p["norm_b"])
    return F.linear(h, p["head_w"], p["head_b"])


class Wrapped(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.p = make_params(cfg)

    def forward(self, img):
        return apply(self.p, img, self.cfg)


def build():
    return Wrapped(CFG)

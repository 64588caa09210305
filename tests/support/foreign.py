"""Small checkpoints as other libraries write them, and the logits that those libraries compute with them.

The names and formulas here are theirs; nothing is taken from vitbook. All numbers are float64.
"""

import re

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

# Sizes that all differ: image side, patch side, channels, width, heads, hidden width, classes, blocks
SIDE, P, C, D, H, HIDDEN, K, DEPTH = 12, 4, 3, 20, 5, 33, 7, 2
N = (SIDE // P) ** 2


def tensors(shapes: dict[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """Tensors of these shapes, with numbers so large that every one of them matters."""
    random = np.random.default_rng(0)
    return {name: torch.from_numpy(random.normal(0.1, 0.3, shape)) for name, shape in shapes.items()}


def images(batch: int = 2, side: int = SIDE, channels: int = C) -> Tensor:
    return torch.from_numpy(np.random.default_rng(9).normal(size=(batch, channels, side, side)))


def shaken(model: torch.nn.Module) -> torch.nn.Module:
    """A model in float64 and in evaluation, with numbers so large that every one of them matters."""
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, mean=0.02, std=0.2)
    return model.double().eval()


def renamed(state: dict[str, Tensor], changes: dict[str, str]) -> dict[str, Tensor]:
    """The same tensors under other names: regular expressions, and what stands instead, one after the other."""
    for pattern, name in changes.items():
        state = {re.sub(pattern, name, old): tensor for old, tensor in state.items()}
    return state


def fused(state: dict[str, Tensor], names: tuple[str, str, str], into: str) -> dict[str, Tensor]:
    """Queries, keys and values of each block in one tensor: what stands in their names, and in its name."""
    for name in [name for name in state if names[0] in name]:
        state[name.replace(names[0], into)] = torch.cat([state.pop(name.replace(names[0], one)) for one in names])
    return state


# Google's files, and big_vision's: channels last, weights (in, out), heads on an axis of their own


def google(classes: int = K, hidden: bool = False, big_vision: bool = False, token: bool = True) -> dict:
    """hidden: whether pre_logits is there; token: whether there is a class token."""
    norm2, attention, mlp = ("LayerNorm_1", "0", "0") if big_vision else ("LayerNorm_2", "1", "3")
    positions = (
        {"pos_embedding": (1, N, D)} if big_vision else {"Transformer/posembed_input/pos_embedding": (1, 1 + N, D)}
    )
    shapes = {"embedding/kernel": (P, P, C, D), "embedding/bias": (D,)} | positions
    shapes |= {"Transformer/encoder_norm/scale": (D,), "Transformer/encoder_norm/bias": (D,)}
    shapes |= {"cls": (1, 1, D)} if token else {}
    shapes |= {"pre_logits/kernel": (D, D), "pre_logits/bias": (D,)} if hidden else {}
    shapes |= {"head/kernel": (D, classes), "head/bias": (classes,)} if classes else {}
    for i in range(DEPTH):
        block = f"Transformer/encoderblock_{i}/"
        for norm in ("LayerNorm_0", norm2):
            shapes |= {f"{block}{norm}/scale": (D,), f"{block}{norm}/bias": (D,)}
        heads = f"{block}MultiHeadDotProductAttention_{attention}/"
        for name in ("query", "key", "value"):
            shapes |= {f"{heads}{name}/kernel": (D, H, D // H), f"{heads}{name}/bias": (H, D // H)}
        shapes |= {f"{heads}out/kernel": (H, D // H, D), f"{heads}out/bias": (D,)}
        for name, (inputs, outputs) in {"Dense_0": (D, HIDDEN), "Dense_1": (HIDDEN, D)}.items():
            dense = f"{block}MlpBlock_{mlp}/{name}/"
            shapes |= {f"{dense}kernel": (inputs, outputs), f"{dense}bias": (outputs,)}
    return {("params/" if big_vision else "") + name: tensor.numpy() for name, tensor in tensors(shapes).items()}


def google_logits(state: dict, x: Tensor) -> Tensor:
    """In Google's axes. (B, C, H, W) → (B, K), or (B, D) without a head.

    Differs: the exact GELU in place of Google's tanh form, which is at most 4.73e-4 away.
    """
    big_vision = "params/pos_embedding" in state
    norm2, attention, mlp = ("LayerNorm_1", "0", "0") if big_vision else ("LayerNorm_2", "1", "3")
    s = {name.removeprefix("params/"): torch.from_numpy(array) for name, array in state.items()}

    def norm(x, name):
        x = (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, unbiased=False) + 1e-6).sqrt()
        return x * s[f"{name}/scale"] + s[f"{name}/bias"]

    def dense(x, name):
        return x @ s[f"{name}/kernel"] + s[f"{name}/bias"]

    batch, rows = len(x), x.shape[2] // P
    x = x.reshape(batch, C, rows, P, rows, P)
    x = torch.einsum("bcrpsq,pqcD->brsD", x, s["embedding/kernel"]).flatten(1, 2) + s["embedding/bias"]
    token = [s["cls"].expand(batch, -1, -1)] if "cls" in s else []
    x = x + s["pos_embedding"] if big_vision else x
    x = torch.cat([*token, x], dim=1)
    x = x if big_vision else x + s["Transformer/posembed_input/pos_embedding"]
    for i in range(DEPTH):
        block = f"Transformer/encoderblock_{i}"
        y, name = norm(x, f"{block}/LayerNorm_0"), f"{block}/MultiHeadDotProductAttention_{attention}"
        q, k, v = (
            torch.einsum("btD,Dhd->bthd", y, s[f"{name}/{part}/kernel"]) + s[f"{name}/{part}/bias"]
            for part in ("query", "key", "value")
        )
        weights = (torch.einsum("bthd,bshd->bhts", q, k) / (D // H) ** 0.5).softmax(dim=-1)
        y = torch.einsum("bhts,bshd,hdD->btD", weights, v, s[f"{name}/out/kernel"])
        x = x + y + s[f"{name}/out/bias"]
        name = f"{block}/MlpBlock_{mlp}"
        x = x + dense(F.gelu(dense(norm(x, f"{block}/{norm2}"), f"{name}/Dense_0")), f"{name}/Dense_1")
    x = norm(x, "Transformer/encoder_norm")
    x = x[:, 0] if token else x.mean(dim=1)
    return dense(x, "head") if "head/kernel" in s else x


# timm's state dicts, and DeiT's: q, k and v in one


def timm(distilled: bool = False, qkv_bias: bool = True, classes: int = K, dim: int = D, depth: int = DEPTH) -> dict:
    heads = ["head", "head_dist"] if distilled else ["head"]
    shapes = {"cls_token": (1, 1, dim)} | ({"dist_token": (1, 1, dim)} if distilled else {})
    shapes |= {"pos_embed": (1, N + len(heads), dim), "norm.weight": (dim,), "norm.bias": (dim,)}
    shapes |= {"patch_embed.proj.weight": (dim, C, P, P), "patch_embed.proj.bias": (dim,)}
    linear = {"attn.qkv": (3 * dim, dim), "attn.proj": (dim, dim), "mlp.fc1": (HIDDEN, dim), "mlp.fc2": (dim, HIDDEN)}
    for i in range(depth):
        for name in ("norm1", "norm2"):
            shapes |= {f"blocks.{i}.{name}.weight": (dim,), f"blocks.{i}.{name}.bias": (dim,)}
        for name, shape in linear.items():
            shapes |= {f"blocks.{i}.{name}.weight": shape, f"blocks.{i}.{name}.bias": shape[:1]}
        if not qkv_bias:
            del shapes[f"blocks.{i}.attn.qkv.bias"]
    for head in heads if classes else []:
        shapes |= {f"{head}.weight": (classes, dim), f"{head}.bias": (classes,)}
    return tensors(shapes)


# torchvision's state dicts, of which the published ones say mlp.linear_1 for mlp.0


def torchvision(published: bool = False) -> dict[str, Tensor]:
    shapes = {"class_token": (1, 1, D), "encoder.pos_embedding": (1, N + 1, D)}
    shapes |= {"conv_proj.weight": (D, C, P, P), "conv_proj.bias": (D,)}
    shapes |= {"encoder.ln.weight": (D,), "encoder.ln.bias": (D,)}
    shapes |= {"heads.head.weight": (K, D), "heads.head.bias": (K,)}
    first, second = ("linear_1", "linear_2") if published else ("0", "3")
    for block in (f"encoder.layers.encoder_layer_{i}." for i in range(DEPTH)):
        for name in ("ln_1", "ln_2"):
            shapes |= {f"{block}{name}.weight": (D,), f"{block}{name}.bias": (D,)}
        shapes |= {f"{block}self_attention.in_proj_weight": (3 * D, D), f"{block}self_attention.in_proj_bias": (3 * D,)}
        shapes |= {f"{block}self_attention.out_proj.weight": (D, D), f"{block}self_attention.out_proj.bias": (D,)}
        shapes |= {f"{block}mlp.{first}.weight": (HIDDEN, D), f"{block}mlp.{first}.bias": (HIDDEN,)}
        shapes |= {f"{block}mlp.{second}.weight": (D, HIDDEN), f"{block}mlp.{second}.bias": (D,)}
    return tensors(shapes)


def torchvision_logits(s: dict[str, Tensor], x: Tensor) -> Tensor:
    """As in torchvision's forward, through torch's own encoder layer. (B, C, H, W) → (B, K)."""
    x = F.conv2d(x, s["conv_proj.weight"], s["conv_proj.bias"], stride=P).flatten(2).mT
    x = torch.cat([s["class_token"].expand(len(x), -1, -1), x], dim=1) + s["encoder.pos_embedding"]
    layer = torch.nn.TransformerEncoderLayer(D, H, HIDDEN, 0.0, F.gelu, 1e-6, True, True, dtype=torch.float64).eval()
    theirs = {"self_attention": "self_attn", "ln_": "norm", "mlp.0": "linear1", "mlp.3": "linear2"}
    theirs |= {"mlp.linear_": "linear"}
    for i in range(DEPTH):
        prefix, own = f"encoder.layers.encoder_layer_{i}.", {}
        for name in [name for name in s if name.startswith(prefix)]:
            key = name.removeprefix(prefix)
            for old, new in theirs.items():
                key = key.replace(old, new)
            own[key] = s[name]
        layer.load_state_dict(own)
        x = layer(x).detach()
    x = F.layer_norm(x, [D], s["encoder.ln.weight"], s["encoder.ln.bias"], 1e-6)
    return F.linear(x[:, 0], s["heads.head.weight"], s["heads.head.bias"])

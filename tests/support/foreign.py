"""Small checkpoints as other libraries write them, and what those libraries compute with them, written down anew.

The names and formulas here are theirs; nothing is taken from vitbook. All numbers are float64.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

# Sizes that all differ: picture side, patch side, channels, width, heads, hidden width, classes, blocks
SIDE, P, C, D, H, HIDDEN, K, DEPTH = 12, 4, 3, 20, 5, 33, 7, 2
N = (SIDE // P) ** 2


def numbers(shapes: dict[str, tuple[int, ...]], seed: int = 0) -> dict[str, np.ndarray]:
    """Arrays of these shapes, so large that every one of them matters."""
    random = np.random.default_rng(seed)
    return {name: random.normal(scale=0.3, size=shape) + 0.1 for name, shape in shapes.items()}


def tensors(shapes: dict[str, tuple[int, ...]], seed: int = 0) -> dict[str, Tensor]:
    return {name: torch.from_numpy(array) for name, array in numbers(shapes, seed).items()}


def images(batch: int = 2, side: int = SIDE, channels: int = C) -> Tensor:
    return torch.from_numpy(np.random.default_rng(9).normal(size=(batch, channels, side, side)))


# Google's files, and big_vision's: channels last, weights (in, out), heads on an axis of their own


def google(classes: int = K, hidden: bool = False, big_vision: bool = False, token: bool = True) -> dict:
    """hidden: whether pre_logits is there; token: whether there is a class token."""
    norm2, attention, mlp = ("LayerNorm_1", "0", "0") if big_vision else ("LayerNorm_2", "1", "3")
    shapes = {
        "embedding/kernel": (P, P, C, D),
        "embedding/bias": (D,),
        "Transformer/encoder_norm/scale": (D,),
        "Transformer/encoder_norm/bias": (D,),
    }
    if token:
        shapes["cls"] = (1, 1, D)
    if big_vision:
        shapes["pos_embedding"] = (1, N, D)
    else:
        shapes["Transformer/posembed_input/pos_embedding"] = (1, N + 1, D)
    if hidden:
        shapes |= {"pre_logits/kernel": (D, D), "pre_logits/bias": (D,)}
    if classes:
        shapes |= {"head/kernel": (D, classes), "head/bias": (classes,)}
    for i in range(DEPTH):
        block = f"Transformer/encoderblock_{i}/"
        for norm in ("LayerNorm_0", norm2):
            shapes |= {f"{block}{norm}/scale": (D,), f"{block}{norm}/bias": (D,)}
        for name in ("query", "key", "value"):
            prefix = f"{block}MultiHeadDotProductAttention_{attention}/{name}/"
            shapes |= {f"{prefix}kernel": (D, H, D // H), f"{prefix}bias": (H, D // H)}
        prefix = f"{block}MultiHeadDotProductAttention_{attention}/out/"
        shapes |= {f"{prefix}kernel": (H, D // H, D), f"{prefix}bias": (D,)}
        for name, (inputs, outputs) in {"Dense_0": (D, HIDDEN), "Dense_1": (HIDDEN, D)}.items():
            shapes |= {f"{block}MlpBlock_{mlp}/{name}/kernel": (inputs, outputs)}
            shapes |= {f"{block}MlpBlock_{mlp}/{name}/bias": (outputs,)}
    state = numbers(shapes)
    return {f"params/{name}": array for name, array in state.items()} if big_vision else state


def google_scores(state: dict, pictures: Tensor) -> np.ndarray:
    """What these arrays make of pictures, without torch. (B, C, H, W) → (B, K), or (B, D) without a head.

    Differs: the exact GELU in place of Google's tanh form, which is at most 4.73e-4 away.
    """
    gelu = np.vectorize(torch_free_gelu)
    big_vision = "params/pos_embedding" in state
    state = {name.removeprefix("params/"): array for name, array in state.items()}
    norm2, attention, mlp = ("LayerNorm_1", "0", "0") if big_vision else ("LayerNorm_2", "1", "3")

    def norm(x, name):
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
        return x * state[f"{name}/scale"] + state[f"{name}/bias"]

    def dense(x, name):
        return x @ state[f"{name}/kernel"] + state[f"{name}/bias"]

    x = pictures.numpy().transpose(0, 2, 3, 1)  # (B, H, W, C)
    batch, rows = len(x), x.shape[1] // P
    x = x.reshape(batch, rows, P, rows, P, C)
    x = np.einsum("brpsqc,pqcd->brsd", x, state["embedding/kernel"]).reshape(batch, rows**2, D)
    x = x + state["embedding/bias"]
    token = [np.repeat(state["cls"], batch, axis=0)] if "cls" in state else []
    if big_vision:
        x = np.concatenate([*token, x + state["pos_embedding"]], axis=1)
    else:
        x = np.concatenate([*token, x], axis=1) + state["Transformer/posembed_input/pos_embedding"]
    for i in range(DEPTH):
        block = f"Transformer/encoderblock_{i}"
        y = norm(x, f"{block}/LayerNorm_0")
        name = f"{block}/MultiHeadDotProductAttention_{attention}"
        q, k, v = (
            np.einsum("btD,Dhd->bthd", y, state[f"{name}/{part}/kernel"]) + state[f"{name}/{part}/bias"]
            for part in ("query", "key", "value")
        )
        scores = np.einsum("bthd,bshd->bhts", q, k) / np.sqrt(q.shape[-1])
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        y = np.einsum("bhts,bshd->bthd", weights, v)
        x = x + np.einsum("bthd,hdD->btD", y, state[f"{name}/out/kernel"]) + state[f"{name}/out/bias"]
        y = gelu(dense(norm(x, f"{block}/{norm2}"), f"{block}/MlpBlock_{mlp}/Dense_0"))
        x = x + dense(y, f"{block}/MlpBlock_{mlp}/Dense_1")
    x = norm(x, "Transformer/encoder_norm")
    x = x[:, 0] if token else x.mean(axis=1)
    return dense(x, "head") if "head/kernel" in state else x


def torch_free_gelu(x: float) -> float:
    from math import erf, sqrt

    return 0.5 * x * (1 + erf(x / sqrt(2)))


# timm's state dicts, and DeiT's: our weights' axes, q, k and v in one


def timm(distilled: bool = False, qkv_bias: bool = True, classes: int = K, dim: int = D, depth: int = DEPTH) -> dict:
    heads = ["head", "head_dist"] if distilled else ["head"]
    shapes = {"cls_token": (1, 1, dim)} | ({"dist_token": (1, 1, dim)} if distilled else {})
    shapes |= {"pos_embed": (1, N + len(heads), dim)}
    shapes |= {"patch_embed.proj.weight": (dim, C, P, P), "patch_embed.proj.bias": (dim,)}
    for i in range(depth):
        linear = {"attn.qkv": (3 * dim, dim), "attn.proj": (dim, dim)}
        linear |= {"mlp.fc1": (HIDDEN, dim), "mlp.fc2": (dim, HIDDEN)}
        for name in ("norm1", "norm2"):
            shapes |= {f"blocks.{i}.{name}.weight": (dim,), f"blocks.{i}.{name}.bias": (dim,)}
        for name, shape in linear.items():
            shapes |= {f"blocks.{i}.{name}.weight": shape, f"blocks.{i}.{name}.bias": shape[:1]}
        if not qkv_bias:
            del shapes[f"blocks.{i}.attn.qkv.bias"]
    shapes |= {"norm.weight": (dim,), "norm.bias": (dim,)}
    for head in heads if classes else []:
        shapes |= {f"{head}.weight": (classes, dim), f"{head}.bias": (classes,)}
    return tensors(shapes)


def timm_scores(state: dict[str, Tensor], x: Tensor, heads: int = H) -> Tensor:
    """As in timm's forward. (B, C, H, W) → (B, K)."""
    dim = state["cls_token"].shape[-1]
    x = F.conv2d(x, state["patch_embed.proj.weight"], state["patch_embed.proj.bias"], stride=P).flatten(2).mT
    prefix = [state[name].expand(len(x), -1, -1) for name in ("cls_token", "dist_token") if name in state]
    x = torch.cat([*prefix, x], dim=1) + state["pos_embed"]
    for i in range(1 + max(int(name.split(".")[1]) for name in state if name.startswith("blocks."))):
        block = {name.removeprefix(f"blocks.{i}."): t for name, t in state.items() if name.startswith(f"blocks.{i}.")}
        y = F.layer_norm(x, [dim], block["norm1.weight"], block["norm1.bias"], 1e-6)
        y = F.linear(y, block["attn.qkv.weight"], block.get("attn.qkv.bias"))
        q, k, v = y.reshape(len(y), -1, 3, heads, dim // heads).permute(2, 0, 3, 1, 4)
        y = ((q * (dim // heads) ** -0.5) @ k.mT).softmax(dim=-1) @ v
        x = x + F.linear(y.transpose(1, 2).flatten(2), block["attn.proj.weight"], block["attn.proj.bias"])
        y = F.layer_norm(x, [dim], block["norm2.weight"], block["norm2.bias"], 1e-6)
        y = F.gelu(F.linear(y, block["mlp.fc1.weight"], block["mlp.fc1.bias"]))
        x = x + F.linear(y, block["mlp.fc2.weight"], block["mlp.fc2.bias"])
    x = F.layer_norm(x, [dim], state["norm.weight"], state["norm.bias"], 1e-6)
    scores = F.linear(x[:, 0], state["head.weight"], state["head.bias"])
    if "dist_token" not in state:
        return scores
    return (scores + F.linear(x[:, 1], state["head_dist.weight"], state["head_dist.bias"])) / 2


# torchvision's state dicts, of which the published ones say mlp.linear_1 for mlp.0


def torchvision(old: bool = False) -> dict[str, Tensor]:
    shapes = {"class_token": (1, 1, D), "encoder.pos_embedding": (1, N + 1, D)}
    shapes |= {"conv_proj.weight": (D, C, P, P), "conv_proj.bias": (D,)}
    for i in range(DEPTH):
        block = f"encoder.layers.encoder_layer_{i}."
        for name in ("ln_1", "ln_2"):
            shapes |= {f"{block}{name}.weight": (D,), f"{block}{name}.bias": (D,)}
        shapes |= {f"{block}self_attention.in_proj_weight": (3 * D, D), f"{block}self_attention.in_proj_bias": (3 * D,)}
        shapes |= {f"{block}self_attention.out_proj.weight": (D, D), f"{block}self_attention.out_proj.bias": (D,)}
        first, second = ("linear_1", "linear_2") if old else ("0", "3")
        shapes |= {f"{block}mlp.{first}.weight": (HIDDEN, D), f"{block}mlp.{first}.bias": (HIDDEN,)}
        shapes |= {f"{block}mlp.{second}.weight": (D, HIDDEN), f"{block}mlp.{second}.bias": (D,)}
    shapes |= {"encoder.ln.weight": (D,), "encoder.ln.bias": (D,)}
    return tensors(shapes | {"heads.head.weight": (K, D), "heads.head.bias": (K,)})


def torchvision_scores(state: dict[str, Tensor], x: Tensor) -> Tensor:
    """As in torchvision's forward, through torch's own multi-head attention. (B, C, H, W) → (B, K)."""
    x = F.conv2d(x, state["conv_proj.weight"], state["conv_proj.bias"], stride=P).flatten(2).mT
    x = torch.cat([state["class_token"].expand(len(x), -1, -1), x], dim=1) + state["encoder.pos_embedding"]
    for i in range(DEPTH):
        prefix = f"encoder.layers.encoder_layer_{i}."
        block = {name.removeprefix(prefix): t for name, t in state.items() if name.startswith(prefix)}
        block = {name.replace("linear_1", "0").replace("linear_2", "3"): t for name, t in block.items()}
        attention = torch.nn.MultiheadAttention(D, H, batch_first=True, dtype=torch.float64)
        own = {n.removeprefix("self_attention."): t for n, t in block.items() if n.startswith("self_attention.")}
        attention.load_state_dict(own)
        y = F.layer_norm(x, [D], block["ln_1.weight"], block["ln_1.bias"], 1e-6)
        x = x + attention(y, y, y, need_weights=False)[0]
        y = F.layer_norm(x, [D], block["ln_2.weight"], block["ln_2.bias"], 1e-6)
        y = F.gelu(F.linear(y, block["mlp.0.weight"], block["mlp.0.bias"]))
        x = x + F.linear(y, block["mlp.3.weight"], block["mlp.3.bias"])
    x = F.layer_norm(x, [D], state["encoder.ln.weight"], state["encoder.ln.bias"], 1e-6)
    return F.linear(x[:, 0], state["heads.head.weight"], state["heads.head.bias"])

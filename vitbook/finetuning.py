"""Fine-tuning: LoRA, in which W stays and (α/r)BA is learned beside it, and a learning rate for each layer."""

import math
from collections.abc import Collection, Mapping

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitbook._common.validation import check_sizes
from vitbook.training import parameter_groups

TUNINGS = ("probe", "lora", "layers", "all")  # what `prepare` leaves to training, from least to most


class LoRALinear(nn.Linear):
    """xWᵀ + b + (α/r) xAᵀBᵀ, of which A and B alone are trained. (..., D_in) → (..., D_out).

    Hu et al. 2021, section 4.1. A (r, D_in) starts with Gaussian numbers of variance 1/D_in and B (D_out, r) with
    zeros, so that at first nothing has changed.

    linear: W and b, which are shared with it and frozen; rank: r, with 0 the linear map as it was; alpha: α.
    Raises ValueError unless 0 ≤ r ≤ min(D_in, D_out).
    """

    def __init__(self, linear: nn.Linear, rank: int, alpha: float = 16.0):
        super().__init__(linear.in_features, linear.out_features, linear.bias is not None, device="meta")
        check_sizes(0, rank=rank)
        if rank > (width := min(linear.weight.shape)):
            raise ValueError(f"rank must be at most {width}, the narrower side of the map, got {rank}")
        self.weight, self.bias = linear.weight, linear.bias
        self.requires_grad_(False)
        new = {"dtype": linear.weight.dtype, "device": linear.weight.device}
        self.lora_a = nn.Parameter((torch.randn(rank, self.in_features) / math.sqrt(self.in_features)).to(**new))
        self.lora_b = nn.Parameter(torch.zeros(self.out_features, rank, **new))
        self.lora_scale: Tensor
        self.register_buffer("lora_scale", torch.tensor(alpha / max(rank, 1), **new))

    def forward(self, input: Float[Tensor, "*tokens dim"]) -> Float[Tensor, "*tokens out"]:
        return super().forward(input) + self.lora_scale * (input @ self.lora_a.T @ self.lora_b.T)


def add_lora(model: nn.Module, rank: int = 8, alpha: float = 16.0, maps: Collection[str] = ("qkv",)) -> None:
    """Freeze a model but for its head, in place, and put a `LoRALinear` where a linear map has one of these names.

    Differs: the paper adapts W_Q and W_V; here one A and one B serve the map that gives Q, K and V together.
    Raises ValueError for a model without such maps, such as one without attention, and as `LoRALinear` does.
    """
    parts = [(parent, name, part) for parent in model.modules() for name, part in parent.named_children()]
    found = [(parent, name, part) for parent, name, part in parts if name in maps and type(part) is nn.Linear]
    if not found:
        raise ValueError(f"LoRA needs linear maps named {', '.join(maps)}, a {type(model).__name__} has none")
    adapted = [(parent, name, LoRALinear(part, rank, alpha)) for parent, name, part in found]
    freeze(model)
    for parent, name, part in adapted:
        setattr(parent, name, part)


def freeze(model: nn.Module) -> None:
    """Let nothing of a model learn but its head, in place."""
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.startswith("head"))


def merge_lora(model: nn.Module) -> None:
    """Put a plain linear map with W + (α/r)BA in the place of each `LoRALinear`. The model then computes the same."""
    for parent in list(model.modules()):
        for name, part in parent.named_children():
            if isinstance(part, LoRALinear):
                linear = nn.Linear(part.in_features, part.out_features, part.bias is not None).to(part.weight)
                linear.load_state_dict(merged(part.state_dict()))
                setattr(parent, name, linear)


@torch.no_grad()
def merged(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of a model with LoRA as those of one without: W + (α/r)BA under the name of W.

    Raises ValueError where W, A, B and α/r do not belong together.
    """
    plain = {name: tensor for name, tensor in tensors.items() if "lora_" not in name.rpartition(".")[2]}
    for name in tensors:
        at, of, kind = name.rpartition(".")
        if kind == "lora_b":
            try:
                scale, b, a = (tensors[f"{at}{of}{part}"] for part in ("lora_scale", "lora_b", "lora_a"))
                plain[f"{at}{of}weight"] = tensors[f"{at}{of}weight"] + scale * (b @ a)
            except (KeyError, RuntimeError) as error:
                raise ValueError(f"{name}: no LoRA of a linear map: {error}") from None
    return plain


def layer_groups(model: nn.Module, weight_decay: float, decay: float) -> list[dict]:
    """`parameter_groups` in which each layer has its share of the learning rate, decay^(L + 1 − l), highest first.

    l = 0 for the embedding, 1 … L for the blocks, L + 1 for the norm and the head, which get all of it. Clark et al.
    2020 ("ELECTRA"); Bao et al. 2022 ("BEiT"). With 1 all have the same. An optimizer does nothing with a "share": who
    sets its rates multiplies by it. Raises ValueError for a model without encoder blocks, and unless 0 < decay ≤ 1.
    """
    if not 0 < decay <= 1:
        raise ValueError(f"decay must be above 0 and at most 1, got {decay}")
    backbone = getattr(model, "backbone", model)
    depth = len(getattr(getattr(backbone, "encoder", None), "blocks", ()))
    if not depth:
        raise ValueError(f"layer-wise rates need encoder blocks, a {type(model).__name__} has none")
    layers = {parameter: _layer(name, depth) for name, parameter in model.named_parameters()}
    groups = parameter_groups(model, weight_decay)
    return [
        {"params": chosen, "weight_decay": group["weight_decay"], "share": decay ** (depth + 1 - layer)}
        for layer in range(depth + 1, -1, -1)
        for group in groups
        if (chosen := [parameter for parameter in group["params"] if layers[parameter] == layer])
    ]


def _layer(name: str, depth: int) -> int:
    """Which layer a parameter belongs to, by its name."""
    name = name.removeprefix("backbone.")
    if name.startswith("embedding."):
        return 0
    if name.startswith("encoder.blocks."):
        return 1 + int(name.split(".")[2])
    return depth + 1


def prepare(model: nn.Module, tune: str, rank: int = 8) -> None:
    """Leave to training, in place, the head alone ("probe"), LoRA too ("lora"), or everything ("layers" and "all").

    rank: of LoRA. Raises ValueError as `add_lora` does.
    """
    if tune == "probe":
        freeze(model)
    if tune == "lora":
        add_lora(model, rank)


def train_mode(model: nn.Module) -> None:
    """Training mode, except for a frozen BatchNorm, which would go on with the mean and deviation of each batch."""
    model.train()
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and not module.weight.requires_grad:
            module.eval()

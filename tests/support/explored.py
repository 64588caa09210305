"""A small model and two photographs for `explore`, and what a notebook has of its figure."""

import re

import torch

from vitbook.data import photograph
from vitbook.pretrained import Preprocessing
from vitbook.vit import VisionTransformer, ViTConfig

PREPARE = Preprocessing((0.5, 0.4, 0.3), (0.25, 0.2, 0.3), (12, 20))


def small_vit(**changes) -> VisionTransformer:
    """Two blocks of three heads with weights large enough that attention is far from even."""
    torch.manual_seed(3)
    settings = dict(image_size=(12, 20), patch_size=4, num_classes=4, dim=24, depth=2, num_heads=3, mlp_dim=48)
    model = VisionTransformer(ViTConfig(**settings | changes))
    for block in model.encoder.blocks:
        block.attn.qkv.weight.data *= 2
    if model.config.num_classes:
        torch.nn.init.normal_(model.head.weight)
    return model.eval()


def photos() -> torch.Tensor:
    """Two cuts from photographs, larger than the model's images."""
    return torch.stack([photograph(name)[:, 40:70, 80:130] for name in ("portrait", "flower")])


def still(figure) -> str:
    """What a notebook has of it, in words."""
    return re.sub(r"<[^>]+>", "", figure._repr_html_()).replace("\u00a0", " ")

"""The same Vision Transformer from this package and from what one would take instead, all with random weights.

Each builder takes a `ViTConfig` with a class token and gives a module (B, 3, H, W) → (B, K). A builder raises
ImportError where its library is missing, and the measurement goes on without it.
"""

import importlib
import importlib.metadata
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from vision import import_torchvision

from vitbook.encoder import LAYER_NORM_EPS
from vitbook.vit import VisionTransformer, ViTConfig


class TorchViT(nn.Module):
    """The shortest way in plain torch: a ViT around `nn.TransformerEncoder`."""

    def __init__(self, config: ViTConfig):
        super().__init__()
        c = config
        tokens = 1 + c.image_size[0] // c.patch_size * (c.image_size[1] // c.patch_size)
        layer = nn.TransformerEncoderLayer(
            c.dim, c.num_heads, c.mlp_dim, 0.0, "gelu", LAYER_NORM_EPS, batch_first=True, norm_first=True
        )
        self.patches = nn.Conv2d(c.channels, c.dim, c.patch_size, c.patch_size)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, c.dim))
        self.pos_embed = nn.Parameter(torch.empty(1, tokens, c.dim).normal_(std=0.02))
        norm = nn.LayerNorm(c.dim, LAYER_NORM_EPS)
        self.encoder = nn.TransformerEncoder(layer, c.depth, norm, enable_nested_tensor=False)
        self.head = nn.Linear(c.dim, c.num_classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).mT
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1) + self.pos_embed
        return self.head(self.encoder(x)[:, 0])


class Logits(nn.Module):
    """A transformers model that gives its scores alone."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        return self.model(pixel_values=images).logits


def vitbook_mean(c: ViTConfig) -> nn.Module:
    return VisionTransformer(
        replace(c, class_token=False, pool="mean", positions="sincos_2d", qkv_bias=False),
    )


def timm(c: ViTConfig) -> nn.Module:
    import_torchvision()
    from timm.models.vision_transformer import VisionTransformer as Timm

    ratio = c.mlp_dim / c.dim
    return Timm(c.image_size, c.patch_size, c.channels, c.num_classes, "token", c.dim, c.depth, c.num_heads, ratio)


def torchvision(c: ViTConfig) -> nn.Module:
    import_torchvision()
    from torchvision.models.vision_transformer import VisionTransformer as Torchvision

    return Torchvision(c.image_size[0], c.patch_size, c.depth, c.num_heads, c.dim, c.mlp_dim, num_classes=c.num_classes)


def transformers(c: ViTConfig) -> nn.Module:
    with suppress(ImportError):  # it imports torchvision wherever that is installed
        import_torchvision()
    from transformers import ViTConfig as TheirConfig
    from transformers import ViTForImageClassification

    config = TheirConfig(
        hidden_size=c.dim,
        num_hidden_layers=c.depth,
        num_attention_heads=c.num_heads,
        intermediate_size=c.mlp_dim,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        layer_norm_eps=LAYER_NORM_EPS,
        image_size=c.image_size[0],
        patch_size=c.patch_size,
        num_labels=c.num_classes,
        attn_implementation="sdpa",
    )
    return Logits(ViTForImageClassification(config))


def vit_pytorch(c: ViTConfig) -> nn.Module:
    import_torchvision()
    from vit_pytorch import ViT

    return ViT(**lucidrains(c))


def simple_vit(c: ViTConfig) -> nn.Module:
    import_torchvision()
    from vit_pytorch import SimpleViT

    return SimpleViT(**lucidrains(c))


def lucidrains(c: ViTConfig) -> dict:
    """The shape in the words of vit-pytorch."""
    sizes = dict(image_size=c.image_size, patch_size=c.patch_size, channels=c.channels, num_classes=c.num_classes)
    return sizes | dict(dim=c.dim, depth=c.depth, heads=c.num_heads, mlp_dim=c.mlp_dim, dim_head=c.dim // c.num_heads)


@dataclass(frozen=True)
class Peer:
    """build: makes it; package: what to import and whose version to state; like: which of ours does the same work."""

    build: Callable[[ViTConfig], nn.Module]
    package: str
    like: str
    differs: str = ""


OURS = "vitbook"
OURS_MEAN = "vitbook, mean pooling"
PEERS = {
    OURS: Peer(VisionTransformer, "vitbook", OURS),
    "TransformerEncoder": Peer(TorchViT, "torch", OURS),
    "timm": Peer(timm, "timm", OURS),
    "torchvision": Peer(torchvision, "torchvision", OURS),
    "transformers": Peer(transformers, "transformers", OURS),
    "vit-pytorch ViT": Peer(vit_pytorch, "vit_pytorch", OURS, "LayerNorms around the patch map, no biases in Q, K, V"),
    OURS_MEAN: Peer(vitbook_mean, "vitbook", OURS_MEAN, "no class token, fixed positions, no biases in Q, K, V"),
    "SimpleViT": Peer(
        simple_vit,
        "vit_pytorch",
        OURS_MEAN,
        "no class token, fixed positions, LayerNorms around the patch map, no biases in the attention",
    ),
}


def build(config: ViTConfig) -> tuple[dict[str, nn.Module], dict[str, str]]:
    """Every peer that can be made here, and why the others cannot."""
    made, missing = {}, {}
    for name, peer in PEERS.items():
        try:
            torch.manual_seed(0)
            made[name] = peer.build(config)
        except ImportError as error:
            missing[name] = str(error)
    return made, missing


def version(package: str) -> str:
    """The version of a package, empty where it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""

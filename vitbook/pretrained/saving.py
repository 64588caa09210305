"""A model's weights under the names of timm and Hugging Face, for their own loaders."""

from typing import Any

from torch import Tensor

from vitbook.encoder import LAYER_NORM_EPS
from vitbook.positions import LearnedPositions
from vitbook.pretrained.layouts import DISTILLED, HUGGING_FACE, TIMM, Layout, listed
from vitbook.vit import VisionTransformer


def to_timm(model: VisionTransformer) -> dict[str, Tensor]:
    """The weights under timm's names, for its `load_state_dict`. Raises ValueError for what timm has no name for."""
    return _write(model, TIMM)


def to_huggingface(model: VisionTransformer) -> dict[str, Tensor]:
    """The weights under the names of Hugging Face's files, for a model.safetensors beside `huggingface_config` as JSON.

    Raises ValueError for what Hugging Face has no name for.
    """
    return _write(model, HUGGING_FACE.renamed("hf", DISTILLED) if hasattr(model, "head_dist") else HUGGING_FACE)


def huggingface_config(model: VisionTransformer) -> dict[str, Any]:
    """The contents of Hugging Face's config.json for this model."""
    c = model.config
    family, kind = ("deit", "DeiTForImageClassificationWithTeacher"), ("vit", "ViTForImageClassification")
    model_type, architecture = family if hasattr(model, "head_dist") else kind
    sizes = dict(hidden_size=c.dim, num_hidden_layers=c.depth, num_attention_heads=c.num_heads)
    images = dict(image_size=list(c.image_size), patch_size=c.patch_size, num_channels=c.channels)
    labels = {"id2label": {str(k): f"LABEL_{k}" for k in range(c.num_classes)}}
    norm = dict(hidden_act="gelu", layer_norm_eps=LAYER_NORM_EPS, intermediate_size=c.mlp_dim, qkv_bias=c.qkv_bias)
    return {"model_type": model_type, "architectures": [architecture]} | sizes | images | norm | labels


def _write(model: VisionTransformer, layout: Layout) -> dict[str, Tensor]:
    """The weights in a layout whose axes are ours."""
    c, ours, theirs = model.config, model.state_dict(), {}
    if c.pool != "class" or not isinstance(model.embedding.positions, LearnedPositions):
        raise ValueError(f"{layout.name} has pool 'class' and positions 'learned', got {c.pool!r} and {c.positions!r}")
    for row in layout.rows(c.depth):
        if row.ours in ours:
            theirs |= row.write(ours.pop(row.ours))
    if ours:
        raise ValueError(f"{layout.name} has no place for {listed(ours)}")
    return theirs

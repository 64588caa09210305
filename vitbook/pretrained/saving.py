"""A model's weights under the names of other libraries, for their own loaders."""

from typing import Any

from torch import Tensor

from vitbook.encoder import LAYER_NORM_EPS
from vitbook.positions import LearnedPositions
from vitbook.pretrained.layouts import DISTILLED, HUGGING_FACE, TIMM, VITBOOK, Layout
from vitbook.pretrained.loading import Pretrained
from vitbook.pretrained.translating import untranslate
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
    images = dict(image_size=list(c.sides), patch_size=c.patch_size, num_channels=c.channels)
    labels = {"id2label": {str(k): f"LABEL_{k}" for k in range(c.num_classes)}}
    activation, eps = getattr(c, "activation", "gelu"), getattr(c, "norm_eps", LAYER_NORM_EPS)
    act = {"gelu_tanh": "gelu_pytorch_tanh"}.get(activation, activation)
    norm = dict(hidden_act=act, layer_norm_eps=eps, intermediate_size=c.mlp_dim, qkv_bias=c.qkv_bias)
    return {"model_type": model_type, "architectures": [architecture]} | sizes | images | norm | labels


def to_source(weights: Pretrained) -> dict[str, Tensor]:
    """The model's weights under the names that they came with: right after loading, the tensors of the file.

    For all that `load_pretrained` reads. What our model has no place for, as the notes say, is not there: with `file`
    the tensors of the file, `file | to_source(weights)` is all of it again. Raises ValueError for what the model was
    given since and the source has no name for, such as a new head on DINOv2.
    """
    if weights.names is VITBOOK:
        return {name: tensor.clone() for name, tensor in weights.model.state_dict().items()}
    return untranslate(weights.model, weights.names)


def _write(model: VisionTransformer, layout: Layout) -> dict[str, Tensor]:
    """The weights in a layout that states neither pooling nor activation."""
    c = model.config
    if c.pool != "class" or not isinstance(model.embedding.positions, LearnedPositions):
        raise ValueError(f"{layout.name} has pool 'class' and positions 'learned', got {c.pool!r} and {c.positions!r}")
    return untranslate(model, layout)

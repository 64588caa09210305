"""The maps that the exam marks, by name: each a function of a model, images and classes."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from vitbook import attribution
from vitbook.attention_maps import gradient_weighted_attention, patch_map, recorded_attention, residual_stream, rollout
from vitbook.attribution import Classes, Maps
from vitbook.patches import Images
from vitbook.vit import VisionTransformer
from vitbook_workshop.exam import maps_from_papers

Method = Callable[[VisionTransformer, Images, Classes], Maps]


def asked(model: VisionTransformer, attention: Float[Tensor, "batch tokens tokens"]) -> Maps:
    """The class token's attention to each patch; of a model that pools by the mean, that of all patches on average."""
    grid, prefix = model.embedding.grid, len(model.embedding.prefix_tokens)
    if model.config.pool == "class":
        return patch_map(attention, grid, 0, prefix)
    return attention[:, prefix:, prefix:].mean(dim=1).unflatten(1, grid)


@torch.no_grad()
def _weights(model: VisionTransformer, images: Images) -> Float[Tensor, "blocks batch heads tokens tokens"]:
    with recorded_attention(model) as weights:
        model(images)
    return torch.stack(weights)


def last_attention(model: VisionTransformer, images: Images, classes: Classes) -> Maps:
    return asked(model, _weights(model, images)[-1].mean(dim=1))


def rolled_out(model: VisionTransformer, images: Images, classes: Classes) -> Maps:
    return asked(model, rollout(_weights(model, images)))


def chefer(model: VisionTransformer, images: Images, classes: Classes) -> Maps:
    with recorded_attention(model) as weights:
        score = model(images).gather(1, classes[:, None])[:, 0]
    return asked(model, gradient_weighted_attention(weights, score))


@torch.no_grad()
def norms(model: VisionTransformer, images: Images, classes: Classes) -> Maps:
    block, z = model.encoder.blocks[-1], residual_stream(model, images)[-2]
    return asked(model, maps_from_papers.attention_norms(block.attn, block.norm1(z)))


def by_chance(model: VisionTransformer, images: Images, classes: Classes) -> Maps:
    drawn = torch.rand(len(images), *model.embedding.grid, generator=torch.Generator().manual_seed(len(images)))
    return drawn.to(images.device)


def center_first(model: VisionTransformer, images: Images, classes: Classes) -> Maps:
    rows, columns = (torch.arange(side, device=images.device) - (side - 1) / 2 for side in model.embedding.grid)
    return -torch.hypot(rows[:, None], columns).expand(len(images), -1, -1)


def border_first(model: VisionTransformer, images: Images, classes: Classes) -> Maps:
    return -center_first(model, images, classes)


def _of_model(attribute: Callable[..., Maps], drawn: bool = False, **options: object) -> Method:
    """A function of `vitbook.attribution`, with the model's grid and, where it draws, the same numbers each time."""

    def method(model: VisionTransformer, images: Images, classes: Classes) -> Maps:
        more = {"generator": torch.Generator().manual_seed(0)} if drawn else {}
        return attribute(model, images, classes, model.embedding.grid, **options, **more)

    return method


BLIND: dict[str, Method] = {"by chance": by_chance, "center first": center_first, "border first": border_first}
METHODS: dict[str, Method] = {
    "last block's attention": last_attention,
    "attention × value norm": norms,
    "rollout": rolled_out,
    "gradient-weighted (Chefer)": chefer,
    "gradient × input": _of_model(maps_from_papers.gradient_times_input),
    "integrated gradients": _of_model(maps_from_papers.integrated_gradients),
    "occlusion, gray": _of_model(attribution.occlusion),
    "occlusion, mean color": _of_model(attribution.occlusion, filling="mean"),
    "occlusion, another image": _of_model(attribution.occlusion, filling="other image"),
    "RISE": _of_model(maps_from_papers.rise, drawn=True),
    "SHAP": _of_model(maps_from_papers.shapley, drawn=True),
}
ALL = BLIND | METHODS

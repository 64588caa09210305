"""Through which head an answer goes: pairs of scenes that differ in one thing, and the table head × block."""

import torch
from jaxtyping import Float
from torch import Tensor

from vitbook._common.validation import check_choice
from vitbook.activation_patching import head, moved
from vitbook.patches import Images
from vitbook.planted import Scenes, planted, render
from vitbook.vit import VisionTransformer


def twins(change: str, count: int = 100) -> tuple[Images, Images]:
    """Images of compare and of their twins, as `twin_scenes` has them, but those whose answer happens to stay."""
    here, there = twin_scenes(change, count)
    other = here.labels != there.labels
    return here.images[other], there.images[other]


def twin_scenes(change: str, count: int) -> tuple[Scenes, Scenes]:
    """Scenes of compare, and the same ones but for the gray patch's texture ("cue") or the matching patch's color.

    The noise is the same in both.
    """
    check_choice("change", change, ("cue", "color"))
    scenes = planted("compare", count, torch.Generator().manual_seed(5))
    textures, colors = scenes.textures, scenes.colors
    if change == "cue":
        textures = torch.where(scenes.key & (colors == 0), textures % 4 + 1, textures)
    else:
        colors = torch.where(scenes.key & (colors > 0), colors % 4 + 1, colors)
    pairs = (scenes.textures, scenes.colors), (textures, colors)
    here, there = (render("compare", *pair, torch.Generator().manual_seed(6)) for pair in pairs)
    return here, there


def head_table(model: VisionTransformer, images: Images, donors: Images) -> Float[Tensor, "blocks heads"]:
    """How far the answer goes where one head's output is the donors', mean over pairs with two answers."""
    places = torch.ones(model.config.depth, model.config.num_heads).nonzero().tolist()
    found = [moved(model, images, donors, [head(model, *place)]).nanmean() for place in places]
    return torch.stack(found).view(model.config.depth, model.config.num_heads)

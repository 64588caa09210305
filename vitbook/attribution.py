"""Maps that say which patches decided, and marks for them where that is known.

An attribution takes a model, images (B, C, H, W) and a class of each (B,), and gives maps (B, rows, columns): the more,
the more that patch spoke for the class, whose score is its logit. Those of `attention_maps` read attention.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int64, Shaped
from torch import Tensor, nn

from vitbook._common.validation import check_choice
from vitbook.patches import Images
from vitbook.positions import Grid

Classes = Int64[Tensor, " batch"]
Maps = Float[Tensor, "batch rows columns"]
FILLINGS = ("gray", "mean", "other image")


def filled(images: Images, filling: str) -> Images:
    """What stands in the place of a hidden patch: 0, which is gray; the image's mean color; the next image's patch."""
    check_choice("filling", filling, FILLINGS)
    if filling == "mean":
        return images.mean(dim=(2, 3), keepdim=True).expand_as(images)
    return torch.zeros_like(images) if filling == "gray" else images.roll(1, dims=0)


@torch.no_grad()
def masked_scores(
    model: nn.Module,
    images: Images,
    classes: Classes,
    kept: Bool[Tensor, "#batch masks rows columns"],
    filling: str = "gray",
    at_once: int = 512,
) -> Float[Tensor, "batch masks"]:
    """The score of each image's class where only some patches are kept, for many masks; so many images go at once."""
    batch, masks = len(images), kept.shape[1]
    kept, fill = kept.expand(batch, -1, -1, -1), filled(images, filling)
    scores = []
    for chosen in torch.arange(batch * masks, device=images.device).split(at_once):
        image, mask = chosen // masks, chosen % masks
        shown = in_pixels(kept[image, mask], images.shape[2:])
        logits = model(torch.where(shown.unsqueeze(1), images[image], fill[image]))
        scores.append(logits.gather(1, classes[image, None])[:, 0])
    return torch.cat(scores).view(batch, masks)


def in_pixels(maps: Shaped[Tensor, "batch rows columns"], size: Sequence[int]) -> Shaped[Tensor, "batch height width"]:
    """Each patch's entry at all the pixels of an image of this height and width."""
    down, across = (side // count for side, count in zip(size, maps.shape[1:], strict=True))
    return maps.repeat_interleave(down, dim=1).repeat_interleave(across, dim=2)


def occlusion(model: nn.Module, images: Images, classes: Classes, grid: Grid, filling: str = "gray") -> Maps:
    """By how much the score falls if one patch is hidden (Zeiler and Fergus 2014)."""
    count = math.prod(grid)
    kept = torch.cat([torch.ones(1, count), 1 - torch.eye(count)]).bool().view(1, -1, *grid).to(images.device)
    scores = masked_scores(model, images, classes, kept, filling)
    return (scores[:, :1] - scores[:, 1:]).unflatten(1, grid)


def precision_at_k(maps: Maps, key: Bool[Tensor, "batch rows columns"]) -> Float[Tensor, " batch"]:
    """The share of the k highest patches that are in the key, k being the key's own size; ties as if drawn by lot."""
    maps, key = maps.flatten(1), key.flatten(1)
    k = key.sum(dim=1, keepdim=True)
    least = maps.sort(dim=1, descending=True).values.gather(1, k - 1)
    above, level = maps > least, maps == least
    lots = (k - above.sum(dim=1, keepdim=True)) / level.sum(dim=1, keepdim=True)
    return (((above + level * lots) * key).sum(dim=1, keepdim=True) / k)[:, 0]


def auc(maps: Maps, key: Bool[Tensor, "batch rows columns"]) -> Float[Tensor, " batch"]:
    """How often a patch of the key is above one that is not, a tie counting half: 1 is perfect, ½ is chance."""
    maps, key = maps.flatten(1), key.flatten(1)
    higher = (maps[:, :, None] - maps[:, None]).sign() / 2 + 0.5  # (B, N, N)
    pairs = key[:, :, None] & ~key[:, None]
    return (higher * pairs).sum(dim=(1, 2)) / pairs.sum(dim=(1, 2))

"""Scenes of which it is known which patches decide: an exam for maps that claim to show it.

A scene is two grids of whole numbers, the texture of each patch and its color. The answer and the patches that decide
it (the key) are rules on these grids, and the pixels come last, so the key needs neither an annotator nor a model.
Places are drawn uniformly: a map that looks at no image does as well as chance.

    find      the color of the one colored patch with checks: one patch decides
    compare   the color of the one colored patch with the gray patch's texture: two decide
    count     how many colored patches have the gray patch's texture, 1 to 4: two to five decide
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from vitbook._common.validation import check_choice, check_sizes
from vitbook.vit import ViTConfig

TASKS = ("find", "compare", "count")
COLORS = ("gray", "red", "green", "blue", "yellow")
TEXTURES = ("plain", "checks", "columns", "rows", "blocks")  # the numbers beyond are watermarks, one for each class
CONFIG = ViTConfig(image_size=24, patch_size=4, num_classes=4, dim=32, depth=3, num_heads=4, mlp_dim=64)

Cells = Int64[Tensor, "N 6 6"]  # a whole number for each patch

_WAVE, _HALVES, _EVEN = torch.tensor([[1, 0, 1, 0], [1, 1, 0, 0], [0, 0, 0, 0]])
_STRIPES = ((_EVEN, _EVEN), (_WAVE, _WAVE), (_EVEN, _WAVE), (_WAVE, _EVEN), (_HALVES, _HALVES))
_DOTS = torch.eye(4).view(4, 2, 2).repeat_interleave(2, dim=1).repeat_interleave(2, dim=2)
PATTERNS = torch.cat([torch.stack([(down[:, None] != across).float() for down, across in _STRIPES]), _DOTS])
_RGB = torch.tensor([[0.9, 0.9, 0.9], [0.9, 0.2, 0.2], [0.2, 0.8, 0.2], [0.2, 0.3, 0.9], [0.9, 0.8, 0.2]])


@dataclass(frozen=True)
class Scenes:
    """N scenes of a task: their pixels, answers and keys."""

    task: str
    textures: Cells  # indices of TEXTURES, or len(TEXTURES) + the class that a watermark tells
    colors: Cells  # indices of COLORS
    images: Float[Tensor, "N 3 24 24"]  # as the models see them: −1 is black and 1 white, before noise

    @property
    def key(self) -> Bool[Tensor, "N 6 6"]:
        """The patches that decide."""
        colored, target = self.colors > 0, torch.ones(len(self.colors), dtype=torch.long)
        if self.task == "find":
            return colored & (self.textures == target[:, None, None])
        cue = self.textures * ~colored * (self.textures < len(TEXTURES))
        return self.textures == cue.amax(dim=(1, 2), keepdim=True)

    @property
    def labels(self) -> Int64[Tensor, " N"]:
        """The answers, 0 to 3: the deciding color but gray, or how many were counted, less one."""
        deciding = self.colors * self.key
        return ((deciding > 0) if self.task == "count" else deciding).sum(dim=(1, 2)) - 1

    @property
    def watermark(self) -> Bool[Tensor, "N 6 6"]:
        """The patch with a watermark, if there is one."""
        return self.textures >= len(TEXTURES)


def planted(task: str, count: int, generator: torch.Generator, watermark: str = "none") -> Scenes:
    """Draw scenes.

    task: one of `TASKS`. watermark: "none"; "true" for one more patch, whose dot stands in the corner of the answer, a
    shortcut for whoever may learn it; "random" for a dot that knows nothing. Raises ValueError for other words.
    """
    check_choice("task", task, TASKS)
    check_choice("watermark", watermark, ("none", "true", "random"))
    check_sizes(count=count)

    def draw(low: int, high: int, slots: int) -> Int64[Tensor, "N slots"]:
        return torch.randint(low, high, (count, slots), generator=generator)

    def shuffled(slots: int) -> Int64[Tensor, "N slots"]:
        return torch.rand(count, slots, generator=generator).argsort(dim=1)

    order = shuffled(4) + 1  # of the four textures
    if task == "find":  # four colored patches of four textures, then three gray ones
        textures = torch.cat([torch.arange(1, 5).expand(count, -1), draw(1, 5, 3)], dim=1)
        colors = torch.cat([draw(1, 5, 4), torch.zeros(count, 3, dtype=torch.long)], dim=1)
    else:  # the gray one, those that match it, those that do not
        same = 1 if task == "compare" else 4
        others = order[:, 1:] if task == "compare" else order.gather(1, draw(1, 4, 5))
        textures = torch.cat([order[:, :1].expand(-1, 1 + same), others], dim=1)
        colors = torch.cat([torch.zeros(count, 1, dtype=torch.long), draw(1, 5, textures.shape[1] - 1)], dim=1)
        if task == "count":  # both numbers vary, so that neither tells the other
            there = torch.arange(4) < draw(1, 5, 1), torch.arange(5) < draw(2, 6, 1)
            there = torch.cat([torch.ones(count, 1, dtype=torch.bool), *there], dim=1)
            textures, colors = textures * there, colors * there
    places = shuffled(36)
    textures, colors = (torch.zeros_like(places).scatter(1, places[:, : x.shape[1]], x) for x in (textures, colors))
    scenes = Scenes(task, textures.view(-1, 6, 6), colors.view(-1, 6, 6), torch.empty(count, 3, 24, 24))
    if watermark != "none":
        told = scenes.labels[:, None] if watermark == "true" else draw(0, 4, 1)
        textures = textures.scatter(1, places[:, -1:], len(TEXTURES) + told)
    return render(task, textures.view(-1, 6, 6), scenes.colors, generator)


def render(task: str, textures: Cells, colors: Cells, generator: torch.Generator) -> Scenes:
    """Paint scenes: bright and dark by the texture, plain patches as gray as the mean of a gray one, then noise."""
    bright = PATTERNS[textures].unsqueeze(3)  # (N, 6, 6, 1, 4, 4)
    pixels = bright * _RGB[colors][..., None, None] + (1 - bright) * 0.15
    pixels = torch.where((textures == 0)[..., None, None, None], 0.5, pixels)
    pixels = pixels.permute(0, 3, 1, 4, 2, 5).reshape(-1, 3, 24, 24)
    noise = torch.randn(pixels.shape, generator=generator)
    return Scenes(task, textures, colors, 2 * pixels - 1 + 0.1 * noise)

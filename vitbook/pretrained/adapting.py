"""A trained model for other data: another head, another image size, gray in place of color."""

from dataclasses import replace

import torch
from torch import nn

from vitbook._common.suggestions import unknown
from vitbook.positions import LearnedPositions
from vitbook.vit import VisionTransformer

# How each source's own code interpolates positions, as arguments of `resize_positions`.
KERNELS = {
    "google": dict(mode="bilinear", align_corners=True, antialias=False),  # scipy.ndimage.zoom(order=1)
    "timm": dict(mode="bicubic", align_corners=False, antialias=True),
    "timm_npz": dict(mode="bilinear", align_corners=False, antialias=False),  # timm, where it reads Google's files
    "torchvision": dict(mode="bicubic", align_corners=True, antialias=False),
    "deit": dict(mode="bicubic", align_corners=False, antialias=False),
    "hf": dict(mode="bicubic", align_corners=False, antialias=False),
    "siglip2": dict(mode="bilinear", align_corners=False, antialias=True),  # of variable resolution
}


@torch.no_grad()
def adapt(model: VisionTransformer, kernel: str, **changes: int | tuple[int, int] | None) -> list[str]:
    """Give a model another head, image size or number of channels, in place. Returns what was done, in words.

    kernel: how positions are interpolated, a key of `KERNELS`; changes: num_classes, image_size, channels, None to keep
    them. Raises ValueError for sizes that do not fit the model.
    """
    if kernel not in KERNELS:
        raise ValueError(unknown("kernel", kernel, KERNELS))
    before, notes = model.config, []
    config = replace(before, **{name: value for name, value in changes.items() if value is not None})
    if config.num_classes != before.num_classes:
        for name in [name for name in ("head", "head_dist") if hasattr(model, name)]:
            wide = config.dim * (1 + getattr(config, "class_and_mean", False))
            head = nn.Linear(wide, config.num_classes) if config.num_classes else nn.Identity()
            for parameter in head.parameters():
                nn.init.zeros_(parameter)
            setattr(model, name, head)
            notes.append(f"{name}: {before.num_classes} classes dropped, {config.num_classes} made new, all zeros")
    if config.channels != before.channels:
        notes.append(_change_channels(model, before.channels, config.channels))
    if config.image_size != before.image_size:
        notes.append(f"positions: {before.image_size} pixels resized to {config.image_size}")
        positions, rule = model.embedding.positions, KERNELS[kernel]
        if isinstance(positions, LearnedPositions):
            positions.interpolation = rule
            settings = [rule["mode"], *(name for name, value in rule.items() if value is True)]
            notes[-1] += f", as {kernel} does it: {', '.join(settings)}"
        model.resize(config.image_size)
    model.config = config
    return notes


def _change_channels(model: VisionTransformer, before: int, after: int) -> str:
    """Other kernels in the first convolution, such that the model says of the same content what it said before."""
    first = next(m for m in model.embedding.patch_embed.modules() if isinstance(m, nn.Conv2d))
    if after == 1:
        weight, how = first.weight.sum(dim=1, keepdim=True), "added up"
    elif before == 1:
        weight, how = first.weight.expand(-1, after, -1, -1) / after, "shared out"
    elif after > before:
        zeros = first.weight.new_zeros(len(first.weight), after - before, *first.weight.shape[2:])
        weight, how = torch.cat([first.weight, zeros], dim=1), f"kept, {after - before} of zeros added"
    else:
        raise ValueError(f"channels: the weights have {before}, which can become 1 or more than {before}, got {after}")
    first.weight, first.in_channels = nn.Parameter(weight.contiguous()), after
    return f"patch_embed: kernels of {before} channels {how}: {after}"

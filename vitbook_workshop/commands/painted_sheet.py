"""What `vitbook paint` draws: images from noise, a row for each class."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from vitbook._common.suggestions import unknown
from vitbook._common.validation import check_sizes
from vitbook.painting import paint, recorded_painter

_ZOOM, _GAP = 4, 2  # pixels of the sheet for one of an image, and between images


def paint_sheet(name: str | None, steps: int, guidance: float, number: int, seed: int, to: Path) -> str:
    """Paint `number` images of a class, or of each, and write them; what was painted, in words.

    Raises ValueError for a class that the painter does not know, for a file that is no .png, and as `paint` does.
    """
    if to.suffix.lower() != ".png":
        raise ValueError(f"a sheet is a .png, got {to}")
    model, names = recorded_painter()
    chosen = list(range(len(names))) if name is None else [_class_of(name, names)]
    check_sizes(number=number)
    labels = torch.tensor(chosen).repeat_interleave(number)
    config = model.backbone.config
    noise = torch.randn(len(labels), config.channels, *config.sides, generator=torch.Generator().manual_seed(seed))
    images = paint(model, labels, steps, guidance, noise)
    levels = ((images.clamp(-1, 1) + 1) * 127.5).round().byte().movedim(1, -1)  # (B, H, W, 3)
    tiles = np.pad(levels.numpy().repeat(_ZOOM, 1).repeat(_ZOOM, 2), ((0, 0), (0, _GAP), (0, _GAP), (0, 0)))
    rows = tiles.reshape(len(chosen), number, *tiles.shape[1:])
    sheet = np.concatenate([np.concatenate(row, axis=1) for row in rows], axis=0)
    to.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(sheet).save(to)
    return f"{number} of {', '.join(names[k] for k in chosen)}"


def _class_of(name: str, names: tuple[str, ...]) -> int:
    """By its number or its name."""
    if name in names:
        return names.index(name)
    if name.isdecimal() and int(name) < len(names):
        return int(name)
    raise ValueError(f"{unknown('class', name, names)} Or give its number, 0 to {len(names) - 1}")

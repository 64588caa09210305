"""Draw the images of the landing page and of shared links: what the book's own model makes of one photograph.

    python records/draw_cover.py      write _static/cover.webp and _static/card.jpg

Three squares: the photograph; the 8×8 patches that it is cut into; the same patches, the brighter, the more of the
class token's attention, rolled out through all blocks, goes to them. Brightness goes with the square root, so that
patches with a small share can be told apart. The photograph comes with the package, under CC0.
The cover has no text and transparent gaps, so that it stands on any background.
"""

from pathlib import Path

import torch
from matplotlib import pyplot as plt
from PIL import Image
from torch import Tensor

from vitbook.attention_maps import patch_map, recorded_attention, rollout
from vitbook.data import album, album_credits
from vitbook.patches import patchify
from vitbook.pretrained import load_pretrained

STATIC = Path(__file__).resolve().parent.parent / "_static"
PHOTOGRAPH = "bird_kingfisher.jpg"
SIDE = 384  # pixels of one square: three times the photograph's 128
GAP = 4  # pixels between two patches
SPACE = 36  # pixels between two squares
DIMMEST = 0.12  # brightness of a patch that gets no attention


def seen_by_the_model(index: int) -> tuple[str, Tensor]:
    """The class that the model names, and its class token's attention to each patch: (8, 8), largest 1."""
    trained = load_pretrained("vitbook:cifar10")
    with torch.no_grad(), recorded_attention(trained.model) as weights:
        logits = trained.model(trained.preprocessing(album(size=32).images[index]))
    attention = patch_map(rollout(torch.stack(weights)), trained.model.embedding.grid)[0]
    return trained.class_names[logits.argmax().item()], attention / attention.max()


def squares() -> tuple[list[Tensor], str]:
    """The photograph, its patches, its patches lit by attention, each float32 (4, SIDE, SIDE), 0 to 1; its class."""
    index = [entry["file"] for entry in album_credits()].index(PHOTOGRAPH)
    name, attention = seen_by_the_model(index)
    small = Image.fromarray(album(size=128).images[index].permute(1, 2, 0).numpy())
    large = small.resize((SIDE, SIDE), Image.Resampling.LANCZOS)
    image = torch.frombuffer(bytearray(large.tobytes()), dtype=torch.uint8).view(SIDE, SIDE, 3).permute(2, 0, 1) / 255
    opaque = torch.cat([image, torch.ones(1, SIDE, SIDE)])

    rows, columns = attention.shape
    side = SIDE // rows
    patch = torch.zeros(side, side)
    patch[GAP // 2 : side - GAP // 2, GAP // 2 : side - GAP // 2] = 1.0
    gaps = patch.repeat(rows, columns)
    brightness = DIMMEST + (1 - DIMMEST) * attention.sqrt()
    lit = image * brightness.repeat_interleave(side, 0).repeat_interleave(side, 1)
    assert patchify(image[None], side).shape[1] == attention.numel()  # one patch for each number
    return [opaque, torch.cat([image, gaps[None]]), torch.cat([lit, opaque[3:]])], name


def cover() -> Image.Image:
    """The three squares in a row, RGBA."""
    parts, _ = squares()
    space = torch.zeros(4, SIDE, SPACE)
    row = torch.cat([parts[0], space, parts[1], space, parts[2]], dim=2)
    return Image.fromarray((row * 255).round().byte().permute(1, 2, 0).contiguous().numpy(), "RGBA")


def card(image: Image.Image) -> Image.Image:
    """The cover under the book's title, 1200×630 as the services ask for."""
    figure = plt.figure(figsize=(12, 6.3), dpi=100, facecolor="#10161d")
    figure.text(0.05, 0.86, "Vision Transformers, Step by Step", color="white", fontsize=39, weight="bold", va="center")
    line = "From attention over a few printed numbers to a model that you have trained yourself"
    figure.text(0.05, 0.745, line, color="#c9d3dd", fontsize=18, va="center")
    axes = figure.add_axes((0.05, 0.07, 0.9, 0.56))
    axes.imshow(image, interpolation="lanczos")
    axes.set_axis_off()
    figure.canvas.draw()
    drawn = Image.frombuffer("RGBA", figure.canvas.get_width_height(), figure.canvas.buffer_rgba()).convert("RGB")
    plt.close(figure)
    return drawn


def main(folder: Path = STATIC) -> None:
    image = cover()
    image.save(folder / "cover.webp", quality=82, method=6)
    card(image).save(folder / "card.jpg", quality=86, optimize=True)


if __name__ == "__main__":
    main()

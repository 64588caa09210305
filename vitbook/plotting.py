"""Tensors in, matplotlib Axes out: the book's figures. The only module that imports matplotlib."""

from collections.abc import Iterable, Sequence
from itertools import chain, cycle, repeat
from statistics import fmean

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F
from cycler import cycler
from IPython import get_ipython
from jaxtyping import Int, Real, Shaped
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import AbstractPathEffect, withStroke
from matplotlib_inline.config import InlineBackend
from torch import Tensor

from vitbook._common.files import ASSETS
from vitbook.patches import grid_size

# Okabe and Ito 2008: told apart by color-blind readers, on white and in gray
COLORS = {
    "blue": "#0072B2",
    "orange": "#E69F00",
    "green": "#009E73",
    "vermilion": "#D55E00",
    "purple": "#CC79A7",
    "sky": "#56B4E9",
    "black": "#000000",
}
WIDTH = 6.0  # inches: a column's width on a desk, and still legible at the width of a phone
ATTENTION_MAP = "viridis"  # for weights, 0 to 1
SIGNED_MAP = "RdBu_r"  # for numbers of either sign, white at 0
_LINES = ("-", "--", "-.", ":")

Image = Shaped[Tensor, "C H W"]  # uint8, 0 to 255, or float, 0 to 1; C is 1 or 3
Map = Shaped[Tensor, "rows columns"]
Numbers = Sequence[float] | Tensor
_Limits = tuple[float, float]  # the values at the two ends of a color scale


def use_book_style() -> None:
    """Set matplotlib up as the book's figures are: in its type, sharp, on white, large enough for a phone."""
    font_manager.fontManager.addfont(ASSETS / "fonts/sans.ttf")
    plt.rcParams.update(
        {
            "figure.figsize": (WIDTH, 3.4),
            "figure.dpi": 160,
            "figure.constrained_layout.use": True,
            "figure.facecolor": "white",
            "font.family": ["Vitbook Sans", "DejaVu Sans"],
            "font.size": 12,
            "axes.titlesize": 12,
            "mathtext.fontset": "stix",
            "axes.prop_cycle": cycler(color=list(COLORS.values())),
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": False,
            "lines.linewidth": 2,
            "legend.frameon": False,
            "image.interpolation": "nearest",
        }
    )
    if get_ipython() is not None:  # notebooks crop figures unless told not to; uncropped, all are equally wide
        InlineBackend.instance().set_trait("print_figure_kwargs", {"bbox_inches": None})


# Matrices and maps


def show_matrix(
    matrix: Map,
    ax: Axes | None = None,
    *,
    title: str = "",
    rows: str = "",
    columns: str = "",
    row_labels: Sequence[str] | None = None,
    column_labels: Sequence[str] | None = None,
    decimals: int | None = 2,
    **style,
) -> Axes:
    """A matrix as colored cells with its numbers in them.

    rows, columns: what the two axes count; decimals: of the printed numbers, None for none.
    style: limits, the values at the two ends of the color scale, 0 and 1 if not given, whatever the matrix; colors, a
        matplotlib colormap.
    """
    if ax is None:
        ax = plt.subplots(figsize=(WIDTH, min(0.5 * len(matrix) + 0.9, 1.1 * WIDTH)))[1]
    matrix = _paint(matrix, ax, **style)
    if decimals is not None:
        luminance = ax.images[0].to_rgba(matrix.numpy())[..., :3] @ (0.299, 0.587, 0.114)
        for i, row in enumerate(matrix.tolist()):
            for j, value in enumerate(row):
                _write(ax, i, j, f"{value:.{decimals}f}", "white" if luminance[i, j] < 0.5 else "black")
    _label_ticks(ax, row_labels, column_labels)
    ax.set(title=title, xlabel=columns, ylabel=rows)
    return ax


def show_confusion(counts: Int[Tensor, "K K"], class_names: Sequence[str], ax: Axes | None = None) -> Axes:
    """How many images of each class (row) were taken for which (column), from `Evaluation.confusion`."""
    ax = ax or plt.subplots(figsize=(WIDTH, WIDTH))[1]
    shares = counts / counts.sum(dim=1, keepdim=True).clamp(min=1)
    show_matrix(
        shares,
        ax,
        rows="true class",
        columns="predicted class",
        row_labels=class_names,
        column_labels=class_names,
        decimals=None,
        colors="Blues",
    )
    for i, j in counts.nonzero().tolist():
        _write(ax, i, j, str(counts[i, j].item()), "white" if shares[i, j] > 0.5 else "black")
    return ax


def show_maps(
    maps: Sequence[Map] | Tensor, titles: Sequence[str] = (), *, columns: int = 4, scale: str = "", **style
) -> list[Axes]:
    """Matrices without numbers, side by side on one color scale, which `scale` names.

    style: as in `show_matrix`.
    """
    axes = panels(len(maps), columns, titled=any(titles))
    _fill_maps(axes, maps, titles, scale, **style)
    return axes


def show_mosaic(
    maps: Shaped[Tensor, "rows columns r c"], ax: Axes | None = None, *, rows="", columns="", scale="", **style
) -> Axes:
    """Many small maps in one table, on one color scale, which `scale` names.

    rows, columns: what the rows and columns of the table count, from 0; style: as in `show_matrix`.
    """
    down, across, high, wide = maps.shape
    tiles = F.pad(maps.detach().float(), (0, 1, 0, 1), value=torch.nan)  # a thin gap, which stays white
    table = tiles.transpose(1, 2).reshape(down * (high + 1), across * (wide + 1))[:-1, :-1]
    if ax is None:
        ax = plt.subplots(figsize=(WIDTH, 0.77 * WIDTH * len(table) / table.shape[1] + 0.5))[1]
    _paint(table, ax, **style)
    ax.set_xticks([column * (wide + 1) + (wide - 1) / 2 for column in range(across)], _counted(across))
    ax.set_yticks([row * (high + 1) + (high - 1) / 2 for row in range(down)], _counted(down))
    ax.set(xlabel=columns, ylabel=rows)
    ax.figure.colorbar(ax.images[0], ax=ax, shrink=0.8, label=scale)
    return ax


def _paint(matrix: Map, ax: Axes, limits: _Limits = (0.0, 1.0), colors: str = ATTENTION_MAP) -> Map:
    """Color an Axes' cells by a matrix, without frame or tick marks; what was painted, float32 on the CPU."""
    matrix = matrix.detach().float().cpu()
    ax.imshow(matrix.numpy(), cmap=colors, vmin=limits[0], vmax=limits[1], aspect="equal")
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    return matrix


def _write(ax: Axes, row: int, column: int, text: str, color: str) -> None:
    """Put a text into a cell."""
    ax.text(column, row, text, ha="center", va="center", color=color)


def _label_ticks(ax: Axes, row_labels: Sequence[str] | None, column_labels: Sequence[str] | None) -> None:
    """Name each row and column of a matrix; few enough are numbered, many are left to matplotlib."""
    rows, columns = ax.images[0].get_size()
    if row_labels is not None or rows <= 16:
        ax.set_yticks(range(rows), row_labels or _counted(rows))
    if column_labels is not None or columns <= 16:
        ax.set_xticks(range(columns), column_labels or _counted(columns))


def _counted(number: int) -> list[str]:
    """Names for so many things: 0, 1, 2, …"""
    return [str(n) for n in range(number)]


def _fill_maps(axes: list[Axes], maps: Iterable[Map], titles: Iterable[str], scale: str, **style) -> None:
    """Maps in Axes that there are, beside one color bar, which `scale` names."""
    for ax, values, title in zip(axes, maps, chain(titles, repeat("")), strict=False):
        show_matrix(values, ax, title=title, decimals=None, **style).set(xticks=[], yticks=[])
    axes[0].figure.colorbar(axes[0].images[0], ax=axes, shrink=0.8, label=scale)


# Images


def show_picture(image: Image, ax: Axes | None = None, *, title: str = "") -> Axes:
    """An image without axes."""
    if image.dtype == torch.bfloat16:
        image = image.float()  # numpy has no bfloat16
    ax = ax or plt.subplots()[1]
    white = 1.0 if image.is_floating_point() else 255
    pixels = image.detach().cpu().permute(1, 2, 0)
    ax.imshow(pixels.squeeze(-1).numpy(), cmap="gray", vmin=0, vmax=white)
    ax.set_title(title)
    ax.axis("off")
    return ax


def show_pictures(images: Sequence[Image] | Tensor, titles: Sequence[str] = (), *, columns: int = 8) -> list[Axes]:
    """Images in rows, with titles where given."""
    axes = panels(len(images), columns, titled=any(titles))
    for image, ax, title in zip(images, axes, chain(titles, repeat("")), strict=False):
        show_picture(image, ax, title=title)
    return axes


def panels(count: int, columns: int, *, titled: bool = True) -> list[Axes]:
    """`count` square Axes in rows of `columns`, in one figure of the book's width. titled: whether with room above."""
    columns = min(columns, count)
    rows = -(-count // columns)
    size = (WIDTH, rows * WIDTH / columns * (1.1 if titled else 1.0))
    figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="compressed")
    for ax in axes.flat[count:]:
        figure.delaxes(ax)
    return list(axes.flat[:count])


def show_over(image: Image, values: Map, ax: Axes | None = None, *, title: str = "", **style) -> Axes:
    """A map over the photograph that it belongs to: the photograph, of any size, in gray under the patches' colors.

    style: limits and colors, as in `show_matrix`. The map is the second image of the Axes, for a color bar.
    """
    gray = image.detach().float().cpu().mean(dim=0, keepdim=True) / (1 if image.is_floating_point() else 255)
    ax = show_picture(0.25 + 0.75 * gray, ax, title=title)  # nowhere black, or the colors would not be seen
    height, width = gray.shape[1:]
    values = _paint(values, ax, **style)
    colors = ax.images[1]
    opaque = 0.25 + 0.5 * np.clip(colors.norm(values.numpy()), 0, 1)  # the lower, the more of the photograph is seen
    colors.set(alpha=opaque, extent=(-0.5, width - 0.5, height - 0.5, -0.5))
    return ax


def show_patch_grid(image: Image, patch_size: int, ax: Axes | None = None, *, highlight: int | None = None) -> Axes:
    """An image with the lines along which it is cut into patches; one patch, by its number, is framed.

    Raises ValueError where patches of this size do not tile the image.
    """
    rows, columns = grid_size(image.shape[-2:], patch_size)
    ax = show_picture(image, ax)
    for row in range(rows + 1):
        ax.axhline(row * patch_size - 0.5, color="white", linewidth=0.8)
    for column in range(columns + 1):
        ax.axvline(column * patch_size - 0.5, color="white", linewidth=0.8)
    if highlight is not None:
        row, column = divmod(highlight, columns)
        corner = (column * patch_size - 0.5, row * patch_size - 0.5)
        outline: list[AbstractPathEffect] = [withStroke(linewidth=5, foreground="black")]  # seen on any color
        frame = Rectangle(corner, patch_size, patch_size, fill=False, color=COLORS["orange"], linewidth=2.5)
        frame.set_path_effects(outline)
        ax.add_patch(frame)
    return ax


def draw_explanation(
    image: Image, rollout: Map, heads: Sequence[Map], titles: Sequence[str], *, query: int | None = None
) -> Figure:
    """An image and its rollout above the maps of some heads, which `titles` name and which share one scale.

    query: the number of the patch that attends, which is framed; None for the class token. The figure is no part of
    pyplot, and needs no screen.
    """
    rows, columns = rollout.shape
    width = min(max(len(heads), 2), 4)
    deep = -(-len(heads) // width)
    heights = [WIDTH / 2.7 * rows / columns + 0.4, deep * (WIDTH / (width + 0.7) * rows / columns + 0.4)]
    with plt.rc_context():
        use_book_style()
        figure = Figure(figsize=(WIDTH, sum(heights)))
        above, below = figure.add_gridspec(2, 1, height_ratios=heights)
        left, right = (figure.add_subplot(place) for place in above.subgridspec(1, 2))
        show_patch_grid(image, image.shape[1] // rows, left, highlight=query)
        place = "class token" if query is None else "row {}, column {}".format(*divmod(query, columns))
        left.set_title(f"query: {place}")
        _fill_maps([right], [rollout], ["rollout, all blocks"], "share", limits=(0.0, rollout.max().item()))
        places = below.subgridspec(deep, width)
        axes = [figure.add_subplot(places[n]) for n in range(len(heads))]
        _fill_maps(axes, heads, titles, "weight", limits=(0.0, max(head.max().item() for head in heads)))
    return figure


# Curves and points: the labels are those of `Axes.set`, such as xlabel and ylabel


def show_curves(curves: dict[str, Numbers], ax: Axes | None = None, *, x: Numbers | None = None, **labels: str) -> Axes:
    """Named curves over a common axis (their index where x is not given), told apart by color and by line."""
    ax = ax or plt.subplots()[1]
    for (name, values), line in zip(curves.items(), cycle(_LINES), strict=False):
        ax.plot(range(len(values)) if x is None else x, values, line, label=name)
    if len(curves) > 1:
        ax.legend()
    ax.set(**labels)
    return ax


def show_spread(groups: dict[str, Sequence[Numbers]], ax: Axes | None = None, *, x: Numbers, **labels: str) -> Axes:
    """For each name and each x several values: a line through their means, and a bar from the lowest to the highest."""
    ax = ax or plt.subplots()[1]
    for (name, values), line, mark in zip(groups.items(), cycle(_LINES), cycle("os^D"), strict=False):
        mean, low, high = (torch.tensor([f(some) for some in values]) for f in (fmean, min, max))
        ax.errorbar(x, mean, (mean - low, high - mean), linestyle=line, marker=mark, capsize=4, label=name)
    ax.legend()
    ax.set(**labels)
    return ax


def show_heads(
    values: dict[str, Real[Tensor, "L h"]],
    ax: Axes | None = None,
    *,
    lines: dict[str, float] | None = None,
    **labels: str,
) -> Axes:
    """One point for each head over the depth of its block; named sets of heads, side by side.

    lines: values to compare with, by name, drawn across.
    """
    ax = ax or plt.subplots()[1]
    for i, ((name, heads), mark) in enumerate(zip(values.items(), cycle("o^sD"), strict=False)):
        depth = torch.arange(len(heads))[:, None] + 0.16 * (i - (len(values) - 1) / 2)
        ax.scatter(depth.expand_as(heads), heads.detach().cpu(), s=36, marker=mark, alpha=0.8, label=name)
    for (name, value), line in zip((lines or {}).items(), cycle((":", "--", "-.")), strict=False):
        ax.axhline(value, color="0.4", linestyle=line, linewidth=1.2, label=name)
    blocks = max(len(heads) for heads in values.values())
    ax.legend()
    ax.set(xlabel="block", xticks=range(blocks), **labels)
    return ax

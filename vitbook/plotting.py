"""Tensors in, matplotlib Axes out: the book's figures. The only module that imports matplotlib."""

import io
from collections.abc import Sequence
from itertools import cycle

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from IPython import get_ipython
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib_inline.config import InlineBackend
from torch import Tensor

from vitbook._support.validation import check_shape, check_sizes, check_tensors, in_words

# Okabe and Ito 2008: told apart by colour-blind readers, on white and in grey
COLOURS = {
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


def use_book_style() -> None:
    """Set matplotlib up as the book's figures are: sharp, on white, large enough for a phone."""
    plt.rcParams.update(
        {
            "figure.figsize": (WIDTH, 3.4),
            "figure.dpi": 160,
            "figure.constrained_layout.use": True,
            "figure.facecolor": "white",
            "font.size": 11,
            "axes.titlesize": 11,
            "axes.prop_cycle": plt.cycler(color=list(COLOURS.values())),
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": False,
            "lines.linewidth": 2,
            "legend.frameon": False,
            "image.interpolation": "nearest",
        }
    )
    if get_ipython() is not None:  # notebooks crop figures unless told not to; uncropped, all are equally wide
        InlineBackend.instance().print_figure_kwargs = {"bbox_inches": None}


def show_matrix(
    matrix: Tensor,
    ax: Axes | None = None,
    *,
    title: str = "",
    rows: str = "",
    columns: str = "",
    row_labels: Sequence[str] | None = None,
    column_labels: Sequence[str] | None = None,
    decimals: int | None = 2,
    limits: tuple[float, float] = (0.0, 1.0),
    colours: str = ATTENTION_MAP,
) -> Axes:
    """A matrix as coloured cells with its numbers in them. (rows, columns) → Axes.

    rows, columns: what the two axes count; decimals: of the printed numbers, None for none;
    limits: the values at the two ends of the colour scale, which is the same whatever the matrix.
    """
    check_shape("matrix", matrix, "rows", "columns")
    if not matrix.numel() or matrix.is_complex():
        raise ValueError(
            f"matrix must be real numbers, one at least, got {matrix.dtype} of shape {tuple(matrix.shape)}"
        )
    matrix = matrix.detach().float().cpu()
    if ax is None:
        rows_high = min(0.5 * len(matrix) + 0.9, 1.1 * WIDTH)
        ax = plt.subplots(figsize=(WIDTH, rows_high))[1]
    image = ax.imshow(matrix.numpy(), cmap=colours, vmin=limits[0], vmax=limits[1], aspect="equal")
    if decimals is not None:
        for i, row in enumerate(matrix.tolist()):
            for j, value in enumerate(row):
                red, green, blue, _ = image.cmap(image.norm(value))
                dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
                ink = "white" if dark else "black"
                ax.text(j, i, f"{value:.{decimals}f}", ha="center", va="center", color=ink)
    label_ticks(ax, row_labels, column_labels)
    ax.set(title=title, xlabel=columns, ylabel=rows)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    return ax


def label_ticks(ax: Axes, row_labels: Sequence[str] | None, column_labels: Sequence[str] | None) -> None:
    """Name each row and column of a matrix; few enough are numbered, many are left to matplotlib."""
    rows, columns = ax.images[0].get_array().shape[:2]
    if row_labels is not None or rows <= 16:
        ax.set_yticks(range(rows), row_labels or range(rows))
    if column_labels is not None or columns <= 16:
        ax.set_xticks(range(columns), column_labels or range(columns))


def show_picture(picture: Tensor, ax: Axes | None = None, *, title: str = "") -> Axes:
    """A picture without axes. uint8 (C, H, W), 0 to 255, or float, 0 to 1; C is 1 or 3."""
    check_tensors(picture=picture)
    if picture.ndim != 3 or picture.shape[0] not in (1, 3) or not picture.numel():
        raise ValueError(f"picture must have shape (1, H, W) or (3, H, W), got {tuple(picture.shape)}")
    if picture.dtype != torch.uint8 and not picture.is_floating_point():
        raise ValueError(f"picture must be uint8, 0 to 255, or float, 0 to 1, got {picture.dtype}")
    if picture.dtype == torch.bfloat16:
        picture = picture.float()  # numpy has no bfloat16
    ax = ax or plt.subplots()[1]
    white = 255 if picture.dtype == torch.uint8 else 1.0
    pixels = picture.detach().cpu().permute(1, 2, 0)
    ax.imshow(pixels.squeeze(-1).numpy(), cmap="gray", vmin=0, vmax=white)
    ax.set_title(title)
    ax.axis("off")
    return ax


def show_pictures(pictures: Sequence[Tensor] | Tensor, titles: Sequence[str] = (), *, columns: int = 8) -> list[Axes]:
    """Pictures in rows, each (C, H, W) as in `show_picture`, with titles where given."""
    axes = panels(len(pictures), columns, titled=any(titles))
    for i, (picture, ax) in enumerate(zip(pictures, axes, strict=True)):
        show_picture(picture, ax, title=titles[i] if i < len(titles) else "")
    return axes


def show_maps(
    maps: Sequence[Tensor] | Tensor,
    titles: Sequence[str] = (),
    *,
    columns: int = 4,
    limits: tuple[float, float] = (0.0, 1.0),
    colours: str = ATTENTION_MAP,
    scale: str = "",
) -> list[Axes]:
    """Matrices without numbers, side by side on one colour scale, which `scale` names. Each (rows, columns)."""
    axes = panels(len(maps), columns, titled=any(titles))
    for i, (values, ax) in enumerate(zip(maps, axes, strict=True)):
        title = titles[i] if i < len(titles) else ""
        show_matrix(values, ax, title=title, decimals=None, limits=limits, colours=colours)
        ax.set(xticks=[], yticks=[])
    axes[0].figure.colorbar(axes[0].images[0], ax=axes, shrink=0.8, label=scale)
    return axes


def panels(count: int, columns: int, *, titled: bool = True) -> list[Axes]:
    """`count` square Axes in rows of `columns`, in one figure of the book's width. titled: whether with room above."""
    if count < 1 or columns < 1:
        raise ValueError(f"at least one panel and one column are needed, got {count} and {columns}")
    columns = min(columns, count)
    rows = -(-count // columns)
    height = WIDTH / columns * rows * (1.1 if titled else 1.0)
    figure, axes = plt.subplots(rows, columns, figsize=(WIDTH, height), squeeze=False, layout="compressed")
    for ax in axes.flat[count:]:
        figure.delaxes(ax)
    return list(axes.flat[:count])


def draw_explanation(
    picture: Tensor, rollout: Tensor, heads: Sequence[Tensor], titles: Sequence[str], *, query: int | None = None
) -> Figure:
    """A picture and its rollout above the maps of some heads, which share one scale, in the book's style.

    picture: (C, H, W); rollout and each of the heads, which `titles` name: (rows, columns); query: the number of the
    patch that attends, which is framed; None for the class token. The figure is no part of pyplot, and needs no screen.
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
        show_patch_grid(picture, picture.shape[1] // rows, left, highlight=query)
        place = "class token" if query is None else "row {}, column {}".format(*divmod(query, columns))
        left.set_title(f"query: {place}")
        fill_maps([right], [rollout], ["rollout, all blocks"], "share")
        places = list(below.subgridspec(deep, width))[: len(heads)]
        fill_maps([figure.add_subplot(place) for place in places], heads, titles, "weight")
    return figure


def fill_maps(axes: Sequence[Axes], maps: Sequence[Tensor], titles: Sequence[str], scale: str) -> None:
    """Maps in Axes that there are, on one colour scale from 0 to their largest value, which `scale` names.

    maps: (rows, columns) each.
    """
    largest = max(values.max().item() for values in maps)
    for ax, values, title in zip(axes, maps, titles, strict=True):
        show_matrix(values, ax, title=title, decimals=None, limits=(0.0, largest))
        ax.set(xticks=[], yticks=[])
    axes[0].figure.colorbar(axes[0].images[0], ax=list(axes), shrink=0.8, label=scale)


def to_png(figure: Figure) -> bytes:
    """A figure as the content of a PNG file."""
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


def show_patch_grid(picture: Tensor, patch_size: int, ax: Axes | None = None, *, highlight: int | None = None) -> Axes:
    """A picture (C, H, W) with the lines along which it is cut into patches; one patch, by its number, is framed."""
    check_tensors(picture=picture)
    check_sizes(None, patch_size=patch_size)
    if picture.ndim != 3:
        raise ValueError(f"picture must have shape (1, H, W) or (3, H, W), got {tuple(picture.shape)}")
    height, width = picture.shape[-2:]
    if patch_size < 1 or height % patch_size or width % patch_size:
        raise ValueError(f"image {height}×{width} is not divisible by patch size {patch_size}")
    count = height // patch_size * (width // patch_size)
    if highlight is not None and not 0 <= highlight < count:
        raise ValueError(f"highlight must be the number of one of {count} patches, got {highlight}")
    ax = show_picture(picture, ax)
    for y in range(0, height + 1, patch_size):
        ax.axhline(y - 0.5, color="white", linewidth=0.8)
    for x in range(0, width + 1, patch_size):
        ax.axvline(x - 0.5, color="white", linewidth=0.8)
    if highlight is not None:
        row, column = divmod(highlight, width // patch_size)
        corner = (column * patch_size - 0.5, row * patch_size - 0.5)
        outline = [patheffects.withStroke(linewidth=5, foreground="black")]  # seen on any colour
        frame = dict(fill=False, color=COLOURS["orange"], linewidth=2.5, path_effects=outline)
        ax.add_patch(Rectangle(corner, patch_size, patch_size, **frame))
    return ax


def show_curves(
    curves: dict[str, Sequence[float]],
    ax: Axes | None = None,
    *,
    x: Sequence[float] | None = None,
    xlabel: str,
    ylabel: str,
    title: str = "",
) -> Axes:
    """Named curves over a common axis (their index where x is not given), told apart by colour and by line."""
    ax = ax or plt.subplots()[1]
    styles = ("-", "--", "-.", ":")
    for i, (name, values) in enumerate(curves.items()):
        ax.plot(range(len(values)) if x is None else x, values, styles[i % len(styles)], label=name)
    ax.set(xlabel=xlabel, ylabel=ylabel, title=title)
    if len(curves) > 1:
        ax.legend()
    return ax


def show_spread(
    groups: dict[str, Sequence[Sequence[float]]],
    ax: Axes | None = None,
    *,
    x: Sequence[float],
    xlabel: str,
    ylabel: str,
) -> Axes:
    """For each name and each x several values: a line through their means, and a bar from the lowest to the highest."""
    ax = ax or plt.subplots()[1]
    for (name, values), style, mark in zip(groups.items(), cycle(("-", "--", "-.", ":")), cycle("os^D"), strict=False):
        mean = [sum(some) / len(some) for some in values]
        below = [m - min(some) for m, some in zip(mean, values, strict=True)]
        above = [max(some) - m for m, some in zip(mean, values, strict=True)]
        ax.errorbar(x, mean, (below, above), linestyle=style, marker=mark, capsize=4, label=name)
    ax.set(xlabel=xlabel, ylabel=ylabel)
    ax.legend()
    return ax


def show_confusion(counts: Tensor, class_names: Sequence[str], ax: Axes | None = None) -> Axes:
    """How many pictures of each class (row) were taken for which (column), from `Evaluation.confusion`. (K, K)."""
    ax = ax or plt.subplots(figsize=(WIDTH, WIDTH))[1]
    shares = counts / counts.sum(dim=1, keepdim=True).clamp(min=1)
    show_matrix(shares, ax, rows="true class", columns="predicted class", decimals=None, colours="Blues")
    for i, row in enumerate(counts.tolist()):
        for j, count in enumerate(row):
            if count:
                ax.text(j, i, count, ha="center", va="center", color="white" if shares[i, j] > 0.5 else "black")
    label_ticks(ax, class_names, class_names)
    return ax


def show_mosaic(
    maps: Tensor,
    ax: Axes | None = None,
    *,
    title: str = "",
    rows: str = "",
    columns: str = "",
    limits: tuple[float, float] = (0.0, 1.0),
    colours: str = ATTENTION_MAP,
    scale: str = "",
) -> Axes:
    """Many small maps in one table, on one colour scale, which `scale` names. (rows, columns, r, c) → Axes.

    rows, columns: what the rows and columns of the table count, from 0.
    """
    check_tensors(maps=maps)
    if maps.ndim != 4:
        raise ValueError(f"maps must have shape (rows, columns, r, c), got {tuple(maps.shape)}")
    if not maps.numel() or maps.is_complex():
        raise ValueError(f"maps must be real numbers, one at least, got {in_words(maps)}")
    down, across, high, wide = maps.shape
    tiles = F.pad(maps.detach().float().cpu(), (0, 1, 0, 1), value=torch.nan)  # a thin gap, which stays white
    table = tiles.transpose(1, 2).reshape(down * (high + 1), across * (wide + 1))[:-1, :-1]
    if ax is None:
        ax = plt.subplots(figsize=(WIDTH, 0.77 * WIDTH * len(table) / table.shape[1] + 0.5))[1]
    image = ax.imshow(table.numpy(), cmap=colours, vmin=limits[0], vmax=limits[1])
    ax.set_xticks([column * (wide + 1) + (wide - 1) / 2 for column in range(across)], range(across))
    ax.set_yticks([row * (high + 1) + (high - 1) / 2 for row in range(down)], range(down))
    ax.set(title=title, xlabel=columns, ylabel=rows)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    ax.figure.colorbar(image, ax=ax, shrink=0.8, label=scale)
    return ax


def show_beside(
    pictures: Sequence[Tensor] | Tensor,
    maps: Sequence[Tensor] | Tensor,
    titles: Sequence[str] = (),
    *,
    columns: int = 4,
    limits: tuple[float, float] = (0.0, 1.0),
    scale: str = "",
) -> list[Axes]:
    """Each picture with its own map to the right of it, on one colour scale, which `scale` names.

    pictures: (C, H, W) as in `show_picture`; maps: (rows, columns), patch for patch; columns: of such pairs. Returns
    the Axes in turns: a picture's, its map's, the next picture's. Raises ValueError where the numbers differ.
    """
    if len(pictures) != len(maps) or not len(pictures):
        raise ValueError(f"each picture needs one map, got {len(pictures)} pictures and {len(maps)} maps")
    columns = min(columns, len(pictures))
    rows = -(-len(pictures) // columns)
    size = (WIDTH, rows * (0.42 * WIDTH / columns + 0.25) + 0.5)
    figure, axes = plt.subplots(rows, 2 * columns, figsize=size, squeeze=False)
    for ax in axes.flat[2 * len(pictures) :]:
        figure.delaxes(ax)
    axes = list(axes.flat[: 2 * len(pictures)])
    for i, (picture, values) in enumerate(zip(pictures, maps, strict=True)):
        left, right = axes[2 * i], axes[2 * i + 1]
        show_picture(picture, left)
        show_matrix(values, right, decimals=None, limits=limits).set(xticks=[], yticks=[])
        if i < len(titles):
            left.set_title(titles[i], loc="left", fontsize=10)  # over both
    figure.colorbar(axes[1].images[0], ax=axes, location="bottom", shrink=0.5, aspect=40, label=scale)
    return axes


def show_heads(
    values: dict[str, Tensor], ax: Axes | None = None, *, ylabel: str, lines: dict[str, float] | None = None
) -> Axes:
    """One point for each head over the depth of its block; named sets of heads, each (L, h), side by side.

    lines: values to compare with, by name, drawn across.
    """
    ax = ax or plt.subplots()[1]
    for i, (name, heads) in enumerate(values.items()):
        if heads.ndim != 2:
            raise ValueError(f"{name} must have shape (L, h), got {tuple(heads.shape)}")
        depth = torch.arange(len(heads))[:, None] + 0.16 * (i - (len(values) - 1) / 2)
        ax.scatter(depth.expand_as(heads), heads.detach().cpu(), s=36, marker="o^sD"[i % 4], alpha=0.8, label=name)
    for (name, value), style in zip((lines or {}).items(), cycle((":", "--", "-.")), strict=False):
        ax.axhline(value, color="0.4", linestyle=style, linewidth=1.2, label=name)
    blocks = max(len(heads) for heads in values.values())
    ax.set(xlabel="block", ylabel=ylabel, xticks=range(blocks))
    ax.legend()
    return ax

"""Figures show the numbers they are given, on the scale they state, and are made without a warning."""

from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib import font_manager

from vitbook import plotting
from vitbook._common.files import ASSETS

matplotlib.use("Agg")
pytestmark = [  # of the figures; what other tests leave behind in this process is not theirs
    pytest.mark.filterwarnings(f"error::{category}")
    for category in ("UserWarning", "DeprecationWarning", "RuntimeWarning", "FutureWarning")
]


@pytest.fixture(autouse=True)
def clean_figures():
    with plt.rc_context():
        plotting.use_book_style()
        plt.rcParams["figure.dpi"] = 30
        yield
    plt.close("all")


def drawn(made) -> np.ndarray:
    """The figure's pixels; drawing it must raise no warning."""
    figure = (made[0] if isinstance(made, list) else made).figure
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba())


def shown(ax) -> torch.Tensor:
    """The array that an Axes shows, read back."""
    return torch.as_tensor(np.asarray(ax.images[0].get_array()))


def texts(ax) -> list[str]:
    return [text.get_text() for text in ax.texts]


def test_figures_are_in_the_type_of_the_book():
    ax = plt.subplots()[1]
    title = ax.set_title("Attention, 3.5 × 10⁻³, α → ½")  # a letter that the font lacks would warn
    drawn(ax)
    assert Path(font_manager.findfont(title.get_fontproperties())).is_relative_to(ASSETS)


MATRIX = torch.tensor([[0.0, 0.25, 0.75], [1.0, 0.5, 0.125]])
IMAGE = torch.arange(8 * 12 * 3, dtype=torch.uint8).view(3, 8, 12)
COUNTS = torch.tensor([[5, 1, 0], [0, 7, 2], [3, 0, 4]])


def test_a_matrix_is_shown_as_cells_with_its_numbers():
    ax = plotting.show_matrix(MATRIX, title="weights", rows="query", columns="key")
    drawn(ax)
    assert torch.equal(shown(ax), MATRIX)
    assert texts(ax) == ["0.00", "0.25", "0.75", "1.00", "0.50", "0.12"]
    assert [text.get_position() for text in ax.texts][2] == (2, 0)
    assert (ax.get_title(), ax.get_ylabel(), ax.get_xlabel()) == ("weights", "query", "key")


@pytest.mark.parametrize("image", [IMAGE, IMAGE[1:2]], ids=["color", "gray"])
def test_an_image_is_shown_pixel_by_pixel(image):
    bytes_ax = plotting.show_picture(image, title="bytes")
    floats_ax = plotting.show_picture(image / 255)
    drawn(bytes_ax), drawn(floats_ax)
    assert torch.equal(shown(bytes_ax), image.permute(1, 2, 0).squeeze(-1))
    torch.testing.assert_close(shown(floats_ax), shown(bytes_ax) / 255)
    assert bytes_ax.get_title() == "bytes" and not bytes_ax.axison
    if len(image) == 1:  # black is 0, whatever the darkest pixel
        assert (bytes_ax.images[0].get_clim(), floats_ax.images[0].get_clim()) == ((0, 255), (0, 1))


def test_a_map_over_a_photograph_covers_it_patch_for_patch():
    ax = plotting.show_over(IMAGE, MATRIX)
    drawn(ax)
    below, above = ax.images
    assert list(below.get_extent()) == list(above.get_extent()) == [-0.5, 11.5, 7.5, -0.5]
    assert torch.equal(torch.tensor(above.get_array()), MATRIX)
    assert (above.get_alpha() > 0).all() and (above.get_alpha() < 1).all()


def test_the_patch_grid_runs_along_the_patches_and_frames_the_one_that_is_named():
    ax = plotting.show_patch_grid(IMAGE, 4, highlight=4)
    drawn(ax)
    lines = [line.get_xydata() for line in ax.lines]
    assert sorted(xy[0][1] for xy in lines if xy[0][1] == xy[1][1]) == [-0.5, 3.5, 7.5]
    assert sorted(xy[0][0] for xy in lines if xy[0][0] == xy[1][0]) == [-0.5, 3.5, 7.5, 11.5]
    (frame,) = ax.patches
    assert (frame.get_xy(), frame.get_width(), frame.get_height()) == ((3.5, 3.5), 4, 4)


def test_spread_is_the_mean_and_a_bar_from_the_lowest_to_the_highest():
    ax = plotting.show_spread({"a": [[1, 2.0, 6], [4.0]], "b": [[5.0, 7], [8.0]]}, x=[1, 10], xlabel="", ylabel="")
    drawn(ax)
    (first, _, (first_bars,)), (second, _, (second_bars,)) = ax.containers
    assert (first.get_ydata().tolist(), second.get_ydata().tolist()) == ([3.0, 4.0], [6.0, 8.0])
    assert [segment[:, 1].tolist() for segment in first_bars.get_segments()] == [[1.0, 6.0], [4.0, 4.0]]
    assert [segment[:, 1].tolist() for segment in second_bars.get_segments()] == [[5.0, 7.0], [8.0, 8.0]]
    assert first.get_linestyle() != second.get_linestyle() and first.get_marker() != second.get_marker()


def test_a_mosaic_lays_each_map_where_it_belongs():
    maps = torch.rand(2, 3, 4, 5)
    ax = plotting.show_mosaic(maps, rows="head", columns="block", scale="weight")
    drawn(ax)
    table = shown(ax)
    assert table.shape == (2 * 5 - 1, 3 * 6 - 1)
    for row in range(2):
        for column in range(3):
            assert torch.equal(table[5 * row : 5 * row + 4, 6 * column : 6 * column + 5], maps[row, column])
    gaps = ax.images[0].get_array().mask
    assert gaps[4].all() and gaps[:, 5].all() and gaps.sum() == table.numel() - maps.numel()
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["0", "1", "2"]
    assert ax.get_xticks().tolist() == [2, 8, 14] and ax.get_yticks().tolist() == [1.5, 6.5]
    assert (ax.get_ylabel(), ax.get_xlabel()) == ("head", "block")
    (bar,) = (other for other in ax.figure.axes if other is not ax)
    assert bar.get_ylabel() == "weight"


TABLE = {  # every argument, and another value of it
    plotting.show_matrix: (
        dict(matrix=MATRIX, title="", rows="", columns="", row_labels=None, column_labels=None)
        | dict(decimals=2, limits=(0.0, 1.0), colors="viridis"),
        dict(matrix=1 - MATRIX, title="a", rows="b", columns="c", row_labels="de", column_labels="fgh")
        | dict(decimals=None, limits=(-1.0, 2.0), colors="gray"),
    ),
    plotting.show_picture: (dict(image=IMAGE, title=""), dict(image=255 - IMAGE, title="a")),
    plotting.show_pictures: (dict(images=[IMAGE] * 3, columns=8), dict(images=[IMAGE] * 4, titles=["a"], columns=2)),
    plotting.show_maps: (
        dict(maps=[MATRIX] * 3),
        dict(maps=[MATRIX] * 2, titles=["a"], columns=2, limits=(-1.0, 2.0), colors="gray", scale="b"),
    ),
    plotting.show_over: (
        dict(image=IMAGE, values=MATRIX),
        dict(image=255 - IMAGE, values=1 - MATRIX, title="a", limits=(-1.0, 2.0), colors="gray"),
    ),
    plotting.show_patch_grid: (dict(image=IMAGE, patch_size=4), dict(image=255 - IMAGE, patch_size=2, highlight=3)),
    plotting.show_curves: (
        dict(curves={"a": [1, 2]}),
        dict(curves={"a": [1, 2], "d": [2, 3]}, x=[5, 7], xlabel="e", ylabel="f"),
    ),
    plotting.show_spread: (
        dict(groups={"a": [[1, 2], [3]]}, x=[1, 2]),
        dict(groups={"d": [[1, 3], [3]]}, x=[1, 3], xlabel="e", ylabel="f"),
    ),
    plotting.show_mosaic: (
        dict(maps=MATRIX.expand(2, 3, 2, 3)),
        dict(maps=1 - MATRIX.expand(2, 3, 2, 3), rows="b", columns="c", limits=(-1.0, 2.0), colors="gray", scale="d"),
    ),
    plotting.show_heads: (
        dict(values={"a": MATRIX}),
        dict(values={"a": MATRIX, "c": 1 - MATRIX}, ylabel="d", lines={"e": 0.3}),
    ),
    plotting.show_confusion: (dict(counts=COUNTS, class_names="abc"), dict(counts=COUNTS.T, class_names="def")),
}


@pytest.mark.slow
@pytest.mark.parametrize("function", TABLE, ids=lambda function: function.__name__)
def test_every_argument_changes_the_figure(function):
    base, changes = TABLE[function]
    before = drawn(function(**base))
    for name, value in changes.items():
        after = drawn(function(**base | {name: value}))
        assert before.shape != after.shape or (before != after).any(), f"{name} has no effect"

"""Plots a second time for dark pages: where their pictures stand, and what becomes of the rest."""

import io
import json
from pathlib import Path

import figure_boxes
import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image
from site_dark_figures import FIGURE, draw_twin, is_chart, on_slate

PAPER, INK = (np.array(color) / 255 for color in ((18, 18, 18), (230, 234, 240)))


def drawn(pictures: int = 1) -> Image.Image:
    """Two panels, a plot beside a red picture by default, as notebooks store them."""
    figure = Figure(figsize=(4, 2), dpi=100, layout="constrained")
    figure_boxes.Canvas(figure)
    for place, ax in enumerate(figure.subplots(1, 2)):
        if place < 2 - pictures:
            ax.plot([0, 1], [0, 1], color="black", linewidth=6)
        else:
            ax.imshow([[(1.0, 0.0, 0.0)]])
    figure.canvas.print_figure(file := io.BytesIO(), format="png", dpi=100)
    return Image.open(file)


def test_a_figure_knows_where_its_pictures_stand() -> None:
    image = drawn()
    [(left, top, right, bottom)] = json.loads(image.info["Pictures"])
    red = (np.asarray(image.convert("RGB")) == (255, 0, 0)).all(axis=2)
    rows, columns = red.any(axis=1).nonzero()[0], red.any(axis=0).nonzero()[0]
    assert [left, top, right, bottom] == pytest.approx([columns[0], rows[0], columns[-1], rows[-1]], abs=2)


def test_paper_and_ink_are_exchanged_and_pictures_are_not() -> None:
    image = drawn()
    pixels = np.asarray(image.convert("RGB")) / 255
    dark = on_slate(pixels, json.loads(image.info["Pictures"]))
    white, black, red = ((pixels == color).all(axis=2) for color in ((1, 1, 1), (0, 0, 0), (1, 0, 0)))
    np.testing.assert_allclose(dark[white], np.broadcast_to(PAPER, dark[white].shape))
    black[:, 200:] = False  # the frame of the picture is part of it
    assert np.abs(dark[black] - INK).max() < 1e-6 and black.sum() > 100
    assert (dark[red] == (1, 0, 0)).all()


@pytest.mark.parametrize("color", ["#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9"])
def test_a_line_keeps_its_hue_and_is_seen_on_dark_paper(color: str) -> None:
    rgb = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    chalk = on_slate(rgb[None, None], [])[0, 0]
    assert (np.argsort(chalk) == np.argsort(rgb)).all()
    luminance = [(0.2126, 0.7152, 0.0722) @ (c.clip(0.04045, 1) ** 2.2) for c in (chalk, PAPER)]
    assert (luminance[0] + 0.05) / (luminance[1] + 0.05) > 2.5


def test_only_a_figure_that_knows_its_pictures_has_a_twin(tmp_path: Path) -> None:
    image = drawn()
    (tmp_path / "with.png").write_bytes(image.fp.getvalue())
    image.save(tmp_path / "without.png")
    assert draw_twin(tmp_path / "with.png") and not draw_twin(tmp_path / "without.png")
    assert [path.name for path in tmp_path.glob("*.webp")] == ["with-dark.webp"]
    with Image.open(tmp_path / "with-dark.webp") as twin:
        assert twin.size == image.size and twin.getpixel((0, 0)) == (18, 18, 18)
    html = '<img alt="x" src="../_images/with.png" /><img class="on-paper" src="../_images/with.png">'
    assert [match["path"] for match in FIGURE.finditer(html)] == ["../_images/with"]


def test_a_chart_is_told_from_pictures_with_letters(tmp_path: Path) -> None:
    for pictures in (0, 2):
        (tmp_path / "one.png").write_bytes(drawn(pictures).fp.getvalue())
        assert is_chart(tmp_path / "one.png") == (not pictures)

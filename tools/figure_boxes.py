"""Where the pictures stand in a figure, kept in its PNG: the site draws all around them anew for dark pages.

matplotlib calls `remember` for each new figure, where its settings say `figure.hooks: figure_boxes:remember`.
"""

import json

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure

KEY = "Pictures"  # the name of the PNG's text


class Canvas(FigureCanvasAgg):
    """Writes PNGs that know the boxes of their pictures and color scales, in pixels: left, top, right, bottom."""

    def print_figure(self, filename, *, metadata=None, **options):
        self.draw()  # the layout is found while drawing
        height = self.figure.bbox.height
        pictures = [ax for ax in self.figure.axes if ax.images or any(isinstance(c, QuadMesh) for c in ax.collections)]
        legends = [legend for ax in pictures if (legend := ax.get_legend())] + (self.figure.legends if pictures else [])
        keys = [mark for legend in legends for mark in legend.get_patches()]  # of the pictures' colors
        boxes = []
        for part in [*pictures, *keys]:
            left, bottom, right, top = part.get_window_extent().extents
            boxes.append([round(edge) for edge in (left, height - top, right, height - bottom)])
        return super().print_figure(filename, metadata={**(metadata or {}), KEY: json.dumps(boxes)}, **options)


def remember(figure: Figure) -> None:
    """Give a new figure such a canvas."""
    manager = figure.canvas.manager
    Canvas(figure).manager = manager

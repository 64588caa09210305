"""Notebooks of the first edition that people have saved: what has moved since is still importable from there."""

from importlib import import_module

import pytest

MOVED = {
    "vitbook.attention": "quickest_attention",
    "vitbook.data": "normalise",
    "vitbook.embedding": "LearnedPositions resize_positions sincos_positions_2d",
    "vitbook.features": "feature_colours neighbour_votes",
    "vitbook.heads": "cell_centres",
    "vitbook.layouts": "GOOGLE Row TORCHVISION",
    "vitbook.plotting": "COLOURS",
    "vitbook.published": "ASSETS PUBLISHED",
    "vitbook.training": "TrainConfig fit",
    "vitbook.transformer": "sincos_positions",
}


@pytest.mark.parametrize("module", MOVED)
def test_a_saved_notebook_imports_what_has_moved(module: str) -> None:
    assert all(hasattr(import_module(module), name) for name in MOVED[module].split())

"""The book as an EPUB: what the theme and Jupyter Book leave open there.

jupyter-book build . --builder custom --custom-builder epub
"""

from sphinx.application import Sphinx
from sphinx.config import Config

import vitbook


def set_names(app: Sphinx, config: Config) -> None:
    """An EPUB says what it is."""
    config.version = vitbook.__version__
    config.epub_basename, config.epub_title = "vitbook", config.html_title


def without_buttons(app: Sphinx) -> None:
    """No page of an EPUB has the bar in which the theme puts its launch buttons."""
    if app.builder.name == "epub":
        app.config.html_theme_options.pop("launch_buttons", None)


def setup(app: Sphinx) -> None:
    app.connect("config-inited", set_names)
    app.connect("builder-inited", without_buttons)

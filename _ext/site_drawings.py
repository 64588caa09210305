"""Drawings stand in the page itself, where its switch of colors acts; an <img> would follow only the system."""

from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx

from vitbook_workshop.drawings.palette import variables
from vitbook_workshop.live.inside import inside

LIVE = {  # chapters in which the parts of the model's drawing can be pressed, and the part that is shown first
    "03_self_attention": "queries",
    "04_multihead": "heads",
    "07_embedding": "tokens",
    "08_encoder": "block",
    "09_vit": "answer",
}
MODEL = ("You are here: ", "The Vision Transformer<")  # how the title of its drawing begins


def inline_drawings(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Replace the image of each drawing by its SVG, which brings its own alternative text."""
    if app.builder.format != "html":
        return
    for image in list(doctree.findall(nodes.image)):
        path = Path(app.srcdir, image["uri"])  # MyST-NB writes outputs to absolute paths
        if path.suffix == ".svg" and path.is_file():
            svg = path.read_text(encoding="utf-8")
            if 'class="vit-drawing"' in svg:
                first = LIVE.get(Path(docname).name) if app.builder.name != "epub" else None
                if first and svg.partition("<title>")[2].startswith(MODEL):
                    svg = inside(svg, first)
                image.replace_self(nodes.raw("", svg, format="html"))


FONTS = ("serif", "serif-italic", "sans", "mono")


def add_colors(app: Sphinx, pagename: str, templatename: str, context: dict, doctree: object) -> None:
    """The book's colors as CSS variables, `--vit-query` and so on, for style sheets and live figures; fonts ahead."""
    themes = (f"html[data-theme={theme}]{{{variables(theme)}}}" for theme in ("light", "dark"))
    fonts = (context["pathto"](f"_static/fonts/{name}.woff2", 1) for name in FONTS)
    ahead = (f'<link rel="preload" href="{font}" as="font" type="font/woff2" crossorigin="" />' for font in fonts)
    context["metatags"] = f"{context.get('metatags', '')}<style>{''.join(themes)}</style>{''.join(ahead)}"


def setup(app: Sphinx) -> None:
    app.connect("doctree-resolved", inline_drawings)
    app.connect("html-page-context", add_colors)

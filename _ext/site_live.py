"""Live figures on the site: their scripts in _static/live, loaded by a page that has one, and a directive for pages.

A page has the figure's still, and one small script; all else is loaded when a reader wants the figure.
"""

from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from vitbook_workshop.live import figures

STILL = "<!-- still -->"
FIGURES = {"ask": "cifar10"}  # and the model whose weights each loads


class LiveFigure(SphinxDirective):
    """`{live} ask`: the figure of this name. What stands in the directive is its still."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        figure = self.arguments[0]
        before, after = figures.host(figure, FIGURES[figure], STILL).split(STILL)
        still = nodes.container()
        self.state.nested_parse(self.content, self.content_offset, still)
        return [nodes.raw("", before, format="html"), *still.children, nodes.raw("", after, format="html")]


def add_script(app: Sphinx, pagename: str, templatename: str, context: dict, doctree: nodes.document | None) -> None:
    """The starter, on pages that have a figure."""
    if 'class="vitbook-live"' in context.get("body", ""):
        app.add_js_file("live/live.js", loading_method="defer")


def write_scripts(app: Sphinx, exception: Exception | None) -> None:
    """Beside the site's other static files: scripts, as a page in a folder may load nothing else."""
    if exception is None and app.builder.format == "html":
        folder = Path(app.outdir, "_static", "live")
        folder.mkdir(parents=True, exist_ok=True)
        for name, script in figures.site_files().items():
            (folder / name).write_text(script, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool | str]:
    app.add_directive("live", LiveFigure)
    app.connect("html-page-context", add_script)
    app.connect("build-finished", write_scripts)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}

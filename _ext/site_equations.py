r"""Equations: a number, written `\tag{1}` so that every reader of the notebook shows it, and MathJax to set them."""

import re
from pathlib import Path

import npm
import requests
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.transforms import SphinxTransform

TAG = re.compile(r"\\tag\{([^{}]+)\}")
PARTS = ["core", "input/tex", "output/chtml", "a11y/assistive-mml"]  # of MathJax; its fonts and rarer commands follow
FILES = ("es5/startup.js", "es5/input/tex/extensions/", "es5/output/chtml/fonts/", "LICENSE")


def free_equation_tags(app: Sphinx, doctree: nodes.document) -> None:
    r"""Keep Sphinx from wrapping an equation that has a \\ into `split`, where MathJax forbids \tag."""
    for equation in doctree.findall(nodes.math_block):
        text = equation.astext()
        if r"\tag" in text and not equation.get("nowrap"):
            equation.children = [nodes.Text(rf"\[{text.strip()}\]")]
            equation["nowrap"] = True


class AnchorEquations(SphinxTransform):
    """Make `#equation-1` lead to the equation tagged 1, unless a heading "Equation 1" has that anchor already.

    Runs before MyST resolves links within a page; `myst_slugs` is its own table of anchors, for links from others too.
    """

    default_priority = 870

    def apply(self, **kwargs: object) -> None:
        slugs = getattr(self.document, "myst_slugs", None)
        if slugs is None:
            return
        for equation in self.document.findall(nodes.math_block):
            for number in TAG.findall(equation.astext()):
                anchor = f"equation-{nodes.make_id(f'n{number}')[1:]}"
                if anchor not in slugs and anchor not in self.document.ids:
                    equation["ids"].append(anchor)
                    self.document.ids[anchor] = equation
                    slugs[anchor] = (equation.line or 0, anchor, f"Equation {number}")


def find_mathjax(app: Sphinx, config: Config) -> None:
    """The site has MathJax itself; where npm cannot be reached, the readers' browsers fetch it, as one file."""
    try:
        npm.files(npm.MATHJAX)
        config.mathjax_path = "mathjax/startup.js"
        config.mathjax3_config = (config.mathjax3_config or {}) | {"loader": {"load": PARTS}}
    except requests.RequestException:
        config.mathjax_path = f"https://cdn.jsdelivr.net/npm/mathjax@{npm.MATHJAX.version}/es5/tex-chtml.js"


def write_mathjax(app: Sphinx, exception: Exception | None) -> None:
    """What of MathJax the pages load, and what a formula with an unusual command would."""
    if exception is not None or app.config.mathjax_path.startswith("https:"):
        return
    wanted = FILES + tuple(f"es5/{part}.js" for part in PARTS)
    for name, content in npm.files(npm.MATHJAX).items():
        if name.startswith(wanted):
            path = Path(app.outdir, "_static/mathjax", name.removeprefix("es5/"))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def setup(app: Sphinx) -> None:
    app.add_transform(AnchorEquations)
    app.connect("doctree-read", free_equation_tags)
    app.connect("config-inited", find_mathjax)
    app.connect("build-finished", write_mathjax)

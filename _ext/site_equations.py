r"""Equations: a number, written `\tag{1}` so that every reader of the notebook shows it, and MathJax to draw them."""

import json
import re
import subprocess
from pathlib import Path

import npm
import playwright
import requests
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.transforms import SphinxTransform
from sphinx.writers.html5 import HTML5Translator

TAG = re.compile(r"\\tag\{([^{}]+)\}")


class AnchorEquations(SphinxTransform):
    """Make `#equation-1` lead to the equation tagged 1, unless a heading "Equation 1" has that anchor already.

    And keep Sphinx from wrapping equations into `split`, where MathJax forbids tags.

    Runs before MyST resolves links within a page; `myst_slugs` is its own table of anchors, for links from others too.
    """

    default_priority = 870

    def apply(self, **kwargs: object) -> None:
        slugs = getattr(self.document, "myst_slugs", {})
        for equation in self.document.findall(nodes.math_block):
            equation["nowrap"], equation[:] = True, [nodes.Text(rf"\[{equation.astext()}\]")]
            for number in TAG.findall(equation.astext()):
                anchor = f"equation-{nodes.make_id(f'n{number}')[1:]}"
                if anchor not in slugs and anchor not in self.document.ids:
                    equation["ids"].append(anchor)
                    self.document.ids[anchor] = equation
                    slugs[anchor] = (equation.line or 0, anchor, f"Equation {number}")


def draw_formulas(app: Sphinx, config: Config) -> None:
    """MathJax draws the formulas now; where npm cannot be reached, it does so in the readers' browsers."""
    config.mathjax_path = f"https://cdn.jsdelivr.net/npm/mathjax@{npm.MATHJAX.version}/es5/tex-chtml.js"
    try:
        package = npm.unpacked(npm.MATHJAX)
    except requests.RequestException:
        return
    node = Path(playwright.__file__).with_name("driver") / "node"  # Playwright brings its own
    command = [node, Path(__file__).with_name("formulas.js"), package / "es5" / "node-main.js"]
    mathjax = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")

    def draw(translator: HTML5Translator, formula: nodes.math | nodes.math_block) -> None:
        tag = "div" if isinstance(formula, nodes.math_block) else "span"
        source = formula.astext().removeprefix(r"\[").removesuffix(r"\]")
        mathjax.stdin.write(json.dumps([source, tag == "div"]) + "\n")
        mathjax.stdin.flush()
        start = translator.starttag(formula, tag, "", CLASS="math notranslate nohighlight")
        translator.body.append(f"{start}{mathjax.stdout.readline().rstrip()}</{tag}>")
        raise nodes.SkipNode

    app.add_html_math_renderer("drawn", (draw, None), (draw, None))
    config.html_math_renderer = "drawn"
    app.connect("build-finished", lambda *_: mathjax.terminate())  # other processes hold its pipe: it sees no end


def setup(app: Sphinx) -> None:
    app.add_transform(AnchorEquations)
    app.connect("config-inited", draw_formulas)

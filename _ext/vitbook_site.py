"""What the site adds to the chapters, which are plain Markdown: the repository's address, callouts, equation tags.

The notebooks have to read well on GitHub, in Colab and in JupyterLab, so nothing here may need a special syntax there.
"""

import json
import tomllib
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.errors import ExtensionError
from sphinx.util import logging

logger = logging.getLogger(__name__)

# A block quote that begins with one of these in bold, as in "> **Note.** …", becomes an admonition with these classes.
CALLOUTS = {
    "Note": ["note"],
    "Tip": ["tip"],
    "Try it": ["tip"],
    "Warning": ["warning"],
    "Differs": ["important"],
    "Shapes": ["note"],
    "In short": ["seealso"],
    "The question": ["seealso"],
}


def repository_url(root: Path) -> str:
    """The public address, from the one place that holds it: [project.urls] in pyproject.toml."""
    path = root / "pyproject.toml"
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))["project"]["urls"]["Repository"].rstrip("/")
    except (OSError, KeyError, tomllib.TOMLDecodeError) as error:
        raise ExtensionError(
            f"{path} must hold the repository's address as [project.urls] Repository: {error!r}"
        ) from None


def set_repository(app: Sphinx, config: Config) -> None:
    """Give the theme the address for its repository, source and Colab buttons."""
    config.html_theme_options["repository_url"] = repository_url(Path(app.srcdir))


def stored_outputs(path: Path) -> list[dict]:
    """All outputs in a notebook's file."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    return [output for cell in notebook["cells"] for output in cell.get("outputs", [])]


def use_stored_outputs(app: Sphinx, config: Config) -> None:
    """Execute only the chapters without any stored output, and stop at a stored error.

    MyST-NB's own "auto" would execute every chapter, since it asks for an output of every single cell.
    """
    root = Path(app.srcdir)
    stored = []
    for path in sorted(root.glob("chapters/*.ipynb")):
        outputs = stored_outputs(path)
        for output in outputs:
            if output["output_type"] == "error":
                raise ExtensionError(f"{path.relative_to(root)} holds an error: {output['ename']}: {output['evalue']}")
        if outputs:
            stored.append(path.relative_to(root).as_posix())
    config.nb_execution_excludepatterns = [*config.nb_execution_excludepatterns, *stored]


def callout_label(quote: nodes.block_quote) -> str | None:
    """The label of a quote that begins with bold text such as "Note.", or None."""
    first = quote.children[0] if quote.children else None
    inline = [child for child in first.children if child.astext()] if isinstance(first, nodes.paragraph) else []
    if not inline or not isinstance(inline[0], nodes.strong):
        return None
    label = inline[0].astext().strip().removesuffix(".")
    return label if label in CALLOUTS else None


def make_callouts(app: Sphinx, doctree: nodes.document) -> None:
    """Turn labelled block quotes into admonitions titled by their label."""
    for quote in list(doctree.findall(nodes.block_quote)):
        label = callout_label(quote)
        if label is None:
            continue
        paragraph = quote.children[0]
        inline = [child for child in paragraph.children if child.astext()][1:]
        if inline and isinstance(inline[0], nodes.Text):
            inline[0] = nodes.Text(inline[0].astext().lstrip())
        paragraph.children = []
        paragraph.extend(inline)
        body = quote.children if inline else quote.children[1:]
        admonition = nodes.admonition("", nodes.title("", label), *body, classes=CALLOUTS[label])
        admonition.source, admonition.line = quote.source, quote.line
        quote.replace_self(admonition)


def free_equation_tags(app: Sphinx, doctree: nodes.document) -> None:
    r"""Keep Sphinx from wrapping an equation that has a \\ into `split`, where MathJax forbids \tag."""
    for equation in doctree.findall(nodes.math_block):
        text = equation.astext()
        if r"\tag" in text and not equation.get("nowrap"):
            equation.children = [nodes.Text(rf"\[{text.strip()}\]")]
            equation["nowrap"] = True


def drop_repeated_scripts(app: Sphinx, pagename: str, templatename: str, context: dict, doctree: object) -> None:
    """Keep one copy of each inline script: a second `const` of the same name is an error in the browser's console."""
    seen: set[str] = set()
    kept = []
    for script in context.get("script_files", []):
        body = getattr(script, "attributes", {}).get("body")
        if body is None or body not in seen:
            kept.append(script)
        if body is not None:
            seen.add(body)
    context["script_files"] = kept


def setup(app: Sphinx) -> dict[str, bool | str]:
    app.connect("config-inited", set_repository)
    app.connect("config-inited", use_stored_outputs)
    app.connect("doctree-read", make_callouts)
    app.connect("doctree-read", free_equation_tags)
    app.connect("html-page-context", drop_repeated_scripts, priority=900)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}

"""Block quotes that begin with a label in bold, as in "> **Note.** …", become boxes."""

from docutils import nodes
from sphinx.application import Sphinx

# The labels, and the classes that the theme draws such a box with.
CALLOUTS = {
    "Note": ["note"],
    "Tip": ["tip"],
    "Try it": ["tip"],
    "Warning": ["warning"],
    "Differs": ["important"],
    "Shapes": ["note"],
    "In short": ["seealso"],
    "The question": ["seealso"],
    "How far to trust this": ["note"],
}


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


def setup(app: Sphinx) -> None:
    app.connect("doctree-read", make_callouts)

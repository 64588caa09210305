"""What must not be torn apart at the end of a line: a formula and its comma, a number and its per cent."""

import re

from docutils import nodes
from prose import put_in_place
from sphinx.application import Sphinx

NO_BREAK_SPACE = "\u00a0"
TIGHT = re.compile(r"(?<=\d) (?=%)|(?<=\d) (?=×)|(?<=×) (?=\d)")  # spaces as in "61 %" and "5 × 7"
BEFORE = re.compile(r"(?<!\S)\S{1,12}$")  # what touches a formula, unless it is long
AFTER = re.compile(r"^\S{1,12}(?!\S)")
NOT_TEXT = (nodes.literal, nodes.literal_block, nodes.math, nodes.math_block, nodes.raw, nodes.comment)


def tighten(app: Sphinx, doctree: nodes.document) -> None:
    """Make the spaces inside such expressions unbreakable, wherever there is text."""
    for text in list(doctree.findall(nodes.Text)):
        tight = TIGHT.sub(NO_BREAK_SPACE, text)
        if tight != text and not isinstance(text.parent, NOT_TEXT):
            put_in_place(text, [nodes.Text(tight)])


def keep_together(app: Sphinx, doctree: nodes.document) -> None:
    """Keep a formula in a line with what touches it, as in "($N$ patches)" or "$N$.": browsers would break there."""
    for formula in list(doctree.findall(nodes.math)):
        place = formula.parent.index(formula)
        before = formula.parent[place - 1] if place else None
        after = formula.parent[place + 1] if place + 1 < len(formula.parent) else None
        head = BEFORE.search(before) if isinstance(before, nodes.Text) else None
        tail = AFTER.search(after) if isinstance(after, nodes.Text) else None
        if not (head or tail):
            continue
        together = nodes.inline(classes=["together"])
        put_in_place(formula, [together])
        if head:
            put_in_place(before, [nodes.Text(before[: head.start()])] if head.start() else [])
            together += nodes.Text(head[0])
        together += formula
        if tail:
            put_in_place(after, [nodes.Text(after[tail.end() :])] if tail.end() < len(after) else [])
            together += nodes.Text(tail[0])


def setup(app: Sphinx) -> dict[str, bool | str]:
    for change in (tighten, keep_together):
        app.connect("doctree-read", change, priority=900)  # after the links in running text
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}

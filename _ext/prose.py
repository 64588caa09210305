"""The running text of a page, for extensions that put links into it while the files stay plain."""

from collections.abc import Callable, Iterator

from docutils import nodes
from sphinx.addnodes import desc_signature, pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

# Text in these is not touched: headings, code, formulas, captions, and what is a link already.
NOT_PROSE = (
    nodes.title,
    nodes.literal,
    nodes.literal_block,
    nodes.math,
    nodes.math_block,
    nodes.raw,
    nodes.caption,
    nodes.reference,
    nodes.term,
    nodes.rubric,
    pending_xref,
    desc_signature,
)


def is_prose(node: nodes.Node) -> bool:
    """Whether a node lies in running text."""
    while node is not None:
        if isinstance(node, NOT_PROSE):
            return False
        node = node.parent
    return True


def texts(doctree: nodes.document) -> Iterator[nodes.Text]:
    """Every piece of running text, in the order of reading."""
    yield from (text for text in list(doctree.findall(nodes.Text)) if is_prose(text))


def link(kind: str, target: str, words: str) -> pending_xref:
    """Words that `on_missing` turns into a link once all pages are read."""
    return pending_xref("", nodes.inline("", words), refdomain="", reftype=kind, reftarget=target, refexplicit=True)


def put_links(text: nodes.Text, places: list[tuple[int, int, pending_xref]]) -> None:
    """Replace stretches (start, end) of a text, in order, by links."""
    whole, at, pieces = text.astext(), 0, []
    for start, end, reference in places:
        pieces += [nodes.Text(whole[at:start]), reference]
        at = end
    pieces.append(nodes.Text(whole[at:]))
    put_in_place(text, [piece for piece in pieces if not isinstance(piece, nodes.Text) or piece.astext()])


def put_in_place(node: nodes.Node, others: list[nodes.Node]) -> None:
    """Put others where this very node is: docutils' own `replace` takes the first text that reads the same."""
    children = node.parent.children
    place = next(number for number, child in enumerate(children) if child is node)
    node.parent[place : place + 1] = others


def on_missing(kind: str, page: str, anchor: Callable[[BuildEnvironment, str], tuple[str, str]]):
    """A handler of Sphinx's "missing-reference" that makes the links of one kind.

    page: where they lead; anchor: (environment, target) → (anchor on that page, title, which may be empty).
    """

    def resolve(
        app: Sphinx, env: BuildEnvironment, node: pending_xref, contnode: nodes.Element
    ) -> nodes.reference | None:
        if node["reftype"] != kind:
            return None
        where, title = anchor(env, node["reftarget"])
        same = node["refdoc"] == page
        address = "" if same else app.builder.get_relative_uri(node["refdoc"], page)
        made = nodes.reference("", "", contnode, internal=True, refuri=f"{address}#{where}", classes=[kind])
        if title:
            made["reftitle"] = title
        return made

    return resolve

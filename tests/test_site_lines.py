"""Lines of the site break between words, not inside what belongs together."""

import pytest
from docutils import nodes
from docutils.utils import new_document
from site_lines import keep_together, tighten


def parts_of(*pieces: str) -> list[str]:
    """The parts of a paragraph between which a line may break; formulas are given with their dollars."""
    document = new_document("chapter")
    document += nodes.paragraph()
    for piece in pieces:
        document[0] += nodes.math("", piece) if piece.startswith("$") else nodes.Text(piece)
    keep_together(None, document)
    assert document.astext() == "".join(pieces)
    return [node.astext() for node in document[0]]


@pytest.mark.parametrize(
    "pieces, parts",
    [
        (["patches (", "$N$", " of them)."], ["patches ", "($N$", " of them)."]),
        (["patches, ", "$N + 1$", ". They"], ["patches, ", "$N + 1$.", " They"]),
        (["a ", "$B$", " of ", "$T$"], ["a ", "$B$", " of ", "$T$"]),
        (["$i$", "-th, (", "$a$", ",", "$b$", ")"], ["$i$-th,", " ", "($a$,", "$b$)"]),
        (
            ["equal", "`code`", ". ", "$N$", ". ", "$T$", "."],
            ["equal", "`code`", ". ", "$N$.", " ", "$T$."],
        ),
        (["self-attention/", "$QK$", "incomprehensibly"], ["self-attention/", "$QK$", "incomprehensibly"]),
    ],
)
def test_what_touches_a_formula_stays_beside_it_unless_it_is_long(pieces: list[str], parts: list[str]) -> None:
    assert parts_of(*pieces) == parts


def test_numbers_keep_their_sign() -> None:
    document = new_document("chapter")
    document += nodes.paragraph("", "from 5 × 7 to 61 % of all × and %")
    document += nodes.literal("", "5 × 7")
    tighten(None, document)
    assert [node.astext() for node in document] == ["from 5\u00a0×\u00a07 to 61\u00a0% of all × and %", "5 × 7"]

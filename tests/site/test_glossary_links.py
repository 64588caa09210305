"""The first mention of each glossary term leads to its entry; words that only look like terms do not."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import glossary_links as glossary
import prose
import pytest
from docutils import nodes
from docutils.utils import new_document
from notebook_lint import plain
from sphinx.addnodes import pending_xref

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "glossary.md"
CHAPTERS = sorted((ROOT / "chapters").glob("*.ipynb"))

# Terms that no chapter mentions in running text.
UNMENTIONED = {"Evaluation mode", "Invariance", "Logits"}


def terms(text: str) -> list[str]:
    return [term for _, _, term in glossary.mentions(text, PAGE)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a head", ["Head"]),
        ("Heads are", ["Head"]),
        ("ahead of the headline, multi-head, headless", []),
        ("classes and class, but no class tokens", ["Class token"]),
        ("the class\ntoken’s row", ["Class token"]),
        ("attention distance", ["Attention distance"]),
        ("attention and self-attention", ["Attention", "Self-attention"]),
        ("an MLP, two MLPs, no mlp", ["MLP", "MLP"]),
        ("adam said; AdamW did", ["Adam, AdamW"]),
        ("a nearest neighbour", ["Nearest neighbours"]),
        ("two entropies, three losses, a vocabulary", ["Entropy", "Loss", "Vocabulary"]),
        ("IoU", ["Intersection over union (IoU)"]),
        ("a Vision Transformer", ["Vision Transformer (ViT)"]),
        ("a Transformer", ["Transformer"]),
        ("Hugging Face's transformers", []),
        ("it lies in\nmemory", []),
        ("it asks the memory", ["Memory"]),
        ("a singular value of a key", ["Key"]),
    ],
)
def test_terms_and_false_friends(text: str, found: list[str]) -> None:
    assert terms(text) == found


def page(*children: nodes.Node, docname: str = "chapters/01_attention") -> tuple[nodes.document, list[pending_xref]]:
    """A page of these, with its links."""
    document = new_document("page")
    document += [*children]
    app = SimpleNamespace(srcdir=str(ROOT), env=SimpleNamespace(docname=docname, note_dependency=lambda path: None))
    glossary.link_terms(app, document)
    return document, list(document.findall(pending_xref))


def test_only_the_first_mention_is_linked() -> None:
    document, links = page(nodes.paragraph("", "A key, two keys and a query."), nodes.paragraph("", "The query."))
    assert [(link["reftarget"], link.astext()) for link in links] == [("Key", "key"), ("Query", "query")]
    assert document.astext() == "A key, two keys and a query.\n\nThe query.", "the text is as it was"


@pytest.mark.parametrize(
    "kind", [nodes.title, nodes.literal, nodes.literal_block, nodes.math, nodes.reference, nodes.raw, nodes.caption]
)
def test_headings_code_links_and_formulas_stay(kind: type) -> None:
    _, links = page(
        nodes.paragraph("", "", kind("", "a key") if kind is nodes.raw else kind("", "", nodes.Text("a key")))
    )
    assert not links


@pytest.mark.parametrize(
    ("docname", "found"),
    [
        ("chapters/05_transformer", ["Memory", "Key", "Value", "Query"]),
        ("chapters/10_training", ["Key", "Query"]),
        ("chapters/20_speed", ["Key", "Value", "Query"]),
        ("api/attention", ["Memory", "Key", "Value", "Query"]),
        ("api/training", ["Query"]),
    ],
)
def test_on_some_pages_a_word_has_another_sense(docname: str, found: list[str]) -> None:
    _, links = page(nodes.paragraph("", "A memory, a key, a value and a query."), docname=docname)
    assert [link["reftarget"] for link in links] == found


def test_the_lists_themselves_stay() -> None:
    assert not page(nodes.paragraph("", "A key."), docname="glossary")[1]


def test_a_link_leads_to_a_stable_anchor_and_shows_the_definition() -> None:
    env = SimpleNamespace(srcdir=str(ROOT))
    builder = SimpleNamespace(get_relative_uri=lambda start, end: "../glossary.html")
    link = prose.link(glossary.KIND, "Linear layer", "linear layers")
    link["refdoc"] = "chapters/18_heads"
    resolve = prose.on_missing(glossary.KIND, "glossary", glossary.entry_of)
    made = resolve(SimpleNamespace(builder=builder), env, link, link.children[0])
    assert made["refuri"] == "../glossary.html#term-linear-layer" and made.astext() == "linear layers"
    assert made["reftitle"] == "xWᵀ + b: a matrix product and a bias; nn.Linear."


def test_links_of_another_kind_are_left_alone() -> None:
    resolve = prose.on_missing(glossary.KIND, "glossary", glossary.entry_of)
    assert resolve(None, None, prose.link("other", "Key", "key"), None) is None


def test_anchors_are_distinct_and_plain() -> None:
    anchors = [glossary.anchor(term) for term in glossary.read_glossary(PAGE)]
    assert len(set(anchors)) == len(anchors) > 100
    assert all(re.fullmatch(r"term-[a-z0-9-]+", anchor) for anchor in anchors)


def test_definitions_are_plain_text() -> None:
    for term, definition in glossary.read_glossary(PAGE).items():
        assert definition and not re.search(r"[\\$`*\[\]]", definition), (term, definition)


def test_terms_are_in_order_and_have_one_entry_each() -> None:
    found = list(glossary.read_glossary(PAGE))
    assert found == sorted(found, key=lambda term: term.lower().replace("–", "-"))
    forms = [form for term in found for name in glossary.names(term) for form in glossary.forms(name)]
    assert len(set(forms)) == len(forms)


def test_chapters_that_the_glossary_names_are_there() -> None:
    for path in re.findall(r"\]\(([^)#]*)", PAGE.read_text(encoding="utf-8")):
        assert (ROOT / path).exists(), path


def test_every_term_is_linked_from_some_chapter() -> None:
    mentioned = set()
    for path in CHAPTERS:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        for cell in cells:
            if cell["cell_type"] == "markdown":
                text = re.sub(r"^#.*$|\[[^\]]*\]\([^)]*\)", "", plain("".join(cell["source"])), flags=re.M)
                mentioned |= set(terms(text))
    assert set(glossary.read_glossary(PAGE)) - mentioned == UNMENTIONED

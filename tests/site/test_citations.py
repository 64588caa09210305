"""Every citation in chapters and docstrings has an entry in references.bib, and every entry a citation and a link."""

import json
import re
from pathlib import Path

import citations
import pytest
from docutils import nodes
from package_source import read_package

ROOT = Path(__file__).resolve().parents[2]
BIB = ROOT / "references.bib"
ENTRIES = citations.read_entries(BIB)
LINK = re.compile(r"\[([^\]]*)\]\((https?://[^)\s]*)\)")


def chapters() -> dict[str, str]:
    """The Markdown of every chapter and page."""
    found = {path.name: path.read_text(encoding="utf-8") for path in ROOT.glob("*.md") if path.name != "README.md"}
    for path in sorted((ROOT / "chapters").glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        found[path.name] = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    return found


def docstrings() -> dict[str, str]:
    """Everything in words that the reference shows."""
    found = {}
    for module in read_package(ROOT).values():
        symbols = [member for symbol in module.symbols for member in (symbol, *symbol.members)]
        comments = [field.comment for symbol in symbols for field in symbol.fields]
        found[module.name] = "\n\n".join([module.doc, *(symbol.doc for symbol in symbols), *comments])
    return found


def one_line(text: str) -> str:
    """A text without line breaks, links by their words."""
    return " ".join(LINK.sub(r"\1", text).split())


@pytest.mark.parametrize(
    ("text", "cited", "key"),
    [
        ("as in Xu et al. 2022, the", "Xu et al. 2022", "xu2022"),
        ("(Xu et al., 2022) the", "Xu et al., 2022", "xu2022"),
        ("Abnar and Zuidema (2020) do", "Abnar and Zuidema (2020)", "abnar2020"),
        ("Abnar, Dehghani and Zuidema, 2020, do", "Abnar, Dehghani and Zuidema, 2020", "abnar2020transferring"),
        ("Dosovitskiy et al. (2021; appendix)", "Dosovitskiy et al.", "dosovitskiy2021"),
        ("Hendrycks & Gimpel 2016", "Hendrycks & Gimpel 2016", "hendrycks2016"),
        ("CIFAR-10 (Krizhevsky, 2009: pictures)", "Krizhevsky, 2009", "krizhevsky2009"),
        ("Dong et al. 2021 prove", "Dong et al. 2021", "dong2021"),
        ("Loshchilov\nand Hutter 2017", "Loshchilov\nand Hutter 2017", "loshchilov2017"),
        ("Beyer et al. 2022", "Beyer et al. 2022", "beyer2022distillation"),
        ("Beyer, Zhai and Kolesnikov 2022", "Beyer, Zhai and Kolesnikov 2022", "beyer2022"),
    ],
)
def test_a_citation_is_found(text: str, cited: str, key: str) -> None:
    ((start, end, found),) = citations.citations(text, BIB)
    assert (text[start:end], found) == (cited, key)


@pytest.mark.parametrize(
    "text", ["Xu et al. 2021", "Xu et al.", "The Transformer of 2017", "in 2022, Xu", "Krizhevsky, "]
)
def test_what_is_no_citation_is_left_alone(text: str) -> None:
    assert citations.citations(text, BIB) == []


def test_names_before_a_link_to_the_paper() -> None:
    url = "https://arxiv.org/abs/2205.01580"
    ((start, end, key),) = citations.citations("Beyer et al., ", BIB, ", 2022: a", url)
    assert (start, end, key) == (0, len("Beyer et al."), "beyer2022"), "the link says which of the two is meant"
    assert citations.citations("Beyer et al., ", BIB, ", a text", url) == []


def test_the_link_that_follows_a_text() -> None:
    paragraph = nodes.paragraph("", "", nodes.Text("Xu et al., "), nodes.reference("", "ViTPose", refuri="u"))
    assert citations.following(paragraph.children[0]) == ("u", "")
    paragraph += nodes.Text(", 2022")
    assert citations.following(paragraph.children[0]) == ("u", ", 2022")
    assert citations.following(paragraph.children[2]) == ("", "")


@pytest.mark.parametrize("text", ["Nobody et al. 2020", "Smith and Jones (1999)", "A, Bee and Cee, 2001"])
def test_unknown_authors_are_found(text: str) -> None:
    assert citations.unknown(f"It is in {text}, too.", BIB)


def test_every_citation_has_an_entry() -> None:
    missing = {
        name: found
        for name, text in (chapters() | docstrings()).items()
        if (found := citations.unknown(one_line(text), BIB))
    }
    assert not missing


def test_every_paper_in_further_reading_has_an_entry() -> None:
    """Authors, a link, a year: the link is that of an entry."""
    known = {entry.url for entry in ENTRIES.values()}
    missing = [
        (name, match.group(0))
        for name, text in chapters().items()
        for match in re.finditer(r"[A-Z]\w+(?: et al\.)?, \[[^\]]*\]\((https?://[^)\s]*)\), (?:19|20)\d\d", text)
        if match.group(1) not in known
    ]
    assert not missing


def test_every_entry_is_cited() -> None:
    cited = set()
    by_url = {entry.url: entry.key for entry in ENTRIES.values()}
    sources = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "vitbook").glob("*.py")}
    for text in (chapters() | sources).values():
        cited |= {key for _, _, key in citations.citations(one_line(text), BIB)}
        cited |= {by_url[url] for _, url in LINK.findall(text) if url in by_url}
        cited |= {key for keys in re.findall(r"\{cite:\w+\}`([^`]*)`", text) for key in keys.split(",")}
    assert set(ENTRIES) - cited == set(), "cite these or remove them"


def test_every_entry_has_a_link_of_its_own() -> None:
    urls = [entry.url for entry in ENTRIES.values()]
    assert all(url.startswith("https://") for url in urls), [key for key, entry in ENTRIES.items() if not entry.url]
    assert len(set(urls)) == len(urls)


def test_spellings() -> None:
    assert ENTRIES["touvron2021"].spelling == "Touvron et al." and "Jégou" in ENTRIES["touvron2021"].surnames
    assert ENTRIES["ba2016"].spelling == "Ba, Kiros and Hinton"
    assert ENTRIES["ramsauer2021"].spelling == "Ramsauer et al."
    assert ENTRIES["karpathy2019"].spelling == "Karpathy"

"""Every citation in chapters and docstrings has an entry in references.bib, and every entry a citation and a link."""

import json
import re
from pathlib import Path

import citations
import pytest
from docutils import nodes

ROOT = Path(__file__).resolve().parents[2]
BIB = ROOT / "references.bib"
ENTRIES = citations.read_entries(BIB)
LINK = re.compile(r"\[([^\]]*)\]\((https?://[^)\s]*)\)")


def texts() -> dict[str, str]:
    """The Markdown of every chapter and page, and the sources of the package."""
    found = {path.name: path.read_text(encoding="utf-8") for path in ROOT.glob("*.md") if path.name != "README.md"}
    for path in (ROOT / "chapters").glob("*.ipynb"):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        found[path.name] = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    sources = {str(path): path.read_text(encoding="utf-8") for path in (ROOT / "vitbook").rglob("*.py")}
    return found | {name: re.sub(r"^\s*# ", "", text, flags=re.M) for name, text in sources.items()}


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
        ("Loshchilov\nand Hutter 2017", "Loshchilov\nand Hutter 2017", "loshchilov2017"),
        ("Beyer et al. 2022", "Beyer et al. 2022", "beyer2022distillation"),
        ("Beyer, Zhai and Kolesnikov 2022", "Beyer, Zhai and Kolesnikov 2022", "beyer2022"),
    ],
)
def test_a_citation_is_found(text: str, cited: str, key: str) -> None:
    ((start, end, found),) = citations.citations(text, BIB)
    assert (text[start:end], found) == (cited, key)


@pytest.mark.parametrize("text", ["Xu et al. 2021", "Xu et al.", "The Transformer of 2017", "in 2022, Xu"])
def test_what_is_no_citation_is_left_alone(text: str) -> None:
    assert citations.citations(text, BIB) == []


def test_a_link_to_the_paper_says_which_of_two_is_meant() -> None:
    url = "https://arxiv.org/abs/2205.01580"
    ((start, end, key),) = citations.citations("Beyer et al., ", BIB, ", 2022: a", url)
    assert (start, end, key) == (0, len("Beyer et al."), "beyer2022")
    assert citations.citations("Beyer et al., ", BIB, ", a text", url) == []
    paragraph = nodes.paragraph("", "", nodes.Text("Beyer et al., "), nodes.reference("", "A", refuri=url))
    paragraph += nodes.Text(", 2022")
    assert citations.following(paragraph.children[0]) == (url, ", 2022")
    assert citations.following(paragraph.children[2]) == ("", "")


@pytest.mark.parametrize("text", ["Nobody et al. 2020", "Smith and Jones (1999)", "A, Bee and Cee, 2001"])
def test_unknown_authors_are_found(text: str) -> None:
    assert citations.unknown(f"It is in {text}, too.", BIB)


def test_every_citation_has_an_entry_and_every_entry_a_citation() -> None:
    cited = set()
    by_url = {entry.url: entry.key for entry in ENTRIES.values()}
    for name, text in texts().items():
        assert not citations.unknown(one_line(text), BIB), name
        cited |= {key for _, _, key in citations.citations(one_line(text), BIB)}
        cited |= {by_url[url] for _, url in LINK.findall(text) if url in by_url}
        cited |= {key for keys in re.findall(r"\{cite:\w+\}`([^`]*)`", text) for key in keys.split(",")}
    assert cited == set(ENTRIES)


def test_every_entry_has_a_link_of_its_own() -> None:
    urls = [entry.url for entry in ENTRIES.values()]
    assert all(url.startswith("https://") for url in urls), [key for key, entry in ENTRIES.items() if not entry.url]
    assert len(set(urls)) == len(urls)

"""Every citation in chapters and docstrings has an entry in references.bib, and every entry a citation and a link."""

import json
import re
from pathlib import Path

import citations
import pytest

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
    files = (path for path in (ROOT / "vitbook").rglob("*") if path.suffix in (".py", ".toml"))
    sources = {str(path): path.read_text(encoding="utf-8") for path in files}
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
        ("Dosovitskiy et al. (2021; appendix)", "Dosovitskiy et al.", "dosovitskiy2021"),
        ("Loshchilov\nand Hutter 2017", "Loshchilov\nand Hutter 2017", "loshchilov2017"),
        ("Beyer, Zhai and Kolesnikov 2022", "Beyer, Zhai and Kolesnikov 2022", "beyer2022"),
    ],
)
def test_a_citation_is_found(text: str, cited: str, key: str) -> None:
    ((start, end, found),) = citations.citations(text, BIB)
    assert (text[start:end], found) == (cited, key)


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

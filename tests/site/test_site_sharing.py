"""What is said about a page elsewhere."""

from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from site_sharing import describe_entrance, plain_text, sitemap


@pytest.mark.parametrize(
    "markdown, text",
    [
        (r"Why divide by $\sqrt d$, and by which $d$?", "Why divide by √d, and by which d?"),
        ("What does *one* `block` do to [tokens](x.ipynb#y)?", "What does one block do to tokens?"),
    ],
)
def test_descriptions_have_no_markup(markdown: str, text: str) -> None:
    assert plain_text(markdown) == text


def test_the_sitemap_is_xml_with_absolute_addresses() -> None:
    tree = ElementTree.fromstring(sitemap("https://a.github.io/b/", ["intro.html", "chapters/01_a.html?x&y"]))
    found = [node.text for node in tree.iter("{http://www.sitemaps.org/schemas/sitemap/0.9}loc")]
    assert found == ["https://a.github.io/b/intro.html", "https://a.github.io/b/chapters/01_a.html?x&y"]


def test_the_entrance_has_the_first_pages_tags(tmp_path) -> None:
    (tmp_path / "index.html").write_text("old", encoding="utf-8")
    tags = ['<meta property="og:title" content="T" />', '<meta name="twitter:card" content="summary" />']
    (tmp_path / "intro.html").write_text("\n".join([*tags, '<meta name="viewport" content="x" />']), encoding="utf-8")
    config = SimpleNamespace(root_doc="intro", html_title="A & B")
    describe_entrance(SimpleNamespace(outdir=tmp_path, config=config), None)
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert all(tag in page for tag in tags) and "viewport" not in page
    assert 'content="0; url=intro.html"' in page and "<title>A &amp; B</title>" in page

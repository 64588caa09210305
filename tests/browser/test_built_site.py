"""The site as it is built, read without a browser: every link leads somewhere, and every page says what it is."""

import re
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import yaml
from bs4 import BeautifulSoup
from site_address import colab_url, pages_url, repository_url
from site_chapters import parts
from visits import pages

ROOT = Path(__file__).resolve().parents[2]
REPOSITORY = repository_url(ROOT)
BASE = pages_url(REPOSITORY)
BRANCH = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))["repository"]["branch"]
NAMING = {"a": "href", "link": "href", "img": "src", "script": "src"}


@cache
def soup(path: Path) -> BeautifulSoup:
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


@cache
def ids(path: Path) -> list[str]:
    return [tag["id"] for tag in soup(path).find_all(id=True)]


def broken(path: Path, root: Path) -> list[str]:
    """The links, images, styles and scripts of a page that lead to no file or anchor of the site."""
    found = []
    for tag in soup(path).find_all(list(NAMING)):
        address = tag.get(NAMING[tag.name])
        if address is None and tag.name != "a" or address == "#":
            continue
        parts = urlsplit(address or "")
        if parts.scheme or parts.netloc:
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        anchor = unquote(parts.fragment) if target.suffix == ".html" else ""
        inside = target.is_file() and target.is_relative_to(root)
        if not address or not inside or anchor and anchor not in ids(target):
            found.append(f"{tag.name} {address!r}")
    return found


def test_every_link_leads_somewhere_and_every_id_is_given_once(folder: Path, built_page: str) -> None:
    path = (folder / built_page).resolve()
    assert broken(path, folder.resolve()) == []
    assert len(set(ids(path))) == len(ids(path))


def test_every_page_can_be_shared(folder: Path) -> None:
    """Title, description, address and image for shared links, all absolute; the sitemap lists what has them."""
    sitemap = re.findall(r"<loc>([^<]+)</loc>", (folder / "sitemap.xml").read_text(encoding="utf-8"))
    described = set()
    for name in pages(folder):
        if not list(folder.glob(f"_sources/{name.removesuffix('.html')}.*")):
            continue  # an index or a listing that Sphinx adds
        tags = soup(folder.resolve() / name).find_all("meta")
        told = {tag.get("property") or tag.get("name"): tag.get("content") for tag in tags}
        assert told["og:url"] == urljoin(BASE, name) and told["og:url"] in sitemap, name
        assert (folder / told["og:image"].removeprefix(BASE)).is_file(), name
        assert all(told.get(key) for key in ("og:title", "description", "og:image:alt", "twitter:card")), name
        assert not name.startswith("chapters/") or told["og:description"] not in described, name
        described.add(told["og:description"])


def test_every_chapter_is_on_the_landing_page_and_has_its_buttons(folder: Path) -> None:
    rows = (folder / "intro.html").read_text(encoding="utf-8").split('<p class="chapter-title">')[1:]
    chapters = [chapter for _, found in parts(ROOT) for chapter in found]
    for row, chapter in zip(rows, chapters, strict=True):
        assert f'href="{chapter.name}.html"' in row and f"{chapter.reading} min" in row
        addresses = {tag["href"] for tag in soup(folder.resolve() / f"{chapter.name}.html").find_all("a", href=True)}
        assert colab_url(REPOSITORY, BRANCH, f"{chapter.name}.ipynb") in addresses
        assert f"../_sources/{chapter.name}.ipynb" in addresses


def test_every_plot_of_a_chapter_has_a_twin_for_dark_pages(folder: Path) -> None:
    for path in sorted((folder / "chapters").glob("*.html")):
        plots = soup(path).select('.cell_output img[src*="_images/"]')
        classes = [" ".join(image.get("class", [])) for image in plots]
        assert classes == ["on-paper", "on-slate"] * (len(plots) // 2), path.name

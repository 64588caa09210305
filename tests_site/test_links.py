"""Every link, picture, style and script that a page names inside the site is there, and so is every anchor."""

from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bs4 import BeautifulSoup

NAMING = {"a": "href", "link": "href", "img": "src", "script": "src", "source": "src", "iframe": "src"}


@cache
def parsed(path: Path) -> BeautifulSoup:
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


@cache
def anchors(path: Path) -> frozenset[str]:
    return frozenset(one["id"] for one in parsed(path).find_all(id=True)) | {"", "top"}


def broken(folder: Path, name: str) -> list[str]:
    """What a page names and the site has not."""
    said = []
    for tag, attribute in NAMING.items():
        for one in parsed(folder / name).find_all(tag):
            address = urlsplit(one.get(attribute, ""))
            if address.scheme or address.netloc or tag == "script" and attribute not in one.attrs:
                continue
            if not (address.path or address.fragment) and one.get(attribute) != "#":
                said.append(f"names nothing: {str(one)[:120]}")
                continue
            path = (folder / name).parent / unquote(address.path) if address.path else folder / name
            path = path / "index.html" if path.is_dir() else path
            if not path.is_file() or not path.resolve().is_relative_to(folder.resolve()):
                said.append(f"no file: {one[attribute]}")
            elif path.suffix == ".html" and unquote(address.fragment) not in anchors(path.resolve()):
                said.append(f"no such anchor: {one[attribute]}")
    return said


def test_all_that_a_page_names_is_there(folder: Path, name: str) -> None:
    assert broken(folder, name) == []


def test_no_id_is_given_twice(folder: Path, name: str) -> None:
    given = [one["id"] for one in parsed(folder / name).find_all(id=True)]
    assert sorted(given) == sorted(set(given))


def test_every_picture_says_in_words_what_it_shows(folder: Path, name: str) -> None:
    article = parsed(folder / name).find("article") or parsed(folder / name)
    assert [str(one)[:120] for one in article.find_all("img") if len(one.get("alt", "")) < 15] == []


def test_broken_links_are_found(tmp_path: Path) -> None:
    (tmp_path / "other.html").write_text("<p id='here'>", encoding="utf-8")
    good = "<a href='other.html#here'>x</a><a href='#'>x</a><a href='https://example.org/'>x</a><script>1</script>"
    bad = (
        "<a href='other.html#there'>x</a><a href='gone.html'>x</a><img src='../up.png'><a>x</a><a href='#nowhere'>x</a>"
    )
    (tmp_path / "page.html").write_text(good + bad, encoding="utf-8")
    assert len(broken(tmp_path, "page.html")) == 5

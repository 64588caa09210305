"""What the built site must be, each rule a function: the built folder → list of complaints, empty where all is well."""

import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

# The tags that name a file or an address, and where they do.
NAMING = {"a": "href", "link": "href", "img": "src", "script": "src", "source": "src", "iframe": "src"}
WORDS = 15  # characters that say the least of what a picture shows


@dataclass
class Tag:
    name: str
    attributes: dict[str, str]


@dataclass
class Page(HTMLParser):
    """A page taken apart: its tags in order."""

    path: Path
    tags: list[Tag] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(Tag(tag, {key: value or "" for key, value in attrs}))

    def all(self, name: str) -> list[dict[str, str]]:
        return [tag.attributes for tag in self.tags if tag.name == name]

    def ids(self) -> Counter[str]:
        return Counter(tag.attributes["id"] for tag in self.tags if "id" in tag.attributes)

    def meta(self, key: str) -> str | None:
        """The content of a <meta> by its name or property."""
        found = (m.get("content") for m in self.all("meta") if key in (m.get("name"), m.get("property")))
        return next(found, None)

    def local(self, address: str) -> Path | None:
        """The file that a relative address leads to; None for an address elsewhere."""
        parts = urlsplit(address)
        if parts.scheme or parts.netloc:
            return None
        return (self.path.parent / unquote(parts.path)).resolve() if parts.path else self.path


@cache
def page(path: Path) -> Page:
    return Page(path)


def pages(site: Path) -> list[Page]:
    """Every page, without the frames that only scripts put into others.

    Raises FileNotFoundError where there is none.
    """
    site = site.resolve()
    found = [path for path in sorted(site.rglob("*.html")) if not path.is_relative_to(site / "_static")]
    if not found:
        raise FileNotFoundError(f"{site} holds no pages; make book builds them")
    return [page(path) for path in found]


def chapters(site: Path) -> list[Page]:
    return [p for p in pages(site) if p.path.parent.name == "chapters"]


def links_resolve(site: Path) -> list[str]:
    """Every link, picture, style and script inside the site leads to a file of it, and to an anchor in that."""
    complaints = []
    for p in pages(site):
        for tag in p.tags:
            key = NAMING.get(tag.name)
            address = tag.attributes.get(key) if key else None
            if address is None and tag.name != "a" or address == "#":
                continue
            if not address:
                complaints.append(f"{p.path.name}: <{tag.name}> names nothing: {tag.attributes}")
            elif (target := p.local(address)) and not (target.is_file() and target.is_relative_to(site.resolve())):
                complaints.append(f"{p.path.name}: {address}: no such file")
            elif (anchor := unquote(urlsplit(address).fragment)) and target and target.suffix == ".html":
                if anchor not in page(target).ids():
                    complaints.append(f"{p.path.name}: {address}: no such anchor")
    return complaints


def ids_are_given_once(site: Path) -> list[str]:
    return [f"{p.path.name}: id {id} given {n} times" for p in pages(site) for id, n in p.ids().items() if n > 1]


def buttons(site: Path, repository: str, branch: str) -> list[str]:
    """Each chapter has buttons to Colab, to its source and to its file, on the right branch."""
    complaints = []
    for p in chapters(site):
        addresses = {a.get("href", "") for a in p.all("a")}
        name = f"chapters/{p.path.stem}.ipynb"
        owner = repository.removeprefix("https://github.com/")
        wanted = {
            f"https://colab.research.google.com/github/{owner}/blob/{branch}/{name}",
            f"{repository}/blob/{branch}/{name}?plain=1",
            f"../_sources/{name}",
        }
        complaints += [f"{p.path.name}: no button to {address}" for address in sorted(wanted - addresses)]
    return complaints


def neighbours(site: Path) -> list[str]:
    """Each chapter leads to the one before it and the one after it."""
    found = chapters(site)
    complaints = []
    for before, after in zip(found, found[1:], strict=False):
        for p, rel, other in ((before, "next", after), (after, "prev", before)):
            hrefs = [tag.get("href") for tag in p.all("link") if tag.get("rel") == rel]
            side = "right-next" if rel == "next" else "left-prev"
            shown = [a.get("href") for a in p.all("a") if side in a.get("class", "")]
            if hrefs != [other.path.name] or shown != hrefs:
                complaints.append(f"{p.path.name}: {rel} leads to {hrefs}, shown {shown}, not to {other.path.name}")
    return complaints


def shared(site: Path, base: str) -> list[str]:
    """Title, description, address and picture for shared links, all absolute; the sitemap lists what has them."""
    complaints = []
    sitemap = re.findall(r"<loc>([^<]+)</loc>", (site / "sitemap.xml").read_text(encoding="utf-8"))
    for p in pages(site):
        name = p.path.relative_to(site.resolve()).as_posix()
        if name != "index.html" and not list(site.glob(f"_sources/{name.removesuffix('.html')}.*")):
            continue  # an index or a listing that Sphinx adds
        address = urljoin(base, "intro.html" if name == "index.html" else name)
        if p.meta("og:url") != address or address not in sitemap:
            complaints.append(f"{name}: og:url {p.meta('og:url')}, expected {address}, which the sitemap must list")
        image = (p.meta("og:image") or "").removeprefix(base)
        if not (site / image).is_file() or "://" in image:
            complaints.append(f"{name}: og:image {p.meta('og:image')} is no picture of the site")
        for key in ("og:title", "og:description", "og:image:alt", "description", "twitter:card"):
            if not p.meta(key):
                complaints.append(f"{name}: no {key}")
    descriptions = [p.meta("og:description") for p in chapters(site)]
    if len(set(descriptions)) != len(descriptions):
        complaints.append("two chapters have the same description")
    return complaints


def text_before_scripts(site: Path) -> list[str]:
    """No script from a file holds up the text, but for a few settings; the search needs its scripts in order."""
    search = page(site.resolve() / "search.html").all("script")
    late = [s["src"] for s in search if "doctools" in s.get("src", "") and "defer" in s]
    return [f"search.html: {source} comes after what needs it" for source in late] + [
        f"{p.path.name}: {script['src']} holds up the page"
        for p in pages(site)
        for script in p.all("script")
        if script.get("src") and not {"defer", "async"} & script.keys()
        if "documentation_options" not in script["src"] and p.path.name != "search.html"
    ]


def pictures_keep_their_place(site: Path) -> list[str]:
    """Each picture says its width and height; all but a page's first load when they are near."""
    complaints = []
    for p in pages(site):
        images = [image for image in p.all("img") if "_images/" in image.get("src", "")]
        for position, image in enumerate(images):
            if not (image.get("width", "").isdigit() and image.get("height", "").isdigit()):
                complaints.append(f"{p.path.name}: {image.get('src')}: no width or height")
            if (image.get("loading") == "lazy") != (position > 0):
                complaints.append(f"{p.path.name}: {image.get('src')}: picture {position + 1} is lazy, or is not")
    return complaints


def pictures_have_words(site: Path) -> list[str]:
    """Each picture of the text says in words what it shows."""
    return [
        f"{p.path.name}: {image['src'][:80]}: alt {image.get('alt')!r}"
        for p in pages(site)
        for image in p.all("img")
        if "_static/" not in image.get("src", "_static/") and len(image.get("alt", "")) < WORDS
    ]


def licences(site: Path, repository: str, branch: str) -> list[str]:
    """Each page says at its foot what may be done with the book."""
    wanted = {f"{repository}/blob/{branch}/{name}" for name in ("LICENSE", "LICENSE-TEXT", "vitbook/assets/README.md")}
    missing = {p.path.name: wanted - {a.get("href", "") for a in p.all("a")} for p in pages(site)}
    return [f"{name}: no link to {sorted(links)}" for name, links in missing.items() if links and name != "index.html"]


def figures_are_numbered(site: Path) -> list[str]:
    """Figures of chapter N are numbered N.1, N.2 …, and each has an anchor."""
    complaints = []
    for p in chapters(site):
        text = p.path.read_text(encoding="utf-8")
        chapter = int(p.path.stem[:2])
        numbers = re.findall(r"<figcaption>.*?Figure (\d+\.\d+)\.", text, flags=re.S)
        figures = [tag.attributes for tag in p.tags if tag.name == "figure"]
        if numbers != [f"{chapter}.{i}" for i in range(1, len(figures) + 1)]:
            complaints.append(f"{p.path.name}: {len(figures)} figures, numbered {numbers}")
        complaints += [f"{p.path.name}: a figure without an anchor" for f in figures if not f.get("id")]
    return complaints

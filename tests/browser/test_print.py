"""A chapter on paper: pages with numbers and heads, full to the foot, in letters as large as a book's."""

import re
import zlib
from collections import Counter
from dataclasses import dataclass, field

import pytest
from visits import Site

HEIGHT, HEAD, FOOT = 842, 25 / 25.4 * 72, 842 - 23 / 25.4 * 72  # an A4 page and the ends of its text, in points

DRAWN = re.compile(
    r"(?P<save>\bq\b)|(?P<restore>\bQ\b)|(\S+ ){3}(?P<scale>\S+) \S+ (?P<shift>\S+) (?P<move>cm|Tm)"
    r"|/F\d+ (?P<size>\S+) Tf|(?P<text>\bTj\b)|/X\d+ Do"
)


@dataclass
class Page:
    sizes: Counter = field(default_factory=Counter)  # of letters, in points
    places: list[float] = field(default_factory=list)  # of lines and of the lower edges of images, from the top


def read(stream: str) -> Page:
    """One page, out of what Chromium writes: places by scale and shift, then letters or an image."""
    page, kept, letters = Page(), [], 0.0
    here = line = (1.0, 0.0)  # scale and shift of heights
    for part in DRAWN.finditer(stream):
        if part["save"]:
            kept.append(here)
        elif part["restore"]:
            here = kept.pop()
        elif part["move"]:
            scale, shift = float(part["scale"]), float(part["shift"])
            moved = here[0] * scale, here[0] * shift + here[1]
            here, line = (moved, line) if part["move"] == "cm" else (here, moved)
        elif part["size"]:
            letters = float(part["size"])
        elif part["text"]:
            page.sizes[round(abs(line[0]) * letters, 1)] += 1
            page.places.append(HEIGHT - line[1])
        else:
            page.places.append(HEIGHT - here[1])
    return page


def printed(pdf: bytes) -> list[Page]:
    streams = re.findall(rb"/FlateDecode[^>]*>>\s*stream\r?\n(.*?)\r?\nendstream", pdf, re.S)
    texts = (zlib.decompressobj().decompress(stream).decode("latin-1") for stream in streams)
    return [read(text) for text in texts if re.match(r"\.2\d* 0 0 -\.2\d* 0 8\d\d", text)]


@pytest.mark.parametrize("path", ["chapters/04_multihead.html", "chapters/13_attention_maps.html"])
def test_a_printed_chapter_has_numbered_full_pages_and_letters_of_a_book(site: Site, path: str) -> None:
    with site.visit(path) as visit:
        pdf = visit.page.pdf(format="A4")
    pages = printed(pdf)
    assert len(pages) == len(re.findall(rb"/Type /Page\b", pdf)) > 10
    assert all(max(page.places) > FOOT for page in pages)  # numbers
    assert [min(page.places) < HEAD for page in pages] == [False] + [True] * (len(pages) - 1)  # heads
    sizes = sum((page.sizes for page in pages), Counter())
    code, prose = sorted(size for size, _ in sizes.most_common(2))
    assert code >= 7.5 and prose >= 11, sizes
    ends = [max((place for place in page.places if place < FOOT), default=HEAD) for page in pages[:-1]]
    blank = [(FOOT - end) / (FOOT - HEAD) for end in ends]
    assert sum(blank) / len(blank) < 0.12 and max(blank) < 0.5, blank


CODE = "[...document.querySelectorAll('.line')].map((line) => getComputedStyle(line).fontSize)"
NUMBERED = "[...document.querySelectorAll('sup.address')].map((number) => number.textContent)"
LINKS = "new Set([...document.querySelectorAll('sup.address')].map((number) => number.previousSibling.href)).size"
ARTICLE = """[".bd-article", ".bd-article pre"].map((part) => [...document.querySelectorAll(part)].map(
  (element) => [element.textContent, ...["*", "[open]"].map((kind) => element.querySelectorAll(kind).length)]))"""


def test_code_is_printed_in_one_size_and_each_address_once_and_the_page_is_as_before(site: Site) -> None:
    with site.visit("chapters/01_attention.html") as visit:
        page = visit.page
        before = page.evaluate(ARTICLE)
        page.emulate_media(media="print")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert len(set(page.evaluate(CODE))) == 1
        numbers = sorted({int(number) for number in page.evaluate(NUMBERED)})
        assert numbers == list(range(1, page.evaluate(LINKS) + 1))
        assert page.locator(".addresses li").count() == len(numbers) > 3
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert page.evaluate(ARTICLE) == before
